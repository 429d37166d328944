from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dedup_job.fingerprint.interning import Interned
from dedup_job.text.characters import decode_texts, encode_texts

STRINGS = st.text("ab中\0 \U0001f600\U0010ffff", max_size=6)


@given(st.lists(st.lists(STRINGS, max_size=40), max_size=4))
def test_a_string_has_its_number_from_when_it_is_first_met(batches: list[list[str]]) -> None:
    known, expected = Interned(), dict[str, int]()
    for batch in batches:
        looked_up = known.known(encode_texts(batch))
        assert looked_up.tolist() == [expected.get(string, -1) for string in batch]
        numbers, new = known.numbers(encode_texts(batch))
        assert decode_texts(new) == [string for string in dict.fromkeys(batch) if string not in expected]
        for string in batch:
            expected.setdefault(string, len(expected))
        assert numbers.tolist() == [expected[string] for string in batch]
    assert known.strings() == list(expected)
    assert len(known) == len(expected)
    assert known.characters == sum(map(len, expected))


def test_many_strings_make_the_table_grow_and_keep_their_numbers() -> None:
    known, batch = Interned(), [f"{number}" for number in range(10_000)]
    for start in range(0, len(batch), 1_000):
        known.numbers(encode_texts(batch[start : start + 1_000]))
    assert known.numbers(encode_texts(batch))[0].tolist() == list(range(len(batch)))


def test_the_key_of_a_short_string_is_its_code_points() -> None:
    known = Interned()
    known.numbers(encode_texts(["ab", "\U0010ffff" * 3, "abcd"]))
    keys = {f"{key:x}" for key, entry in known._slots.tolist() if entry}
    assert {"c600062", f"{0x110000 * (1 | 1 << 21 | 1 << 42):x}"} < keys
    assert len(keys) == 3
