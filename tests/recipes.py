"""Recipes as settings make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dedup_job.config import check
from dedup_job.fingerprint.recipe import Recipe


def recipe_of(*fields: str, **tables: Mapping[str, Any]) -> Recipe:
    """The recipe for texts in these fields, by these tables of settings."""
    settings = {
        "source": {"database": "d", "collection": "c", "fields": list(fields)},
        "target": {"database": "d", "collection": "u"},
        **tables,
    }
    return check(settings, "test").make_recipe()


PLAIN = recipe_of("text", match={"shingle": 5})
