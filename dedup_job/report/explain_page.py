"""An explanation of two records, as a page for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dedup_job.report.differences import marked, omitted
from dedup_job.report.terminal import cell, id_text, wrapped

HEAVIEST = 15  # terms that are shown
TERM_WIDTH = 32  # columns of a term in a table


def as_text(shown: Mapping[str, Any]) -> str:
    """Return an explanation for people, in lines of at most 110 columns."""
    lines = [*_verdict_lines(shown), *_explained_by(shown), ""]
    for name, record in zip(("first", "second"), shown["records"], strict=True):
        lines += _record_lines(name, record)
    if shown["differences"]:
        lines += ["", *_difference_lines(shown["differences"])]
    if shown["rules"]:
        lines += ["", "rules", *_rule_lines(shown["rules"]), "", "measured", *_measured_lines(shown)]
    if shown["terms"]:
        lines += ["", *_term_lines(shown["terms"])]
    if shown["flips"]:
        lines += ["", *_flip_lines(shown["flips"])]
    settings = ", ".join(f"{name} {value}" for name, value in shown["settings"].items())
    lines += ["", *wrapped(f"recipe {shown['recipe'][:12]}: {settings}")]
    return "\n".join(lines)


def _verdict_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    if "unjudged" in shown["decided_by"]:
        why = [
            f"the {name} cannot be judged ({record['unjudged']})"
            for name, record in zip(("first", "second"), shown["records"], strict=True)
            if record["unjudged"]
        ]
    else:
        said = {rule["name"]: rule["what"] for rule in shown["rules"]}
        why = [said[name] for name in shown["decided_by"]]
    kind = f"{shown['reason']} duplicate" if shown["verdict"] == "duplicate" else "no match"
    return wrapped(f"{kind}: {'; '.join(why)}")


def _record_lines(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    yield from wrapped(f"{name}: {id_text(record['id'])} in the {record['place']}")
    if record["unjudged"]:
        yield f"  unjudged: {record['unjudged']}"
        return
    yield f"  {record['characters']:,} characters, {record['terms']:,} terms, {record['shingles']:,} shingles"


def _explained_by(shown: Mapping[str, Any]) -> Iterator[str]:
    """Say by which settings, where they are not those of the ledger."""
    by = shown["explained_by"]
    if by["settings"] is None:
        return
    recipe = by["ledger_recipe"]
    if recipe is None:
        ledger = "nothing is decided yet"
    elif recipe == shown["recipe"]:
        ledger = "which decide as the ledger's recipe does"
    else:
        ledger = f"which decide otherwise than the ledger's recipe {recipe[:12]}"
    yield from wrapped(f"by the settings of {by['settings']}; {ledger}")


def _difference_lines(differences: Mapping[str, Any]) -> Iterator[str]:
    places = differences["places"]
    if not places:
        yield "the texts are the same; they begin"
    else:
        yield (
            f"the texts differ in {places:,} place{'s' * (places != 1)}: "
            "[-what the first alone has-] {+what the second alone has+}"
        )
    yield from wrapped("".join(map(_part, differences["parts"])), "  | ")


def _part(part: Mapping[str, Any]) -> str:
    if "left_out" in part:
        first, second = part["left_out"]
        return omitted(first, second, part["same"])
    return str(part["both"]) if "both" in part else marked(part["first"], part["second"])


def _rule_lines(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for rule in rules:
        lead = f"  {rule['name']:<15}{'yes' if rule['is_met'] else 'no':<5}"
        lines = wrapped(rule["what"], " " * len(lead))
        yield lead + next(lines).strip()
        yield from lines


def _measured_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    settings = shown["settings"]
    if shown["distance"] is not None:
        segments = " + ".join(map(str, shown["segments"]))
        yield f"  distance     {shown['distance']} of {settings['bits']} bits, by segment {segments}"
    yield f"  similarity   {shown['similarity']:.4f}  of the shingles of both are in common"
    if settings["bands"]:
        shape = f"{settings['bands']} bands of {settings['rows']}"
        yield f"  chance       {shown['band_chance']:.4f}  that texts so similar share one of {shape}"
    first, second = shown["containment"]
    yield f"  containment  {first:.4f}  of the first's shingles are in the second, {second:.4f} the other way"
    yield f"  cosine       {shown['cosine']:.4f}  of the TF-IDF vectors"
    yield f"  the texts begin with {shown['same_characters']:,} equal characters"


def _term_lines(terms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"  {'heaviest terms':<{TERM_WIDTH}}{'first':>10}{'second':>10}"
    for one in terms[:HEAVIEST]:
        first, second = (f"{weight:.2f}" if weight else "-" for weight in one["weights"])
        yield f"  {cell(one['term'], TERM_WIDTH)}{first:>10}{second:>10}"
    if len(terms) > HEAVIEST:
        yield f"  and {len(terms) - HEAVIEST:,} more"


def _flip_lines(flips: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say for the terms that flipped the most bits which they are."""
    bits_of: defaultdict[str, list[int]] = defaultdict(list)
    for flip in flips:
        for term in flip["terms"]:
            bits_of[term].append(flip["bit"])
    yield f"  {'terms that flipped bits':<{TERM_WIDTH}}  bits"
    ordered = sorted(bits_of.items(), key=lambda item: -len(item[1]))
    for term, bits in ordered[:HEAVIEST]:
        lead = f"  {cell(term, TERM_WIDTH)}  "
        lines = wrapped(", ".join(map(str, bits)), " " * (TERM_WIDTH + 4))
        yield lead + next(lines).strip()
        yield from lines
    if len(ordered) > HEAVIEST:
        yield f"  and {len(ordered) - HEAVIEST:,} more"
