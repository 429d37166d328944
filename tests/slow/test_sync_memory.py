"""`sync` keeps little of each changed record in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.sync_memory import weigh

FEW, MANY = 10_000, 30_000
MOST = 700  # bytes for each record more: the index of texts, SQLite's memory until that is full, and noise


@pytest.mark.longest
@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux says how much memory a process has held")
def test_an_apply_over_many_changed_records_holds_little_of_each(mongo_uri: str) -> None:
    few, many = weigh(mongo_uri, FEW), weigh(mongo_uri, MANY)
    assert (many - few) / (MANY - FEW) < MOST
