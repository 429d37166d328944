"""Check that a ledger belongs to this source, target, filter and recipe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dedup_job.errors import ConfigError, StateError
from dedup_job.ledger.head import Head, Origin, UndoProgress
from dedup_job.ledger.promotion_state import Promotion
from dedup_job.mongo.collection_checks import check_same
from dedup_job.pasteable_command import command_line

# Names of the parts of a recipe, and of the sections that they come from.
SECTIONS = {"matching": "match", "terms": "recipe", "reader.cleaner": "clean"}
# Settings whose name in the settings file does not follow from SECTIONS.
SETTING_NAMES = {
    "matching.min_terms": "[recipe] min_terms",
    "reader.fields.paths": "[source] fields",
    "reader.fields.within": "[match] within",
    **{name: f"[recipe] {name}" for name in ("bits", "hmm", "idf_table", "stop_words", "user_words")},
}


@dataclass(frozen=True, slots=True)
class Consent:
    """Changes that a person has accepted on the command line.

    Attributes:
        filter: Another filter (`--refilter`): the records that it now matches are decided, too.
        moved: Other collections or servers with the same names (`--moved`): all ids are compared again.
        allow: Plans that exceed a limit of a guard (`--allow`).
    """

    filter: bool = False
    moved: bool = False
    allow: bool = False


def no_decisions_error(target: str) -> ConfigError:
    """Return the error of a command that needs a ledger with decisions; `target` is the target's name."""
    return ConfigError(
        f"[target]: nothing was decided for {target}; run backfill when the source has records"
    )


def finish_undo_first(undo: UndoProgress) -> str:
    """Return the sentence that says how to go on from a half-done undo."""
    return f"run {undo.run} is half undone; finish the undo first: {command_line(f'undo {undo.run}')}"


def check_whole(head: Head, settles: bool = False) -> None:
    """Raise StateError if an undo has not finished, or the replacement of keepers by better records.

    Args:
        head: The state of the ledger.
        settles: Whether the command finishes the replacement itself.
    """
    if head.undo is not None:
        raise StateError(finish_undo_first(head.undo))
    if head.unsettled is not None and not settles:
        raise StateError(
            "a run with [match] prefer was interrupted before its end; finish it first: "
            + command_line("run")
        )


def check_keeps_dropped(head: Head, command: str) -> None:
    """Raise ConfigError if the source must keep its dropped records, as they may have to be kept later."""
    if head.recipe.get("matching.prefer"):
        raise ConfigError(
            f"[match] prefer: {command} would take dropped records out of the source, and each of them is "
            "needed there: it comes back when its keeper is replaced by a better record"
        )


def check_filter(head: Head, origin: Origin, consent: Consent = Consent()) -> None:
    """Raise ConfigError if records were decided with another filter, unless a person accepted the change."""
    if head.is_empty or head.filter is None or consent.filter:
        return
    if origin.filter not in (None, head.filter):
        raise ConfigError(
            f"[source] filter: the target was filled with {head.filter}, not with {origin.filter}; set it "
            f"back, or process the records that it now matches: {command_line('run --refilter')}"
        )


def check_places(head: Head, origin: Origin, consent: Consent = Consent()) -> None:
    """Raise StateError if the source, target or ledger was replaced, unless a person accepted this."""
    if head.is_empty or head.places is None or origin.places is None or consent.moved:
        return
    check_same(head.places, origin.places)


def is_made_from(head: Head, origin: Origin) -> bool:
    """Return whether a new ledger would have the same source, recipe, filter and collections as the head."""
    now = (origin.source, origin.digest, origin.filter, origin.places, origin.has_copies)
    return (head.source, head.digest, head.filter, head.places, head.has_copies) == now


def unfinished_promotion(head: Head, promotion: Promotion) -> StateError:
    """Return the error for a promotion that has not finished."""
    return StateError(
        f"the promotion of the target to {head.source} is half done; finish it: {promotion.command}"
    )


def check_promotion(head: Head, origin: Origin) -> None:
    """Check that no promotion is half done, and that the settings say so if the target was promoted.

    Raises:
        ConfigError: If the settings still have copies.
        StateError: If a promotion has not finished.
    """
    promotion = head.promotion
    if promotion is None or origin.promotes:
        return
    if not promotion.is_done:
        raise unfinished_promotion(head, promotion)
    if origin.has_copies and origin.source == head.source:
        raise ConfigError(
            f"[target] copy: the target was promoted to {head.source}; add copy = false to [target], and "
            f"leave its other lines as they are, or go back: {command_line('promote --back')}"
        )


def check_fits(head: Head, origin: Origin) -> None:
    """Check that a ledger was made from this source and with this recipe.

    An empty ledger always fits: it is created again.

    Raises:
        ConfigError: If it does not fit, or the target was promoted and the settings still have copies.
        StateError: If a promotion has not finished.
    """
    if head.is_empty:
        return
    check_promotion(head, origin)
    if head.source != origin.source:
        raise ConfigError(
            f"the target was filled from {head.source}, not from {origin.source}; choose another target "
            "(--moved accepts another collection of the same name, no other name)"
        )
    if head.has_copies != origin.has_copies:
        was, now = ("with", "without") if head.has_copies else ("without", "with")
        raise ConfigError(
            f"[target] copy: the ledger was made {was} copies, and the settings are for a run {now} copies; "
            "set copy back, or name another collection in [target]"
        )
    if head.digest != origin.digest:
        names = sorted({*origin.recipe, *head.recipe})
        pairs = [(name, head.recipe.get(name), origin.recipe.get(name)) for name in names]
        changes = ", ".join(
            f"{_setting_name(name)} was {_value(old)} and is {_value(new)}"
            for name, old, new in pairs
            if old != new
        )
        raise ConfigError(
            f"recipe {origin.digest[:12]} is not {head.digest[:12]}, which the target was made with: "
            f"{changes}; set it back, or undo all runs, the newest first ({command_line('status')} lists "
            "them), or choose another target"
        )


def _value(value: Any) -> str:
    """Return a value of a recipe in the notation of a settings file, nearly."""
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _setting_name(name: str) -> str:
    """Return the name of a value of `Recipe.settings` in the settings file.

    The value `matching.radius` is `[match] radius` there. Values that are no setting, such as `selectolax`,
    keep their name.
    """
    if name in SETTING_NAMES:
        return SETTING_NAMES[name]
    place, _, key = name.rpartition(".")
    return f"[{SECTIONS[place]}] {key}" if place in SECTIONS else name
