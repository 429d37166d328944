"""The composition root: puts the parts of a run together from the settings, and runs it."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import tee
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from bson import decode, encode, json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidId
from bson.objectid import ObjectId
from bson.regex import Regex

from dedup_job import job
from dedup_job.config import Settings
from dedup_job.document import Action, Batch, Counts, Fingerprints
from dedup_job.engine.local import Capacity, LocalEngine
from dedup_job.errors import ConfigError, DedupError, Unreachable, UsageError
from dedup_job.fingerprint.idf import learned_idf, write_idf
from dedup_job.fingerprint.profile import Calibration
from dedup_job.fingerprint.recipe import Matching, Recipe, Resource
from dedup_job.fingerprint.shingles import normalised
from dedup_job.fingerprint.simhash import hamming
from dedup_job.match.keepers import Fetch, Keepers, Recollection
from dedup_job.match.similarity import jaccard
from dedup_job.mongo import namespace
from dedup_job.mongo.client import Patience, connect
from dedup_job.mongo.commit import Ledger, RunId, check_fits
from dedup_job.mongo.head import Head, Origin
from dedup_job.mongo.ids import document, id_of
from dedup_job.mongo.ledger import LedgerReader
from dedup_job.mongo.plans import BACKFILL, NIGHTLY, StoredPlan
from dedup_job.mongo.rehearsal import RehearsalTarget, accept
from dedup_job.mongo.source import BatchSize, Source, fetch
from dedup_job.mongo.target import Target
from dedup_job.mongo.window import Window, rest_of_backfill, since
from dedup_job.plan import Plan
from dedup_job.report import explain, tuning
from dedup_job.report.labelled import Evaluation, Judged, Labelled
from dedup_job.report.scoring import Setting
from dedup_job.report.summary import Report
from dedup_job.report.tuned import Tuning

Observe = Callable[[Batch, Plan], None]

CALIBRATION_RECORDS = 1_000
BEGINNING = 60  # characters of a text that evidence shows
IDS_AT_ONCE = 10_000
MOST_SHINGLES = 20_000_000  # in a sample: bounds its memory, whatever the size of the texts
# So that every id and row can be shown: dates out of Python's range and bad UTF-8 too.
SHOWABLE: CodecOptions[Any] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)
ID_JSON = json_util.JSONOptions(
    json_mode=json_util.JSONMode.RELAXED, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class Parts:
    """Everything that a command works with, opened once and closed together."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        limits = self.settings.limits
        self.patience = Patience(limits.patience_seconds)
        with ExitStack() as stack:
            seconds = limits.connect_seconds
            here = stack.enter_context(connect(self.settings.source_uri(), "source", seconds))
            there = stack.enter_context(connect(self.settings.target_uri(), "target", seconds))
            source = here[self.settings.source.database][self.settings.source.collection]
            target = there[self.settings.target.database][self.settings.target.collection]
            namespace.check_source(source, self.patience)
            namespace.check_apart(source, target, self.patience)
            self._stack = stack.pop_all()
        size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        self.source_name = source.full_name
        self.source = Source(source, self.settings.source.condition, size, self.patience)
        self.target = Target(target, self.patience)
        self._ledger_place = (target.database, target.name, self.patience)
        head = self.ledger_reader().head()
        self.calibration = head.calibration if head else self._calibrated()
        self.recipe: Recipe = self.settings.make_recipe(self.calibration)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def origin(self) -> Origin:
        """What a new ledger is made from, and an old one must have been made from."""
        return Origin(self.source_name, self.recipe.settings, self.recipe.digest, self.calibration)

    @property
    def about(self) -> str:
        """What the recipe decides by, and what it was chosen for."""
        matching, found = self.recipe.matching, self.calibration
        texts = f"jaccard {matching.min_jaccard} of {matching.shingle}-character shingles"
        return (
            f"{self.recipe.bits} bits, radius {matching.radius}, "
            f"{texts if matching.min_jaccard else 'texts not compared'}; "
            f"chosen for {found.records:,} records of about {found.median_length:,} letters"
        )

    def _calibrated(self) -> Calibration:
        """Look at the source's size and at its first texts, in `_id` order."""
        batches = first_records(self.source.batches(Window()), CALIBRATION_RECORDS)
        texts = (text for batch in batches for text in self.settings.reader.texts(batch.raws)[0])
        lengths = [len(normalised(text)) for text in texts if text]
        return Calibration(self.source.estimated_count(), int(median(lengths)) if lengths else 0)

    def engine(self, bits: int | None = None) -> LocalEngine:
        """Return the engine, not started yet; for fingerprints of another width where `bits` says so."""
        limits = self.settings.limits
        workers = self.settings.engine.workers
        recipe = replace(self.recipe, bits=bits or self.recipe.bits)
        return LocalEngine(recipe, Capacity(workers, limits.in_flight_mb << 20, limits.record_seconds))

    @property
    def setting(self) -> Setting:
        """What decides how much is found, of all settings."""
        matching = self.recipe.matching
        return Setting(self.recipe.bits, matching.radius, matching.min_jaccard)

    def ledger_reader(self) -> LedgerReader:
        """Return the ledger for reading alone."""
        return LedgerReader(*self._ledger_place)

    @contextmanager
    def ledger(self, run: RunId) -> Iterator[Ledger]:
        """Open the ledger for writing; when the run breaks off, its row in `runs` says why."""
        ledger = Ledger(*self._ledger_place)
        ledger.open(run, self.origin)
        try:
            yield ledger
        except Unreachable:
            raise  # nobody there to tell; the lease ends by itself
        except BaseException as error:
            with suppress(DedupError):
                ledger.close({"exit_code": getattr(error, "exit_code", DedupError.exit_code)})
            raise

    def keepers(self, fetch: Fetch, engine: LocalEngine) -> Keepers:
        """Return an empty set of keepers, whose texts are fetched when they are not at hand."""
        matching, verify = self.recipe.matching, self.settings.verify
        recall = Recollection(fetch, engine.fingerprint)
        return Keepers(self.recipe.bits, matching.radius, verify.cache_mb << 20, recall)

    def window(self, mode: str, head: Head | None) -> Window:
        """Return the part of the source that this mode looks at, what is decided there not left out yet."""
        if mode == BACKFILL:
            return rest_of_backfill(head.watermark if head else None)
        lookback = self.settings.source.lookback
        return since(head.covered if head else None, lookback, self.source.has_only_object_ids())

    def holds_more_than_decided(self, window: Window, head: Head) -> bool:
        """Return whether the source holds undecided records before the window: then all of it is due.

        Counting is cheap and tells, unless as many decided records were deleted; a filter forbids it.
        """
        if window.start is None or self.settings.source.condition:
            return False
        return self.source.estimated_count_before(window.start) > head.counts.read - len(window.decided)

    def beginnings(self, ids: Iterable[bytes]) -> dict[bytes, str]:
        """Return how the cleaned texts of these source records begin."""
        found = self.source.fetch(list(dict.fromkeys(ids)))
        texts, reasons = self.recipe.reader.texts(found.values())
        shown = (text[:BEGINNING] or f"({reason})" for text, reason in zip(texts, reasons, strict=True))
        return dict(zip(found, shown, strict=True))

    def found(self, given: str) -> list[Found]:
        """Return the record that a command line names, as it is in the source and as it is in the target."""
        found = [
            Found(place, raw_id, raw)
            for place, collection in (("source", self.source), ("target", self.target))
            for reading in readings(given)
            for raw_id, raw in collection.fetch([reading]).items()
        ]
        return [one for one in found if one.id == found[0].id]

    def noted(self, name: str, ids: Sequence[bytes]) -> bytes | None:
        """Return the ledger's row on a record in `dropped` or `exceptions`."""
        database, target, patience = self._ledger_place
        rows = fetch(database[f"{target}.dedup.{name}"], ids, patience, "the ledger")
        return next(iter(rows.values()), None)


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a command line names, and the place where it is: source or target."""

    place: str
    id: bytes
    raw: bytes


def decide(parts: Parts, mode: str, observe: Observe) -> Report:
    """Run a backfill or a nightly run: decide what is undecided and carry it out."""
    run = new_run(mode)
    started = time.monotonic()
    with parts.ledger(run) as ledger, parts.engine() as engine:
        head = ledger.recover(parts.source, parts.target)
        looked = parts.source.now()
        keepers = parts.keepers(parts.target.fetch, engine)
        window = parts.window(mode, head).without(restored(ledger, head, keepers))
        if parts.holds_more_than_decided(window, head):
            window = Window().without(ledger.plans(head))
        counts = job.run(
            job.Job(
                batches=parts.source.batches(window),
                engine=engine,
                matching=parts.recipe.matching,
                keepers=keepers,
                absent=parts.target.absent,
                commit=lambda plan, raws: ledger.commit(plan, raws, parts.target),
                observe=observe,
            )
        )
        ledger.covered(looked)
        report = Report(run.name, mode, counts, time.monotonic() - started, parts.recipe.digest, parts.about)
        ledger.close({**report.as_json(), "exit_code": exit_code(counts)})
    return report


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a dry run is about.

    mode   "backfill" or "run"; None for whichever is due
    fresh  whether to forget what was decided before
    limit  only so many records; None for all
    """

    mode: str | None = None
    fresh: bool = False
    limit: int | None = None


