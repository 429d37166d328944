from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from bson import encode

from dedup_job.commands import guard
from dedup_job.commands.guard import FIRST, FirstLook, HeldBack, Notes, stop
from dedup_job.document import Batch, Fingerprints
from dedup_job.errors import GuardStop


def batch(count: int, unjudged: int = 0, nbytes: int = 0) -> tuple[Batch, Fingerprints]:
    """Records with a title, so many of which have no text where it was looked for."""
    raws = [encode({"_id": n, "title": "secret", "of": {"body": "x" * nbytes}}) for n in range(count)]
    ids = [encode({"_id": n}) for n in range(count)]
    rows = [Fingerprints.unjudged("missing" if n < unjudged else "", 1, 1, b"") for n in range(count)]
    return Batch(ids, raws), Fingerprints.join(rows)


class Engine:
    """Hands on what was fingerprinted before, and counts it."""

    def __init__(self, *done: tuple[Batch, Fingerprints]) -> None:
        self.done, self.asked = done, 0

    def fingerprinted(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Fingerprints]]:
        for one in self.done:
            self.asked += 1
            yield one


def held(engine: Engine, look: FirstLook) -> Iterator[int]:
    """How many batches the engine had made when each was handed on."""
    for _ in HeldBack(engine, look).fingerprinted([]):
        yield engine.asked


def told(look_at: Sequence[tuple[Batch, Fingerprints]], share: float = 0.95, least: int = FIRST) -> list[str]:
    notes = Notes()
    list(held(Engine(*look_at), FirstLook(share, notes, least)))
    return notes.messages


def test_nothing_is_handed_on_before_the_first_records_were_looked_at() -> None:
    engine = Engine(batch(400), batch(400), batch(400), batch(400))
    assert list(held(engine, FirstLook(0.95, stop))) == [3, 3, 3, 4]


def test_records_of_which_nearly_none_can_be_judged_stop_the_run_before_any_is_handed_on() -> None:
    engine = Engine(batch(500, 500), batch(500, 451), batch(500))
    with pytest.raises(GuardStop) as caught:
        next(held(engine, FirstLook(0.95, stop)))
    message = str(caught.value)
    assert message.startswith(
        "951 of the first 1,000 records cannot be judged (missing 951), more than [limits] "
        "max_unjudged_share = 0.95; of 100 records, text is in title 100, of.body 100; run again with --allow"
    )
    assert "secret" not in message
    assert caught.value.exit_code == 5


def test_the_limit_itself_is_allowed_and_1_allows_everything() -> None:
    assert told([batch(1000, 950)]) == []
    assert told([batch(1000, 1000)], share=1) == []
    assert len(told([batch(1000, 1)], share=0)) == 1


def test_of_a_few_records_a_run_says_nothing_and_a_dry_run_does() -> None:
    few = [batch(3, 3)]
    assert told(few) == []
    assert told(few, least=1)[0].startswith("3 of the first 3 records")
    assert told([], least=1) == []


def test_it_tells_once_and_hands_everything_on() -> None:
    notes = Notes()
    engine = Engine(batch(1000, 1000), batch(1000, 1000))
    assert list(held(engine, FirstLook(0.95, notes))) == [1, 2]
    assert len(notes.messages) == 1


def test_a_look_goes_on_over_several_parts_of_the_source() -> None:
    look = FirstLook(0.95, stop)
    assert list(held(Engine(batch(600, 600)), look)) == [1]
    with pytest.raises(GuardStop):
        list(held(Engine(batch(600, 600)), look))


def test_large_records_are_not_held_without_end_and_still_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "HELD_BYTES", 100_000)
    engine = Engine(*(batch(100, 100, nbytes=300) for _ in range(11)))
    handed = []
    with pytest.raises(GuardStop):
        handed += list(held(engine, FirstLook(0.95, stop)))
    engine = Engine(*(batch(100, 0, nbytes=300) for _ in range(11)))
    assert list(held(engine, FirstLook(0.95, stop))) == [3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_records_without_any_text_name_the_fields_that_there_are() -> None:
    found, prints = batch(1000, 1000)
    raws = [encode({"_id": 0, "n": 3, "odd\x1b[0m": None})] * 1000
    (message,) = told([(Batch(found.ids, raws), prints)])
    assert message.endswith("no text is in their fields: n, 'odd\\x1b[0m'")
