"""The checks of an audit: each kind of difference, and the SQL query that finds it.

Actions are the values of `Action`.  A dropped record that a person restored gets the action `RESTORED`: its
restored version must be in the target, it has no row, and is the keeper of no record.
"""

from __future__ import annotations

from dataclasses import dataclass

RESTORED = 4
RESTORE = (
    f"""UPDATE decided SET action = {RESTORED}, hash = (SELECT hash FROM restored r WHERE r.id = decided.id)
        WHERE action = 1 AND id IN (SELECT id FROM restored)""",
    "DELETE FROM noted WHERE name = 'dropped' AND id IN (SELECT id FROM restored)",
)
NOTING = ("dropped", "exceptions")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of difference.

    Attributes:
        name: Its name in JSON.
        means: Its meaning, for people.
        question: SQL that selects the ids of the records with this difference.
        of_sample: Whether it can be found in a sample of the decisions.
    """

    name: str
    means: str
    question: str = ""
    of_sample: bool = True


# With a damaged ledger, the other checks would mean nothing.
LEDGER = (
    Kind("pending", "a plan is accepted and not applied yet: run the job again, then verify"),
    Kind("plan_missing", "a plan is not in the ledger: restore the target database from a backup"),
    Kind("plan_damaged", "a plan is corrupt (checksum mismatch): restore the target database from a backup"),
    Kind(
        "chain_broken", "a plan does not follow the plan before it: restore the target database from a backup"
    ),
)
HEAD = (
    Kind("counters", "the counts in the head differ from the sum of the plans", of_sample=False),
    Kind("watermark", "the watermark is not the last id that a backfill decided", of_sample=False),
)
NUMBERS = Kind("numbers", "a collection has more or fewer records than the ledger's counts say")

MISSING = Kind(
    "missing",
    "a record that was kept is not in the target",
    f"""SELECT id FROM decided WHERE action IN (0, 2, {RESTORED})
        AND NOT EXISTS (SELECT 1 FROM target t WHERE t.id = decided.id)""",
)
ALTERED = Kind(
    "altered",
    "a record in the target differs from the version that was judged",
    f"""SELECT d.id FROM decided d JOIN target t USING (id)
       WHERE d.action IN (0, 2, {RESTORED}) AND d.reason != 'changed' AND t.hash != d.hash""",
)
RECORDS = (
    Kind("decided_twice", "two decisions on one record", "SELECT id FROM decided WHERE times > 1"),
    MISSING,
    ALTERED,
    Kind(
        "foreign",
        "a record in the target that the ledger does not keep",
        """SELECT t.id FROM target t LEFT JOIN decided d USING (id)
           WHERE (d.id IS NULL OR (d.action = 3 AND d.reason != 'conflict'))
           AND NOT EXISTS (SELECT 1 FROM stayed s WHERE s.id = t.id)""",
        of_sample=False,
    ),
    Kind(
        "duplicate_in_target",
        "a dropped record is in the target",
        "SELECT d.id FROM decided d JOIN target t USING (id) WHERE d.action = 1",
    ),
    Kind(
        "keeper_missing",
        "a dropped record whose keeper is not in the target",
        """SELECT id FROM decided WHERE action = 1
           AND NOT EXISTS (SELECT 1 FROM target t WHERE t.id = decided.keeper)""",
    ),
    Kind(
        "keeper_altered",
        "a dropped record whose keeper in the target differs from the version that was judged",
        """SELECT d.id FROM decided d JOIN decided k ON k.id = d.keeper JOIN target t ON t.id = k.id
           WHERE d.action = 1 AND k.action = 0 AND t.hash != k.hash""",
    ),
    Kind(
        "keeper_unknown",
        "a dropped record whose keeper was never decided",
        """SELECT id FROM decided d WHERE action = 1
           AND NOT EXISTS (SELECT 1 FROM decided k WHERE k.id = d.keeper)""",
        of_sample=False,
    ),
    Kind(
        "keeper_not_kept",
        "a dropped record whose keeper is not kept itself",
        "SELECT d.id FROM decided d JOIN decided k ON k.id = d.keeper WHERE d.action = 1 AND k.action != 0",
    ),
    Kind(
        "keeper_later",
        "a dropped record whose keeper was decided later",
        """SELECT d.id FROM decided d JOIN decided k ON k.id = d.keeper
           WHERE d.action = 1 AND k.place >= d.place""",
    ),
    Kind(
        "text_differs",
        "an exact duplicate whose text differs from its keeper's",
        """SELECT d.id FROM decided d JOIN decided k ON k.id = d.keeper
           WHERE d.action = 1 AND d.reason = 'exact' AND k.digest != d.digest""",
    ),
    Kind(
        "row_missing",
        "a dropped, unjudged or refused record without its row in `dropped` or `exceptions`",
        " UNION ALL ".join(
            f"""SELECT id FROM noted n WHERE name = '{name}'
                AND NOT EXISTS (SELECT 1 FROM {name} r WHERE r.id = n.key)"""
            for name in NOTING
        ),
    ),
    Kind(
        "row_superfluous",
        "a row in `dropped` or `exceptions` that no plan asks for",
        " UNION ALL ".join(
            f"""SELECT r.id FROM {name} r
                WHERE NOT EXISTS (SELECT 1 FROM noted n WHERE n.name = '{name}' AND n.key = r.id)"""
            for name in NOTING
        ),
    ),
    Kind(
        "row_differs",
        "a row in `dropped` or `exceptions` that says other than its plan",
        " UNION ALL ".join(
            f"""SELECT n.id FROM noted n JOIN {name} r ON r.id = n.key
                WHERE n.name = '{name}' AND r.note != n.note"""
            for name in NOTING
        ),
    ),
    Kind(
        "undecided",
        "a record of the source that no plan decided, though by its id runs may have looked past it: "
        "dedup-job reconcile decides it",
        "SELECT id FROM undecided",
        of_sample=False,
    ),
)
# Asked of a keeper's own decision, which a sample may lack.
OF_KEEPERS = tuple(kind for kind in RECORDS if kind.name in ("keeper_not_kept", "keeper_later"))
