"""The page of a dry run, or of a run that was: what was drawn while it went by, read again and compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import ceil
from pathlib import Path

from dedup_job.commands.context import Context
from dedup_job.commands.report_records import ReadAgain, Record, Seen
from dedup_job.document import Batch
from dedup_job.errors import ConfigError
from dedup_job.lab.rethreshold import staying
from dedup_job.lab.rules import SharedKeys
from dedup_job.lab.scoring import wilson
from dedup_job.mongo.shown_ids import extended
from dedup_job.plan import Plan
from dedup_job.report.differences import differences, excerpt
from dedup_job.report.evidence import Pair
from dedup_job.report.files import check_file, store
from dedup_job.report.largest import LargestGroups
from dedup_job.report.page.collected import STEPS, Collected
from dedup_job.report.page.contents import (
    Contents,
    Estimate,
    Group,
    Place,
    Sampled,
    ShownPair,
    ShownRecord,
    Threshold,
    Weighted,
)
from dedup_job.report.summary import Report
from dedup_job.report.terminal import id_text

PAIRS, GROUPS, PLACES = 200, 50, 40  # that a page shows
CONTEXT, MOST = 70, 1_200  # characters around a difference, and of a text in all
GROUP_CONTEXT, GROUP_MOST = 40, 300  # the same in a group


NEEDED = ("altair", "vl_convert", "jinja2")


class Page:
    """A page in the making: told of each batch and its plan, then written."""

    def __init__(self, file: Path, largest: LargestGroups[Pair]) -> None:
        """Raise ConfigError or StorageFull at once, not after hours, where no page can be written."""
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            raise ConfigError(
                f"a page needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
                "installed; run pip install 'dedup-job[page]'"
            )
        self._collected = Collected(largest)
        self._file = file
        check_file(file, "--html")

    def observe(self, batch: Batch, plan: Plan) -> None:
        """Take in the verdicts of one batch."""
        self._collected.observe(batch, plan)

    def write(self, context: Context, done: Report, is_done: bool) -> None:
        """Write the page of what was observed; `is_done` tells a run from a dry run."""
        from dedup_job.report.page.writing import html

        store(self._file, html(contents(context, self._collected, done, is_done)))


@dataclass(slots=True)
class PageTally:
    """What the samples tell, added up.

    kept, dropped  lengths of texts, each with the number of records that it stands for
    records        the numbers of records, by the value of the field that is counted by
    drops          those of them that go; `met` the same in the sample, `keepers` by the keeper's value
    compared       near pairs of which both texts are there; `other_numbers` those that differ in a number
    """

    kept: list[Weighted] = field(default_factory=list)
    dropped: list[Weighted] = field(default_factory=list)
    records: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    drops: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    met: Counter[str] = field(default_factory=Counter)
    keepers: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    compared: int = 0
    other_numbers: int = 0

    def take_kept(self, record: Record, path: str | None, stands_for: float) -> None:
        """Add a kept record."""
        if record.text is not None:
            self.kept.append((len(record.text), stands_for))
        if path:
            self.records[record.fields.get(path, "")] += stands_for

    def take_pair(self, seen: Seen, path: str | None, stands_for: float) -> None:
        """Add a duplicate."""
        if seen.duplicate.text is not None:
            self.dropped.append((len(seen.duplicate.text), stands_for))
        if seen.pair.reason == "near" and seen.is_whole:
            self.compared += 1
            self.other_numbers += seen.has_other_numbers
        if path:
            value = seen.duplicate.fields.get(path, "")
            self.records[value] += stands_for
            self.drops[value] += stands_for
            self.met[value] += 1
            self.keepers[value][seen.keeper.fields.get(path, "")] += 1

    def places(self) -> list[Place]:
        """Return the values of the field that lose most."""
        most = sorted(self.drops, key=lambda value: (-self.drops[value], value))[:PLACES]
        return [
            Place(value, self.records[value], self.drops[value], keeper, times / self.met[value])
            for value in most
            for keeper, times in self.keepers[value].most_common(1)
        ]


def contents(context: Context, collected: Collected, done: Report, is_done: bool) -> Contents:
    """Return what stands on the page of a run that was observed; `is_done` tells a run from a dry run."""
    tally = PageTally()
    with context.engine() as engine:
        again = ReadAgain(context, engine)
        pairs = _pairs(context, again, collected, tally)
        groups = [_group(context, again, collected, *largest) for largest in collected.largest.sizes()]
        thresholds = _thresholds(again, collected, context.recipe.matching.min_similarity)
    matching, settings = context.recipe.matching, context.settings.report
    drawn = collected.groups
    sizes = Counter(group.size + 1 for group in drawn.drawn)
    numbers = wilson(tally.other_numbers, tally.compared)
    return Contents(
        source=context.source_name,
        target=context.target_name,
        run=done.run,
        is_done=is_done,
        facts=_facts(context, done),
        counts=collected.counts,
        min_similarity=matching.min_similarity,
        is_distinguishing=matching.numbers == "distinguish",
        similarities=collected.similarities.tolist(),
        distances=collected.distances,
        sizes={size: count / drawn.share for size, count in sizes.items()},
        group_count=Estimate.about(len(drawn.drawn) / drawn.share, drawn.share == 1),
        kept_lengths=tally.kept,
        dropped_lengths=tally.dropped,
        in_order=collected.timeline.in_order(),
        in_time=collected.timeline.in_time(),
        numbers=_scaled(numbers.value, numbers.low, numbers.high, tally.compared, collected.near.seen),
        thresholds=thresholds,
        pairs=sorted(pairs, key=lambda pair: (pair.similarity or 0, -(pair.distance or 0))),
        groups=groups,
        show=settings.show,
        group_by=settings.group_by or "",
        places=tally.places(),
        sampled=[
            Sampled("near duplicates", tally.compared, collected.near.seen),
            Sampled("exact duplicates", len(collected.exact.drawn), collected.exact.seen),
            Sampled("kept records", len(tally.kept), collected.kept.seen),
        ],
    )


def chosen(drawn: Sequence[Pair], counted: Sequence[int], most: int = PAIRS) -> dict[Pair, float]:
    """Return the pairs to show, about as many of each hundredth of similarity, and what each stands for.

    counted  near duplicates of all records, by hundredths
    """
    strata: defaultdict[int, list[Pair]] = defaultdict(list)
    for pair in drawn:
        strata[-1 if pair.match.similarity is None else hundredth(pair.match.similarity)].append(pair)
    shown: dict[Pair, float] = {}
    for left, (step, stratum) in zip(
        range(len(strata), 0, -1), sorted(strata.items(), key=lambda one: len(one[1])), strict=True
    ):
        some = stratum[: max(1, (most - len(shown)) // left)]
        of_all = counted[step] if step >= 0 else len(drawn)
        shown |= dict.fromkeys(some, of_all / len(some))
    return shown


def hundredth(similarity: float) -> int:
    """Return a similarity in hundredths, rounded down."""
    return int(similarity * STEPS + 1e-9)


def _pairs(context: Context, again: ReadAgain, collected: Collected, tally: PageTally) -> list[ShownPair]:
    """Read the samples, add up what they tell, and return the near pairs that are shown."""
    by, show = context.settings.report.group_by, context.settings.report.show
    weights = chosen(collected.near.drawn, collected.similarities.tolist())
    pairs = []
    for sample in (collected.near, collected.exact):
        for seen in again.pairs(sample.drawn):
            tally.take_pair(seen, by, sample.seen / len(sample.drawn))
            if seen.pair in weights and seen.is_whole:
                keys = _keys(context, seen)
                pairs.append(shown_pair(seen, show, (CONTEXT, MOST), keys, weights[seen.pair]))
    for record in again.kept(collected.kept.drawn):
        tally.take_kept(record, by, collected.kept.seen / len(collected.kept.drawn))
    return pairs


def _group(context: Context, again: ReadAgain, collected: Collected, keeper: bytes, size: int) -> Group:
    show, members = context.settings.report.show, collected.largest.members(keeper)
    seen = list(again.pairs(members))
    first = seen[0].keeper if seen else Record(keeper)
    shown = [shown_pair(one, show, (GROUP_CONTEXT, GROUP_MOST)) for one in seen]
    return Group(_shown(first, show), size, (first.text or "")[:GROUP_MOST], shown)


def _thresholds(again: ReadAgain, collected: Collected, present: float) -> list[Threshold]:
    """Return what higher thresholds would change; none where texts are not compared."""
    drawn, counted = collected.groups, collected.similarities
    if not present or not counted.any():
        return []
    groups = list(again.regrouped(drawn.drawn))
    found = []
    for step in range(ceil(present * STEPS - 1e-9), STEPS + 1):
        stay = staying(groups, step / STEPS, int(counted[:step].sum()), drawn.share)
        found.append(Threshold(stay.threshold, stay.below, Estimate(stay.likely, stay.low, stay.high)))
    return found


def shown_pair(
    seen: Seen, show: Sequence[str], room: tuple[int, int], keys: str = "", stands_for: float = 1.0
) -> ShownPair:
    """Return a pair as a page has it; `room` is for `excerpt`: characters around a difference, and in all."""
    keeper, duplicate, match = seen.keeper, seen.duplicate, seen.pair.match
    return ShownPair(
        keeper=_shown(keeper, show),
        duplicate=_shown(duplicate, show),
        reason=seen.pair.reason,
        distance=match.distance,
        similarity=match.similarity,
        keys=keys,
        parts=excerpt(differences(keeper.text or "", duplicate.text or ""), *room),
        has_other_numbers=seen.has_other_numbers,
        stands_for=stands_for,
    )


def _shown(record: Record, show: Sequence[str]) -> ShownRecord:
    fields = [(path, record.fields[path]) for path in show if record.fields.get(path)]
    length = None if record.text is None else len(record.text)
    return ShownRecord(id_text(extended(record.id)), length, fields)


def _keys(context: Context, seen: Seen) -> str:
    """Return by which keys a pair was found; segments and bands are counted from 1."""
    rows = seen.prints.take([seen.keeper.row, seen.duplicate.row])
    shared = SharedKeys.of(rows, context.recipe.matching)
    named = [("segment", shared.segments), ("band", shared.bands)]
    return ", ".join(
        f"{name}{'s' * (len(places) > 1)} {' '.join(map(str, places))}" for name, places in named if places
    )


def _scaled(
    share: float | None, low: float | None, high: float | None, compared: int, total: int
) -> Estimate | None:
    if share is None or low is None or high is None:
        return None
    if compared == total:
        return Estimate.about(share * total, True)
    return Estimate(share * total, low * total, high * total)


def _facts(context: Context, done: Report) -> list[tuple[str, str]]:
    matching = context.recipe.matching
    facts = {
        "source": context.source_name,
        "target": context.target_name,
        "run": f"{done.run}, {done.mode}",
        "decided by": context.about,
        "numbers": f"{matching.numbers} ([match] numbers)",
        "recipe": done.recipe[:12],
        "fields": ", ".join(context.settings.source.fields),
        "filter": context.settings.source.filter if context.settings.source.condition else "",
    }
    return [(name, value) for name, value in facts.items() if value]
