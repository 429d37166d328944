"""How counts of verdicts are stored in documents of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dedup_job.document import Counts


def read_counts(stored: Mapping[str, Any]) -> Counts:
    """Take counts from a ledger document."""
    unjudged, refused = dict(stored["unjudged"]), dict(stored["refused"])
    return Counts(stored["unique"], stored["exact"], stored["near"], unjudged, refused)


def counts_key(counts: Counts) -> dict[str, Any]:
    """Return counts as they are stored."""
    unjudged, refused = dict(counts.unjudged), dict(counts.refused)
    return {
        "unique": counts.unique,
        "exact": counts.exact,
        "near": counts.near,
        "unjudged": unjudged,
        "refused": refused,
    }
