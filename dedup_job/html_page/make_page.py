"""Build the HTML page after a run: re-read the sampled records, and put together what the page shows."""

from __future__ import annotations

import resource
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import ceil
from pathlib import Path

from dedup_job.analysis.match_conditions import SharedKeys
from dedup_job.analysis.scores import Share, wilson
from dedup_job.errors import ConfigError, StorageFull
from dedup_job.html_page.counts_and_samples import STEPS, PageSamples, to_hundredth
from dedup_job.html_page.page_data import (
    EstimatedCount,
    FieldValue,
    PageContents,
    SampleSize,
    ShownGroup,
    ShownPair,
    ShownRecord,
    ShownThreshold,
    WeightedLength,
)
from dedup_job.html_page.reread_samples import RecordReader, RereadPair, RereadRecord
from dedup_job.html_page.threshold_effect import estimate_staying
from dedup_job.mongo.ids import extended
from dedup_job.pipeline.command_context import Context
from dedup_job.report.differences import cut_excerpt, diff_texts
from dedup_job.report.output_files import check_file
from dedup_job.report.run_summary import RunSummary
from dedup_job.report.sampled_pairs_and_groups import DuplicatePair
from dedup_job.report.steps_after_dry_run import NextStep
from dedup_job.report.terminal_text import format_id

# Numbers of pairs, groups and field values on a page.
PAIRS, GROUPS, PLACES = 200, 50, 40
# Characters shown beside a difference, and of a text in total.
CONTEXT, MOST = 70, 1_200
# The same for the members of a group.
GROUP_CONTEXT, GROUP_MOST = 40, 300

NEEDED = ("altair", "vl_convert", "jinja2")
# Address space that vl_convert's JavaScript engine reserves, most of it without use; otherwise it aborts.
LEAST_SPACE = 72 << 30


