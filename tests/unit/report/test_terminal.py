from __future__ import annotations

import pytest

from dedup_job.report.terminal import format_bytes, format_duration, format_id


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"$oid": "65920080000000000100002a"}, "65920080000000000100002a"), (42, "42"), ("42", '"42"')],
)
def test_ids_are_shown_as_the_command_line_takes_them(value: object, shown: str) -> None:
    assert format_id(value) == shown


def test_sizes_and_times_are_told_in_words() -> None:
    assert [format_bytes(size) for size in (None, 512, 3 << 20, 2.5 * (1 << 30))] == [
        "0 bytes",
        "512 bytes",
        "3 MB",
        "2.5 GB",
    ]
    assert [format_duration(seconds) for seconds in (0.4, 40, 600, 9_000, 86_400 * 3)] == [
        "0 seconds",
        "40 seconds",
        "10 minutes",
        "2 hours",
        "3 days",
    ]
