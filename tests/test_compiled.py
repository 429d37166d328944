from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dedup_job

USED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from dedup_job.match.similarity import jaccard
import dedup_job.match.similarity as module
assert module.__file__.startswith(sys.argv[1])
print(jaccard(np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32)))
"""


def test_where_machine_code_cannot_be_kept_it_is_made_in_each_process(tmp_path: Path) -> None:
    """A file stands where the folder for machine code would be, beside the modules and in the home."""
    package = tmp_path / "site" / "dedup_job"
    shutil.copytree(
        Path(dedup_job.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
    )
    for folder in (package, *filter(Path.is_dir, package.iterdir())):
        (folder / "__pycache__").write_text("")
    home = tmp_path / "home"
    home.write_text("")
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-B", "-c", USED, str(package.parent)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "0.5", done.stderr