def rehearse(parts: Parts, rehearsal: Rehearsal, observe: Observe) -> Report:
    """Say what a backfill or a nightly run would do, and write nothing."""
    reader = parts.ledger_reader()
    head = None if rehearsal.fresh else reader.head()
    if head:
        check_fits(head, parts.origin)
    mode = rehearsal.mode or (NIGHTLY if head and head.covered else BACKFILL)
    started = time.monotonic()
    with parts.engine() as engine:
        target = RehearsalTarget(parts.target, parts.source)
        keepers = parts.keepers(target.fetch, engine)
        window = parts.window(mode, head)
        if head:
            window = window.without(restored(reader, head, keepers))
            if parts.holds_more_than_decided(window, head):
                window = Window().without(reader.plans(head))
        counts = job.run(
            job.Job(
                batches=first_records(parts.source.batches(window), rehearsal.limit),
                engine=engine,
                matching=parts.recipe.matching,
                keepers=keepers,
                absent=target.absent,
                commit=accept,
                observe=observe,
            )
        )
    seconds = time.monotonic() - started
    return Report(new_run(mode).name, f"report ({mode})", counts, seconds, parts.recipe.digest, parts.about)


@dataclass(frozen=True, slots=True)
class LearnedIdf:
    """An IDF table that was learned from the source."""

    texts: int
    terms: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def fit_idf(parts: Parts, output: Path, min_df: int, limit: int | None) -> LearnedIdf:
    """Count in how many texts each term is, and write the table; raises ConfigError where there is none."""
    texts, frequencies = 0, Counter[str]()
    with parts.engine() as engine:
        for number, counted in engine.counted_terms(first_records(parts.source.batches(Window()), limit)):
            texts += number
            frequencies += counted
    table = learned_idf(frequencies, texts, min_df)
    if not table:
        raise ConfigError(f"no term is in {min_df} texts of {parts.source_name}; lower --min-df")
    write_idf(output, table, texts)
    return LearnedIdf(texts, len(table), Resource.at(output).sha256)


