from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from dedup_job.records import Counts
from dedup_job.report.run_summary import RunSummary, peak_rss_mb

COUNTS = Counts(6_000, 2_000, 1_000, {"empty": 900, "null": 50}, {"validator": 50})
REPORT = RunSummary(
    "20260101T000000-abcd", "backfill", COUNTS, 4.0, "f" * 64, "", {"texts": 8_000, "kept": 6_000}
)


def test_the_json_object_has_the_documented_keys_and_numbers() -> None:
    values = json.loads(json.dumps(REPORT.as_json()))
    assert values.pop("peak_rss_mb") > 0
    assert values == {
        "run": "20260101T000000-abcd",
        "mode": "backfill",
        "read": 10_000,
        "unique": 6_000,
        "duplicate": {"exact": 2_000, "near": 1_000},
        "unchecked": {"empty": 900, "null": 50},
        "refused": {"validator": 50},
        "seconds": 4.0,
        "docs_per_second": 2_500.0,
        "recipe": "f" * 64,
        "index": {"texts": 8_000, "kept": 6_000},
    }


def test_the_parts_of_the_json_object_add_up_to_what_was_read() -> None:
    values = REPORT.as_json()
    parts = [values["duplicate"], values["unchecked"], values["refused"]]
    assert values["read"] == values["unique"] + sum(sum(part.values()) for part in parts)


@pytest.mark.parametrize(
    "line",
    [
        "  read             10,000  100.0 %",
        "  unique            6,000   60.0 %",
        "  duplicate         3,000   30.0 %  exact 2,000, near 1,000",
        "  unchecked           950    9.5 %  empty 900, null 50",
        "  refused              50    0.5 %  validator 50",
        "  index: 8,000 different texts, 6,000 records kept",
    ],
)
def test_people_read_each_count_with_its_share(line: str) -> None:
    assert line in REPORT.as_text().splitlines()


def test_a_run_with_nothing_new_says_so() -> None:
    report = RunSummary("r", "run", Counts(), 0.0, "f")
    assert report.as_text() == "run r: nothing new to decide"
    assert report.as_json()["docs_per_second"] == 0.0


def test_memory_is_given_in_megabytes() -> None:
    assert 10 < peak_rss_mb() < 100_000


def test_records_that_were_judged_by_some_of_their_fields_are_told_of() -> None:
    report = replace(REPORT, counts=replace(COUNTS, partial=1_200) + Counts(partial=34))
    assert "  1,234 judged by some of their fields: others are missing, null or empty" in report.as_text()
    assert (report.as_json()["partial"], report.as_json()["read"]) == (1_234, 10_000)
    assert "partial" not in REPORT.as_json()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a program has its own peak")
def test_the_peak_of_memory_is_not_that_of_the_program_that_started_the_job() -> None:
    held = bytearray(b"x") * (300 << 20)
    program = "from dedup_job.report.run_summary import peak_rss_mb; print(peak_rss_mb())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert len(held) > float(done.stdout) * (1 << 20) > 0
