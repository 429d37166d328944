"""An explanation: why two records match or not, and what the ledger says of one.

The rules are those of `job.decide` for two records alone, the first decided before the second.  There they
are applied to millions of records at once; here each says for itself whether it is met.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from dedup_job.document import Action, Fingerprints
from dedup_job.fingerprint.idf import SCALE
from dedup_job.fingerprint.recipe import Fingerprinter, Matching, Recipe, shared_idf
from dedup_job.fingerprint.shingles import number_seeds
from dedup_job.fingerprint.simhash import hamming
from dedup_job.fingerprint.terms import Vocabulary, weigh
from dedup_job.match import similarity

BEGINNING = 400  # characters of a text that are shown and compared
HEAVIEST = 15  # terms that are shown to people
WIDTH = 110  # columns
TERM_WIDTH = 32  # columns of a term in a table
PIECE = re.compile(r"[0-9A-Za-z]{1,40}|.", re.DOTALL)
WORD = re.compile(r" ?[!-~]{1,60}|.")  # Chinese lines may break anywhere
WEIGHT = SCALE * SCALE  # a weight is the product of two fixed-point numbers


@dataclass(frozen=True, slots=True)
class Record:
    """One of the two: its id as JSON values, where it was found, its cleaned text ("" when it is passed)."""

    id: Any
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition of a match, named after its setting; `what` says it in numbers."""

    name: str
    is_met: bool
    what: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of the second record when only the first was decided before, and the rules that decided."""

    action: Action
    reason: str
    by: Sequence[str]


@dataclass(frozen=True, slots=True)
class Weighing:
    """The n different terms of two texts, heaviest first.

    weights   int64 (2, n), fixed-point, 0 where a text does not have the term
    hashes    uint64 (n, bits / 64)
    distinct  how many terms each text had before the heaviest were taken
    """

    terms: Sequence[str]
    weights: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    distinct: tuple[int, int]

    @classmethod
    def of(cls, texts: Sequence[str], recipe: Recipe) -> Weighing:
        """Weigh the terms of two cleaned texts, as the recipe says."""
        tokens = Fingerprinter(recipe).tokens
        idf = shared_idf(recipe.idf_table)
        vocabulary = Vocabulary(recipe.terms, idf, frozenset(), recipe.bits)  # `tokens` leaves stop words out
        found = weigh(
            [[vocabulary[token] for token in tokens(text)] for text in texts], vocabulary, recipe.terms
        )
        rows, where = np.unique(found.rows, return_inverse=True)
        weights = np.zeros((2, len(rows)), np.int64)
        weights[np.repeat([0, 1], np.diff(found.offsets)), where] = found.weights
        order = np.argsort(-weights.max(axis=0), kind="stable")
        named = {row: term for term, row in vocabulary.items()}
        terms = [named[row] for row in rows[order].tolist()]
        first, second = found.distinct.tolist()
        return cls(terms, weights[:, order], vocabulary.hashes()[rows[order]], (first, second))

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the two TF-IDF vectors; 0.0 without terms."""
        from sklearn.metrics.pairwise import cosine_similarity  # takes a second to import

        return float(cosine_similarity(*self.weights[:, None] / WEIGHT)[0, 0]) if self.terms else 0.0


@dataclass(frozen=True, slots=True)
class Flip:
    """A bit in which two fingerprints differ, and the fewest terms whose change of weight flips it.

    bit    0 is the least significant one of the first word
    votes  sum of the terms' votes in each text, fixed-point; the bit is 1 where it is greater than 0
    terms  strongest first
    """

    bit: int
    votes: tuple[int, int]
    terms: Sequence[str]


def flips(weighing: Weighing) -> list[Flip]:
    """Return the bits in which the fingerprints of two texts differ.

    Term a has the hash 0b01, b 0b10; their weights are 3 and 1 in the first text, 1 and 3 in the second.
    Bit 0 has 3 - 1 = 2 votes and 1 - 3 = -2: it is flipped.  The loss of 2 in a's weight suffices: 2 - 2 is
    not greater than 0.

    >>> weights, hashes = np.array([[3, 1], [1, 3]]), np.array([[1], [2]], np.uint64)
    >>> flips(Weighing("ab", weights, hashes, (2, 2)))[0]
    Flip(bit=0, votes=(2, -2), terms=['a'])
    """
    octets = np.ascontiguousarray(weighing.hashes, "<u8").view(np.uint8)
    signs = 2 * np.unpackbits(octets, axis=1, bitorder="little").astype(np.int64) - 1
    first, second = weighing.weights @ signs
    changes = (weighing.weights[1] - weighing.weights[0])[:, None] * signs
    return [
        Flip(bit, (int(first[bit]), int(second[bit])), _pushers(weighing.terms, first[bit], changes[:, bit]))
        for bit in np.flatnonzero((first > 0) != (second > 0)).tolist()
    ]


