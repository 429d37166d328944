from __future__ import annotations

import pytest

from dedup_job.report.terminal import format_id


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"$oid": "65920080000000000100002a"}, "65920080000000000100002a"), (42, "42"), ("42", '"42"')],
)
def test_ids_are_shown_as_the_command_line_takes_them(value: object, shown: str) -> None:
    assert format_id(value) == shown
