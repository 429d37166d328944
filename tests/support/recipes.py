"""Recipes made from settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dedup_job.config import check_settings
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.recipe_from_settings import make_recipe


def recipe_of(*fields: str, **tables: Mapping[str, Any]) -> Recipe:
    """Return the recipe for texts in these fields, with these tables of settings."""
    settings = {
        "source": {"database": "d", "collection": "c", "fields": list(fields)},
        "target": {"database": "d", "collection": "u"},
        **tables,
    }
    return make_recipe(check_settings(settings, "test"))


PLAIN = recipe_of("text", match={"shingle": 5})
