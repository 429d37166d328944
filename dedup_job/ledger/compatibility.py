"""Check that a ledger belongs to this source, target, filter and recipe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dedup_job.errors import ConfigError, StateError
from dedup_job.fingerprint.recipe import setting_name
from dedup_job.ledger.head import Head, Origin
from dedup_job.mongo.collection_checks import check_same


@dataclass(frozen=True, slots=True)
class Consent:
    """What a person said that a ledger may go on with.

    filter  another filter: what it takes now is decided, too
    moved   other collections, or other servers, of the same names: all ids are compared anew
    allow   what the guards of `[limits]` would stop it for
    """

    filter: bool = False
    moved: bool = False
    allow: bool = False


def check_whole(head: Head) -> None:
    """Raise StateError when a run is half undone."""
    if head.undo is not None:
        run = head.undo.run
        raise StateError(f"run {run} is half undone; finish that first: dedup-job undo {run}")


def check_filter(head: Head, origin: Origin, consent: Consent = Consent()) -> None:
    """Raise ConfigError when records were decided by another filter, unless a person consents to this one."""
    if head.is_empty or head.filter is None or consent.filter:
        return
    if origin.filter not in (None, head.filter):
        raise ConfigError(
            f"[source] filter: the target was filled with {head.filter}, not with {origin.filter}; set it "
            "back, or say that what it takes now is to be decided too: dedup-job run --refilter"
        )


def check_places(head: Head, origin: Origin, consent: Consent = Consent()) -> None:
    """Raise StateError when source, target or ledger are not what they were, unless a person consents."""
    if head.is_empty or head.places is None or origin.places is None or consent.moved:
        return
    check_same(head.places, origin.places)


def is_made_from(head: Head, origin: Origin) -> bool:
    """Return whether a head says what a ledger would say that is made now."""
    now = (origin.source, origin.digest, origin.filter, origin.places)
    return (head.source, head.digest, head.filter, head.places) == now


def check_fits(head: Head, origin: Origin) -> None:
    """Raise ConfigError when a ledger was made from another source or by another recipe.

    One in which nothing is decided fits, as it can be made anew.
    """
    if head.is_empty:
        return
    if head.source != origin.source:
        raise ConfigError(
            f"the target was filled from {head.source}, not from {origin.source}; choose another target "
            "(--moved accepts another collection of the same name, no other name)"
        )
    if head.digest != origin.digest:
        names = sorted({*origin.recipe, *head.recipe})
        pairs = [(name, head.recipe.get(name), origin.recipe.get(name)) for name in names]
        changes = ", ".join(
            f"{setting_name(name)} was {_value(old)} and is {_value(new)}"
            for name, old, new in pairs
            if old != new
        )
        raise ConfigError(
            f"recipe {origin.digest[:12]} is not {head.digest[:12]}, which the target was made with: "
            f"{changes}; set it back, or take the runs back, the newest first (status names them, undo takes "
            "them back), or choose another target"
        )


def _value(value: Any) -> str:
    """Return a value of a recipe about as a settings file has it."""
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)
