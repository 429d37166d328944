"""The wheel of `make dist`, installed with nothing but its dependencies, and used by another user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from packaging.requirements import Requirement

from scripts.bench.corpus import generate
from tests.support.job import ROOT, Job
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.long

NOBODY = 65534
IS_ROOT = os.getuid() == 0


@dataclass(frozen=True)
class Installed:
    """A wheel in an environment that cannot be written, and a temporary folder of the one who uses it."""

    environment: Path
    temporary: Path

    def command(self, job: Job, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run dedup-job as a user without a home, who is not the one who installed it."""
        somebody: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if IS_ROOT else {}
        settings = shutil.copy(job.config_file(), self.temporary)
        os.chmod(settings, 0o644)
        return subprocess.run(
            [self.environment / "bin" / "dedup-job", *arguments, "-c", settings],
            env={"DEDUP_SOURCE_URI": job.uri, "HOME": "/nonexistent", "TMPDIR": str(self.temporary)},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=2 * HANG_SECONDS,  # it compiles
            check=False,
            **somebody,
        )

    def code(self) -> dict[Path, int]:
        """Return the files of machine code that the user has, and when they were written."""
        return written(self.temporary, "*.nb?")


def written(folder: Path, pattern: str = "*") -> dict[Path, int]:
    """Return what is in a folder, and when it was written."""
    return {path: path.lstat().st_mtime_ns for path in folder.rglob(pattern)}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_SECONDS)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path) -> Iterator[Installed]:
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        environment, temporary = Path(folder, "environment"), Path(folder, "temporary")
        subprocess.run(
            [open_python(), "-m", "venv", "--without-pip", environment], check=True, timeout=HANG_SECONDS
        )
        (site,) = environment.glob("lib/python*/site-packages")
        (wheel,) = dist.glob("*.whl")
        pip = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python"]
        subprocess.run(
            [*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True, timeout=HANG_SECONDS
        )
        (package,) = metadata.distributions(name="dedup-job", path=[str(site)])
        for name in required(package):
            link(metadata.distribution(name), site)
        temporary.mkdir()
        folders = [environment, *(path for path in environment.rglob("*") if path.is_dir())]
        for one in folders:
            one.chmod(0o555)
        if IS_ROOT:
            os.chown(temporary, NOBODY, NOBODY)
        yield Installed(environment, temporary)
        for one in folders:
            one.chmod(0o755)


def is_open(path: Path) -> bool:
    """Return whether the user who will run it can reach a path."""
    return not IS_ROOT or all(one.stat().st_mode & 0o001 for one in (path, *path.parents))


def open_python() -> str:
    """Return a Python of this version that the user can run."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path("/usr/bin", version), Path("/usr/local/bin", version)):
        if path.exists() and is_open(path):
            return str(path)
    pytest.skip(f"no {version} that other users may run")


def required(package: metadata.Distribution) -> set[str]:
    """Return the names of all that a package says it needs, and what that needs."""
    names: set[str] = set()
    due = list(package.requires or ())
    while due:
        one = Requirement(due.pop())
        if one.name not in names and (one.marker is None or one.marker.evaluate({"extra": ""})):
            names.add(one.name)
            due += metadata.requires(one.name) or ()
    return names


def link(package: metadata.Distribution, site: Path) -> None:
    """Let another environment have what a package has in the present one."""
    for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        path = Path(str(package.locate_file(name))).resolve()
        if not is_open(path.parent):
            pytest.skip(f"other users cannot read {path.parent}")
        Path(site, name).symlink_to(path)


def test_the_wheel_has_every_module_and_the_licence(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        told = archive.read(about).decode()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "dedup_job").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    assert "License-Expression: Apache-2.0\n" in told
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_source_distribution_has_what_make_check_needs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    rooms = ("config", "docs", "scripts", "tests")
    files = {str(path.relative_to(ROOT)) for room in rooms for path in (ROOT / room).rglob("*.*")}
    assert {name for name in files if "__pycache__" not in name} <= names
    assert {
        "LICENSE",
        "Makefile",
        "CHANGELOG.md",
        "README.md",
        "requirements.lock",
        "requirements-dev.lock",
    } <= names


@pytest.mark.longest
def test_an_installed_wheel_compiles_once_for_a_user_without_a_home_and_writes_nothing_where_it_is(
    installed: Installed, job: Job
) -> None:
    place = written(installed.environment)
    job.set("source", fields=["data"])
    job.set("engine", workers=1)
    records = list(generate(150, seed=5))

    def decided(mode: str, some: list[dict[str, Any]]) -> dict[Path, int]:
        job.source.insert_many(some)
        done = installed.command(job, mode)
        assert done.returncode == 0, done.stderr
        return installed.code()

    code = decided("backfill", records[:100])
    assert code
    later = decided("run", records[100:])  # what it needs beside that is new
    assert code.items() <= later.items(), "the same was compiled again"
    assert job.target.count_documents({}) + job.ledger("dropped").count_documents({}) == len(records)
    assert written(installed.environment) == place