def check_page(file: Path) -> None:
    """Check that a page can be written to a file: before the run, and not after hours of work.

    Raises:
        ConfigError: If a library is missing.
        StorageFull: If the limit on address space is too low.
        UsageError: If the file cannot be written.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(
            f"a page needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed; run pip install 'dedup-job[page]'"
        )
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_SPACE:
        raise StorageFull(
            f"the limit on a process's address space (ulimit -v) is {limit >> 20:,} MiB, and the library "
            f"that draws the page's charts reserves {LEAST_SPACE >> 20:,} MiB; raise the limit, or leave "
            "out --html"
        )
    check_file(file, "--html")


@dataclass(slots=True)
class PageTally:
    """Totals of the samples; each sampled record has the weight of the records that it represents.

    Attributes:
        kept: Lengths of kept texts, with weights.
        dropped: Lengths of dropped texts, with weights.
        records: Weighted numbers of records, by the value of the field `group_by`.
        drops: Weighted numbers of dropped records, by the same value.
        keepers: Numbers of dropped records in the sample, by their value and their keeper's value.
        compared: Number of near pairs with both texts.
        other_numbers: Number of these pairs whose texts differ in a number.
    """

    kept: list[WeightedLength] = field(default_factory=list)
    dropped: list[WeightedLength] = field(default_factory=list)
    records: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    drops: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    keepers: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    compared: int = 0
    other_numbers: int = 0

    def add_kept(self, record: RereadRecord, path: str | None, weight: float) -> None:
        """Add a kept record; `path` is the field `group_by`."""
        if record.text is not None:
            self.kept.append((len(record.text), weight))
        if path:
            self.records[record.fields.get(path, "")] += weight

    def add_pair(self, pair: RereadPair, path: str | None, weight: float) -> None:
        """Add a duplicate and its keeper; `path` is the field `group_by`."""
        if pair.duplicate.text is not None:
            self.dropped.append((len(pair.duplicate.text), weight))
        if pair.pair.reason == "near" and pair.is_whole:
            self.compared += 1
            self.other_numbers += pair.has_other_numbers
        if path:
            value = pair.duplicate.fields.get(path, "")
            self.records[value] += weight
            self.drops[value] += weight
            self.keepers[value][pair.keeper.fields.get(path, "")] += 1

    def places(self) -> list[FieldValue]:
        """Return the values of the field `group_by` that lose most records."""
        most = sorted(self.drops, key=lambda value: (-self.drops[value], value))[:PLACES]
        return [
            FieldValue(
                value, self.records[value], self.drops[value], keeper, times / self.keepers[value].total()
            )
            for value in most
            for keeper, times in self.keepers[value].most_common(1)
        ]


def make_page(
    context: Context,
    collected: PageSamples,
    done: RunSummary,
    is_done: bool,
    steps: Sequence[NextStep],
) -> str:
    """Re-read the sampled records, and return the page.

    Args:
        context: The open connections.
        collected: The counters and samples of the run.
        done: The summary of the run.
        is_done: True for a past run, False for a dry run.
        steps: Commands that could follow a dry run.
    """
    # Loaded for a page alone: the library for its charts is large.
    from dedup_job.html_page.render import render_page

    tally = PageTally()
    with context.engine() as engine:
        records = RecordReader(context, engine)
        pairs = _read_samples(context, records, collected, tally)
        groups = [_read_group(context, records, collected, *group) for group in collected.largest.sizes()]
        thresholds = _estimate_thresholds(records, collected, context.recipe.matching.min_similarity)
    matching, settings = context.recipe.matching, context.settings.page
    drawn = collected.groups
    sizes = Counter(group.size + 1 for group in drawn.drawn)
    contents = PageContents(
        source=context.source_name,
        is_done=is_done,
        facts=_list_facts(context, done),
        counts=collected.counts,
        min_similarity=matching.min_similarity,
        is_distinguishing=matching.numbers == "distinguish",
        similarities=collected.similarities.tolist(),
        distances=collected.distances,
        sizes={size: count / drawn.share for size, count in sizes.items()},
        group_count=EstimatedCount.about(len(drawn.drawn) / drawn.share, drawn.share == 1),
        kept_lengths=tally.kept,
        dropped_lengths=tally.dropped,
        timeline=collected.timeline.stretches(),
        numbers=_scale_up(wilson(tally.other_numbers, tally.compared), tally.compared, collected.near.seen),
        thresholds=thresholds,
        pairs=sorted(pairs, key=lambda pair: (pair.similarity or 0, -(pair.distance or 0))),
        groups=groups,
        group_by=settings.group_by or "",
        places=tally.places(),
        sampled=[
            SampleSize("near duplicates", tally.compared, collected.near.seen),
            SampleSize("exact duplicates", len(collected.exact.drawn), collected.exact.seen),
            SampleSize("kept records", len(tally.kept), collected.kept.seen),
        ],
        next_steps=steps,
    )
    return render_page(contents)


def choose_pairs(drawn: Sequence[DuplicatePair], counted: Sequence[int]) -> dict[DuplicatePair, float]:
    """Choose the pairs to show: about equally many of each hundredth of similarity.

    Args:
        drawn: A random sample of near pairs.
        counted: Numbers of all near duplicates, by hundredths of similarity.

    Returns:
        The pairs, each with the number of near duplicates that it represents.
    """
    strata: defaultdict[int, list[DuplicatePair]] = defaultdict(list)
    for pair in drawn:
        strata[-1 if pair.match.similarity is None else to_hundredth(pair.match.similarity)].append(pair)
    weights: dict[DuplicatePair, float] = {}
    # The smallest strata first: their unused share is divided among the larger strata.
    for remaining, (step, stratum) in zip(
        range(len(strata), 0, -1), sorted(strata.items(), key=lambda item: len(item[1])), strict=True
    ):
        pairs = stratum[: max(1, (PAIRS - len(weights)) // remaining)]
        in_all = counted[step] if step >= 0 else len(drawn)
        weights |= dict.fromkeys(pairs, in_all / len(pairs))
    return weights


def _read_samples(
    context: Context, records: RecordReader, collected: PageSamples, tally: PageTally
) -> list[ShownPair]:
    """Re-read the sampled records, add them to the totals, and return the near pairs to show."""
    group_by, show = context.settings.page.group_by, context.settings.page.show
    weights = choose_pairs(collected.near.drawn, collected.similarities.tolist())
    shown = []
    for sample in (collected.near, collected.exact):
        for seen in records.pairs(sample.drawn):
            tally.add_pair(seen, group_by, sample.seen / len(sample.drawn))
            if seen.pair in weights and seen.is_whole:
                keys = _name_shared_keys(context, seen)
                shown.append(show_pair(seen, show, (CONTEXT, MOST), keys, weights[seen.pair]))
    for record in records.kept(collected.kept.drawn):
        tally.add_kept(record, group_by, collected.kept.seen / len(collected.kept.drawn))
    return shown


def _read_group(
    context: Context, records: RecordReader, collected: PageSamples, keeper: bytes, size: int
) -> ShownGroup:
    """Re-read a keeper and some of its duplicates for the page."""
    show, members = context.settings.page.show, collected.largest.members(keeper)
    pairs = list(records.pairs(members))
    first = pairs[0].keeper if pairs else RereadRecord(keeper)
    shown = [show_pair(pair, show, (GROUP_CONTEXT, GROUP_MOST)) for pair in pairs]
    return ShownGroup(_shown_record(first, show), size, (first.text or "")[:GROUP_MOST], shown)


def _estimate_thresholds(
    records: RecordReader, collected: PageSamples, present: float
) -> list[ShownThreshold]:
    """Return the effect of each higher threshold; none where texts are not compared."""
    drawn, counted = collected.groups, collected.similarities
    if not present or not counted.any():
        return []
    groups = list(records.regrouped(drawn.drawn))
    thresholds = []
    for step in range(ceil(present * STEPS - 1e-9), STEPS + 1):
        threshold, below = step / STEPS, int(counted[:step].sum())
        staying = estimate_staying(groups, threshold, below, drawn.share)
        thresholds.append(ShownThreshold(threshold, below, staying))
    return thresholds


def show_pair(
    seen: RereadPair, show: Sequence[str], room: tuple[int, int], keys: str = "", weight: float = 1.0
) -> ShownPair:
    """Return a pair as the page shows it.

    Args:
        seen: The re-read pair.
        show: Fields to show of each record.
        room: Characters beside a difference, and of a text in total.
        keys: Names of the keys that the texts share.
        weight: Near duplicates in the same hundredth of similarity, for each of them on the page.
    """
    keeper, duplicate, match = seen.keeper, seen.duplicate, seen.pair.match
    return ShownPair(
        keeper=_shown_record(keeper, show),
        duplicate=_shown_record(duplicate, show),
        reason=seen.pair.reason,
        distance=match.distance,
        similarity=match.similarity,
        keys=keys,
        parts=cut_excerpt(diff_texts(keeper.text or "", duplicate.text or ""), *room),
        has_other_numbers=seen.has_other_numbers,
        weight=weight,
    )


def _shown_record(record: RereadRecord, show: Sequence[str]) -> ShownRecord:
    """Return a record as the page shows it."""
    fields = [(path, record.fields[path]) for path in show if record.fields.get(path)]
    length = None if record.text is None else len(record.text)
    return ShownRecord(format_id(extended(record.id)), length, fields)


def _name_shared_keys(context: Context, seen: RereadPair) -> str:
    """Return the keys that two texts share, as in "segments 1 3, band 2"; counted from 1."""
    rows = seen.prints.take([seen.keeper.row, seen.duplicate.row])
    shared = SharedKeys.of(rows, context.recipe.matching)
    numbers = [("segment", shared.segments), ("band", shared.bands)]
    return ", ".join(
        f"{name}{'s' * (len(places) > 1)} {' '.join(map(str, places))}" for name, places in numbers if places
    )


def _scale_up(share: Share, compared: int, total: int) -> EstimatedCount | None:
    """Return a share of a sample as a number of all records; None where nothing was compared."""
    if share.value is None or share.low is None or share.high is None:
        return None
    if compared == total:
        return EstimatedCount.about(share.value * total, True)
    return EstimatedCount(share.value * total, share.low * total, share.high * total)


def _list_facts(context: Context, done: RunSummary) -> list[tuple[str, str]]:
    """Return names and values for the small print."""
    matching = context.recipe.matching
    facts = {
        "source": context.source_name,
        "target": context.target_name,
        "run": f"{done.run}, {done.mode}",
        "decided by": context.recipe.about,
        "numbers": f"{matching.numbers} ([match] numbers)",
        "recipe": done.recipe[:12],
        "within": ", ".join(context.settings.match.within),
        "fields": ", ".join(context.settings.source.fields),
        "filter": context.settings.source.filter if context.settings.source.condition else "",
    }
    return [(name, value) for name, value in facts.items() if value]
