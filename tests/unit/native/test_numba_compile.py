from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import dedup_job
from dedup_job.native import numba_compile as native
from dedup_job.native.numba_compile import compiled
from tests.support.waiting import HANG_SECONDS

USED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from dedup_job.index.shingle_similarity import jaccard
import dedup_job.index.shingle_similarity as module
assert module.__file__.startswith(sys.argv[1])
print(jaccard(np.array([1, 2, 3], np.uint32), np.array([2, 3, 4], np.uint32)))
"""


def installed(folder: Path) -> Path:
    """Return a copy of the package, without any machine code."""
    package = folder / "dedup_job"
    leftovers = shutil.ignore_patterns("__pycache__", "*.nb?")
    shutil.copytree(Path(dedup_job.__file__).parent, package, ignore=leftovers)
    return package


def used(package: Path, program: str, **environment: str) -> str:
    """Run a program with a copy of the package; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(package.parent)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | environment,
        cwd=package.parent.parent,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert not done.stderr
    return done.stdout.strip()


MADE_OF_OTHERS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from dedup_job.analysis.sample_trials import _count_pairs
# Similarities 1/3, 1/3 and 0.
offsets, values = np.array([0, 2, 4, 6]), np.array([1, 2, 1, 3, 3, 4], np.uint32)
print(_count_pairs(offsets, values, 0.4), _count_pairs(offsets, values, 0.3))
"""


def kept_code(package: Path) -> dict[Path, int]:
    """The files of machine code beside a package, and when they were written."""
    files = (package / "__pycache__" / "native").rglob("*.nb?")
    return {file: file.stat().st_mtime_ns for file in files}


@pytest.mark.long
def test_machine_code_is_made_anew_when_a_module_that_it_is_made_of_has_changed(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    assert used(package, MADE_OF_OTHERS) == "0 2"
    assert kept_code(package)

    helper = package / "index" / "similarity.py"
    helper.write_text(helper.read_text().replace("return (total", "return 7 + (total"))

    assert used(package, MADE_OF_OTHERS) == "2 2"


@pytest.mark.long
def test_a_change_that_keeps_size_and_time_of_a_file_counts_too(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    assert used(package, MADE_OF_OTHERS) == "0 2"

    helper = package / "index" / "similarity.py"
    before = helper.stat()
    helper.write_text(helper.read_text().replace("a[i] != b[j]", "a[i] == b[j]"))
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert helper.stat().st_size == before.st_size

    assert used(package, MADE_OF_OTHERS) == "0 3"


REPLACED_MEANWHILE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from dedup_job.text.simple_html import scan_texts
helper = Path(sys.argv[1]) / "dedup_job" / "text" / "simple_html_scanner.py"
source = helper.read_text()
helper.write_text(source.replace("value = base * value + digit\\n", "value = base * value + digit + 1\\n"))
print(scan_texts(["&#65;"])[0][0])
"""


@pytest.mark.longest
def test_code_that_was_loaded_before_the_files_changed_is_not_kept_for_the_new_ones(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    assert used(package, REPLACED_MEANWHILE) == "A"  # by the functions that it has loaded
    assert used(package, REPLACED_MEANWHILE) == "L"  # by those of the new files: 6 + 1, 70 + 5 + 1


@pytest.mark.long
def test_a_change_where_no_code_is_compiled_makes_none_anew(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    used(package, MADE_OF_OTHERS)
    kept = kept_code(package)
    (package / "errors.py").write_text((package / "errors.py").read_text() + "\n")
    assert used(package, MADE_OF_OTHERS) == "0 2"
    assert kept_code(package) == kept


IMPORT = re.compile(r"native\.numba_compile import .*\bcompiled")
COMPILING = [file for file in sorted(native.PACKAGE.rglob("*.py")) if IMPORT.search(file.read_text())]


@pytest.mark.parametrize("file", COMPILING, ids=lambda file: file.stem)
def test_compiled_functions_are_made_of_the_rooms_that_the_digest_is_of(file: Path) -> None:
    assert in_digest(file)
    tree = ast.parse(file.read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    strange = {
        alias.asname or alias.name
        for node in imports
        if str(node.module).startswith("dedup_job.") and not in_digest(module_path(str(node.module)))
        for alias in node.names
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list]
    for function in functions:
        used_names = {
            name.id for line in function.body for name in ast.walk(line) if isinstance(name, ast.Name)
        }
        assert not used_names & strange, function.name


def in_digest(path: Path) -> bool:
    """Whether a change to a module changes the digest."""
    return any(path.is_relative_to(native.PACKAGE / room) for room in native.ROOMS)


def module_path(name: str) -> Path:
    """Return where a module or a room lies, without a suffix."""
    return native.PACKAGE.parent.joinpath(*name.split("."))


def test_machine_code_is_kept_while_nothing_changes(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    used(package, MADE_OF_OTHERS)
    kept = kept_code(package)
    assert used(package, MADE_OF_OTHERS) == "0 2"
    assert kept_code(package) == kept


@pytest.mark.long
@pytest.mark.parametrize("home", ["home", None])
def test_machine_code_is_kept_elsewhere_where_there_is_no_place_beside_the_package(
    tmp_path: Path, home: str | None
) -> None:
    package = installed(tmp_path / "site")
    (package / "__pycache__").write_text("no folder")
    (tmp_path / "temporary").mkdir()
    (tmp_path / "nobody").write_text("no folder")
    places = {"HOME": str(tmp_path / (home or "nobody")), "TMPDIR": str(tmp_path / "temporary")}
    assert used(package, USED, XDG_CACHE_HOME="", **places) == "0.5"
    assert list((tmp_path / (home or "temporary")).rglob("*.nbi"))
    assert not list((tmp_path / ("temporary" if home else "home")).rglob("*.nbi"))


def test_no_machine_code_is_kept_where_others_could_write_it(tmp_path: Path) -> None:
    names = ["of_others", "open_to_all", "link", "file", "ours"]
    of_others, open_to_all, link, file, ours = folders = [tmp_path / name for name in names]
    of_others.mkdir()
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link.symlink_to(tmp_path)
    file.write_text("")
    stat = Path.stat

    def owned(path: Path, **options: bool) -> os.stat_result:
        status = list(stat(path, **options))
        status[4] += path == of_others
        return os.stat_result(status)

    with (
        mock.patch.object(native, "_candidate_folders", return_value=folders),
        mock.patch.object(Path, "stat", owned),
    ):
        assert native.find_cache_folder() == ours
    assert ours.stat().st_mode & 0o777 == 0o700


def test_without_a_place_for_machine_code_it_is_compiled_all_the_same() -> None:
    with mock.patch.object(native, "CACHE_FOLDER", None):
        assert compiled(doubled)(21) == 42


def doubled(number: int) -> int:
    """Return twice a number."""
    return 2 * number
