"""Each test names what breaks when a new version of a dependency changes something that it does not promise.

`make test-newest` runs them with the newest versions; docs/contributing/development.md has the table.
"""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from pymongo import MongoClient
from pymongo.errors import ServerSelectionTimeoutError
from pymongo.hello import Hello
from pymongo.read_preferences import Secondary
from pymongo.server_description import ServerDescription

from dedup_job.fingerprint.idf import jieba_idf_path
from dedup_job.fingerprint.jieba_to_segmenter_trie import jieba_folder
from dedup_job.html_page import charts
from dedup_job.index.shingle_similarity import jaccard
from dedup_job.mongo.connect_and_retry import NO_SECONDARY, members_answer
from dedup_job.mongo.connection_string_and_failures import describe_failure
from dedup_job.native.numba_compile import CACHE_FOLDER, compiled_helper, compiled_inline, popcount, prefetch
from dedup_job.records import Counts

NUMBA = f"numba {version('numba')} with llvmlite {version('llvmlite')}"
PYMONGO = f"pymongo {version('pymongo')}"
PYTHON = f"Python {sys.version.split()[0]}"
PACKAGE = Path(__file__).parents[2] / "dedup_job"

# Names that other packages keep to themselves, and where they are used.  Each has a test here.
PRIVATE = {
    ("mongo/connect_and_retry.py", "_shutdown_resources"),
    ("native/numba_compile.py", "_nrt"),
    # `tests/unit/spark/test_spark_errors.py` looks after it.
    ("spark/spark_errors.py", "_origin"),
    # `os._exit` is documented, whatever its name says.
    ("run_and_exit.py", "_exit"),
    ("pipeline/pool.py", "_exit"),
    ("pipeline/worker_preload.py", "_exit"),
    ("signals.py", "_exit"),
}


def private_names(path: Path) -> Iterator[str]:
    """Names with one leading underscore that a module takes from another package."""
    tree = ast.parse(path.read_text("utf-8"))
    strange = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            strange |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("dedup_job"):
            strange |= {alias.asname or alias.name for alias in node.names}
            yield from (alias.name for alias in node.names)
            yield from str(node.module).split(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first: ast.expr = node
            while isinstance(first, ast.Attribute):
                first = first.value
            if isinstance(first, ast.Name) and first.id in strange:
                yield node.attr
        elif isinstance(node, ast.Call):
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr", "hasattr"):
                yield from (str(name.value) for name in node.args[1:2] if isinstance(name, ast.Constant))


def test_private_names_of_other_packages_are_used_only_where_a_test_looks_after_them() -> None:
    used = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in private_names(path)
        if name.startswith("_") and not name.startswith("__")
    }
    assert used == PRIVATE


def third(values: Any) -> Any:
    return values[2]


def machine_code(decorated: Any) -> str:
    """What numba makes of `third`, as LLVM writes it."""
    assert decorated(np.arange(4)) == 2
    (code,) = decorated.inspect_llvm().values()
    return str(code)


def test_numba_leaves_reference_counts_out_when_told_so() -> None:
    assert "NRT_" in machine_code(numba.njit(third)), "the sign that this test looks for has changed"
    assert "NRT_" not in machine_code(compiled_helper(third)), (
        f"{NUMBA} counts references in spite of `_nrt=False`: inner loops of the index are "
        "slower (scripts/bench/index.py); see native/numba_compile.py"
    )


def test_numba_inlines_when_told_so() -> None:
    assert "alwaysinline" not in machine_code(compiled_helper(third)), (
        "the sign that this test looks for has changed"
    )
    assert "alwaysinline" in machine_code(compiled_inline(third)), (
        f"{NUMBA} does not inline in spite of `forceinline=True`: a look-up in the index is "
        "slower (scripts/bench/index.py); see native/numba_compile.py"
    )


def both(values: Any, bits: Any) -> Any:
    prefetch(values, 1)
    return popcount(bits)


def test_numba_lets_compiled_code_have_instructions_of_the_machine() -> None:
    counted: Any = compiled_helper(
        both
    )  # not `compiled`, whose code of an earlier process cannot be looked at
    assert counted(np.arange(4), np.uint64(0b1011)) == 3, (
        f"{NUMBA} builds another instruction for popcount: distances are wrong; see native/numba_compile.py"
    )
    (code,) = counted.inspect_llvm().values()
    assert "llvm.prefetch" in code, (
        f"{NUMBA} leaves prefetch out: a look-up in the index is slower; see native/numba_compile.py"
    )


def test_numba_keeps_machine_code_in_the_folder_that_it_is_told() -> None:
    place = jaccard.stats.cache_path  # type: ignore[attr-defined]
    assert CACHE_FOLDER is not None
    assert Path(place).is_relative_to(CACHE_FOLDER), (
        f"{NUMBA} does not look at `numba.config.CACHE_DIR` when a function is decorated: machine code "
        "is kept where a changed helper does not make it anew; see native/numba_compile.py"
    )


