from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dedup_job.document import Ragged
from dedup_job.fingerprint.characters import encoded, offsets_of
from dedup_job.fingerprint.interning import Interned

BATCHES = st.lists(st.lists(st.text("ab中\U0001f600", min_size=1, max_size=4), max_size=40), max_size=4)


def given_as(strings: Sequence[str]) -> Ragged:
    ended = [f"{string} " for string in strings]
    return Ragged(offsets_of(ended), encoded("".join(ended)).copy())


@given(BATCHES)
def test_a_string_has_its_number_from_when_it_is_first_met(batches: list[list[str]]) -> None:
    known, expected = Interned(), dict[str, int]()
    for batch in batches:
        numbers, new = known.numbers(given_as(batch))
        assert new == "".join(f"{string} " for string in dict.fromkeys(batch) if string not in expected)
        for string in batch:
            expected.setdefault(string, len(expected))
        assert numbers.tolist() == [expected[string] for string in batch]
    assert known.characters == sum(len(string) + 1 for string in expected)


def test_many_strings_make_the_table_grow_and_keep_their_numbers() -> None:
    known, batch = Interned(), [f"string{number}" for number in range(10_000)]
    for start in range(0, len(batch), 1_000):
        known.numbers(given_as(batch[start : start + 1_000]))
    assert known.numbers(given_as(batch))[0].tolist() == list(range(len(batch)))
