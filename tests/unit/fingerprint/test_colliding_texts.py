"""Equality is concluded from digests that nobody can make collide, by the library and by a fingerprinter."""

from __future__ import annotations

import xxhash
from bson import encode

from dedup_job import Deduplicator
from dedup_job.fingerprint.fingerprinter import Fingerprinter
from tests.support.colliding_texts import ONE, OTHER, colliding_records
from tests.support.recipes import PLAIN


def test_the_texts_and_records_of_these_tests_have_the_same_xxh3() -> None:
    assert ONE != OTHER
    assert xxhash.xxh3_128_digest(ONE.encode()) == xxhash.xxh3_128_digest(OTHER.encode())
    for raw_id in (1, "page", {"site": "a.example", "page": 2}):
        one, other = map(encode, colliding_records(raw_id))
        assert one != other
        assert xxhash.xxh3_128_digest(one) == xxhash.xxh3_128_digest(other)


def test_texts_with_the_same_xxh3_have_different_digests() -> None:
    prints = Fingerprinter(PLAIN)([encode(record) for record in colliding_records(1)])
    assert (prints.digests[0] != prints.digests[1]).all()
    assert (prints.hashes[0] != prints.hashes[1]).all()


def test_the_library_keeps_both_of_two_texts_with_the_same_xxh3() -> None:
    ours = Deduplicator()
    assert ours.add_all([("one", ONE), ("other", OTHER)]) == {}
    again = ours.add("again", OTHER)
    assert again is not None
    assert (again.keeper, again.reason) == ("other", "exact")