def _pushers(terms: Sequence[str], votes: int, changes: npt.NDArray[np.int64]) -> list[str]:
    """Return the strongest terms that together take the votes to the other side of the threshold."""
    pushes = -changes if votes > 0 else changes
    needed = votes if votes > 0 else 1 - votes
    order = np.argsort(-pushes, kind="stable")
    enough = int(np.searchsorted(np.cumsum(pushes[order].clip(0)), needed)) + 1
    return [terms[place] for place in order[:enough].tolist()]


def shared_shingles(prints: Fingerprints) -> int:
    """Return how many shingles two texts have in common."""
    return len(np.intersect1d(prints.shingles[0], prints.shingles[1], assume_unique=True))


def jaccard(prints: Fingerprints) -> float:
    """Return the similarity of two texts' shingle sets, as the job measures it."""
    return similarity.jaccard(prints.shingles[0], prints.shingles[1])


def distance(prints: Fingerprints) -> int | None:
    """Return in how many bits two fingerprints differ; None when one of the texts has none."""
    return int(hamming(prints.bits[0], prints.bits[1])) if prints.near.all() else None


def segment_distances(prints: Fingerprints) -> list[int]:
    """Return in how many bits each 16-bit segment differs, the least significant of the first word first."""
    differing = np.ascontiguousarray(prints.bits[0] ^ prints.bits[1], "<u8").view("<u2")
    distances: list[int] = np.bitwise_count(differing).tolist()
    return distances


def rules(
    texts: Sequence[str], prints: Fingerprints, matching: Matching, distinct: tuple[int, int]
) -> list[Rule]:
    """Return what two texts must fulfil to match, in the order in which it is looked at."""
    bits, alike = distance(prints), jaccard(prints)
    counts = np.diff(prints.shingles.offsets).tolist()
    same = prints.digests[0].tobytes() == prints.digests[1].tobytes()
    found = [
        Rule("same_text", same, f"the cleaned texts {'are the same' if same else 'differ'}"),
        Rule(
            "min_terms",
            bool(prints.near.all()),
            f"{distinct[0]:,} and {distinct[1]:,} terms, at least {matching.min_terms} each are needed",
        ),
        Rule(
            "radius",
            bits is not None and bits <= matching.radius,
            f"the fingerprints are {bits} bits apart, at most {matching.radius} count as near"
            if bits is not None
            else "there are no two fingerprints to compare",
        ),
    ]
    if not matching.min_jaccard:
        return found
    if matching.numbers == "distinguish":
        seeds = number_seeds(texts)
        equal = bool(seeds[0] == seeds[1])
        found.append(Rule("numbers", equal, f"the numbers in them {'are the same' if equal else 'differ'}"))
    return [
        *found,
        Rule(
            "short_text",
            bool(prints.short.all()),
            f"{counts[0]:,} and {counts[1]:,} shingles, at most {matching.short_text} each make short texts",
        ),
        Rule(
            "min_jaccard",
            alike >= matching.min_jaccard,
            f"Jaccard similarity {alike:.4f}, at least {matching.min_jaccard:g} is needed",
        ),
    ]


def judged(reasons: Sequence[str], rules: Sequence[Rule]) -> Judgement:
    """Return the verdict that follows from the rules, and the names of those that decided.

    A match is the same text, or else near fingerprints or two short texts, confirmed by their shingles.
    """
    if any(reasons):
        return Judgement(Action.PASSED if reasons[1] else Action.UNIQUE, reasons[1], ["passed"])
    met = {rule.name: rule.is_met for rule in rules}
    if met["same_text"]:
        return Judgement(Action.DUPLICATE, "exact", ["same_text"])
    by_fingerprint = met["radius"]  # which takes two fingerprints, so enough terms in both
    if not by_fingerprint and not met.get("short_text"):
        lacking = "radius" if met["min_terms"] else "min_terms"
        return Judgement(Action.UNIQUE, "", [lacking, *(["short_text"] if "short_text" in met else [])])
    if not met.get("min_jaccard", True):
        return Judgement(Action.UNIQUE, "", ["min_jaccard" if met.get("numbers", True) else "numbers"])
    confirmed = ["min_jaccard"] if "min_jaccard" in met else []
    return Judgement(Action.DUPLICATE, "near", ["radius" if by_fingerprint else "short_text", *confirmed])