def explained(parts: Parts, first: str, second: str) -> dict[str, Any]:
    """Return as JSON values why two records match or not; raises UsageError when one is nowhere."""
    head = parts.ledger_reader().head()
    if head:
        check_fits(head, parts.origin)
    one, other = (_first_found(parts, given) for given in (first, second))
    if one.id == other.id:
        raise UsageError(f"{first} and {second} are the same record; name two")
    with parts.engine() as engine:
        prints = engine.fingerprint([one.raw, other.raw])
    # A record that killed its worker is not touched here.
    read = [
        "" if reason else parts.recipe.reader.text(found.raw)
        for found, reason in zip((one, other), prints.reasons, strict=True)
    ]
    records = [
        explain.Record(extended(found.id), found.place, text)
        for found, text in zip((one, other), read, strict=True)
    ]
    return explain.as_json((records[0], records[1]), prints, parts.recipe)


def why(parts: Parts, given: str) -> dict[str, Any]:
    """Return what the ledger says of one record, as JSON values; raises UsageError when nobody knows it.

    What was dropped, passed or refused has a row of its own.  The plan that kept a unique record is found by
    walking the plans, which takes as long as a run needs to begin: minutes for tens of millions.
    """
    found = parts.found(given)
    ids = [found[0].id] if found else readings(given)
    answer = _noted(parts, ids) or _planned(parts, ids)
    if answer is None:
        answer = _undecided(parts, _first_found(parts, given))
    places = [one.place for one in found]
    return {**answer, "in_source": "source" in places, "in_target": "target" in places}


