from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dedup_job.errors import ConfigError, StorageFull, UsageError
from dedup_job.report.output_files import SavedReports, check_folder, replace_file, replacing

RUNS = [f"20260101T00000{number}-abcd" for number in range(6)]


def test_a_report_is_a_file_of_its_run(tmp_path: Path) -> None:
    path = SavedReports(tmp_path / "reports", 30).save(RUNS[0], {"read": 7, "text": "灯"})
    assert path == tmp_path / "reports" / f"{RUNS[0]}.json"
    assert json.loads(path.read_text("utf-8")) == {"read": 7, "text": "灯"}


def test_the_newest_reports_are_kept_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    for name in ("notes.json", "20260101.json", f"{RUNS[0]}.json.bak"):
        (tmp_path / name).write_text("{}")
    for run in RUNS:
        SavedReports(tmp_path, 2).save(run, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["notes.json", "20260101.json", f"{RUNS[0]}.json.bak", f"{RUNS[4]}.json", f"{RUNS[5]}.json"]
    )


def test_of_two_runs_of_one_second_the_report_that_was_written_last_is_kept(tmp_path: Path) -> None:
    reports = SavedReports(tmp_path, 1)
    for seconds, end in enumerate(("ffff", "0000")):
        path = reports.save(f"20260101T000000-{end}", {})
        os.utime(path, (seconds, seconds))
    reports.save("20251231T000000-abcd", {})
    assert [path.name for path in tmp_path.iterdir()] == ["20260101T000000-0000.json"]


def test_a_directory_that_is_tried_is_made_and_empty(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b", "[report] directory")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("kind", [ConfigError, UsageError])
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, kind: type[ConfigError]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        kind, match=r"\[report\] directory: .*/file/reports cannot be written: Not a directory"
    ):
        check_folder(tmp_path / "file" / "reports", "[report] directory", kind)


def test_a_report_that_cannot_be_written_says_that_the_rest_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFull, match=r"the work is done, but .*/file/.*\.json cannot be written: "):
        SavedReports(tmp_path / "file", 2).save(RUNS[0], {})


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "table"
    replace_file(file, "old")
    replace_file(file, "new")
    with pytest.raises(UnicodeEncodeError):
        replace_file(file, "half \ud800")
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_and_a_pipe_are_written_themselves(tmp_path: Path) -> None:
    """A rename would take them from all programs."""
    os.mkfifo(tmp_path / "pipe")
    for special in (Path("/dev/null"), tmp_path / "pipe"):
        with replacing(special) as written:
            assert written == special
    with replacing(tmp_path / "new") as written:
        assert (written.parent, written.exists()) == (tmp_path, False)
        written.write_text("new")
    assert (tmp_path / "new").read_text() == "new"


def test_of_two_writers_at_once_each_has_a_file_of_its_own(tmp_path: Path) -> None:
    with replacing(tmp_path / "new") as late, replacing(tmp_path / "new") as early:
        late.write_text("late")
        early.write_text("early")
    assert (tmp_path / "new").read_text() == "late"
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
