"""Faults of a settings file, all at once, in its own names and in sentences that say what to mend."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

LONGEST = 60  # characters of a value that is shown

EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a number that is not infinite",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "string_too_long": "{max_length} characters at most",
    "string_unicode": "a text in UTF-8",
    "path_type": "the name of a file in quotes",
    "tuple_type": "a list",
    "dict_type": "a table",
    "too_short": "one at least",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "literal_error": "{expected}",
    "model_type": "a table of settings",
}
"""What pydantic's kinds of errors mean to whoever wrote the file; a test holds it to the settings' rules."""


def faults_of(error: ValidationError, tables: type[BaseModel]) -> str:
    """Return everything that is wrong as `[section] key: what is wrong`, one after the other.

    A key that is missing because it was misspelt is told of once.
    """
    found = sorted(error.errors(), key=lambda fault: fault["type"] == "missing")
    proposed = {(*fault["loc"][:-1], near) for fault in found if (near := _meant(fault, tables))}
    kept = (fault for fault in found if fault["type"] != "missing" or fault["loc"] not in proposed)
    return "; ".join(_message(fault, tables) for fault in kept)


def _message(fault: ErrorDetails, tables: type[BaseModel]) -> str:
    place = fault["loc"]
    where = f"[{place[0]}] {place[1] if len(place) > 1 else ''}".rstrip()
    if fault["type"] == "missing":
        return f"{where}: is missing"
    if fault["type"] == "extra_forbidden":
        near = _meant(fault, tables)
        return f"{where}: unknown key, " + (
            f"did you mean {near}?" if near else f"known: {', '.join(_known(place, tables))}"
        )
    which = "".join(f", number {part + 1}" if isinstance(part, int) else f".{part}" for part in place[2:])
    return f"{where}{which}: expected {_expected(fault, tables)}, not {_shown(fault['input'])}"


def _meant(fault: ErrorDetails, tables: type[BaseModel]) -> str | None:
    """Return the key that a misspelt one is nearest to."""
    if fault["type"] != "extra_forbidden":
        return None
    known = _known(fault["loc"], tables)
    return next(iter(difflib.get_close_matches(str(fault["loc"][-1]), known, 1)), None)


def _known(place: Sequence[int | str], tables: type[BaseModel]) -> list[str]:
    """Return the keys of the section that a place is in, or the sections."""
    *_, innermost = _models(place[:-1], tables)
    return list(innermost.model_fields)


def _expected(fault: ErrorDetails, tables: type[BaseModel]) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        *_, section = _models(fault["loc"][:1], tables)
        return str(section.model_fields[str(fault["loc"][1])].description)
    return EXPECTED[kind].format(**context) if kind in EXPECTED else fault["msg"]


def _models(place: Sequence[int | str], tables: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield the tables on the way to a place."""
    yield tables
    for name in place:
        annotation = tables.model_fields[str(name)].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        tables = annotation
        yield tables


def _shown(value: Any) -> str:
    """Return a value about as a settings file has it; a connection string is not repeated."""
    try:
        shown = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        shown = str(value)
    if ":/" in shown:
        return "a connection string"
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