def _first_found(parts: Parts, given: str) -> Found:
    for found in parts.found(given):
        return found
    raise UsageError(
        f"no record of {parts.source_name} or of the target has the id {given!r}; give an ObjectId's 24 "
        """digits, a text, or extended JSON as in '{"$oid": "..."}', 42, '"42"'"""
    )


def _noted(parts: Parts, ids: Sequence[bytes]) -> dict[str, Any] | None:
    """Return what a row of the ledger says; see the design of `dropped` and `exceptions`."""
    for name in ("dropped", "exceptions"):
        if (row := parts.noted(name, ids)) is None:
            continue
        about = decode(row, SHOWABLE)
        answer = {"id": extended(id_of(row)), "verdict": about.pop("action", "duplicate")}
        if name == "dropped":
            keeper = _keeper(row)
            answer |= {"keeper": extended(keeper), "keeper_in_target": not parts.target.absent([keeper])}
        at = about["at"].isoformat(timespec="seconds")
        return {**answer, **{key: about[key] for key in about if key not in ("_id", "keeper")}, "at": at}
    return None


def _keeper(row: bytes) -> bytes:
    """Return the keeper, as it is, of a row of `dropped`: the element behind `_id`."""
    rest = row[len(id_of(row)) - 1 : -1]
    return id_of(document(rest.replace(b"keeper\0", b"_id\0", 1)))


def _planned(parts: Parts, ids: Sequence[bytes]) -> dict[str, Any] | None:
    """Return what the plan says that decided a record."""
    reader = parts.ledger_reader()
    head = reader.head()
    for stored in reader.plans(head) if head else ():
        for raw_id in set(ids).intersection(stored.plan.ids):
            verdict = stored.plan.verdicts[stored.plan.ids.index(raw_id)]
            return {
                "id": extended(raw_id),
                "verdict": verdict.action.name.lower(),
                "reason": verdict.reason or None,
                "run": stored.run,
                "mode": stored.mode,
                "plan": stored.id.number,
                "at": stored.at.isoformat(timespec="seconds"),
            }
    return None


def _undecided(parts: Parts, found: Found) -> dict[str, Any]:
    """Say that a record was not decided, and what may be the cause: a filter, or a run that broke off."""
    head = parts.ledger_reader().head()
    return {
        "id": extended(found.id),
        "verdict": "undecided",
        "filter": parts.settings.source.filter if parts.settings.source.condition else None,
        "pending_plan": head.pending.number if head and head.pending else None,
    }


