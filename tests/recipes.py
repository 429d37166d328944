"""Recipes as settings make them, for a collection that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dedup_job.config import check
from dedup_job.fingerprint.profile import Calibration
from dedup_job.fingerprint.recipe import Recipe


def recipe_of(
    *fields: str, records: int = 1_000, median_length: int = 500, **tables: Mapping[str, Any]
) -> Recipe:
    """The recipe for so many texts of that length in these fields, by these tables of settings."""
    settings = {
        "source": {"database": "d", "collection": "c", "fields": list(fields)},
        "target": {"database": "d", "collection": "u"},
        **tables,
    }
    return check(settings, "test").make_recipe(Calibration(records, median_length))


PLAIN = recipe_of(
    "text",
    recipe={"bits": 64, "min_terms": 8},
    index={"radius": 3},
    verify={"min_similarity": 0.8, "shingle": 5},
)
