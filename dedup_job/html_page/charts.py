"""The page's charts, described with Altair and drawn as SVG by vl-convert."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import altair as alt
import vl_convert
from markupsafe import Markup

from dedup_job.html_page.page_data import PageContents

# The size on a phone; the page scales the charts.
WIDTH, HEIGHT = 400, 150
# Vega accepts only real colours, so each variable is drawn in a colour of its own, and replaced in the SVG.
COLOURS = {
    "kept": "#0000a1", "near": "#0000a2", "exact": "#0000a3", "unchecked": "#0000a4", "refused": "#0000a5",
    "ink": "#0000a6", "faint": "#0000a7",
}  # fmt: skip
VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
FONT = "inherit"
AXIS = {
    "labelColor": COLOURS["ink"], "titleColor": COLOURS["ink"], "titleFontWeight": "normal",
    "domain": False, "ticks": False, "labelPadding": 6, "gridColor": COLOURS["faint"], "gridOpacity": 0.5,
    "labelFontSize": 11, "titleFontSize": 11, "labelFont": FONT, "titleFont": FONT,
}  # fmt: skip
LABEL_AXIS = alt.Axis(grid=False, labelAngle=0, labelOverlap=True)
# An axis with this format as its `format` would use one unit for all labels: "0.2M" rather than "200k".
COUNT_AXIS = alt.Axis(labelExpr="datum.value ? format(datum.value, '~s') : '0'", tickCount=4, tickMinStep=1)
# Edges of bins, in characters.
LENGTHS = [base * 10**power for power in range(7) for base in (1, 2, 5)]
# Least sizes of the classes of groups.
SIZES = (2, 3, 4, 5, 6, 11, 21, 51, 101, 1001)
MARK = re.compile(r'<path aria-label="([^"]*)"([^>]*)/>')


def draw_all(contents: PageContents) -> dict[str, Markup | None]:
    """Draw the page's charts; None for a chart without data."""
    charts: dict[str, tuple[object, Callable[[PageContents], Markup]]] = {
        "verdicts": (contents.counts.read, draw_verdicts),
        "similarities": (any(contents.similarities), draw_similarities),
        "distances": (contents.distances, draw_distances),
        "sizes": (contents.sizes, draw_sizes),
        "lengths": (contents.kept_lengths or contents.dropped_lengths, draw_lengths),
        "timeline": (contents.timeline, draw_timeline),
    }
    return {name: draw(contents) if data else None for name, (data, draw) in charts.items()}


def draw_verdicts(contents: PageContents) -> Markup:
    """Draw one bar that shows the share of each verdict."""
    counts = contents.counts
    parts: dict[str, int] = {
        "kept": counts.unique, "near": counts.near, "exact": counts.exact,
        "unchecked": sum(counts.unchecked.values()), "refused": sum(counts.refused.values()),
    }  # fmt: skip
    parts = {what: number for what, number in parts.items() if number}
    rows = [
        {"what": what, "records": number, "place": place}
        for place, (what, number) in enumerate(parts.items())
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=2 * WIDTH, height=56, padding=0)
        .mark_bar(size=56)
        .encode(
            x=alt.X("records:Q", stack="normalize", axis=None, scale=alt.Scale(nice=False)),
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=[*parts], range=[COLOURS[name] for name in parts]),
                legend=None,
            ),
            order=alt.Order("place:Q"),
        )
    )
    # A bar without text may be stretched to the width of the page.
    return Markup(str(_draw(chart)).replace("<svg ", '<svg preserveAspectRatio="none" ', 1))


def draw_similarities(contents: PageContents) -> Markup:
    """Draw near duplicates by similarity, a bar for each hundredth; the page's slider colours the bars."""
    first = next((step for step, number in enumerate(contents.similarities) if number), 0)
    first = min(first, int(100 * (contents.min_similarity or 1) + 1e-9))
    # The last bar includes similarity 1, which has no hundredth above it.
    *counts, below_one, equal = contents.similarities
    rows = [
        {"from": step / 100, "to": (step + 1) / 100, "near duplicates": number}
        for step, number in enumerate([*counts, below_one + equal])
        if step >= first
    ]
    chart = alt.Chart(alt.InlineData(values=rows), height=HEIGHT)
    title, axis = "similarity to the keeper", alt.Axis(format=".2f", grid=False)
    histogram = chart.mark_bar(color=COLOURS["near"], binSpacing=1).encode(
        x=alt.X("from:Q", bin="binned", title=title, axis=axis),
        x2=alt.X2("to:Q"),
        y=alt.Y("near duplicates:Q", title="near duplicates", axis=COUNT_AXIS),
    )
    return _draw_twice(histogram)


def draw_distances(contents: PageContents) -> Markup:
    """Draw near duplicates by the distance of the fingerprints."""
    # Duplicates without a distance come last.
    ordered = sorted(contents.distances.items(), key=lambda item: (item[0] is None, item[0] or 0))
    rows = [
        {"distance": "none" if bits is None else str(bits), "near duplicates": number}
        for bits, number in ordered
    ]
    return _draw(
        _bar_chart(rows, "distance", "near duplicates", "distance of the fingerprints, in bits", "near")
    )


