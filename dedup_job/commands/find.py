"""Find: texts in, a line each; out, a line each, the kept records that they would be duplicates of."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from select import select
from typing import Any

from bson import encode
from bson.json_util import object_hook
from bson.raw_bson import RawBSONDocument

from dedup_job import job
from dedup_job.commands.context import Context
from dedup_job.commands.past import check_keepers, taken_in
from dedup_job.document import RAW, Verdict
from dedup_job.engine.local import LocalEngine
from dedup_job.errors import ConfigError
from dedup_job.ledger.fitting import check_fits, check_places, check_whole
from dedup_job.match.keepers import Keepers
from dedup_job.mongo.id_set import IdSet
from dedup_job.mongo.ids import id_of
from dedup_job.mongo.raw_documents import document, elements
from dedup_job.mongo.shown_ids import ID_JSON, extended
from dedup_job.report.terminal import id_text
from dedup_job.signals import FLAG, LOOK_SECONDS

AT_ONCE = 1 << 20  # bytes of lines that are answered together, and the line that reaches them
LONGEST = 64 << 20  # bytes of a line: more than a document of 16 MiB has in JSON that escapes all Chinese

Lines = Sequence[bytes | None]


class Malformed(Exception):
    """A line that is no document or text; the message says why, without what is in it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a line asks: a raw record, and its id where it has one; as JSON values."""

    raw: bytes
    id: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said of a line, counted from 1: a verdict, or why there is none."""

    line: int
    id: Any = None
    verdict: Verdict | None = None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        about = {"line": self.line} | ({} if self.id is None else {"id": self.id})
        if self.verdict is None:
            return {**about, "error": self.error}
        match = self.verdict.match
        return {
            **about,
            "verdict": self.verdict.action.name.lower(),
            "reason": self.verdict.reason or None,
            "keeper": match and extended(match.keeper),
            "distance": match and match.distance,
            "similarity": match and match.similarity,
        }

    def as_text(self) -> str:
        r"""Return it as a line with tabs: keeper, reason, distance, similarity; "-" for what there is not.

        >>> Answer(1, error="not JSON").as_text()
        '-\terror: not JSON\t-\t-'
        """
        if self.verdict is None:
            return f"-\terror: {self.error}\t-\t-"
        match = self.verdict.match
        reason = self.verdict.reason or "-"
        if match is None:
            return f"-\t{reason}\t-\t-"
        distance = "-" if match.distance is None else str(match.distance)
        similarity = "-" if match.similarity is None else f"{match.similarity:.4f}"
        return "\t".join((id_text(extended(match.keeper)), reason, distance, similarity))


@dataclass(frozen=True, slots=True)
class Shelf:
    """The keepers that are looked among, and how it is told whether they still stand; see `job.Checking`."""

    keepers: Keepers
    absent: Callable[[Collection[bytes]], set[bytes]]
    adopted: Callable[[Sequence[bytes]], Collection[bytes]]


def find(context: Context, batches: Iterator[Lines], as_texts: bool = False) -> Iterator[list[Answer]]:
    """Yield the answers to the lines of each batch, in order; the ledger is read once, before the first.

    A line is a JSON document with the fields of the source, or a text.  Raises ConfigError where nothing was
    decided yet, or by another recipe; StateError when the target lacks what the ledger says is there.
    """
    most = context.settings.limits.batch_records
    read = partial(_text, context.recipe.reader.fields.paths[0]) if as_texts else _document
    done = 0
    with context.engine() as engine:
        shelf = _shelf(context, engine)
        ask = partial(_verdicts, shelf, context, engine)
        ask([encode({})])  # so that the first line does not wait for the index to be made
        for lines in batches:
            for first in range(0, len(lines), most):
                some = lines[first : first + most]
                yield _answers(some, done, read, ask)
                done += len(some)


