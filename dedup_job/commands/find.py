"""`find`: read texts, one per line, and print the kept record that each would be a duplicate of."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from select import select
from typing import Any, NamedTuple

import numpy as np
from bson import encode
from bson.json_util import object_hook
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from dedup_job.errors import ConfigError
from dedup_job.index.keepers import Keepers
from dedup_job.ledger.plan_format import PlanColumns
from dedup_job.ledger.settings_fit_ledger import check_fits, check_places, check_whole, no_decisions_error
from dedup_job.mongo.ids import ID_JSON, IdSet, document, elements, extended, id_of
from dedup_job.pipeline import job
from dedup_job.pipeline.command_context import Context
from dedup_job.pipeline.fingerprint_workers import FingerprintWorkers
from dedup_job.pipeline.load_keepers_and_scan_source import check_keepers, load_keepers
from dedup_job.records import RAW, REFERENCE, Action, KeeperMatch, PlanTexts, Verdict, chunked
from dedup_job.report.terminal_text import format_id
from dedup_job.signals import CHECK_SECONDS, SHUTDOWN

# Bytes of lines that are read and answered together.
READ_BYTES = 1 << 20
# Bytes of a line.  A document of 16 MiB is shorter, even as JSON that escapes all Chinese characters.
MAX_LINE_BYTES = 64 << 20

LineBatch = Sequence[bytes | None]


class Malformed(Exception):
    """A line that cannot be read; the message says why, and never quotes the line."""


@dataclass(frozen=True, slots=True)
class Question:
    """A line, read: a raw record and, if the line has one, its `_id` as a JSON value."""

    raw: bytes
    id: Any = None


class Decided(NamedTuple):
    """What a run would decide about a record.

    Attributes:
        verdict: The verdict.
        replaces: With `[match] prefer`, for a unique record: the nearest kept record that is worse, which a
            run would replace by it.
    """

    verdict: Verdict
    replaces: KeeperMatch | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a line: a verdict, or an error.

    Attributes:
        line: Number of the line, from 1.
        id: The line's `_id` as a JSON value; None if it has none.
        verdict: The verdict of a run; None after an error.
        replaces: The kept record that a run would replace by this one.
        error: Why the line cannot be read.
    """

    line: int
    id: Any = None
    verdict: Verdict | None = None
    replaces: KeeperMatch | None = None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        about = {"line": self.line} | ({} if self.id is None else {"id": self.id})
        if self.verdict is None:
            return {**about, "error": self.error}
        match = self.verdict.match or self.replaces
        return {
            **about,
            "verdict": self.verdict.action.name.lower(),
            "reason": self.verdict.reason or None,
            "keeper": self.verdict.match and extended(self.verdict.match.keeper),
            "distance": match and match.distance,
            "similarity": match and match.similarity,
            **({} if self.replaces is None else {"replaces": extended(self.replaces.keeper)}),
        }

    def as_text(self) -> str:
        r"""Return keeper, reason, distance and similarity, separated by tabs; "-" for a missing value.

        >>> from dedup_job.records import UNIQUE
        >>> Answer(1, verdict=UNIQUE).as_text()
        '-\tunique\t-\t-'
        >>> Answer(1, error="not JSON").as_text()
        '-\terror: not JSON\t-\t-'
        """
        if self.verdict is None:
            return f"-\terror: {self.error}\t-\t-"
        keeper, match = "-", self.verdict.match or self.replaces
        reason = self.verdict.reason or self.verdict.action.name.lower()
        if match is None:
            return f"-\t{reason}\t-\t-"
        if self.replaces:
            reason = f"better than {format_id(extended(match.keeper))}"
        else:
            keeper = format_id(extended(match.keeper))
        distance = "-" if match.distance is None else str(match.distance)
        similarity = "-" if match.similarity is None else f"{match.similarity:.4f}"
        return "\t".join((keeper, reason, distance, similarity))


def find(
    context: Context, batches: Iterator[LineBatch], as_texts: bool = False, only_references: bool = False
) -> Iterator[list[Answer]]:
    """Yield the answers to the lines of each batch, in order; the ledger is read once, before the first.

    Args:
        context: The open connections.
        batches: Lines in UTF-8: JSON documents with the fields of the source, or texts.
        as_texts: Whether each line is a text.
        only_references: Whether to match only reference records, out of those that the last run knew.

    Raises:
        ConfigError: If nothing was decided yet, or with another recipe, or there is no reference.
        StateError: If the target lacks records that the ledger says are there.
    """
    most = context.settings.limits.batch_records
    read = partial(_read_text, context.recipe.reader.fields.paths[0]) if as_texts else _read_document
    done = 0
    with context.engine() as engine:
        keepers, adopted = _load_keepers(context, engine, only_references)

        def decide(raws: Sequence[bytes]) -> list[Decided]:
            return _decide(raws, context, engine, keepers, adopted)

        # The first search builds the index.  Done now, so that the first line need not wait for it.
        decide([encode({})])
        for lines in batches:
            for chunk in chunked(lines, most):
                yield _answer(chunk, done, read, decide)
                done += len(chunk)


