from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import FunctionType

import pytest

import dedup_job
from dedup_job.compiled import _Late, compiled
from dedup_job.machine_code import with_imports

USED = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from dedup_job.match.similarity import jaccard
import dedup_job.match.similarity as module
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
        timeout=120,
        check=False,
    )
    assert not done.stderr
    return done.stdout.strip()


MADE_OF_OTHERS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from dedup_job.match.allpairs import similarities
offsets, values = np.array([0, 1, 3]), np.array([1, 1, 2], np.uint32)
print(similarities(offsets, values, np.array([0]), np.array([1])).item())
"""


def test_machine_code_is_made_anew_when_a_module_that_it_is_made_of_has_changed(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    assert used(package, MADE_OF_OTHERS) == "0.5"
    kept = set((package / "match" / "__pycache__").iterdir())
    assert kept

    helper = package / "match" / "similarity.py"
    helper.write_text(helper.read_text().replace("return (total", "return 7 + (total"))

    assert used(package, MADE_OF_OTHERS) == "7.5"


def test_a_change_that_keeps_size_and_time_of_a_file_counts_too(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    assert used(package, MADE_OF_OTHERS) == "0.5"

    helper = package / "match" / "similarity.py"
    before = helper.stat()
    helper.write_text(helper.read_text().replace("a[i] != b[j]", "a[i] == b[j]"))
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert helper.stat().st_size == before.st_size

    assert used(package, MADE_OF_OTHERS) == "0.2"


REPLACED_MEANWHILE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from dedup_job.fingerprint.scan import simple_texts
helper = Path(sys.argv[1]) / "dedup_job" / "fingerprint" / "constructs.py"
source = helper.read_text()
helper.write_text(source.replace("value = base * value + digit\\n", "value = base * value + digit + 1\\n"))
print(simple_texts(["&#65;"])[0][0])
"""


def test_code_that_was_loaded_before_the_files_changed_is_not_kept_for_the_new_ones(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    assert used(package, REPLACED_MEANWHILE) == "A"  # by the functions that it has loaded
    assert used(package, REPLACED_MEANWHILE) == "L"  # by those of the new files: 6 + 1, 70 + 5 + 1


def test_machine_code_is_kept_while_nothing_that_it_is_made_of_changes(tmp_path: Path) -> None:
    package = installed(tmp_path / "site")
    used(package, MADE_OF_OTHERS)
    kept = {file: file.stat().st_mtime_ns for file in (package / "match" / "__pycache__").iterdir()}
    (package / "cli.py").write_text("changed")

    assert used(package, MADE_OF_OTHERS) == "0.5"

    assert {file: file.stat().st_mtime_ns for file in (package / "match" / "__pycache__").iterdir()} == kept


def test_where_machine_code_cannot_be_kept_it_is_made_in_each_process(tmp_path: Path) -> None:
    """A file stands where the folder for machine code would be, beside the modules and in the home."""
    package = installed(tmp_path / "site")
    for folder in (package, *filter(Path.is_dir, package.iterdir())):
        (folder / "__pycache__").write_text("")
    home = tmp_path / "home"
    home.write_text("")
    assert used(package, USED, HOME=str(home), XDG_CACHE_HOME=str(home / "cache")) == "0.5"


def doubled(number: int) -> int:
    """Return twice a number."""
    return 2 * number


@pytest.mark.parametrize("signature", [None, "int64(int64)"])
def test_without_a_place_for_machine_code_it_is_compiled_all_the_same(signature: str | None) -> None:
    def double(number: int) -> int:
        return 2 * number

    double.__code__ = double.__code__.replace(co_filename="/nowhere/at/all.py")
    assert compiled(signature)(double)(21) == 42


def test_what_has_a_signature_is_loaded_when_it_is_needed_and_once() -> None:
    late = compiled("int64(int64)")(doubled)
    assert "_call" not in vars(late)
    assert (late(21), late.__doc__) == (42, "Return twice a number.")
    ready = vars(late)["_call"]
    assert ready.signatures == [ready.nopython_signatures[0].args]
    assert (late(4), vars(late)["_call"]) == (8, ready)


def test_all_that_is_compiled_into_a_function_is_in_its_stamp() -> None:
    for module in walk_packages(dedup_job.__path__, "dedup_job."):
        if module.name not in ("dedup_job.__main__", "dedup_job.engine.preload"):
            import_module(module.name)
    checked = 0
    for late in _Late.all:
        files = with_imports(Path(late._function.__code__.co_filename))
        for helper in helpers_of(late._function, set()):
            assert Path(helper.__code__.co_filename) in files
            checked += 1
    assert checked > 30


def helpers_of(function: FunctionType, found: set[FunctionType]) -> set[FunctionType]:
    """Return the functions of this package that compiled code calls, or builds instructions with."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        helper = getattr(value, "py_func", None) or getattr(value, "_defn", None) or value
        is_ours = isinstance(helper, FunctionType) and helper.__module__.startswith("dedup_job")
        if is_ours and helper not in found:
            found.add(helper)
            helpers_of(helper, found)
    return found


LOADED = """
from dedup_job import compiled
from dedup_job.fingerprint import fingerprinter
late = compiled._Late.all
print(any("_call" in vars(one) for one in late), len(late) > 10)
compiled.load()
print(all("_call" in vars(one) for one in late))
"""


def test_a_process_loads_no_machine_code_before_it_needs_it_or_is_told_to_load_all() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
