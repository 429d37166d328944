"""Turn pydantic's errors into sentences about the settings file: the fault, and the expected value."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

# Characters of a value in a message.
MAX_SHOWN = 60

EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "string_too_long": "{max_length} characters at most",
    "string_unicode": "a text in UTF-8",
    "path_type": "the name of a file in quotes",
    "tuple_type": "a list",
    "dict_type": "a table",
    "too_short": "at least one",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:.12g} or less",
    "literal_error": "{expected}",
    "model_type": "a table of settings",
}
"""The expected value, by kind of pydantic error; a test checks that no kind is missing."""


def describe_errors(error: ValidationError, tables: type[BaseModel]) -> str:
    """Describe all errors of a settings file in one line, each as `[section] key: the fault`.

    Args:
        error: The errors that pydantic found.
        tables: The model of the whole file.
    """
    # Unknown keys come first: a key that is missing because it was misspelt is then reported once.
    errors = sorted(error.errors(), key=lambda details: details["type"] == "missing")
    proposed = {
        (*details["loc"][:-1], key) for details in errors if (key := _find_similar_key(details, tables))
    }
    kept = (details for details in errors if details["type"] != "missing" or details["loc"] not in proposed)
    return "; ".join(_describe(details, tables) for details in kept)


def _describe(details: ErrorDetails, tables: type[BaseModel]) -> str:
    path = details["loc"]
    if len(path) > 1 and isinstance(path[1], int):
        # A table that may come several times, as [[reference]].
        path = (f"[{path[0]}]", *path[2:])
    where = f"[{path[0]}] {path[1] if len(path) > 1 else ''}".rstrip()
    if details["type"] == "missing":
        return f"{where}: is missing"
    if details["type"] == "extra_forbidden":
        similar = _find_similar_key(details, tables)
        return f"{where}: unknown key, " + (
            f"did you mean {similar}?"
            if similar
            else f"known: {', '.join(_list_keys(details['loc'], tables))}"
        )
    item = "".join(f", number {part + 1}" if isinstance(part, int) else f".{part}" for part in path[2:])
    return (
        f"{where}{item}: expected {_describe_expected(details, tables)}, not {_show_value(details['input'])}"
    )


def _find_similar_key(details: ErrorDetails, tables: type[BaseModel]) -> str | None:
    """Return the key that an unknown key resembles most, None for other errors."""
    if details["type"] != "extra_forbidden":
        return None
    known = _list_keys(details["loc"], tables)
    return next(iter(difflib.get_close_matches(str(details["loc"][-1]), known, 1)), None)


def _list_keys(path: Sequence[int | str], tables: type[BaseModel]) -> list[str]:
    """Return the keys of the section that a path is in; for the path of a section, all sections."""
    return [info.alias or name for name, info in _model_at(path[:-1], tables).model_fields.items()]


def _describe_expected(details: ErrorDetails, tables: type[BaseModel]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if isinstance(details["input"], float) and isnan(details["input"]):
        # Otherwise the comparison that fails would be named: "expected 9 or less, not NaN".
        return "a number"
    if kind == "value_error":
        return str(context["error"])
    if kind == "string_pattern_mismatch":
        # The pattern itself would help nobody, so its field has a description.
        *section_path, key = details["loc"]
        return str(_model_at(section_path, tables).model_fields[str(key)].description)
    return EXPECTED[kind].format(**context) if kind in EXPECTED else details["msg"]


def _model_at(path: Sequence[int | str], tables: type[BaseModel]) -> type[BaseModel]:
    """Return the model at the end of a path, given the model of the whole file."""
    for name in path:
        if isinstance(name, int):
            continue
        annotation = tables.model_fields[str(name)].annotation
        # Of a list of tables, the table.
        annotation = next(iter(get_args(annotation)), annotation)
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        tables = annotation
    return tables


def _show_value(value: Any) -> str:
    """Return a value in a notation close to the settings file's, shortened if it is long."""
    try:
        shown = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        # For example a date, which TOML has and JSON does not have.
        shown = str(value)
    # A connection string in the wrong place may hold a password.
    if ":/" in shown:
        return "a connection string"
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