def marked(first: str, second: str) -> tuple[str, str]:
    """Return how two texts begin, with [-what only the first has-] and {+what only the second has+}.

    >>> marked("sold on 3 May", "sold on 12 May")
    ('sold on [-3-] May', 'sold on {+12+} May')
    """
    pieces = PIECE.findall(first[:BEGINNING]), PIECE.findall(second[:BEGINNING])
    left, right = "", ""
    for tag, a, b, c, d in SequenceMatcher(None, *pieces, autojunk=False).get_opcodes():
        one, other = "".join(pieces[0][a:b]), "".join(pieces[1][c:d])
        # What sticks out where a beginning was cut off is no difference: it may come next in the other text.
        is_cut = (tag == "delete" and b == len(pieces[0]) and len(second) > BEGINNING) or (
            tag == "insert" and d == len(pieces[1]) and len(first) > BEGINNING
        )
        left += f"[-{one}-]" if one and tag != "equal" and not is_cut else one
        right += f"{{+{other}+}}" if other and tag != "equal" and not is_cut else other
    return left, right


def as_json(records: tuple[Record, Record], prints: Fingerprints, recipe: Recipe) -> dict[str, Any]:
    """Return the whole explanation of two records as JSON values; `prints` has a row for each."""
    texts = [record.text for record in records]
    weighing = Weighing.of(texts, recipe)
    applied = [] if any(prints.reasons) else rules(texts, prints, recipe.matching, weighing.distinct)
    judgement = judged(prints.reasons, applied)
    counts, shared = np.diff(prints.shingles.offsets).tolist(), shared_shingles(prints)
    bits = distance(prints)
    return {
        "verdict": judgement.action.name.lower(),
        "reason": judgement.reason,
        "decided_by": list(judgement.by),
        "records": [
            {
                "id": record.id,
                "place": record.place,
                "passed": reason,
                "characters": len(record.text),
                "terms": terms,
                "shingles": count,
                "beginning": beginning,
            }
            for record, reason, terms, count, beginning in zip(
                records, prints.reasons, weighing.distinct, counts, marked(*texts), strict=True
            )
        ],
        "same_characters": sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        ),
        "rules": [asdict(rule) for rule in applied],
        "distance": bits,
        "segments": None if bits is None else segment_distances(prints),
        "jaccard": round(jaccard(prints), 4),
        "cosine": round(weighing.cosine, 4),
        "containment": [round(shared / count, 4) if count else 0.0 for count in counts],
        "terms": [
            {"term": term, "weights": [round(weight / WEIGHT, 4) for weight in weights]}
            for term, weights in zip(weighing.terms, weighing.weights.T.tolist(), strict=True)
        ],
        "flips": []
        if bits is None
        else [
            {"bit": flip.bit, "votes": [round(vote / WEIGHT, 4) for vote in flip.votes], "terms": flip.terms}
            for flip in flips(weighing)
        ],
        "settings": {"bits": recipe.bits, **asdict(recipe.matching), **asdict(recipe.terms)},
        "recipe": recipe.digest,
    }


def as_text(shown: Mapping[str, Any]) -> str:
    """Return an explanation for people, in lines of at most 110 columns."""
    lines = [*_verdict_lines(shown), ""]
    for name, record in zip(("first", "second"), shown["records"], strict=True):
        lines += _record_lines(name, record)
    if shown["rules"]:
        lines += ["", "rules", *_rule_lines(shown["rules"]), "", "measured", *_measured_lines(shown)]
    if shown["terms"]:
        lines += ["", *_term_lines(shown["terms"])]
    if shown["flips"]:
        lines += ["", *_flip_lines(shown["flips"])]
    settings = ", ".join(f"{name} {value}" for name, value in shown["settings"].items())
    lines += ["", *_wrapped(f"recipe {shown['recipe'][:12]}: {settings}")]
    return "\n".join(lines)


