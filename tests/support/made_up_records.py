"""Made-up records for integration tests: many duplicates, some without a usable text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from scripts.bench.corpus import Mix, generate


@cache
def made_up_records() -> Sequence[dict[str, Any]]:
    """Return 450 records without ids; made when a test first needs them, not when its file is imported."""
    return tuple(generate(450, seed=5, mix=Mix(duplicates=0.4, odd=0.05)))


def number_records(records: Sequence[dict[str, Any]], first_id: int = 0) -> list[dict[str, Any]]:
    """Return the records with consecutive ids."""
    return [{**record, "_id": number} for number, record in enumerate(records, first_id)]
