"""Two different texts that have the same XXH3: by a fast hash they would be exact copies of each other.

XXH3 cuts a text into stripes of 64 bytes and multiplies the lower half of each eight bytes by the upper half.
Where the upper halves of two stripes are chosen to give the same factor, bits of the lower halves can change
places, and all sums stay as they were.
"""

from __future__ import annotations

from typing import Any

from bson import encode

BLOCK = 1024  # XXH3 begins anew with each so many bytes
FILLING = "we sell good things for a low price here. "


def _with(pieces: dict[int, str]) -> str:
    text = (FILLING * 30)[:BLOCK]
    for place, piece in pieces.items():
        text = text[:place] + piece + text[place + len(piece) :]
    return text + "and this is the end of it: all the rest is as it was, in one text and in the other"


ONE = _with({824: "06gd2b7b", 880: "hwce1nh9", 952: "jwwyafn2", 1008: "mbsibj1i"})
OTHER = _with({824: "27wl2b7b", 880: "ifsm1nh9", 952: "hvgqafn2", 1008: "lscabj1i"})


def colliding_records(raw_id: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two records with one id that have the same XXH3: their texts begin where a block does."""
    before = len(encode({"_id": raw_id, "pad": "", "text": ""})) - len("\0\0")
    pad = "x" * (BLOCK - before)
    return {"_id": raw_id, "pad": pad, "text": ONE}, {"_id": raw_id, "pad": pad, "text": OTHER}