def _shelf(context: Context, engine: LocalEngine) -> Shelf:
    reader = context.ledger_reader()
    head = reader.head()
    if head is None or head.is_empty:
        raise ConfigError(f"nothing was decided for {context.target_name} yet; run backfill first")
    origin = context.origin
    check_fits(head, origin)
    check_whole(head)
    check_places(head, origin)
    keepers, adopted = context.keepers(context.target, engine), [context.left()]
    for _ in taken_in(reader, head, keepers, adopted):
        FLAG.check()
    check_keepers(keepers, context.target)
    return Shelf(keepers, context.target.absent, IdSet.of(adopted).among)


def _answers(
    lines: Lines,
    done: int,
    read: Callable[[bytes], Question],
    ask: Callable[[Sequence[bytes]], list[Verdict]],
) -> list[Answer]:
    """Return the answers to some lines that come after so many others."""
    questions = [_question(line, read) for line in lines]
    verdicts = iter(ask([one.raw for one in questions if isinstance(one, Question)]))
    return [
        Answer(number, one.id, next(verdicts))
        if isinstance(one, Question)
        else Answer(number, error=str(one))
        for number, one in enumerate(questions, done + 1)
    ]


def _question(line: bytes | None, read: Callable[[bytes], Question]) -> Question | Malformed:
    if line is None:
        return Malformed(f"longer than {LONGEST >> 20} MB")
    try:
        return read(line)
    except Malformed as malformed:
        return malformed


def _verdicts(shelf: Shelf, context: Context, engine: LocalEngine, raws: Sequence[bytes]) -> list[Verdict]:
    """Return what a run would decide of each of these records if it came next."""
    if not raws:
        return []
    prints = engine.fingerprint(raws)
    decision = job.find(prints, context.recipe.matching, shelf.keepers)
    while outdated := job.outdated_of(decision.relied_on, shelf):
        shelf.keepers.forget(outdated)
        decision = job.find(prints, context.recipe.matching, shelf.keepers)
    return decision.verdicts


def _document(line: bytes) -> Question:
    """Read a document in extended JSON."""
    try:
        given = json.loads(_decoded(line), object_pairs_hook=_object)
        if not isinstance(given, (dict, RawBSONDocument)):
            raise Malformed("not a JSON document: {...}")
        raw = encode(given)
        return Question(raw, extended(id_of(raw)) if "_id" in given else None)
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except Malformed:
        raise
    except Exception as error:  # the parser raises whatever a malformed value leads it to
        raise Malformed(f"not a document that MongoDB could hold ({type(error).__name__})") from None


def _object(pairs: Sequence[tuple[str, Any]]) -> Any:
    """Return the value of a JSON object; one that has a name twice keeps both values, as BSON does."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return object_hook(values, ID_JSON)
    # A dict would keep the last one alone, and a run does not judge such a field (`field_twice`).
    return RawBSONDocument(document(*(elements(encode({name: value})) for name, value in pairs)), RAW)


def _text(path: str, line: bytes) -> Question:
    """Take a line for the whole text of a record, which stands in this field."""
    value: Any = _decoded(line)
    return Question(encode(reduce(lambda inner, part: {part: inner}, reversed(path.split(".")), value)))


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start + 1}") from None


def lines_of(descriptor: int) -> Iterator[Lines]:
    """Yield the lines that have come, as soon as there is one; None for one that is too long.

    What waits already is taken together, but nothing is waited for while there is a line to answer.
    """
    rest, is_too_long = bytearray(), False
    while chunk := _waiting(descriptor):
        rest += chunk
        if b"\n" not in chunk:
            if len(rest) > LONGEST:
                rest, is_too_long = bytearray(), True
            continue
        *whole, last = bytes(rest).split(b"\n")
        yield [None, *whole[1:]] if is_too_long else whole
        rest, is_too_long = bytearray(last), False
    if rest or is_too_long:
        yield [None if is_too_long else bytes(rest)]


def _waiting(descriptor: int) -> bytes:
    """Return what has come, waiting until there is something; nothing at the end."""
    pieces = bytearray()
    while len(pieces) < AT_ONCE and (not pieces or select([descriptor], [], [], 0)[0]):
        while not select([descriptor], [], [], LOOK_SECONDS)[0]:
            FLAG.check()
        FLAG.check()
        if not (piece := os.read(descriptor, AT_ONCE - len(pieces))):
            break
        pieces += piece
    return bytes(pieces)
