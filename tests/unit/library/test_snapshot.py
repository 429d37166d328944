from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import numpy.typing as npt
import pytest
from bson import encode
from bson.objectid import ObjectId

from dedup_job import Deduplicator
from dedup_job.errors import ConfigError, StateError
from dedup_job.library import snapshot
from dedup_job.records import RawIds
from tests.support.text_pairs import LONG, OTHER

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Column = npt.NDArray[Any]


@dataclass
class Parts:
    """A snapshot taken apart, to be put together with other values and a checksum that is right."""

    header: dict[str, Any]
    columns: dict[str, Column]

    def put_together(self) -> bytes:
        line = json.dumps(self.header).encode() + b"\n"
        content = line + b"".join(column.tobytes() for column in self.columns.values())
        return content + snapshot.CHECKSUM(content).digest()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a deduplicator that keeps two texts, one for two records, and one that has no text."""
    path = tmp_path_factory.mktemp("whole") / "texts"
    ours = Deduplicator(min_similarity=0.75)
    ours.add_all([("a", LONG), (7, OTHER), (ObjectId(), "")])
    ours.remove("a")
    ours.add(b"b", LONG)
    ours.save(path)
    return path.read_bytes()


@pytest.fixture
def parts(whole: bytes) -> Parts:
    return taken_apart(whole)


def taken_apart(whole: bytes) -> Parts:
    line, _, rest = whole.partition(b"\n")
    header, columns, at = json.loads(line), {}, 0
    recipe = header["recipe"]
    sizes = snapshot._Sizes(**header["sizes"], words=recipe["bits"] // 64, bands=recipe["matching.bands"])
    for name, (kind, shape) in snapshot._layout(sizes).items():
        columns[name] = np.ndarray(shape, kind, rest, at).copy()
        at += columns[name].nbytes
    return Parts(header, columns)


@pytest.fixture
def is_damaged(tmp_path: Path) -> Callable[[bytes], bool]:
    """Whether a file with this content is told to be damaged, in one line that names it."""
    path = tmp_path / "texts"

    def tried(content: bytes) -> bool:
        path.write_bytes(content)
        with pytest.raises(StateError) as told:
            Deduplicator.load(path)
        return str(told.value) == f"{path}: not a saved deduplicator of this version, or damaged"

    return tried


IsDamaged = Callable[[bytes], bool]


def test_a_file_that_is_put_together_again_is_the_same(whole: bytes, parts: Parts) -> None:
    assert parts.put_together() == whole


def test_every_flipped_byte_is_noticed(whole: bytes, is_damaged: IsDamaged) -> None:
    for at, byte in enumerate(whole):
        assert is_damaged(whole[:at] + bytes([byte ^ 1 << at % 8]) + whole[at + 1 :])


def test_every_truncation_and_every_added_byte_is_noticed(whole: bytes, is_damaged: IsDamaged) -> None:
    for size in range(len(whole)):
        assert is_damaged(whole[:size])
    assert is_damaged(whole + b"\0")
    assert is_damaged(b"\n" + whole)


def as_sizes(name: str, size: object) -> Callable[[Parts], None]:
    return lambda parts: parts.header["sizes"].update({name: size})


WRONG_HEADERS: dict[str, Callable[[Parts], None]] = {
    "another format": lambda parts: parts.header.update(format=1),
    "no format": lambda parts: parts.header.pop("format"),
    "no settings": lambda parts: parts.header.pop("settings"),
    "settings of no use": lambda parts: parts.header.update(settings=[1, 2]),
    "an unknown setting": lambda parts: parts.header["settings"].update(min_similarty=0.5),
    "a setting of another type": lambda parts: parts.header["settings"].update(min_similarity="much"),
    "a path of another type": lambda parts: parts.header["settings"].update(stop_words=7),
    "no path": lambda parts: parts.header["settings"].update(stop_words="\0"),
    "no recipe": lambda parts: parts.header.pop("recipe"),
    "a recipe of no use": lambda parts: parts.header.update(recipe=7),
    "other bits": lambda parts: parts.header["recipe"].update(bits=128),
    "bits of another type": lambda parts: parts.header["recipe"].update(bits="64"),
    "negative bits": lambda parts: parts.header["recipe"].update(bits=-64),
    "other bands": lambda parts: parts.header["recipe"].update({"matching.bands": 8}),
    "bands of another type": lambda parts: parts.header["recipe"].update({"matching.bands": None}),
    "no sizes": lambda parts: parts.header.pop("sizes"),
    "an unknown size": as_sizes("ids", 0),
    "a size too many": as_sizes("bands", 9),
    "a size of another type": as_sizes("keys", "3"),
    "a size that is no whole number": as_sizes("texts", 2.0),
    "a size that is true": as_sizes("kept_texts", True),
    "a negative size": as_sizes("keys", -1),
    "sizes that cancel out": lambda parts: parts.header["sizes"].update(key_bytes=-8, keys=5),
    "one text more": as_sizes("texts", 3),
    "one text less": as_sizes("texts", 1),
    "a huge size": as_sizes("shingles", 1 << 40),
    "a size beyond all machines": as_sizes("texts", 10**300),
    "an infinite size": as_sizes("texts", float("inf")),
    "sizes that have no sum": lambda parts: parts.header["sizes"].update(texts=10**400, keys=0.5),
}


@pytest.mark.parametrize("wrong", WRONG_HEADERS.values(), ids=WRONG_HEADERS)
def test_a_wrong_header_is_damage_although_its_checksum_is_right(
    wrong: Callable[[Parts], None], parts: Parts, is_damaged: IsDamaged
) -> None:
    wrong(parts)
    assert is_damaged(parts.put_together())


def test_a_text_that_ends_within_its_group_is_damage(tmp_path: Path, is_damaged: IsDamaged) -> None:
    path = tmp_path / "groups"
    ours = Deduplicator(within=["site"])
    for site in ("a", "b"):
        ours.add(site, LONG, site)
    ours.save(path)
    parts = taken_apart(path.read_bytes())
    parts.columns["shingle_ends"][1] = parts.columns["shingle_ends"][2] - 1
    assert is_damaged(parts.put_together())


def changed(name: str, place: Any, value: object) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        parts.columns[name][place] = value

    return change


def stored_keys(*raw: bytes) -> Callable[[Parts], None]:
    """Other raw ids, as many as there were, their sizes right."""

    def change(parts: Parts) -> None:
        ids = RawIds.of(raw)
        parts.columns.update(key_ends=ids.offsets, keys=ids.values)
        parts.header["sizes"]["key_bytes"] = len(ids.values)

    return change


def as_raw(*keys: object) -> Callable[[Parts], None]:
    return stored_keys(*(encode({"_id": key}) for key in keys))


def shingles_of_fewer_texts(parts: Parts) -> None:
    parts.columns["shingle_ends"] = parts.columns["shingle_ends"][[0, -1]]
    parts.columns["shingles"] = np.sort(parts.columns["shingles"])
    parts.header["sizes"]["kept_texts"] = 1


def flags_of(value: int) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        parts.columns["has_fingerprint"].view(np.uint8)[0] = value

    return change


WRONG_COLUMNS: dict[str, Callable[[Parts], None]] = {
    "keys that do not begin at 0": changed("key_ends", 0, 1),
    "keys from before the first": changed("key_ends", 0, -1),
    "keys that end too early": changed("key_ends", -1, 1),
    "keys that end too late": changed("key_ends", -1, 1 << 40),
    "a key that ends before it begins": changed("key_ends", 1, -1),
    "a key that ends behind the next": changed("key_ends", 1, 1 << 40),
    "lengths of keys that overflow": changed("key_ends", slice(1, 3), [MOST, LEAST]),
    "shingles that do not begin at 0": changed("shingle_ends", 0, 1),
    "shingles that end too late": changed("shingle_ends", -1, 1 << 40),
    "shingles that end before they begin": changed("shingle_ends", 1, LEAST),
    "shingles that end behind the next": changed("shingle_ends", 1, MOST),
    "shingles that do not ascend": changed("shingles", 1, 0),
    "a shingle twice": lambda parts: changed("shingles", 1, parts.columns["shingles"][0])(parts),
    "shingles of fewer texts": shingles_of_fewer_texts,
    "a text of which nobody knows": changed("text_numbers", 0, 2),
    "a text far beyond": changed("text_numbers", 0, MOST),
    "a text before the first": changed("text_numbers", 0, -2),
    "a text far before": changed("text_numbers", 0, LEAST),
    "a kept text without a record": changed("text_numbers", 0, -1),
    "a flag of 2": flags_of(2),
    "a flag of 255": flags_of(255),
    "a text without a digest": changed("digests", 1, 0),
    "two texts of one digest": lambda parts: changed("digests", 1, parts.columns["digests"][0])(parts),
    "a key twice": as_raw(7, 7, "a"),
    "a key of another type": as_raw(7, 7.5, "a"),
    "a key that is true": as_raw(7, True, "a"),
    "a key that is a document": as_raw(7, {"$ref": "a", "$id": 7}, "a"),
    "a key that is nested deeply": as_raw(7, b"", json.loads("[" * 90 + "]" * 90)),
    "a key of another name": stored_keys(encode({"_id": 7}), encode({"_ID": 8}), encode({"_id": 9})),
    "a key with more beside it": stored_keys(encode({"_id": 7}), encode({"_id": 8, "a": 1}), b""),
    "a key that is empty": stored_keys(encode({"_id": 7}), b"", encode({"_id": 8})),
    "a key that is no BSON": stored_keys(encode({"_id": 7}), b"\xff" * 22, encode({"_id": 8})),
    "a date that is none": stored_keys(b"\x12\0\0\0\x09_id\0" + b"\xff" * 7 + b"\x7f\0", b"", b"a"),
}


@pytest.mark.parametrize("wrong", WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_wrong_values_are_damage_although_their_checksum_is_right(
    wrong: Callable[[Parts], None], parts: Parts, is_damaged: IsDamaged
) -> None:
    wrong(parts)
    assert is_damaged(parts.put_together())


def test_changes_at_random_with_a_right_checksum_are_damage_or_do_no_harm(
    whole: bytes, parts: Parts, tmp_path: Path
) -> None:
    rng, path, loaded = Random(7), tmp_path / "texts", 0
    kept = {name: column.tobytes() for name, column in parts.columns.items()}
    for name in [*parts.columns] * 12:
        changed = bytearray(kept[name])
        for _ in range(rng.choice((1, 2, 8))):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        parts.columns[name] = np.frombuffer(bytes(changed), np.uint8)
        path.write_bytes(parts.put_together())
        parts.columns[name] = np.frombuffer(kept[name], np.uint8)
        try:
            ours = Deduplicator.load(path)
        except StateError:
            continue
        loaded += 1
        assert (ours.add("new", LONG[::-1]), ours.find(LONG[::-1]) is not None) == (None, True)
        ours.find(LONG)
    assert loaded > 10


class Bomb:
    """Ends the process where somebody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import os; os._exit(9)",)


