"""Collections made up by number: the same every time, and true to what is planted in them."""

from __future__ import annotations

import html
import re
import unicodedata
from itertools import combinations

import bson
import numpy as np
import pytest
from bson import ObjectId

from scripts.bench.forms import CHANGED, ONE_FORM, THIRTY
from scripts.bench.made_up import (
    EXACT,
    KINDS,
    NEAR,
    ORIGINAL,
    Collection,
    Forms,
    Numbers,
    Originals,
    Pages,
    below,
    hashed,
    numbers_of,
    similarity,
    vocabulary,
)

COUNT = 3_000
PAGES = Collection(Pages(seed=3), seed=3)
NUMBERS = np.arange(COUNT)


def seen(collection: Collection, numbers: Numbers) -> list[str]:
    """What a reader sees of the records: their texts, read from the BSON without what made them."""
    data = (bson.decode(raw)["data"] for raw in collection.records(numbers))
    return [html.unescape(re.sub(r"<[^>]*>", " ", text)) for text in data]


def compared(text: str) -> str:
    """What counts of a text, by the definition of the project."""
    normal = unicodedata.normalize("NFKC", text).lower()
    return "".join(c for c in normal if unicodedata.category(c)[0] in "LMNS" or c in "#%&@")


def independent(one: str, other: str) -> float:
    """The similarity of two texts by the definition of the project, computed on its own."""

    def runs(text: str) -> set[str]:
        found = set()
        for at, letter in enumerate(text):
            length = 3 if "\u2e80" <= letter <= "\u9fff" else 5
            if at + length <= len(text):
                found.add(text[at : at + length])
        return found

    first, second = runs(compared(one)), runs(compared(other))
    return len(first & second) / len(first | second)


def inside(form: Forms, texts: int) -> list[float]:
    """The similarities of all pairs of the same form."""
    numbers = np.arange(texts)
    kinds = below(form.forms, hashed(form.seed, KINDS, numbers))
    of = Collection(form, copies=0).texts(numbers)
    return [similarity(of[i], of[j]) for i, j in combinations(range(texts), 2) if kinds[i] == kinds[j]]


@pytest.mark.parametrize("originals", [Pages(seed=5), Forms(seed=5)])
def test_a_record_follows_from_its_number_alone(originals: Originals) -> None:
    collection = Collection(originals, seed=5)
    together = collection.records(NUMBERS + 10_000_000)
    chosen = [2_999, 7, 1_500]

    assert [together[at] for at in chosen] == collection.records(NUMBERS[chosen] + 10_000_000)
    assert together[7] == collection.records(np.array([10_000_007]))[0]


def test_another_seed_gives_other_records() -> None:
    assert not set(Collection(Pages(1), 1).texts(NUMBERS)) & set(Collection(Pages(2), 2).texts(NUMBERS))


def test_records_are_bson_with_ids_in_the_order_of_their_numbers() -> None:
    numbers = np.array([0, 1, 127, 128, (1 << 24) - 1, 1 << 24, 40_000_000])
    ids = [bson.decode(raw)["_id"] for raw in PAGES.records(numbers)]

    assert all(isinstance(one, ObjectId) for one in ids)
    assert ids == sorted(ids)


def test_an_id_tells_its_number() -> None:
    numbers = np.array([0, 1, 127, 128, (1 << 24) - 1, 1 << 24, 40_000_000])
    ids = b"".join(bson.encode({"_id": bson.decode(raw)["_id"]}) for raw in PAGES.records(numbers))

    assert numbers_of(ids).tolist() == numbers.tolist()


def test_copies_are_of_earlier_originals() -> None:
    planted = PAGES.planted(NUMBERS)
    copies = planted.kinds != ORIGINAL

    assert (planted.origins[copies] < NUMBERS[copies]).all()
    assert (planted.origins[~copies] == NUMBERS[~copies]).all()
    assert (PAGES.planted(planted.origins).kinds == ORIGINAL).all()


def test_shares_of_copies_are_those_asked_for() -> None:
    kinds = PAGES.planted(np.arange(100_000)).kinds

    assert (kinds == EXACT).mean() == pytest.approx(0.15, abs=0.005)
    assert (kinds == NEAR).mean() == pytest.approx(0.15, abs=0.005)