def readings(given: str) -> list[bytes]:
    """Return what an id on the command line may mean, likeliest first, as raw ids.

    24 hexadecimal digits are an ObjectId; else it is extended JSON of the value; else the string itself.
    So `42` is a number where there is one, and `"42"` a string.
    """
    values: list[Any] = []
    with suppress(InvalidId):
        values.append(ObjectId(given))
    with suppress(Exception):  # the parser raises whatever a malformed value leads it to
        values.append(json_util.loads(given, json_options=ID_JSON))
    values.append(given)
    found = []
    for value in values:
        is_pattern = isinstance(value, Regex) or (
            isinstance(value, dict) and str(next(iter(value), "")).startswith("$")
        )
        if not is_pattern:  # no id can be one, and a query would take it for a condition
            with suppress(Exception):  # a number that is too large, a text that is not valid UTF-8
                found.append(encode({"_id": value}))
    return list(dict.fromkeys(found))


def extended(raw_id: bytes) -> Any:
    """Return an id as JSON values: extended JSON, which the command line takes."""
    value = decode(raw_id, SHOWABLE)["_id"]
    return json.loads(json_util.dumps(value, json_options=ID_JSON))


def evaluate(parts: Parts, pairs: Sequence[Labelled]) -> Evaluation:
    """Judge labelled pairs with the present settings; raises UsageError for an id that no record has.

    Each pair is decided by itself, as a run would that found these two records alone.
    """
    with parts.engine() as engine:
        ids = _ids_of(parts, pairs)
        prints = Fingerprints.join([found for _, found in engine.fingerprinted(_named(parts, ids.values()))])
        place = {raw_id: row for row, raw_id in enumerate(dict.fromkeys(ids.values()))}
        nothing_kept = parts.keepers(parts.source.fetch, engine)
        judged = []
        for pair in pairs:
            rows = [place[ids[pair.first]], place[ids[pair.second]]]
            if rows[0] == rows[1]:
                raise UsageError(f"line {pair.line}: names the same record twice")
            judged.append(_judged(pair, _two(prints, rows), parts.recipe.matching, nothing_kept))
    return Evaluation(parts.setting, parts.recipe.digest, judged)


def _ids_of(parts: Parts, pairs: Sequence[Labelled]) -> dict[str, bytes]:
    """Return the record that each id of the pairs names; most are found at their first reading, at once."""
    lines = {given: pair.line for pair in reversed(pairs) for given in (pair.second, pair.first)}
    likeliest = {given: next(iter(readings(given)), b"") for given in lines}
    absent: set[bytes] = set()
    for some in _runs([raw_id for raw_id in likeliest.values() if raw_id], IDS_AT_ONCE):
        absent |= parts.source.absent(some)
    ids = {}
    for given, raw_id in likeliest.items():
        if not raw_id or raw_id in absent:
            raw_id = next((found.id for found in parts.found(given)), b"")
        if not raw_id:
            raise UsageError(f"line {lines[given]}: no record has the id {given!r}; nothing was evaluated")
        ids[given] = raw_id
    return ids


def _named(parts: Parts, ids: Iterable[bytes]) -> Iterator[Batch]:
    """Yield the records of these ids, each once, in this order: from the source, else from the target."""
    for some in _runs(list(dict.fromkeys(ids)), parts.settings.limits.batch_records):
        found = parts.source.fetch(some)
        if missing := [raw_id for raw_id in some if raw_id not in found]:
            found |= parts.target.fetch(missing)
        if gone := next((raw_id for raw_id in some if raw_id not in found), None):
            raise UsageError(f"the record {extended(gone)} was deleted meanwhile; nothing was evaluated")
        yield Batch(some, [found[raw_id] for raw_id in some])


def _judged(pair: Labelled, prints: Fingerprints, matching: Matching, nothing_kept: Keepers) -> Judged:
    """Decide two records alone, the fingerprints of which are given."""
    verdict = job.decide([b"first", b"second"], prints, matching, nothing_kept)[1]
    return Judged(
        pair,
        found=verdict.action is Action.DUPLICATE,
        distance=int(hamming(*prints.bits)) if prints.near.all() else None,
        jaccard=jaccard(*prints.shingles),
        passed=", ".join(sorted(set(prints.reasons) - {""})),
    )