def _load_keepers(
    context: Context, engine: FingerprintWorkers, only_references: bool
) -> tuple[Keepers, IdSet]:
    """Return the kept records, and the ids of those that the job did not insert into the target."""
    if only_references and not context.references:
        raise ConfigError("--reference: the settings file names no reference collection ([[reference]])")
    reader = context.ledger_reader()
    head = reader.head()
    if head is None or head.is_empty:
        raise no_decisions_error(context.target_name)
    origin = context.origin
    check_fits(head, origin)
    check_whole(head)
    check_places(head, origin)
    keepers, adopted = context.keepers(context.target, engine), [context.undo_leftovers()]

    def texts_of(plan: PlanColumns) -> PlanTexts:
        return plan.texts if plan.mode == REFERENCE else plan.texts.take(np.empty(0, np.intp))

    load = partial(load_keepers, reader, head, keepers, adopted)
    for _ in load(texts_of) if only_references else load():
        SHUTDOWN.check()
    check_keepers(keepers, context.target)
    return keepers, IdSet.of(adopted)


def _answer(
    lines: LineBatch,
    done: int,
    read: Callable[[bytes], Question],
    decide: Callable[[Sequence[bytes]], list[Decided]],
) -> list[Answer]:
    """Return the answers to some lines, after `done` earlier lines."""
    questions = list[Question | Malformed]()
    for line in lines:
        try:
            if line is None:
                raise Malformed(f"longer than {MAX_LINE_BYTES >> 20} MB")
            questions.append(read(line))
        except Malformed as malformed:
            questions.append(malformed)
    decided = iter(decide([question.raw for question in questions if isinstance(question, Question)]))
    return [
        Answer(number, question.id, *next(decided))
        if isinstance(question, Question)
        else Answer(number, error=str(question))
        for number, question in enumerate(questions, done + 1)
    ]


def _decide(
    raws: Sequence[bytes], context: Context, engine: FingerprintWorkers, keepers: Keepers, adopted: IdSet
) -> list[Decided]:
    """Return what a run would decide about each of these records if it came next."""
    if not raws:
        return []
    matching = context.recipe.matching
    if matching.prefer:
        raws = [_with_id(raw) for raw in raws]
    prints = engine.fingerprint(raws)

    def decide(ids: Sequence[bytes] | None) -> list[Verdict]:
        decide_once = partial(job.decide_each, prints, matching, keepers, ids)
        return job.decide_by_present_keepers(decide_once, keepers, context.target, adopted).verdicts

    if not matching.prefer:
        return [Decided(verdict) for verdict in decide(None)]
    # Without ids, a record may be a duplicate of a worse one: that is the one it would replace.
    verdicts, by_text_alone = decide([id_of(raw) for raw in raws]), decide(None)
    return [
        Decided(verdict, alone.match if verdict.action is Action.UNIQUE else None)
        for verdict, alone in zip(verdicts, by_text_alone, strict=True)
    ]


def _with_id(raw: bytes) -> bytes:
    """Return a record with an `_id`: if it has none, with the one that a driver would give it now."""
    try:
        id_of(raw)
    except ValueError:
        return document(elements(encode({"_id": ObjectId()})), elements(raw))
    return raw


def _read_document(line: bytes) -> Question:
    """Read a document in extended JSON."""
    try:
        value = json.loads(_decode(line), object_pairs_hook=_make_object)
        if not isinstance(value, (dict, RawBSONDocument)):
            raise Malformed("not a JSON document: {...}")
        raw = encode(value)
        return Question(raw, extended(id_of(raw)) if "_id" in value else None)
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except Malformed:
        raise
    except Exception as error:
        # For a malformed value the parser of extended JSON raises TypeError, AttributeError, and others.
        reason = "nested too deep" if isinstance(error, RecursionError) else type(error).__name__
        raise Malformed(f"not a document that MongoDB could hold ({reason})") from None


def _make_object(pairs: Sequence[tuple[str, Any]]) -> Any:
    """Return the value of a JSON object; if a name occurs twice, keep both values, as BSON does."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return object_hook(values, ID_JSON)
    # A dict would keep the last value only, and a run does not judge such a field (`field_twice`).
    return RawBSONDocument(document(*(elements(encode({name: value})) for name, value in pairs)), RAW)


def _read_text(path: str, line: bytes) -> Question:
    """Return a record whose field at this path is the whole line."""
    value: Any = _decode(line)
    return Question(encode(reduce(lambda inner, part: {part: inner}, reversed(path.split(".")), value)))


def _decode(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start + 1}") from None


def read_lines(descriptor: int) -> Iterator[LineBatch]:
    """Yield lines as soon as they arrive; a line that is too long becomes None, before its end arrives.

    Lines that have arrived already are returned together, and the next read waits only when all of them are
    answered.
    """
    rest, skips_line = bytearray(), False
    while chunk := _read_available(descriptor):
        if skips_line:
            _, newline, chunk = chunk.partition(b"\n")
            skips_line = not newline
        *whole, last = chunk.split(b"\n")
        if whole:
            yield [bytes(rest) + whole[0], *whole[1:]]
            rest.clear()
        rest += last
        if len(rest) > MAX_LINE_BYTES:
            yield [None]
            rest, skips_line = bytearray(), True
    if rest:
        yield [bytes(rest)]


def _read_available(descriptor: int) -> bytes:
    """Return the bytes that have arrived; wait for the first; b"" at the end."""
    pieces = bytearray()
    while len(pieces) < READ_BYTES and (not pieces or select([descriptor], [], [], 0)[0]):
        # Waits in short steps: a blocking read would not notice a signal.
        while not select([descriptor], [], [], CHECK_SECONDS)[0]:
            SHUTDOWN.check()
        SHUTDOWN.check()
        if not (piece := os.read(descriptor, READ_BYTES - len(pieces))):
            break
        pieces += piece
    return bytes(pieces)
