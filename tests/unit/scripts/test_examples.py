from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text("utf-8").count(">>> ")
    for folder in ("dedup_job", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


@pytest.mark.parametrize(("name", "examples"), [found for found in MODULES.items() if found[1]])
def test_the_examples_in_the_docstrings_hold(name: str, examples: int) -> None:
    if ".spark." in name:
        pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    result = doctest.testmod(import_module(name))
    assert (result.failed, result.attempted) == (0, examples)
