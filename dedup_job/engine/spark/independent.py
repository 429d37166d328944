"""Keep-first as an independent set: which texts are dropped, of all pairs that match; pure.

A text is kept when no earlier kept text matches it: the kept ones are the lexicographically first maximal
independent set of the matches.  It can be found in rounds, in which many texts are settled side by side: one
without an earlier open text is kept, those that match it are dropped, and both leave (Blelloch, Fineman and
Shun, "Greedy sequential maximal independent set and matching are parallel on average", SPAA 2012).  Where
little is left it is faster to go over it in order, once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dedup_job.native.compiled import compiled

Numbers = npt.NDArray[np.int64]


class Edges(NamedTuple):
    """Matches of two texts, the later and the earlier one, both int64 (n,)."""

    later: Numbers
    earlier: Numbers


def dropped(edges: Edges) -> Numbers:
    """Return the texts that are dropped, ascending.

    Of a chain 0 - 1 - 2 only the middle one is:

    >>> dropped(Edges(np.array([1, 2]), np.array([0, 1])))
    array([1])
    """
    texts, places = np.unique(np.concatenate(edges), return_inverse=True)
    later, earlier = places[: len(edges.later)], places[len(edges.later) :]
    order = np.argsort(later, kind="stable")
    is_dropped = _dropped(later[order], earlier[order], len(texts))
    found: Numbers = texts[is_dropped]
    return found


@compiled
def _dropped(later: Numbers, earlier: Numbers, texts: int) -> npt.NDArray[np.bool_]:
    """Go over the edges in the order of their later texts; all edges of earlier texts come before."""
    is_dropped = np.zeros(texts, np.bool_)
    for edge in range(len(later)):
        if not is_dropped[earlier[edge]]:
            is_dropped[later[edge]] = True
    return is_dropped
