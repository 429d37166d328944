"""What an audit is about: a target with its ledger, which some run must have made."""

from __future__ import annotations

from dedup_job.errors import ConfigError
from dedup_job.mongo.commit import check_fits
from dedup_job.mongo.head import Head
from dedup_job.mongo.ledger import LedgerReader
from dedup_job.wiring import Parts


def target_name(parts: Parts) -> str:
    """Return the full name of the target."""
    return f"{parts.settings.target.database}.{parts.settings.target.collection}"


def head_of(parts: Parts, reader: LedgerReader) -> Head:
    """Return the state of the ledger; raises ConfigError where there is none, or it is of another job."""
    head = reader.head()
    if head is None:
        raise ConfigError(f"[target]: {target_name(parts)} has no ledger; nothing was decided for it yet")
    check_fits(head, parts.origin)
    return head
