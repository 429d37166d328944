"""A listing of what was decided: rows of the ledger, filtered and in order, with the texts of the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from dedup_job.commands.context import Context
from dedup_job.commands.keeper_texts import duplicates, keepers, ledger_of, portions
from dedup_job.document import digest
from dedup_job.errors import UsageError
from dedup_job.fingerprint.shingles import NUMBER, compared
from dedup_job.ledger.selection import Decided, Selection
from dedup_job.report.listed import Listed
from dedup_job.settings.sections import javascript_in, parsed_filter

SEEN = 10_000  # characters of a text in which differences are looked for


@dataclass(frozen=True, slots=True)
class ListingQuery:
    """What is to be listed.

    selection     rows of the ledger
    where         what the source's record must be like, too, as the server takes it
    numbers_only  only pairs whose texts are the same but for their numbers
    with_texts    whether texts are shown
    limit         as many at most; None for all
    """

    selection: Selection
    where: Mapping[str, Any] = field(default_factory=dict)
    numbers_only: bool = False
    with_texts: bool = True
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class _Glance:
    """What is remembered of a text while its pair is listed.

    beginning  the first 10,000 characters
    numbers    digest of the numbers in it
    rest       digest of what counts beside them when texts are compared
    """

    beginning: str
    numbers: bytes = b""
    rest: bytes = b""


def condition_of(given: str | None, allow_js: bool = False) -> Mapping[str, Any]:
    """Return the condition that a command line names, in extended JSON.

    Raises UsageError for anything else, and for a condition that runs JavaScript unless that is allowed.
    """
    if given is None:
        return {}
    condition = parsed_filter(given)
    if condition is None:
        raise UsageError('--where: expected a filter in extended JSON, as in \'{"site": "a.example"}\'')
    if (name := javascript_in(condition)) and not allow_js:
        raise UsageError(
            f"--where: {name} runs JavaScript on the server for each record; most conditions can be written "
            "with $expr, and --allow-js allows the others"
        )
    return condition


def listing(context: Context, asked: ListingQuery) -> Iterator[list[Listed]]:
    """Yield what was decided, some records at a time; memory is bounded, whatever is asked for.

    Raises ConfigError where nothing was decided yet, UsageError when the server does not take the condition.
    """
    reader = ledger_of(context)
    is_filtered_here = bool(asked.where) or asked.numbers_only
    selection = replace(asked.selection, limit=None if is_filtered_here else asked.limit)
    left = asked.limit
    for rows in portions(reader.selected(selection)):
        some = list(islice(_listed(context, asked, _matching(context, asked, rows)), left))
        if some:
            yield some
        if left is not None and not (left := left - len(some)):
            return


def _matching(context: Context, asked: ListingQuery, rows: Sequence[Decided]) -> Sequence[Decided]:
    if not asked.where:
        return rows
    there = context.source.matching([row.id for row in rows], asked.where)
    return [row for row in rows if row.id in there]


def _listed(context: Context, asked: ListingQuery, rows: Sequence[Decided]) -> Iterator[Listed]:
    if not (asked.with_texts or asked.numbers_only):
        yield from map(Listed, rows)
        return
    ids = [row.keeper for row in rows if row.keeper is not None]
    kept = _glances(keepers(context, ids), asked.numbers_only)
    dropped = _glances(duplicates(context, [row.id for row in rows]), asked.numbers_only)
    for row in rows:
        text, keeper = dropped.get(row.id), kept.get(row.keeper or b"")
        if not asked.numbers_only or _differ_in_numbers_alone(text, keeper):
            yield Listed(row, *(one.beginning if one else None for one in (text, keeper)))


def _differ_in_numbers_alone(first: _Glance | None, second: _Glance | None) -> bool:
    if first is None or second is None:
        return False
    return first.rest == second.rest and first.numbers != second.numbers


def _glances(texts: Iterable[tuple[bytes, str]], with_numbers: bool) -> dict[bytes, _Glance]:
    return {raw_id: _glance(text) if with_numbers else _Glance(text[:SEEN]) for raw_id, text in texts}


def _glance(text: str) -> _Glance:
    numbers, rest = " ".join(NUMBER.findall(text)), compared(NUMBER.sub("0", text))
    return _Glance(text[:SEEN], *(digest(one.encode()) for one in (numbers, rest)))