def _two(prints: Fingerprints, rows: Sequence[int]) -> Fingerprints:
    """Return some of the rows."""
    return Fingerprints(
        reasons=[prints.reasons[row] for row in rows],
        bits=prints.bits[rows],
        near=prints.near[rows],
        short=prints.short[rows],
        digests=prints.digests[rows],
        hashes=prints.hashes[rows],
        shingles=prints.shingles.take(rows),
    )


def _runs(ids: Sequence[bytes], length: int) -> Iterator[Sequence[bytes]]:
    """Yield the ids, so many at a time."""
    return (ids[first : first + length] for first in range(0, len(ids), length))


def tune(parts: Parts, records: int, at: float, told: Callable[[int], object]) -> Tuning:
    """Try a grid of settings on the first records of the source; `told` of how many more were read."""
    sample = _sample(parts, records, told)
    rows = list(tuning.rows(sample, tuning.grid(parts.setting), at))
    note = ""
    try:
        rows += tuning.yardstick(sample, at)
    except ImportError:
        note = "for MinHash beside it: pip install 'dedup-job[tune]'"
    return Tuning(sample, at, parts.setting, parts.source.estimated_count(), rows, note)


def _sample(parts: Parts, records: int, told: Callable[[int], object]) -> tuning.Sample:
    """Fingerprint the first records at each width, side by side, until they are enough."""
    taken: list[Fingerprints] = []
    bits: dict[int, list[npt.NDArray[np.uint64]]] = {width: [] for width in tuning.RADII}
    shingles = 0
    with ExitStack() as stack:
        engines = [stack.enter_context(parts.engine(width)) for width in bits]
        batches = tee(first_records(parts.source.batches(Window()), records), len(engines))
        streams = [engine.fingerprinted(some) for engine, some in zip(engines, batches, strict=True)]
        for found in zip(*streams, strict=True):
            taken.append(found[0][1])
            for width, (_, prints) in zip(bits, found, strict=True):
                bits[width].append(prints.bits)
            told(len(taken[-1]))
            shingles += len(taken[-1].shingles.values)
            if shingles >= MOST_SHINGLES:
                break
    if not taken:
        raise ConfigError(f"{parts.source_name} has no records to try settings on")
    columns = {width: np.concatenate(column) for width, column in bits.items()}
    sample = tuning.Sample.of(Fingerprints.join(taken), columns, parts.recipe.matching.short_text)
    if not len(sample):
        reasons = ", ".join(sorted({reason for prints in taken for reason in prints.reasons}))
        raise ConfigError(f"no text in the first {sample.read:,} records ({reasons}); see [source] fields")
    return sample


def both(first: Observe, second: Observe) -> Observe:
    """Return an observer that tells two."""

    def observe(batch: Batch, plan: Plan) -> None:
        first(batch, plan)
        second(batch, plan)

    return observe


def restored(reader: LedgerReader, head: Head, keepers: Keepers) -> Iterator[StoredPlan]:
    """Yield the plans of a ledger, in order, after taking their keepers in."""
    for stored in reader.plans(head):
        keepers.admit(stored.plan)
        yield stored


def first_records(batches: Iterable[Batch], limit: int | None) -> Iterator[Batch]:
    """Yield batches until so many records came."""
    left = limit
    for batch in batches:
        if left is not None and len(batch) >= left:
            yield Batch(batch.ids[:left], batch.raws[:left])
            return
        yield batch
        left = left and left - len(batch)


def new_run(mode: str) -> RunId:
    """Name a run after the time at which it starts."""
    now = datetime.now(UTC)
    return RunId(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}", mode, now)


def exit_code(counts: Counts) -> int:
    """Return 0, or 3 when the target refused something."""
    return 3 if sum(counts.refused.values()) else 0
