"""The locks: the one of `make install` is small, and a part of the one of `make install-dev`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
# Nothing of these is needed to run the job or the demonstration.
HEAVY = {
    "pyspark",
    "pyarrow",
    "pandas",
    "playwright",
    "ruff",
    "mypy",
    "pytest",
    "datasketch",
    "gaoya",
    "rensa",
}


def locked(name: str) -> dict[str, str]:
    """Return the entries of a lock, versions and hashes, by the name of the package and its condition."""
    entries = re.findall(r"^([a-z0-9-]+)(==.*(?:\n    --hash.*)+)", (ROOT / name).read_text("utf-8"), re.M)
    return {f"{package} {entry.splitlines()[0].partition(';')[2]}": entry for package, entry in entries}


def packages(lock: dict[str, str]) -> set[str]:
    return {name.split()[0] for name in lock}


def test_the_lock_of_the_job_is_a_part_of_the_lock_of_the_tests() -> None:
    small, whole = locked("requirements.lock"), locked("requirements-dev.lock")
    assert small.items() < whole.items()
    assert packages(whole) >= HEAVY
    assert not HEAVY & packages(small)


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements.lock", ("build", "page", "server")),
        ("requirements-dev.lock", ("bench", "build", "dev", "page", "server", "spark")),
    ],
)
def test_a_lock_has_a_version_of_everything_that_is_required(lock: str, extras: tuple[str, ...]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    required = project["dependencies"] + [
        one for extra in extras for one in project["optional-dependencies"][extra]
    ]
    entries = locked(lock)
    versions = {name.split()[0]: entry.split()[0].removeprefix("==") for name, entry in entries.items()}
    for requirement in map(Requirement, required):
        assert requirement.specifier.contains(versions[requirement.name]), requirement
