"""The unit, the timer and the settings in scripts/nightly and config, as they stand."""

from __future__ import annotations

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from dedup_job.config import load_settings
from tests.support.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[3]
NIGHTLY = ROOT / "scripts" / "nightly"
SYSTEM = Path("/usr/lib/systemd/system")  # the units that ours wait for
SETTINGS = "/etc/dedup-job/shop.toml"


def service() -> dict[str, str]:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(NIGHTLY / "dedup-job.service", "utf-8")
    return dict(parser["Service"])


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not SYSTEM.exists(), reason="there is no systemd here"
)
def test_systemd_takes_the_unit_and_the_timer(tmp_path: Path) -> None:
    units = tmp_path / "etc" / "systemd" / "system"
    shutil.copytree(SYSTEM, tmp_path / "usr" / "lib" / "systemd" / "system", symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    units.mkdir(parents=True)
    program = tmp_path / service()["ExecStart"].split()[0].lstrip("/")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("dedup-job.service", "dedup-job.timer"):
        shutil.copy(NIGHTLY / name, units)

    done = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            f"--root={tmp_path}",
            "dedup-job.timer",
            "dedup-job.service",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_may_write_where_the_nightly_settings_leave_reports() -> None:
    unit = service()
    directory = load_settings(ROOT / "config" / "nightly.toml").report.directory
    assert unit["ProtectSystem"] == "strict"
    assert directory is not None
    assert directory.is_relative_to(Path("/var/lib", unit["StateDirectory"]))
    assert SETTINGS in unit["ExecStart"].split()
