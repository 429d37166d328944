"""Guards: they see what a run is about to do, and tell when a person should look before it is done.

Where a run is guarded, telling ends it; a dry run, and a run that a person allowed to go on, note it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from dedup_job.document import Batch, Fingerprints
from dedup_job.engine.restored import Fingerprinting
from dedup_job.errors import GuardStop
from dedup_job.text.inventory import inventory, with_text

FIRST = 1_000  # records that are looked at before any of them is decided
HELD_BYTES = 64 << 20  # of them that wait for that; what comes after is decided while the look goes on
SAMPLED = 100  # records whose fields are named
NAMED = 10  # fields

Tell = Callable[[str], object]

log = logging.getLogger("dedup_job")


def stop(message: str) -> None:
    """Tell it by ending the run."""
    raise GuardStop(f"{message}; run again with --allow if it is meant; what was decided before stays")


@dataclass(frozen=True, slots=True)
class Notes:
    """Tells it by noting it, for the log and the summary."""

    messages: list[str] = field(default_factory=list)

    def __call__(self, message: str) -> None:
        """Note what a guard has to say."""
        log.warning(message)
        self.messages.append(message)


class FirstLook:
    """A guard of the first records: whether they can be judged."""

    is_over = False

    def __init__(self, max_share: float, tell: Tell, least: int = FIRST) -> None:
        """Tell when more than `max_share` of them cannot, once; of fewer than `least` records say nothing."""
        self._max_share, self._tell, self._least = max_share, tell, least
        self._seen = 0
        self._reasons = Counter[str]()
        self._sample: list[bytes] = []

    def take(self, batch: Batch, prints: Fingerprints) -> None:
        """Look at a batch, until enough were seen."""
        if self.is_over:
            return
        self._seen += len(batch)
        self._reasons.update(filter(None, prints.reasons))
        self._sample += islice(batch.raws, SAMPLED - len(self._sample))
        if self._seen >= FIRST:
            self.end()

    def end(self) -> None:
        """Judge by what was seen: no more will come, or need come."""
        if self.is_over or self._seen < self._least:
            return
        self.is_over = True
        unjudged, sample = self._reasons.total(), self._sample
        self._sample = []
        if unjudged > self._max_share * self._seen:
            self._tell(
                f"{unjudged:,} of the first {self._seen:,} records cannot be judged "
                f"({named(self._reasons)}), more than [limits] max_unjudged_share = {self._max_share:g}; "
                f"{_where_text_is(sample)}"
            )


@dataclass(frozen=True, slots=True)
class HeldBack:
    """An engine that hands on nothing before the first records have been looked at."""

    engine: Fingerprinting
    look: FirstLook

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        """Yield each batch with its fingerprints, in order."""
        held: list[tuple[Batch, Fingerprints]] = []
        nbytes = 0
        for batch, prints in self.engine.fingerprinted(batches):
            self.look.take(batch, prints)
            held.append((batch, prints))
            nbytes += batch.nbytes + prints.nbytes
            if self.look.is_over or nbytes >= HELD_BYTES:
                yield from held
                held = []
        self.look.end()
        yield from held


def named(counts: Mapping[str, int]) -> str:
    """Return names with their numbers, the greatest first."""
    return ", ".join(f"{name} {count:,}" for name, count in Counter(counts).most_common(NAMED))


def _where_text_is(raws: Iterable[bytes]) -> str:
    """Say which fields of some records hold text, or else which there are; values are never told."""
    raws = list(raws)
    fields = inventory(raws)
    texts = {_printable(path): count for path, count in with_text(fields).items()}
    if texts:
        return f"of {len(raws)} records, text is in {named(texts)}"
    others = ", ".join(map(_printable, islice(fields, NAMED)))
    return f"no text is in their fields: {others or 'there is none'}"


def _printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)
