"""The rows that say what became of single records: in `dropped`, in `exceptions`, and those of persons.

A row is keyed by the bytes of the id, as plans are.  Where the server might take another id for the same (25
and 25.0), the key holds these bytes; so it does on a record that was adopted, which the source may have too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from bson import encode
from bson.raw_bson import RawBSONDocument

from dedup_job.document import RAW, Action
from dedup_job.ledger.stored_plan import StoredPlan
from dedup_job.mongo.ids import LONGEST_JUDGED, as_field, id_of, is_alone
from dedup_job.mongo.raw_documents import DOCUMENT, HEAD, document, elements
from dedup_job.plan import ADOPT

INNER = HEAD + 1 + 4 + HEAD  # where the elements of an id begin that is a document
OF = b"of\0"
NOT_SHOWN = b"\x0a" + OF  # null, for an id that is too long to be in a key twice


def row_key(raw_id: bytes, is_adopted: bool = False) -> bytes:
    """Return the key of the row on a record, as a raw id: the id itself, or what tells it from equal ones.

    >>> from bson import decode, encode
    >>> decode(row_key(encode({"_id": 25}))), decode(row_key(encode({"_id": 25.0})))["_id"]["of"]
    ({'_id': 25}, 25.0)
    """
    looks_like_a_key = raw_id[HEAD] == DOCUMENT and raw_id[INNER:].startswith(OF, 1)
    if not is_adopted and is_alone(raw_id) and not looks_like_a_key:
        return raw_id
    told = elements(encode({"bytes": raw_id, "adopted": is_adopted}))
    shown = as_field(raw_id, "of") if len(raw_id) <= LONGEST_JUDGED else NOT_SHOWN
    return document(b"\x03_id\0" + document(shown, told))


def row_keys(ids: Iterable[bytes]) -> list[bytes]:
    """Return the keys of the rows on some records."""
    return [row_key(raw_id) for raw_id in ids]


def id_of_row(row: bytes) -> bytes:
    """Return the id of the record that a row is on."""
    key = id_of(row)
    if key[HEAD] == DOCUMENT and key[INNER:].startswith(OF, 1):
        return bytes(RawBSONDocument(key, RAW)["_id"]["bytes"])
    return key


def keeper_of_row(row: bytes) -> bytes:
    """Return the keeper, as a raw id, of a row of `dropped`: the element behind `_id`."""
    rest = row[len(id_of(row)) - 1 : -1]
    return id_of(document(rest.replace(b"keeper\0", b"_id\0", 1)))


def dropped_row(stored: StoredPlan, row: int) -> bytes:
    """Return the row on a dropped record, raw."""
    verdict = stored.plan.verdicts[row]
    assert verdict.match is not None
    jaccard = verdict.match.similarity
    about = {
        "reason": verdict.reason,
        "distance": verdict.match.distance,
        "similarity": None if jaccard is None else round(jaccard, 4),
        "run": stored.run,
        "at": stored.at,
    }
    keeper = as_field(verdict.match.keeper, "keeper")
    return document(elements(row_key(stored.plan.ids[row])), keeper, elements(encode(about)))


def left_row(raw_id: bytes, reason: str, run: str, at: datetime, **more: str) -> bytes:
    """Return the row on a record that stays in the target, raw; `more` is what else is known of it."""
    about = {"reason": reason, "run": run, "at": at, **more}
    return document(elements(row_key(raw_id)), elements(encode(about)))


def exception_row(stored: StoredPlan, row: int) -> bytes:
    """Return the row on a record that was unjudged or refused, raw."""
    verdict = stored.plan.verdicts[row]
    about = {
        "action": verdict.action.name.lower(),
        "reason": verdict.reason,
        "stage": "target" if verdict.action == Action.REFUSED else "fingerprint",
        "run": stored.run,
        "at": stored.at,
    }
    key = row_key(stored.plan.ids[row], stored.mode == ADOPT)
    return document(elements(key), elements(encode(about)))
