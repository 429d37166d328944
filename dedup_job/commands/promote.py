"""`promote`: replace the source by its finished target, and continue without copies.

The steps: the head says what will be renamed; the source gets another name, and the target the source's;
records that arrived between the check and the renames are copied; the head says that it is done.  Collections
are found by their UUIDs, and each step can be repeated, so a killed promotion is finished by the next.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from dedup_job.commands.promotion_checks import (
    Intention,
    Pair,
    check_collections,
    compare_records,
    is_source_in_place,
)
from dedup_job.errors import LeaseHeld, StateError
from dedup_job.ledger.commit_plans import Ledger
from dedup_job.ledger.promotion_state import DONE, RETURNING, Promotion
from dedup_job.ledger.rows_on_records import left_row
from dedup_job.ledger.run_row import RunId
from dedup_job.mongo.collection_checks import is_capped
from dedup_job.mongo.copy_indexes import Indexes
from dedup_job.mongo.ids import IdSet
from dedup_job.mongo.pages import Window
from dedup_job.mongo.rename_by_uuid import NameTaken
from dedup_job.mongo.target import Target
from dedup_job.report.change_source_results import PromoteResult
from dedup_job.report.progress import Advance

# Times that a collection is moved away that a program made under the source's name between the renames.
TRIES = 100
# The reason in the ledger's rows on records that arrived in the target while it had the source's name.
ARRIVED = "promoted"


def promote(pair: Pair, intended: Intention, skip_verify: bool, advance: Advance) -> PromoteResult:
    """Promote a target, or take a promotion back; finish what a killed command began.

    Args:
        pair: The collections.
        intended: The renames that were checked.
        skip_verify: Whether not to compare the collection that made room, after the renames.
        advance: Called with the number of records that were compared since the last call.

    Raises:
        LeaseHeld: If another command wrote to the ledger since the check.
    """
    run, started = RunId.new("promote"), time.monotonic()
    with pair.open_ledger(run) as ledger:
        head, promotion = ledger.current_head, intended.promotion
        if intended.fence is not None and head.fence != intended.fence + 1:
            raise LeaseHeld("another command used this ledger since the check; promote again")
        if head.promotion is not None:
            promotion = replace(head.promotion, state=promotion.state)
        check_collections(pair, promotion)
        ledger.swap({"pending": None, "undo": None}, {"promotion": promotion.key})
        done = PromotionSteps(pair, ledger, run).carry_out(promotion, skip_verify, advance)
        done.seconds = time.monotonic() - started
        ledger.close({**done.as_json(), "exit_code": done.exit_code})
    return done


def already_done(pair: Pair, is_back: bool) -> PromoteResult:
    """Return the result of a command that has nothing to do."""
    promotion = pair.head().promotion
    former = promotion.kept_as if promotion else pair.target
    return replace(_new_result(pair, "", former, is_back), already=True)


def _new_result(pair: Pair, run: str, former: str, is_back: bool) -> PromoteResult:
    """Return the result of a promotion, or of a return, before anything is renamed."""
    needs_setting = pair.settings.target.has_copies != is_back
    source, former = pair.full_name(pair.place), pair.full_name(former)
    return PromoteResult(run, source, former, is_back, needs_setting=needs_setting)


@dataclass(frozen=True, slots=True)
class PromotionSteps:
    """The steps after the head says what will be renamed; each can be repeated.

    Attributes:
        pair: The collections.
        ledger: The ledger, with the lease.
        run: The run.
    """

    pair: Pair
    ledger: Ledger
    run: RunId

    def carry_out(self, promotion: Promotion, skip_verify: bool, advance: Advance) -> PromoteResult:
        """Rename the collections, copy the records that arrived during them, and store that it is done."""
        pair, is_back = self.pair, promotion.state == RETURNING
        former = pair.target if is_back else promotion.kept_as
        result = _new_result(pair, self.run.name, former, is_back)
        # If a collection was dropped or put back from a dump, nothing is renamed.
        is_in_place = is_back and is_source_in_place(pair, pair.renamer.uuids(), promotion)
        if not is_back:
            self._exchange(promotion.former, promotion.kept_as, promotion.promoted)
        elif not is_in_place:
            self._exchange(promotion.promoted, pair.target, promotion.former)
        result.others = [pair.full_name(name) for name in self._promotion.others]
        if not is_back:
            indexes = Indexes(pair.collection(former), pair.collection(pair.place)).compare()
            result.expiries = indexes.expiries
        self._copy_arrivals(former, is_back, result)
        for name in self._promotion.others:
            self._copy(name, Window(), result)
        if not skip_verify and not is_in_place:
            head = self.ledger.current_head
            result.changed, result.vanished = compare_records(pair, former, head, advance)
        self._finish(is_back)
        return result

    @property
    def _promotion(self) -> Promotion:
        promotion = self.ledger.current_head.promotion
        assert promotion is not None
        return promotion

    def _exchange(self, outgoing: str, aside: str, incoming: str) -> None:
        """Move one collection out of the place and the other in, both given by UUID.

        Raises:
            LeaseHeld: If another command has taken the lease.
            StateError: If programs make a new collection in the place each time it is free.
        """
        self.ledger.deadline()
        try:
            self.pair.renamer.move(outgoing, aside)
        except NameTaken:
            raise StateError(
                f"{self.pair.full_name(aside)} exists by now; give that collection another name, and finish "
                f"the promotion: {self._promotion.command}"
            ) from None
        for _ in range(TRIES):
            self._check_held()
            try:
                self.pair.renamer.move(incoming, self.pair.place)
            except NameTaken:
                self._move_other_away()
            else:
                return
        raise StateError(
            f"programs keep making a new collection {self.pair.full_name(self.pair.place)} while the name is "
            f"free; stop them, and finish the promotion: {self._promotion.command}"
        )

    def _check_held(self) -> None:
        """Raise LeaseHeld if another command has taken the lease; first undo a rename that came too late.

        A rename cannot ask who has the lease.  If this process was paused just before its first one, another
        may have ended the promotion, or taken it back, in the meantime.
        """
        try:
            self.ledger.deadline()
        except LeaseHeld:
            mine, now = self._promotion, self.pair.head().promotion
            # While another command renames, it finds the collections wherever they are.
            if now is None or now.is_done:
                with suppress(NameTaken):
                    self.pair.renamer.move(now.promoted if now else mine.former, self.pair.place)
            raise

    def _move_other_away(self) -> None:
        """Rename a collection that a program made in the place, under a name that the head has first."""
        promotion, uuids = self._promotion, self.pair.renamer.uuids()
        other = uuids.get(self.pair.place)
        # A late command of a killed promotion may have moved the right collection in by now.
        if not other or other in (promotion.former, promotion.promoted):
            return
        # A name that is noted already is used again: a late command could move the wrong collection to it.
        noted = promotion.others[-1] if promotion.others else None
        if noted is None or noted in uuids:
            numbered = (f"{promotion.kept_as}_{number}" for number in range(1, len(uuids) + 2))
            noted = next(name for name in numbered if name not in uuids)
            more = replace(promotion, others=(*promotion.others, noted))
            self.ledger.swap({"pending": None}, {"promotion": more.key})
        # If the name is taken by now, the next try chooses another.
        with suppress(NameTaken):
            self.pair.renamer.move(other, noted)

    def _copy_arrivals(self, former: str, is_back: bool, result: PromoteResult) -> None:
        """Copy the undecided records of the collection that made room, which arrived after the check.

        After a return they stay in the target, too, and the ledger says so.
        """
        plans = self.ledger.plan_columns(self.ledger.current_head)
        if is_back:
            known = (plan.ids for plan in plans)
            window = Window(decided=IdSet.of(chain(known, [self.ledger.left(is_decided=True)])))
        else:
            window = Window().without(plans)
        self._copy(former, window, result, stay=is_back)

    def _copy(self, name: str, window: Window, result: PromoteResult, stay: bool = False) -> None:
        """Insert the records of a window of one collection into the one in place.

        Args:
            name: Name of the collection.
            window: The window.
            result: Gets the counts.
            stay: Whether the ledger must say that the records stay in the target.
        """
        place = self.pair.collection(self.pair.place)
        inserter = Target(place)
        # A capped former source takes none: each record might push another one out.
        takes_none = is_capped(place)
        for batch in self.pair.records(name, with_marks=True).batches(window):
            refused = range(len(batch)) if takes_none else inserter.insert(batch.raws)
            result.refused.extend(batch.ids[row] for row in sorted(refused))
            result.arrived += len(batch) - len(refused)
            if stay:
                at = datetime.now(UTC)
                rows = [left_row(raw_id, ARRIVED, self.run.name, at) for raw_id in batch.ids]
                self.ledger.rows.put("left", rows)

    def _finish(self, is_back: bool) -> None:
        """Store that the ledger belongs to the collection in place from now on."""
        promotion, head = self._promotion, self.ledger.current_head
        after: dict[str, Any] = {"has_copies": is_back, "looked": None}
        if is_back:
            after |= {"promotion": None, "mark": promotion.mark}
            if head.sweep is not None:
                # What was swept since the promotion is back, or moved elsewhere by a person.
                after["sweep"] = None
            moved = {"source": promotion.former, "target": promotion.promoted}
        else:
            # Their records are copied, and belong to the collection in place from now on.
            done = replace(promotion, state=DONE, others=())
            after |= {"promotion": done.key, "mark": None}
            moved = {"source": promotion.promoted}
        if head.places is not None:
            uuids = {part: uuid for part, uuid in head.places["collections"].items() if part != "target"}
            after["places"] = {**head.places, "collections": uuids | moved}
        self.ledger.swap({"pending": None}, after)