def test_any_earlier_original_is_equally_likely_to_be_copied() -> None:
    numbers = np.arange(900_000, 1_000_000)
    planted = PAGES.planted(numbers)
    copies = planted.kinds != ORIGINAL

    assert (planted.origins[copies] / numbers[copies]).mean() == pytest.approx(0.5, abs=0.01)


def test_an_exact_copy_has_the_text_of_its_original_in_other_markup() -> None:
    planted = PAGES.planted(NUMBERS)
    copies = NUMBERS[planted.kinds == EXACT]
    origins = planted.origins[copies]
    pairs = zip(PAGES.records(copies), PAGES.records(origins), strict=True)

    assert PAGES.texts(copies) == PAGES.texts(origins)
    # A text of one paragraph may lie in the same markup: two styles differ in what is between paragraphs.
    assert sum(bson.decode(a)["data"] != bson.decode(b)["data"] for a, b in pairs) > 0.9 * len(copies)


def test_planted_pairs_have_the_similarity_that_is_claimed() -> None:
    planted = PAGES.planted(NUMBERS)
    copies = NUMBERS[planted.kinds == NEAR]
    origins = planted.origins[copies]
    claimed = [similarity(a, b) for a, b in zip(PAGES.texts(copies), PAGES.texts(origins), strict=True)]

    assert claimed == [
        independent(a, b) for a, b in zip(seen(PAGES, copies), seen(PAGES, origins), strict=True)
    ]


def test_near_copies_are_spread_between_four_fifths_and_the_whole() -> None:
    planted = PAGES.planted(NUMBERS)
    copies = NUMBERS[planted.kinds == NEAR]
    texts = zip(PAGES.texts(copies), PAGES.texts(planted.origins[copies]), strict=True)
    similarities = np.array([similarity(a, b) for a, b in texts])

    assert similarities.max() < 1
    assert (similarities >= 0.8).mean() > 0.98
    assert (similarities < 0.88).mean() > 0.2
    assert (similarities > 0.92).mean() > 0.2


def test_lengths_languages_and_markup_are_mixed() -> None:
    texts = [compared(text) for text in seen(PAGES, NUMBERS)]
    lengths = np.array([len(text) for text in texts])
    raws = [bson.decode(raw)["data"] for raw in PAGES.records(NUMBERS)]

    assert np.median(lengths) == pytest.approx(230, abs=15)
    assert lengths.min() < 80 < 700 < lengths.max()
    assert np.mean([text.isascii() for text in texts]) == pytest.approx(0.1, abs=0.03)
    assert np.mean(["<" in raw for raw in raws]) == pytest.approx(0.5, abs=0.05)


def test_originals_have_little_in_common() -> None:
    texts = Collection(Pages(), copies=0).texts(np.arange(100))

    assert max(similarity(a, b) for a, b in combinations(texts, 2)) < 0.3


def test_a_row_of_the_vocabulary_holds_its_whole_word() -> None:
    table = vocabulary()
    rows = table.rows.tobytes()

    assert table.lengths.max() <= 16
    assert all(
        len(rows[16 * at : 16 * at + 16].rstrip(b"\0")) == table.lengths[at] for at in range(len(table.rows))
    )


def test_texts_of_one_form_have_about_two_thirds_in_common() -> None:
    similarities = inside(ONE_FORM, 200)

    assert np.mean(similarities) == pytest.approx(0.67, abs=0.03)
    assert max(similarities) < 0.8


def test_texts_of_thirty_forms_have_three_to_nine_tenths_in_common() -> None:
    assert isinstance(THIRTY.originals, Forms)
    lowest, highest = np.percentile(inside(THIRTY.originals, 800), [1, 99])

    assert lowest == pytest.approx(0.6, abs=0.03)
    assert highest == pytest.approx(0.92, abs=0.03)


def test_a_copy_in_a_form_differs_in_one_word() -> None:
    planted = CHANGED.planted(NUMBERS)
    copies = NUMBERS[planted.kinds == NEAR]
    made, origin = CHANGED.words(NUMBERS, planted), CHANGED.originals.words(planted.origins)
    differ = (made.rows != origin.rows).reshape(COUNT, -1).sum(axis=1)

    assert (planted.kinds == EXACT).sum() == 0
    assert (differ[copies] == 1).all()
    assert differ.sum() == len(copies)
