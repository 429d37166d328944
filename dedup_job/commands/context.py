"""The composition root: the parts of a command, put together from the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from math import inf
from typing import Any, Protocol, Self, TypeVar

from dedup_job.config import Settings
from dedup_job.document import Batch
from dedup_job.engine.local import Capacity, LocalEngine
from dedup_job.errors import ConfigError, StateError, exit_code_of
from dedup_job.fingerprint.recipe import Recipe
from dedup_job.ledger.commit import Ledger
from dedup_job.ledger.fitting import Consent
from dedup_job.ledger.head import Head, Origin
from dedup_job.ledger.reader import LedgerReader
from dedup_job.ledger.run_row import RunId
from dedup_job.ledger.statements import Statements
from dedup_job.match.keepers import Keepers, OlderKeepers
from dedup_job.mongo import namespace
from dedup_job.mongo.client import Patience, connect
from dedup_job.mongo.condition import check_condition
from dedup_job.mongo.indexes import Indexes
from dedup_job.mongo.pace import Pace, Rates
from dedup_job.mongo.pages import BatchSize, Pages
from dedup_job.mongo.places import Places
from dedup_job.mongo.source import Source
from dedup_job.mongo.target import Target
from dedup_job.mongo.window import Window, rest_of_backfill, since
from dedup_job.plan import BACKFILL, RECONCILE, RawIds

L = TypeVar("L", bound=Ledger)

BEGINNING = 60  # characters of a text that evidence shows


class Records(Protocol):
    """Where the texts of keepers are looked up again."""

    def fetch(self, ids: Sequence[bytes], fields: Sequence[str] = ()) -> Iterator[dict[bytes, bytes]]:
        """Yield the records that exist of these ids, by id, in pieces; of each these fields, or all."""
        ...


class Context:
    """Everything that a command works with, opened once and closed together."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.push(self)  # what fails half way is closed
            self._open()
            opening.pop_all()
        return self

    def _open(self) -> None:
        limits = self.settings.limits
        self.patience = Patience(limits.patience_seconds, limits.read_seconds)
        with ExitStack() as stack:
            reached = (limits.connect_seconds, self.patience, limits.allow_plaintext)
            here = stack.enter_context(connect(self.settings.source_uri(), "source", *reached))
            there = stack.enter_context(connect(self.settings.target_uri(), "target", *reached))
            source = here[self.settings.source.database][self.settings.source.collection]
            target = there[self.settings.target.database][self.settings.target.collection]
            self._ledger_place = (target.database, target.name, self.patience)
            self._check_source(source)
            check_condition(source, self.settings.source.condition, self.patience)
            namespace.check_target(source, target, self.patience)
            self._stack = stack.pop_all()
        size = BatchSize(limits.batch_records, limits.batch_mb << 20)
        self.source_name, self.target_name = source.full_name, target.full_name
        pace = Pace(Rates(limits.max_docs_per_second or inf, (limits.max_mb_per_second or inf) * (1 << 20)))
        self.source = Source(source, self.settings.source.condition, size, self.patience, pace)
        self.target = Target(target, self.patience)
        self.places = Places(source, target, self.patience)
        self.indexes = Indexes(source, target, self.patience)
        self.source_pages = Pages(
            source, "the source", self.patience, condition=self.settings.source.condition
        )
        self.own_records = Source(target, {}, size, self.patience)
        self.recipe: Recipe = self.settings.make_recipe()

    def _check_source(self, source: Any) -> None:
        """Raise ConfigError unless the source can be read, StateError when it is there no more."""
        try:
            namespace.check_source(source, self.patience)
        except namespace.SourceMissing as error:
            head = self.ledger_reader().head()
            if head is None or head.is_empty or head.source != source.full_name:
                raise
            raise StateError(
                f"the source {source.full_name}, from which the target was filled, does not exist any more: "
                "it was dropped or renamed; put it back, or name another target for another source"
            ) from error

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def origin(self) -> Origin:
        """What a new ledger is made from, and an old one must have been made from."""
        recipe, condition = self.recipe, self.settings.source.plain_filter
        made_from = (self.source_name, recipe.settings, recipe.digest)
        return Origin(*made_from, filter=condition, places=self.places.noted())

    @property
    def about(self) -> str:
        """What the recipe decides by."""
        return self.recipe.about

    def basis(self, keepers: Keepers) -> tuple[str, str, str]:
        """Return the digest of the recipe, what it decides by, and what the index holds."""
        return self.recipe.digest, self.about, keepers.summary

    def engine(self) -> LocalEngine:
        """Return the engine, not started yet."""
        limits = self.settings.limits
        workers = self.settings.engine.workers
        return LocalEngine(self.recipe, Capacity(workers, limits.in_flight_mb << 20, limits.record_seconds))

    def ledger_reader(self) -> LedgerReader:
        """Return the ledger for reading alone."""
        return LedgerReader(*self._ledger_place)

    def statements(self) -> Statements:
        """Return the ledger for an audit."""
        return Statements(*self._ledger_place)

    @contextmanager
    def ledger(self, run: RunId, consent: Consent = Consent()) -> Iterator[Ledger]:
        """Open the ledger for a run that decides by the recipe of the settings."""
        head = self.ledger_reader().head()
        if head is None or head.is_empty or head.places is None:
            self.places.prepare()
        with self.opened(Ledger, run, self.origin, consent) as ledger:
            yield ledger

    @contextmanager
    def opened(self, kind: type[L], run: RunId, origin: Origin, consent: Consent = Consent()) -> Iterator[L]:
        """Open the ledger for writing; when the run breaks off, its row in `runs` says why."""
        ledger = kind(*self._ledger_place)
        ledger.watch(self.places)
        try:
            ledger.open(run, origin, consent)
            yield ledger
        except BaseException as error:
            ledger.break_off(exit_code_of(error))
            raise

    def keepers(self, records: Records, engine: LocalEngine) -> Keepers:
        """Return an empty set of keepers, whose texts are looked up among records when not at hand."""
        fields = self.recipe.reader.fields.names
        older = OlderKeepers(lambda ids: records.fetch(ids, fields), engine.fingerprint)
        return Keepers(self.recipe, self.settings.match.cache_mb << 20, older)

    def is_foreign(self, head: Head | None) -> bool:
        """Return whether the target holds records that the ledger does not know, as it knows none yet."""
        if head and not head.is_empty:
            return head.adopting
        return self.target.holds_others(set(self.ledger_reader().left()))

    def left(self) -> RawIds:
        """Return which records that an undo left are in the target and undecided."""
        ids = self.ledger_reader().left()
        gone = self.target.absent(ids)
        return RawIds.of(raw_id for raw_id in ids if raw_id not in gone)

    def check_own(self, head: Head | None) -> None:
        """Raise ConfigError when the target holds records that the ledger does not know."""
        if self.is_foreign(head):
            raise ConfigError(
                f"{self.target_name} holds records that no run put there; run backfill --adopt to keep them "
                "and drop what is a copy of them, or choose an empty target"
            )

    def window(self, mode: str, head: Head | None) -> Window:
        """Return the part of the source that this mode looks at, what is decided there not left out yet."""
        if mode == BACKFILL:
            return rest_of_backfill(head.watermark if head else None)
        if mode == RECONCILE:
            return Window()
        lookback = self.settings.source.lookback
        return since(head.covered if head else None, lookback, self.source.has_only_object_ids())

    def is_counted(self) -> bool:
        """Return whether the server knows how many records are to be decided: without looking at them all."""
        return not self.settings.source.condition and not self.source.is_sharded()

    def is_full_look_due(self, head: Head, now: datetime) -> bool:
        """Return whether all ids are to be compared, whatever the number of records says.

        It says little: as many decided records may have been deleted as others came with old ids.
        """
        is_known = (
            head.looked is not None and head.looked <= now < head.looked + self.settings.source.full_look
        )
        return not is_known or not self.is_counted()

    def beginnings(self, ids: Iterable[bytes]) -> dict[bytes, str]:
        """Return how the cleaned texts of these source records begin."""
        reader, beginnings = self.recipe.reader, dict[bytes, str]()
        for found in self.source.fetch(list(dict.fromkeys(ids))):
            texts, reasons = reader.texts([*found.values()])
            shown = (text[:BEGINNING] or f"({reason})" for text, reason in zip(texts, reasons, strict=True))
            beginnings |= zip(found, shown, strict=True)
        return beginnings


def first_records(batches: Iterable[Batch], limit: int | None) -> Iterator[Batch]:
    """Yield batches until so many records came."""
    left = limit
    for batch in batches:
        if left is not None and len(batch) >= left:
            yield Batch(batch.ids[:left], batch.raws[:left])
            return
        yield batch
        left = left and left - len(batch)