def draw_sizes(contents: PageContents) -> Markup:
    """Draw groups by size, from pairs to groups of thousands."""
    names = [
        f"{start:,}" if later == start + 1 else f"{start:,}–{later - 1:,}" for start, later in pairwise(SIZES)
    ]
    counts = _count_in_bins(SIZES, contents.sizes.items())
    rows = [
        {"size": name, "groups": round(count)}
        for name, count in zip([*names, f"{SIZES[-1]:,} +"], counts, strict=True)
    ]
    while rows and not rows[-1]["groups"]:
        rows.pop()
    return _draw(_bar_chart(rows, "size", "groups", "records in a group, with the keeper", "kept"))


def draw_lengths(contents: PageContents) -> Markup:
    """Draw kept and dropped records by the length of their texts."""
    kept, dropped = (
        _count_in_bins(LENGTHS, lengths) for lengths in (contents.kept_lengths, contents.dropped_lengths)
    )
    filled = [place for place in range(len(LENGTHS)) if kept[place] or dropped[place]]
    rows = [
        {
            "length": f"{LENGTHS[place] // 1000}k" if LENGTHS[place] >= 1000 else str(LENGTHS[place]),
            "what": what,
            "records": round(counts[place]),
        }
        for place in range(min(filled, default=0), max(filled, default=-1) + 1)
        for what, counts in (("kept", kept), ("dropped", dropped))
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=WIDTH, height=HEIGHT)
        .mark_bar()
        .encode(
            x=alt.X("length:N", sort=None, title="characters, at least", axis=LABEL_AXIS),
            xOffset=alt.XOffset("what:N", sort=["kept", "dropped"]),
            y=alt.Y("records:Q", title="records", axis=COUNT_AXIS),
            color=alt.Color(
                "what:N",
                scale=alt.Scale(domain=["kept", "dropped"], range=[COLOURS["kept"], COLOURS["near"]]),
                legend=alt.Legend(orient="top", title=None, labelColor=COLOURS["ink"], labelFont=FONT),
            ),
        )
    )
    return _draw(chart)


def draw_timeline(contents: PageContents) -> Markup:
    """Draw the share of dropped records along the collection: by the time in its ids, otherwise in order."""
    is_timed = isinstance(contents.timeline[0].start, datetime)
    rows = [
        {
            "from": _edge_as_json(stretch.start),
            "to": _edge_as_json(stretch.end),
            "share": stretch.dropped / max(1, stretch.records),
        }
        for stretch in contents.timeline
    ]
    if is_timed:
        x: Any = alt.X("from:T", title="time in the ids", axis=LABEL_AXIS, scale={"type": "utc"})
        x2 = alt.X2("to:T")
    else:
        title = "records, in the order of decision"
        x = alt.X("from:Q", title=title, axis=COUNT_AXIS, scale={"nice": False})
        x2 = alt.X2("to:Q")
    chart = alt.Chart(alt.InlineData(values=rows), height=HEIGHT)
    return _draw_twice(
        chart.mark_rect(color=COLOURS["near"]).encode(
            x=x,
            x2=x2,
            y=alt.Y("share:Q", title="share that goes", axis=alt.Axis(format=".0%")),
            y2=alt.Y2Datum(0),
        )
    )


def _edge_as_json(edge: datetime | int) -> str | int:
    return edge.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(edge, datetime) else edge


def _bar_chart(rows: Sequence[Mapping[str, Any]], name: str, counted: str, title: str, colour: str) -> Any:
    """Return a bar for each row, in the order of the rows."""
    chart = alt.Chart(alt.InlineData(values=rows), width=WIDTH, height=HEIGHT)
    return chart.mark_bar(color=COLOURS[colour]).encode(
        x=alt.X(f"{name}:N", sort=None, title=title, axis=LABEL_AXIS),
        y=alt.Y(f"{counted}:Q", title=counted, axis=COUNT_AXIS),
    )


def _count_in_bins(edges: Sequence[int], numbers: Iterable[tuple[int, float]]) -> list[float]:
    """Return the total weight of the numbers in each bin.

    Args:
        edges: The least number of each bin; smaller numbers are counted in the first bin.
        numbers: Numbers with their weights.
    """
    counts = [0.0] * len(edges)
    for number, weight in numbers:
        counts[max(0, bisect_right(edges, number) - 1)] += weight
    return counts


def _draw_twice(chart: Any) -> Markup:
    """Draw a chart as wide as the page, and again as wide as a phone; the style sheet shows one of them."""
    wide, narrow = (_draw(chart.properties(width=width)) for width in (2 * WIDTH, WIDTH * 3 // 4))
    return Markup('<div class="broad">{}</div><div class="narrow">{}</div>').format(wide, narrow)


def _draw(chart: Any) -> Markup:
    """Draw a chart as SVG in the page's own colours, with a title on each mark."""
    styled = chart.configure(background="transparent", font=FONT).configure_view(strokeWidth=0)
    styled = styled.configure_axis(**AXIS).configure_legend(labelFontSize=11)
    svg = vl_convert.vegalite_to_svg(styled.to_dict(), vl_version="6.1")
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    # Browsers show no tooltip for an `aria-label`, but for a title.
    svg = MARK.sub(lambda mark: f"<path{mark[2]}><title>{mark[1]}</title></path>", svg)
    return Markup(svg)
