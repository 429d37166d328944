"""Two different texts with the same XXH3 hash: by a fast hash they would be exact duplicates.

XXH3 divides a text into stripes of 64 bytes, and multiplies the lower half of each eight bytes by the upper
half. If the upper halves of two stripes give the same factor, the lower halves can exchange bits without
changing any sum.
"""

from __future__ import annotations

from typing import Any

from bson import encode

# XXH3 starts a new block after this many bytes.
BLOCK = 1024
FILLING = "we sell good things for a low price here. "


def _with(pieces: dict[int, str]) -> str:
    text = (FILLING * 30)[:BLOCK]
    for place, piece in pieces.items():
        text = text[:place] + piece + text[place + len(piece) :]
    return text + "and this is the end of it: all the rest is as it was, in one text and in the other"


ONE = _with({824: "06gd2b7b", 880: "hwce1nh9", 952: "jwwyafn2", 1008: "mbsibj1i"})
OTHER = _with({824: "27wl2b7b", 880: "ifsm1nh9", 952: "hvgqafn2", 1008: "lscabj1i"})


def colliding_records(raw_id: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two records with the same id and the same XXH3 hash; their texts begin at a block boundary."""
    before = len(encode({"_id": raw_id, "pad": "", "text": ""})) - len("\0\0")
    pad = "x" * (BLOCK - before)
    return {"_id": raw_id, "pad": pad, "text": ONE}, {"_id": raw_id, "pad": pad, "text": OTHER}
