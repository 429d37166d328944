"""The progress of a run: what is known of its total, its rate and its end."""

from __future__ import annotations

from dedup_job.report.run_progress import RunProgress, progress_text


def test_rate_and_time_left_follow_from_the_records_and_the_total() -> None:
    shown = RunProgress(1_000, 5_000, 10.0).as_json()
    assert shown == {"read": 1_000, "total": 5_000, "records_per_second": 100.0, "seconds_left": 40.0}


def test_a_total_that_is_exceeded_is_not_shown() -> None:
    shown = RunProgress(1_001, 1_000, 10.0).as_json()
    assert (shown["total"], shown["seconds_left"]) == (None, None)
    assert progress_text(shown) == "1,001 records, 100/s"


def test_before_the_first_record_only_the_total_is_known() -> None:
    assert progress_text(RunProgress(0, 5_000, 3.0).as_json()) == "0 of about 5,000 records"


def test_records_from_before_the_measurement_do_not_count_for_the_rate() -> None:
    progress = RunProgress(3_000, 5_000, 10.0, unmeasured=2_000)
    assert (progress.per_second, progress.seconds_left) == (100.0, 20.0)