def _verdict_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    if "passed" in shown["decided_by"]:
        why = [
            f"the {name} cannot be judged ({record['passed']})"
            for name, record in zip(("first", "second"), shown["records"], strict=True)
            if record["passed"]
        ]
    else:
        said = {rule["name"]: rule["what"] for rule in shown["rules"]}
        why = [said[name] for name in shown["decided_by"]]
    kind = f"{shown['reason']} duplicate" if shown["verdict"] == "duplicate" else "no match"
    return _wrapped(f"{kind}: {'; '.join(why)}")


def _record_lines(name: str, record: Mapping[str, Any]) -> Iterator[str]:
    yield from _wrapped(f"{name}: {id_text(record['id'])} in the {record['place']}")
    if record["passed"]:
        yield f"  passed: {record['passed']}"
        return
    yield f"  {record['characters']:,} characters, {record['terms']:,} terms, {record['shingles']:,} shingles"
    yield from _wrapped(record["beginning"], "  | ")


def _rule_lines(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for rule in rules:
        yield f"  {rule['name']:<12} {'yes' if rule['is_met'] else 'no':<4} {rule['what']}"


def _measured_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    if shown["distance"] is not None:
        segments = " + ".join(map(str, shown["segments"]))
        yield f"  distance     {shown['distance']} of {shown['settings']['bits']} bits, by segment {segments}"
    yield f"  jaccard      {shown['jaccard']:.4f}  of the shingles of both are in common"
    first, second = shown["containment"]
    yield f"  containment  {first:.4f}  of the first's shingles are in the second, {second:.4f} the other way"
    yield f"  cosine       {shown['cosine']:.4f}  of the TF-IDF vectors"
    yield f"  the texts begin with {shown['same_characters']:,} equal characters"


def _term_lines(terms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"  {'heaviest terms':<{TERM_WIDTH}}{'first':>10}{'second':>10}"
    for one in terms[:HEAVIEST]:
        first, second = (f"{weight:.2f}" if weight else "-" for weight in one["weights"])
        yield f"  {_cell(one['term'])}{first:>10}{second:>10}"
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
        lead = f"  {_cell(term)}  "
        lines = _wrapped(", ".join(map(str, bits)), " " * (TERM_WIDTH + 4))
        yield lead + next(lines).strip()
        yield from lines
    if len(ordered) > HEAVIEST:
        yield f"  and {len(ordered) - HEAVIEST:,} more"


def id_text(value: Any) -> str:
    """Return an id, given as JSON values, in the form in which the command line takes it.

    >>> id_text({"$oid": "65920080000000000100002a"}), id_text(42), id_text("42")
    ('65920080000000000100002a', '42', '"42"')
    """
    if isinstance(value, dict) and value.keys() == {"$oid"}:
        return str(value["$oid"])
    return json.dumps(value, ensure_ascii=False)


def answer_as_text(shown: Mapping[str, Any]) -> str:
    """Return what the ledger says of a record, for people."""
    verdict = "not decided yet" if shown["verdict"] == "undecided" else shown["verdict"]
    lines = [f"{id_text(shown['id'])}: {verdict}"]
    for name, value in shown.items():
        if name in ("id", "verdict") or value is None:
            continue
        if name == "keeper":
            value = id_text(value)
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        lines.append(f"  {name.replace('_', ' '):<16} {value}")
    return "\n".join(line for given in lines for line in _wrapped(given))


def _wrapped(text: str, indent: str = "") -> Iterator[str]:
    """Yield lines of at most 110 columns; what cannot be printed becomes a space."""
    line, room = "", WIDTH - len(indent)
    for word in WORD.findall("".join(one if one.isprintable() else " " for one in text)):
        if line and _columns(line + word) > room:
            yield indent + line.rstrip()
            line, word = "", word.lstrip()
        line += word
    yield (indent + line).rstrip()


def _cell(term: str) -> str:
    """Return a term as a table's cell: cut off or filled up to its width."""
    line = next(_wrapped(term))
    while _columns(line) >= TERM_WIDTH:
        line = line.removesuffix("…")[:-1] + "…"
    return line + " " * (TERM_WIDTH - _columns(line))


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: Chinese characters take two."""
    return sum(1 + (unicodedata.east_asian_width(one) in "WF") for one in text)
