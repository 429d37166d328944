"""Compare thresholds and bands of the MinHash peers on sets with reference pairs, to choose their settings.

    python -m scripts.bench.explore_peers --data DIR --tools DIR [--sets leetcode,...] [--peers rensa]

Data, tools and scores are the same as in `scripts.bench.accuracy`; each peer gets the shingles that define
similarity. A row is one setting: F1 on each set, their mean, and the number of records that were dropped
without a similar kept record. The last line of a peer names the setting with the best mean, which
`scripts/bench/peers.py` should have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from statistics import mean

from scripts.bench.measure import row, table
from scripts.bench.peers import Rows, Sketching, datasketch_rows, gaoya_minhash_rows, rensa_rows
from scripts.bench.reference import Judge, Score, TextSet, arguments, chosen, wanted

THRESHOLDS = (0.70, 0.72, 0.74, 0.75, 0.76, 0.77, 0.78, 0.80, 0.85)
# Bands, rows.
SHAPES = ((32, 4), (18, 7))
PEERS: dict[str, Callable[[Sequence[str], Sketching], Rows]] = {
    "rensa RMinHash": rensa_rows,
    "gaoya MinHash": gaoya_minhash_rows,
    "datasketch MinHashLSH": datasketch_rows,
}


def tried(name: str, sets: Sequence[tuple[TextSet, Judge]]) -> tuple[float, Sketching]:
    """Print a row for each setting of a peer; return the best mean F1 and its setting."""
    means = {}
    for (bands, rows), threshold in product(SHAPES, THRESHOLDS):
        by = Sketching(threshold, bands, rows)
        scores = [score(name, by, *one) for one in sets]
        means[by] = mean(one.f1 for one in scores)
        figures = [f"{one.f1:.4f}" for one in scores]
        wiped = sum(one.wiped for one in scores)
        row(name, f"{threshold:.2f}", f"{bands} x {rows}", *figures, f"{means[by]:.4f}", wiped)
    best = max(means, key=means.__getitem__)
    return means[best], best


def score(name: str, by: Sketching, texts: TextSet, judge: Judge) -> Score:
    """Score the rows that a peer keeps of a set with one setting."""
    rows = PEERS[name](texts.asked, by)
    return judge.score(texts.kept(rows))


def main() -> None:
    """Try every setting, and print each row as soon as it is known."""
    parser = arguments(__doc__)
    parser.add_argument("--peers", type=chosen(*PEERS), default=list(PEERS))
    args = parser.parse_args()
    sets = list(wanted(args))
    table("who", "threshold", "bands", *args.sets, "mean F1", "wiped out")
    best = {name: tried(name, sets) for name in args.peers}
    for name, (f1, by) in best.items():
        print(f"\n{name}: {by.threshold:.2f} with {by.bands} x {by.rows}, mean F1 {f1:.4f}")


if __name__ == "__main__":
    main()
