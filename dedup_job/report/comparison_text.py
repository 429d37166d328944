"""`compare` as text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dedup_job.report.differences import part_text
from dedup_job.report.terminal_text import fit_cell, format_id, hang, more_row, wrap_text

# Terms shown in a table.
HEAVIEST = 15
# Columns of a term in a table.
TERM_WIDTH = 32


def comparison_text(shown: Mapping[str, Any]) -> str:
    """Return the explanation of two records, in lines of at most 110 columns.

    Args:
        shown: The JSON object that `compare --json` prints.
    """
    lines = [*_verdict_lines(shown), *_settings_lines(shown), ""]
    for name, record in zip(("first", "second"), shown["records"], strict=True):
        lines += _record_lines(name, record)
    if shown["differences"]:
        lines += ["", *_difference_lines(shown["differences"])]
    if shown["rules"]:
        lines += ["", "rules"]
        for rule in shown["rules"]:
            lines += hang(f"  {rule['name']:<15}{'yes' if rule['is_met'] else 'no':<5}", rule["what"])
        lines += ["", "measured", *_measurement_lines(shown)]
    if shown["terms"]:
        lines += ["", *_term_table(shown["terms"])]
    if shown["flips"]:
        lines += ["", *_flip_table(shown["flips"])]
    settings = ", ".join(f"{name} {value}" for name, value in shown["settings"].items())
    lines += ["", *wrap_text(f"recipe {shown['recipe'][:12]}: {settings}")]
    return "\n".join(lines)


def _verdict_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    if "unchecked" in shown["decided_by"]:
        reasons = [
            f"the {name} cannot be judged ({record['unchecked']})"
            for name, record in zip(("first", "second"), shown["records"], strict=True)
            if record["unchecked"]
        ]
    else:
        sentences = {rule["name"]: rule["what"] for rule in shown["rules"]}
        reasons = [sentences[name] for name in shown["decided_by"]]
    kind = f"{shown['reason']} duplicate" if shown["verdict"] == "duplicate" else "no match"
    return wrap_text(f"{kind}: {'; '.join(reasons)}")


def _settings_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """Name the settings that explain the verdict, if they are not the ledger's."""
    compared_by = shown["compared_by"]
    if compared_by["settings"] is None:
        return
    recipe = compared_by["ledger_recipe"]
    if recipe is None:
        ledger = "nothing is decided yet"
    elif recipe == shown["recipe"]:
        ledger = "which decide as the ledger's recipe does"
    else:
        ledger = f"which decide differently from the ledger's recipe {recipe[:12]}"
    yield from wrap_text(f"by the settings of {compared_by['settings']}; {ledger}")


def _record_lines(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    yield from wrap_text(f"{name}: {format_id(record['id'])} in the {record['place']}")
    if record["unchecked"]:
        yield f"  unchecked: {record['unchecked']}"
        return
    yield f"  {record['characters']:,} characters, {record['terms']:,} terms, {record['shingles']:,} shingles"


def _difference_lines(differences: Mapping[str, Any]) -> Iterator[str]:
    places = differences["places"]
    if not places:
        yield "the texts are the same; they begin"
    else:
        yield (
            f"the texts differ in {places:,} place{'s' * (places != 1)}: "
            "[-only in the first-] {+only in the second+}"
        )
    yield from wrap_text("".join(map(part_text, differences["parts"])), "  | ")


def _measurement_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    settings = shown["settings"]
    if shown["distance"] is not None:
        segments = " + ".join(map(str, shown["segments"]))
        yield f"  distance     {shown['distance']} of {settings['bits']} bits, by segment {segments}"
    yield f"  similarity   {shown['similarity']:.4f}  of the shingles of both are in common"
    if settings["bands"]:
        shape = f"{settings['bands']} bands of {settings['rows']}"
        yield f"  chance       {shown['band_chance']:.4f}  that texts this similar share one of {shape}"
    first, second = shown["containment"]
    yield f"  containment  {first:.4f}  of the first's shingles are in the second, {second:.4f} the other way"
    yield f"  cosine       {shown['cosine']:.4f}  of the TF-IDF vectors"
    yield f"  the texts begin with {shown['same_characters']:,} equal characters"


def _term_table(terms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"  {'heaviest terms':<{TERM_WIDTH}}{'first':>10}{'second':>10}"
    for row in terms[:HEAVIEST]:
        first, second = (f"{weight:.2f}" if weight else "-" for weight in row["weights"])
        yield f"  {fit_cell(row['term'], TERM_WIDTH)}{first:>10}{second:>10}"
    yield from more_row(len(terms), HEAVIEST, "  ")


def _flip_table(flips: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the terms that flipped the most bits of the fingerprint, with these bits."""
    bits_of: defaultdict[str, list[int]] = defaultdict(list)
    for flip in flips:
        for term in flip["terms"]:
            bits_of[term].append(flip["bit"])
    yield f"  {'terms that flipped bits':<{TERM_WIDTH}}  bits"
    ordered = sorted(bits_of.items(), key=lambda item: -len(item[1]))
    for term, bits in ordered[:HEAVIEST]:
        yield from hang(f"  {fit_cell(term, TERM_WIDTH)}  ", ", ".join(map(str, bits)))
    yield from more_row(len(ordered), HEAVIEST, "  ")
