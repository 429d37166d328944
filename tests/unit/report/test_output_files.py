from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from dedup_job.errors import ConfigError, StorageFull, UsageError
from dedup_job.report.output_files import check_file, check_folder, replace_file, replacing, save_report

RUNS = [f"20260101T00000{number}-abcd" for number in range(6)]


def test_a_report_is_a_file_of_its_run(tmp_path: Path) -> None:
    path = save_report(tmp_path / "reports", 30, RUNS[0], {"read": 7, "text": "灯"})
    assert path == tmp_path / "reports" / f"{RUNS[0]}.json"
    assert json.loads(path.read_text("utf-8")) == {"read": 7, "text": "灯"}


def test_the_newest_reports_are_kept_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    for name in ("notes.json", "20260101.json", f"{RUNS[0]}.json.bak"):
        (tmp_path / name).write_text("{}")
    for run in RUNS:
        save_report(tmp_path, 2, run, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["notes.json", "20260101.json", f"{RUNS[0]}.json.bak", f"{RUNS[4]}.json", f"{RUNS[5]}.json"]
    )


def test_a_folder_with_the_name_of_a_report_keeps_no_report_from_being_deleted(tmp_path: Path) -> None:
    (tmp_path / f"{RUNS[0]}.json").mkdir()
    for run in RUNS[1:]:
        save_report(tmp_path, 1, run, {})
    assert sorted(path.stem for path in tmp_path.iterdir()) == [RUNS[0], RUNS[-1]]


def test_of_two_runs_of_one_second_the_report_that_was_written_last_is_kept(tmp_path: Path) -> None:
    for seconds, end in enumerate(("ffff", "0000")):
        path = save_report(tmp_path, 1, f"20260101T000000-{end}", {})
        os.utime(path, (seconds, seconds))
    save_report(tmp_path, 1, "20251231T000000-abcd", {})
    assert [path.name for path in tmp_path.iterdir()] == ["20260101T000000-0000.json"]


def test_a_directory_that_is_tried_is_made_and_empty(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b", "[report] directory")
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "message"),
    [("file", "is a file, not a folder"), ("file/reports", "cannot be written: Not a directory")],
)
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, folder: str, message: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=rf"\[report\] directory: .*/{folder} {message}"):
        check_folder(tmp_path / folder, "[report] directory")


def test_a_report_that_cannot_be_written_says_that_the_rest_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFull, match=r"the work is done, but .*/file/.*\.json cannot be written: "):
        save_report(tmp_path / "file", 2, RUNS[0], {})


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "table"
    replace_file(file, ["old"])
    replace_file(file, ["new"])
    with pytest.raises(UnicodeEncodeError):
        replace_file(file, ["half \ud800"])
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_and_a_pipe_are_written_themselves(tmp_path: Path) -> None:
    """A rename would take them from all programs."""
    os.mkfifo(tmp_path / "pipe")
    for special in (Path("/dev/null"), tmp_path / "pipe"):
        with replacing(special) as written:
            assert written == special
    with replacing(tmp_path / "new") as written:
        assert (written.parent, (tmp_path / "new").exists()) == (tmp_path, False)
        written.write_text("new")
    assert (tmp_path / "new").read_text() == "new"


def test_a_replaced_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    for mode in (0o600, 0o664):
        file.chmod(mode)
        replace_file(link, [f"of mode {mode:o}"])
        assert (link.readlink(), file.read_text()) == (file, f"of mode {mode:o}")
        assert stat.S_IMODE(file.stat().st_mode) == mode
    assert sorted(tmp_path.iterdir()) == [file, link]


@pytest.mark.parametrize(
    ("name", "why"), [("", "Is a directory"), ("a" * 250, "File name too long"), ("no/file", "No such file")]
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, name: str, why: str
) -> None:
    with pytest.raises(UsageError, match=f"--html .*{name}: {why}"):
        check_file(tmp_path / name, "--html")
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_at_once_each_has_a_file_of_its_own(tmp_path: Path) -> None:
    with replacing(tmp_path / "new") as late, replacing(tmp_path / "new") as early:
        late.write_text("late")
        early.write_text("early")
    assert (tmp_path / "new").read_text() == "late"
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]