def archives(folder: Path) -> Iterator[Path]:
    """Yield archives of numpy: with a pickle, with 64 MiB in a few KiB, with 2**60 rows by their header."""
    np.savez(folder / "pickle.npz", header=np.array([Bomb()], dtype=object))
    yield folder / "pickle.npz"
    with ZipFile(folder / "bomb.npz", "w", ZIP_DEFLATED) as bomb, bomb.open("header.npy", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    yield folder / "bomb.npz"
    with ZipFile(folder / "huge.npz", "w") as huge, huge.open("header.npy", "w") as member:
        shape = {"descr": "<i8", "fortran_order": False, "shape": (1 << 60,)}
        np.lib.format.write_array_header_1_0(member, shape)
    yield folder / "huge.npz"


def test_an_archive_is_not_opened(tmp_path: Path, is_damaged: IsDamaged) -> None:
    for path in archives(tmp_path):
        assert is_damaged(path.read_bytes())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"no snapshot",
        b"\x93NUMPY\1\0",
        b"null\n",
        b"7\n",
        b'"format"\n',
        b"[]\n",
        b"{}\n",
        b"\xff\xfe{\0}\0\n",
        b"[" * 1_000_000,
        b'{"format":' * 100_000 + b"\n",
        b'{"format": ' + b"9" * 10_000 + b"}\n",
        b'{"format": "\\ud800"}\n',
        bytes(1 << 16),
    ],
    ids=range(15),
)
def test_a_file_of_another_kind_is_told(content: bytes, is_damaged: IsDamaged) -> None:
    assert is_damaged(content)


def test_a_file_that_never_ends_is_told() -> None:
    with pytest.raises(StateError, match="/dev/zero: not a saved"):
        Deduplicator.load("/dev/zero")


def test_a_file_that_cannot_be_read_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Deduplicator.load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        Deduplicator.load(tmp_path)


def test_another_recipe_is_no_damage(parts: Parts, tmp_path: Path) -> None:
    parts.header["recipe"]["jieba"] = "0.0"
    (tmp_path / "texts").write_bytes(parts.put_together())
    with pytest.raises(ConfigError, match="another recipe: jieba"):
        Deduplicator.load(tmp_path / "texts")