LOADS_SCIPY = """
import sys
if sys.argv[1] == "leave out":
    sys.modules["scipy.linalg"] = None
from dedup_job.native.arrays import Ragged
Ragged.empty(1).take([0])
print("scipy.linalg.blas" in sys.modules)
"""


def test_numba_loads_no_scipy_when_told_so() -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", LOADS_SCIPY, choice], capture_output=True, text=True, check=True
        ).stdout.strip()
        for choice in ("load", "leave out")
    ]
    assert answers == ["True", "False"], f"{NUMBA} loads scipy in another way; see `main` in run_and_exit.py"


def unreachable_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_the_driver_tells_host_by_host_why_no_server_answers() -> None:
    one, other = unreachable_port(), unreachable_port()
    uri = f"mongodb://127.0.0.1:{one},127.0.0.1:{other}/?replicaSet=x"
    with (
        MongoClient[Any](uri, serverSelectionTimeoutMS=300) as client,
        pytest.raises(ServerSelectionTimeoutError) as caught,
    ):
        client.admin.command("ping")
    assert describe_failure(caught.value).count("refuses the connection") == 2, (
        f"{PYMONGO} writes `ServerDescription` or its errors otherwise: a run that reaches no "
        "server does not say why; see SERVER and WORDS in mongo/connection_string_and_failures.py. "
        f"It wrote: {caught.value}"
    )


def test_the_driver_tells_whether_a_set_lacks_only_its_primary() -> None:
    secondary = Hello({"ok": 1, "setName": "x", "hosts": ["db:1"], "secondary": True, "maxWireVersion": 17})
    seen, unseen = ServerDescription(("db", 1), secondary), ServerDescription(("db", 1), error=OSError("x"))
    told = [members_answer(ServerSelectionTimeoutError(f"[{one!r}]")) for one in (seen, unseen)]
    assert told == [True, False], (
        f"{PYMONGO} writes `ServerDescription` otherwise: a run does not wait for an election "
        f"when it begins; see members_answer in mongo/connect_and_retry.py. It wrote: {seen!r}"
    )


def test_the_driver_names_the_read_preference_that_no_member_fits(mongo_uri: str) -> None:
    with MongoClient[Any](mongo_uri, serverSelectionTimeoutMS=300) as client:
        if "setName" not in client.admin.command("hello"):
            pytest.skip("the server is not in a replica set")
        with pytest.raises(ServerSelectionTimeoutError) as caught:
            client.admin.command("ping", read_preference=Secondary(max_staleness=90))
    assert NO_SECONDARY.search(str(caught.value)), (
        f"{PYMONGO} writes otherwise that no member fits a read preference: a run without such a "
        f"secondary has another message; see NO_SECONDARY in mongo/connect_and_retry.py. It wrote: "
        f"{caught.value}"
    )


# A process that waits for threads of the driver as it ends says so.
ENDS = """
import sys, threading
from dedup_job.mongo.connect_and_retry import connect
connect(sys.argv[1], "source").close()
threading.Thread.join = lambda *_: print("waits")
"""


def test_a_process_ends_without_waiting_for_the_threads_of_the_driver(mongo_uri: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENDS, mongo_uri], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), (
        f"{PYMONGO} waits for its threads when a process ends, under another name than "
        "`_shutdown_resources`: each command takes up to half a second longer; see mongo/connect_and_retry.py"
    )


@pytest.mark.parametrize("module", [forkserver, resource_tracker], ids=lambda module: module.__name__)
def test_python_starts_the_process_that_workers_are_forked_from_when_asked(module: Any) -> None:
    start: Callable[[], object] | None = getattr(module, "ensure_running", None)
    assert start is not None, (
        f"{PYTHON} has no `{module.__name__}.ensure_running`: workers cannot be started "
        "ahead, with signals blocked; see pipeline/fork_server.py"
    )
    assert "ensure_running" in module.__all__


def test_jieba_has_its_tables_where_they_are_looked_for() -> None:
    folder = jieba_folder()
    files = [folder / "dict.txt", *((folder / "finalseg").glob("prob_[set]*.py")), jieba_idf_path()]
    assert len(files) == 5, (
        f"jieba {version('jieba')} has no Markov model in {folder / 'finalseg'}: nothing can be decided; see "
        "fingerprint/jieba_to_segmenter_trie.py"
    )
    assert all(file.is_file() for file in files), (
        f"jieba {version('jieba')} does not have all of {files}: nothing can be decided; see "
        "fingerprint/jieba_to_segmenter_trie.py and fingerprint/idf.py"
    )


def test_each_mark_of_a_chart_is_drawn_with_its_title() -> None:
    counts = Counts(unique=3, near=2, exact=1)
    drawn = charts.draw_verdicts(SimpleNamespace(counts=counts))  # type: ignore[arg-type]
    assert drawn.count("<title>") == 3, (
        f"altair {version('altair')} with vl-convert-python {version('vl-convert-python')} writes marks "
        f"otherwise: a bar of a report's page has no name; see MARK in html/charts.py. Drawn: {drawn}"
    )
