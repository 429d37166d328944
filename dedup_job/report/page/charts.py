"""The charts of a page: described with Altair, drawn as SVG by vl-convert, so that the page needs no library.

Colours are names of the page's style sheet, so a chart follows light and dark; each mark has a title that the
browser shows.  Nothing of a record is in a chart: the values are numbers, dates and reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import vl_convert
from markupsafe import Markup

from dedup_job.report.page.contents import Contents, Weighted
from dedup_job.report.page.timeline import Stretch

WIDTH, HEIGHT = 400, 150  # as on a telephone; the page scales them
COLOURS = {
    "kept": "#0000a1", "near": "#0000a2", "exact": "#0000a3", "unjudged": "#0000a4", "refused": "#0000a5",
    "ink": "#0000a6", "faint": "#0000a7",
}  # fmt: skip
NAMES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
FONT = "inherit"
AXIS = {
    "labelColor": COLOURS["ink"], "titleColor": COLOURS["ink"], "titleFontWeight": "normal",
    "domainColor": COLOURS["faint"], "tickColor": COLOURS["faint"], "gridColor": COLOURS["faint"],
    "gridOpacity": 0.5, "labelFontSize": 11, "titleFontSize": 11, "labelFont": FONT, "titleFont": FONT,
}  # fmt: skip
LENGTHS = [base * 10**power for power in range(7) for base in (1, 2, 5)]  # edges of bins, in characters
SIZES = (2, 3, 4, 5, 6, 11, 21, 51, 101, 1001)  # where classes of groups begin
MARK = re.compile(r'<path aria-label="([^"]*)"([^>]*)/>')


def verdicts(contents: Contents) -> Markup:
    """Return one bar: what stays and what goes."""
    counts = contents.counts
    parts: dict[str, int] = {
        "kept": counts.unique, "near": counts.near, "exact": counts.exact,
        "unjudged": sum(counts.unjudged.values()), "refused": sum(counts.refused.values()),
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
            color=_colours("what:N", list(parts), None),
            order=alt.Order("place:Q"),
        )
    )
    return Markup(str(_drawn(chart)).replace("<svg ", '<svg preserveAspectRatio="none" ', 1))


def similarities(contents: Contents) -> Markup:
    """Return near duplicates by similarity, a bar for each hundredth; the slider colours them."""
    first = min(_first(contents.similarities), int(100 * (contents.min_similarity or 1) + 1e-9))
    rows = [
        {"from": step / 100, "to": (step + 1) / 100, "near duplicates": number}
        for step, number in enumerate(_up_to_one(contents.similarities))
        if step >= first
    ]
    return _twice(_histogram(rows, "near duplicates", "similarity to the keeper"))


def distances(contents: Contents) -> Markup:
    """Return near duplicates by the distance of the fingerprints."""
    rows = [
        {"distance": "none" if bits is None else str(bits), "near duplicates": number, "place": place}
        for place, (bits, number) in enumerate(
            sorted(contents.distances.items(), key=lambda one: (one[0] is None, one[0] or 0))
        )
    ]
    return _drawn(_bars(rows, "distance", "near duplicates", "distance of the fingerprints, in bits", "near"))


def sizes(contents: Contents) -> Markup:
    """Return groups by size, from pairs to those of thousands."""
    ends = [*(later - 1 for later in SIZES[1:]), None]
    rows = []
    for place, (start, end) in enumerate(zip(SIZES, ends, strict=True)):
        number = sum(
            count for size, count in contents.sizes.items() if start <= size <= (end or float("inf"))
        )
        name = f"{start:,}" if start == end else f"{start:,} +" if end is None else f"{start}–{end:,}"
        rows.append({"size": name, "groups": round(number), "place": place})
    while rows and not rows[-1]["groups"]:
        rows.pop()
    return _drawn(_bars(rows, "size", "groups", "records in a group, the keeper counted in", "kept"))


def lengths(contents: Contents) -> Markup:
    """Return kept and dropped records by the length of their texts."""
    kept, dropped = _by_length(contents.kept_lengths), _by_length(contents.dropped_lengths)
    there = [place for place in range(len(LENGTHS)) if kept.get(place) or dropped.get(place)]
    rows = [
        {
            "length": _short(LENGTHS[place]), "what": what, "records": round(counted.get(place, 0)),
            "place": place,
        }
        for place in range(min(there, default=0), max(there, default=-1) + 1)
        for what, counted in (("kept", kept), ("dropped", dropped))
    ]  # fmt: skip
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=WIDTH, height=HEIGHT)
        .mark_bar()
        .encode(
            x=alt.X("length:N", sort=alt.SortField("place"), title="characters, at least", axis=_labels()),
            xOffset=alt.XOffset("what:N", sort=["kept", "dropped"]),
            y=alt.Y("records:Q", title="records", axis=_counts()),
            color=_colours("what:N", ["kept", "dropped"], {"dropped": "near"}, legend=True),
        )
    )
    return _drawn(chart)


def timeline(contents: Contents) -> Markup:
    """Return which share of the records goes, along the time in their ids, else along their order."""
    unit, stretches = contents.in_time
    if stretches:
        rows = list(_shares(stretches, lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ")))
        x: Any = alt.X("from:T", title=f"time in the ids, by {unit}", axis=_labels(), scale={"type": "utc"})
        return _twice(_rated(rows, x, alt.X2("to:T")))
    rows = list(_shares(contents.in_order, lambda place: place))
    x = alt.X("from:Q", title="records, in the order of decision", axis=_counts(), scale={"nice": False})
    return _twice(_rated(rows, x, alt.X2("to:Q")))


def _rated(rows: Sequence[Mapping[str, Any]], x: Any, x2: Any) -> Any:
    y = alt.Y("share:Q", title="share that goes", axis=alt.Axis(format=".0%", **_quiet()))
    chart = alt.Chart(alt.InlineData(values=rows), height=HEIGHT)
    return chart.mark_rect(color=COLOURS["near"]).encode(x=x, x2=x2, y=y, y2=alt.Y2Datum(0))


def _shares(stretches: Sequence[Stretch], written: Any) -> Iterator[dict[str, Any]]:
    for one in stretches:
        yield {
            "from": written(one.start), "to": written(one.end), "share": one.dropped / max(1, one.records),
        }  # fmt: skip


def _histogram(rows: Sequence[Mapping[str, Any]], counted: str, title: str) -> Any:
    chart = alt.Chart(alt.InlineData(values=rows), height=HEIGHT)
    return chart.mark_bar(color=COLOURS["near"], binSpacing=1).encode(
        x=alt.X("from:Q", bin="binned", title=title, axis=alt.Axis(format=".2f", grid=False, **_quiet())),
        x2=alt.X2("to:Q"),
        y=alt.Y(f"{counted}:Q", title=counted, axis=_counts()),
    )


def _bars(rows: Sequence[Mapping[str, Any]], name: str, counted: str, title: str, colour: str) -> Any:
    chart = alt.Chart(alt.InlineData(values=rows), width=WIDTH, height=HEIGHT)
    return chart.mark_bar(color=COLOURS[colour]).encode(
        x=alt.X(f"{name}:N", sort=alt.SortField("place"), title=title, axis=_labels()),
        y=alt.Y(f"{counted}:Q", title=counted, axis=_counts()),
    )


def _quiet() -> dict[str, Any]:
    return {"ticks": False, "domain": False, "labelPadding": 6}


def _labels() -> Any:
    return alt.Axis(grid=False, labelAngle=0, labelOverlap=True, **_quiet())


def _counts() -> Any:
    return alt.Axis(
        labelExpr="datum.value ? format(datum.value, '~s') : '0'", tickCount=4, tickMinStep=1, **_quiet()
    )


def _colours(field: str, what: Sequence[str], others: Mapping[str, str] | None, legend: bool = False) -> Any:
    colours = [COLOURS[(others or {}).get(one, one)] for one in what]
    shown = (
        alt.Legend(orient="top", title=None, labelColor=COLOURS["ink"], labelFont=FONT) if legend else None
    )
    return alt.Color(field, scale=alt.Scale(domain=list(what), range=colours), legend=shown)


def _first(counted: Sequence[int]) -> int:
    return next((step for step, number in enumerate(counted) if number), 0)


def _up_to_one(counted: Sequence[int]) -> list[int]:
    """Return what is counted by hundredths with those that are wholly alike in the last of them."""
    return [*counted[:-2], counted[-2] + counted[-1]]


def _by_length(lengths: Sequence[Weighted]) -> dict[int, float]:
    """Return how many records have a text at least as long as an edge, and shorter than the next one."""
    counted: dict[int, float] = {}
    for length, stands_for in lengths:
        place = max(at for at, edge in enumerate(LENGTHS) if edge <= max(1, length))
        counted[place] = counted.get(place, 0.0) + stands_for
    return counted


def _short(number: int) -> str:
    return f"{number // 1000}k" if number >= 1000 else str(number)


def _twice(chart: Any) -> Markup:
    """Return a chart as wide as the page, and as wide as a telephone: the style sheet shows one of them."""
    wide, narrow = (_drawn(chart.properties(width=width)) for width in (2 * WIDTH, WIDTH * 3 // 4))
    return Markup('<div class="broad">{}</div><div class="narrow">{}</div>').format(wide, narrow)


def _drawn(chart: Any) -> Markup:
    """Return a chart as SVG that fits its place, in the page's own colours, with a title on each mark."""
    quiet = chart.configure(background="transparent", font=FONT).configure_view(strokeWidth=0)
    quiet = quiet.configure_axis(**AXIS).configure_legend(labelFontSize=11)
    drawn = vl_convert.vegalite_to_svg(quiet.to_dict(), vl_version="6.1")
    for colour, name in NAMES.items():
        drawn = drawn.replace(colour, name)
    drawn = MARK.sub(lambda mark: f"<path{mark[2]}><title>{mark[1]}</title></path>", drawn)
    return Markup(drawn)
