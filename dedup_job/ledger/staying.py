"""Staying: which records an undo leaves in the target, and why.

A record goes only where the source has it as it was judged: else nothing could bring it back.
"""

from __future__ import annotations

from collections.abc import Mapping

from dedup_job.document import digest
from dedup_job.ledger.arrival import is_as_judged
from dedup_job.ledger.succession import ALTERED
from dedup_job.mongo.sent import arrived
from dedup_job.mongo.source import Source

VANISHED = "vanished"
CHANGED = "changed"


def reasons_to_stay(
    found: Mapping[bytes, bytes], hashes: Mapping[bytes, bytes], source: Source
) -> dict[bytes, str]:
    """Return which of the records that were found in the target stay there, and why.

    hashes  of the same records, as they were judged
    """
    reasons: dict[bytes, str | None] = {}
    for some in source.fetch(list(found)):  # some megabytes at a time
        reasons |= {
            raw_id: _reason(found[raw_id], some[raw_id], hashes[raw_id])
            for raw_id in some.keys() & found.keys()
        }
    gone = found.keys() - reasons.keys()
    reasons |= {raw_id: _reason(found[raw_id], None, hashes[raw_id]) for raw_id in gone}
    return {raw_id: reason for raw_id, reason in reasons.items() if reason is not None}


def _reason(stored: bytes, sent: bytes | None, judged: bytes) -> str | None:
    """Return why a stored record stays, or None where the source has sent it and has it as it was judged."""
    if sent is not None and digest(sent) == judged and arrived(sent, stored):
        return None
    if not is_as_judged(stored, judged):
        return ALTERED
    return VANISHED if sent is None else CHANGED
