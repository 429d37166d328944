from __future__ import annotations

import contextlib
import struct
import traceback
from typing import Any

import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.records import Unchecked
from dedup_job.text.fields import MAX_PATHS, ExtractedText, TextFields, count_field_kinds, count_text_fields


def _element(kind: int, name: bytes, value: bytes) -> bytes:
    return bytes([kind]) + name + b"\0" + value


def _document(*elements: bytes) -> bytes:
    body = b"".join(elements) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def _string(text: bytes) -> bytes:
    return struct.pack("<i", len(text) + 1) + text + b"\0"


def _nested(kind: int, levels: int) -> bytes:
    value = _document()
    for _ in range(levels):
        value = _document(_element(kind, b"0", value))
    return value


# One value of every BSON type, as bytes that PyMongo would partly refuse to write or to read.
_VALUES = {
    "double": (0x01, struct.pack("<d", float("nan")), "not_text:number"),
    "document": (0x03, _document(_element(0x02, b"x", _string(b"y"))), "not_text:document"),
    "list": (0x04, _document(_element(0x02, b"0", _string(b"y"))), "not_text:list"),
    "binary": (0x05, struct.pack("<i", 3) + b"\x00abc", "not_text:binary"),
    "old uuid": (0x05, struct.pack("<i", 16) + b"\x03" + bytes(16), "not_text:binary"),
    "uuid": (0x05, struct.pack("<i", 16) + b"\x04" + bytes(16), "not_text:binary"),
    "short uuid": (0x05, struct.pack("<i", 5) + b"\x04" + bytes(5), "not_text:binary"),
    "user binary": (0x05, struct.pack("<i", 3) + b"\x80abc", "not_text:binary"),
    "undefined": (0x06, b"", "null"),
    "objectid": (0x07, bytes(12), "not_text:other"),
    "boolean": (0x08, b"\x01", "not_text:boolean"),
    "date": (0x09, struct.pack("<q", 0), "not_text:date"),
    "date before year 1": (0x09, struct.pack("<q", -(2**62)), "not_text:date"),
    "null": (0x0A, b"", "null"),
    "regex": (0x0B, b"a+\0i\0", "not_text:other"),
    "bad regex": (0x0B, b"(\xff\0zz\0", "not_text:other"),
    "dbpointer": (0x0C, _string(b"c") + bytes(12), "not_text:other"),
    "dbref": (
        0x03,
        _document(_element(0x02, b"$ref", _string(b"c")), _element(0x07, b"$id", bytes(12))),
        "not_text:document",
    ),
    "code": (0x0D, _string(b"x()"), "not_text:other"),
    "scoped code": (0x0F, struct.pack("<i", 17) + _string(b"x()") + _document(), "not_text:other"),
    "int32": (0x10, struct.pack("<i", 7), "not_text:number"),
    "timestamp": (0x11, bytes(8), "not_text:other"),
    "int64": (0x12, struct.pack("<q", -1), "not_text:number"),
    "decimal128": (0x13, b"\xff" * 16, "not_text:number"),
    "minkey": (0xFF, b"", "not_text:other"),
    "maxkey": (0x7F, b"", "not_text:other"),
    "invalid utf-8": (0x02, _string(b"ab\xff\xfe"), "invalid_utf8"),
    "surrogate as utf-8": (0x02, _string(b"\xed\xa0\x80"), "invalid_utf8"),
    "overlong utf-8": (0x02, _string(b"\xc0\xaf"), "invalid_utf8"),
    "symbol in invalid utf-8": (0x0E, _string(b"\xff"), "invalid_utf8"),
}
_TEXT = _element(0x02, b"text", _string("正文".encode()))


def _reason(fields: TextFields, raw: bytes) -> str:
    with pytest.raises(Unchecked) as unchecked:
        fields.text_of(raw)
    return unchecked.value.reason


@pytest.mark.parametrize("name", _VALUES)
def test_a_value_that_is_no_text_has_its_reason(name: str) -> None:
    kind, value, reason = _VALUES[name]
    fields, raw = TextFields(("text",)), _document(_element(kind, b"text", value))

    assert _reason(fields, raw) == reason
    assert fields.texts_of([raw]) == [ExtractedText("", reason)]


@pytest.mark.parametrize("name", _VALUES)
def test_any_value_in_another_field_does_not_matter(name: str) -> None:
    kind, value, _ = _VALUES[name]
    other = _element(kind, b"other", value)

    assert TextFields(("text",)).text_of(_document(other, _TEXT, other)) == "正文"


@pytest.mark.parametrize(
    "other",
    [
        _element(0x02, b"\xff\xfe", _string(b"x")),
        _element(0x02, b"", _string(b"x")),
        _element(0x03, b"deep", _nested(0x03, 5000)),
        _element(0x04, b"deep", _nested(0x04, 180)),
        _element(0x03, b"broken", _document(_element(0x02, b"a", b"\xff\xff\xff\x7f"))),
    ],
    ids=["name in invalid utf-8", "empty name", "deep documents", "deep lists", "broken inside"],
)
def test_trouble_elsewhere_in_the_record_does_not_matter(other: bytes) -> None:
    assert TextFields(("text",)).text_of(_document(other, _TEXT)) == "正文"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x05\0\0\0",
        _document(_TEXT)[:-1],
        _document(_TEXT) + b"\0",
        _document(b"\x02text\0\xff\xff\xff\x7f"),
        _document(_element(0x42, b"text", b"")),
        # MongoDB stores at most 200 levels; Python 3.11 follows 1,000, Python 3.13 about 10,000.
        _document(_element(0x04, b"text", _nested(0x04, 20_000))),
    ],
    ids=["nothing", "cut head", "cut end", "too long", "length too great", "unknown type", "too deep"],
)
def test_a_record_that_cannot_be_decoded_is_undecodable(raw: bytes) -> None:
    assert _reason(TextFields(("text",)), raw) == "undecodable"


def test_an_embedded_document_that_is_broken_is_undecodable_when_the_path_enters_it() -> None:
    raw = _document(_element(0x03, b"page", _document(_element(0x42, b"text", b""))))

    assert _reason(TextFields(("page.text",)), raw) == "undecodable"


_TEXTS = [_TEXT, _element(0x02, b"text", _string(b"other")), _element(0x0A, b"text", b"")]
_ENDS_SO = _element(0x02, b"other", _string(b"this is text"))


@pytest.mark.parametrize("second", _TEXTS, ids=["same", "another", "null"])
def test_a_field_that_a_record_has_twice_is_not_judged(second: bytes) -> None:
    for record in ((_TEXT, second), (second, _ENDS_SO, _TEXT)):
        assert _reason(TextFields(("text",)), _document(*record)) == "field_twice"
        page = _document(_element(0x03, b"page", _document(*record)))
        assert _reason(TextFields(("title", "page.text")), page) == "field_twice"
    pages = [_element(0x03, b"page", _document(one)) for one in (_TEXT, second)]
    assert _reason(TextFields(("page.text",)), _document(*pages)) == "field_twice"
    listed = _document(_element(0x04, b"pages", _document(_element(0x03, b"0", _document(_TEXT, second)))))
    assert _reason(TextFields(("pages.0.text",)), listed) == "field_twice"


@pytest.mark.parametrize(
    "other",
    [
        _ENDS_SO,
        _element(0x03, b"page", _document(_TEXT)),
        _element(0x04, b"pages", _document(*(_element(0x03, b"%d" % n, _document(_TEXT)) for n in range(3)))),
        _element(0x03, b"page", _document(_TEXT, _TEXT)),
        _element(0x02, b"title", _string(b"a")) + _element(0x02, b"title", _string(b"b")),
        _ENDS_SO + _element(0x03, b"broken", _document(_element(0x02, b"a", b"\xff\xff\xff\x7f"))),
        _ENDS_SO + _element(0x03, b"deep", _nested(0x03, 5000)),
    ],
    ids=["end of a text", "elsewhere", "in a list", "elsewhere twice", "another twice", "broken", "deep"],
)
def test_what_looks_like_a_field_that_is_there_twice_does_not_matter(other: bytes) -> None:
    for record in ((_TEXT, other), (other, _TEXT)):
        assert TextFields(("text",)).text_of(_document(*record)) == "正文"


def test_a_symbol_is_text() -> None:
    assert TextFields(("text",)).text_of(_document(_element(0x0E, b"text", _string(b"abc")))) == "abc"


def test_a_text_keeps_its_zero_bytes_and_every_unicode_character() -> None:
    text = "a\0b\uffff\U0010ffff𠮷\n"

    assert TextFields(("text",)).text_of(encode({"text": text})) == text


def test_an_empty_text_is_left_to_the_cleaner() -> None:
    assert TextFields(("text",)).text_of(encode({"text": ""})) == ""


@pytest.mark.parametrize(
    ("record", "path", "text"),
    [
        ({"page": {"body": {"text": "a"}}}, "page.body.text", "a"),
        ({"pages": ["a", "b"]}, "pages.1", "b"),
        ({"pages": [{"text": "a"}, {"text": "b"}]}, "pages.1.text", "b"),
        ({"pages": [["a"], ["b", "c"]]}, "pages.1.1", "c"),
        ({"pages": {"1": "a"}}, "pages.1", "a"),
        ({"pages": list("abcdefghijkl")}, "pages.10", "k"),
        ({"page": {"$ref": "c", "$id": 1, "body": "a"}}, "page.body", "a"),
    ],
)
def test_a_path_walks_documents_and_lists(record: dict[str, Any], path: str, text: str) -> None:
    assert TextFields((path,)).text_of(encode(record)) == text


@pytest.mark.parametrize(
    ("record", "path", "reason"),
    [
        ({}, "text", "missing"),
        ({"page": {}}, "page.text", "missing"),
        ({"page": "text"}, "page.text", "missing"),
        ({"page": "text"}, "page.0", "missing"),
        ({"page": None}, "page.text", "missing"),
        ({"page.text": "a"}, "page.text", "missing"),
        ({"pages": ["a"]}, "pages.1", "missing"),
        ({"pages": [None]}, "pages.0", "null"),
        ({"page": {"text": None}}, "page.text", "null"),
        ({"pages": [{"text": "a"}]}, "pages.text", "not_text:list"),
        ({"pages": ["a"]}, "pages.-1", "not_text:list"),
        ({"page": {"text": 1}}, "page.text", "not_text:number"),
    ],
)
def test_a_path_that_leads_to_no_text_has_its_reason(record: dict[str, Any], path: str, reason: str) -> None:
    assert _reason(TextFields((path,)), encode(record)) == reason


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"title": "a", "body": "b"}, "a\nb"),
        ({"body": "b", "title": "a"}, "a\nb"),
        ({"title": None, "body": "b"}, "b"),
        ({"title": "a"}, "a"),
        ({"title": "", "body": ""}, "\n"),
    ],
)
def test_several_texts_are_joined_in_the_order_of_the_paths(record: dict[str, Any], text: str) -> None:
    assert TextFields(("title", "body")).text_of(encode(record)) == text


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "missing"),
        ({"title": None}, "null"),
        ({"title": None, "body": None}, "null"),
        ({"title": "a", "body": 1}, "not_text:number"),
        ({"title": True}, "not_text:boolean"),
    ],
)
def test_one_part_that_is_no_text_speaks_for_the_record(record: dict[str, Any], reason: str) -> None:
    assert _reason(TextFields(("title", "body")), encode(record)) == reason


@pytest.mark.parametrize("paths", [(), ("",), ("a..b",), (".a",), ("a", "b.")])
def test_paths_that_name_no_field_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"give one or several dotted paths"):
        TextFields(paths)


def test_no_reason_holds_text_of_the_record() -> None:
    raw = _document(_element(0x02, b"text", _string(b"secret\xff")))

    with pytest.raises(Unchecked) as unchecked:
        TextFields(("text",)).text_of(raw)

    assert "secret" not in "".join(traceback.format_exception(unchecked.value))


def _singly(fields: TextFields, raw: bytes) -> tuple[str, str]:
    """The text and "", or "" and the reason, by bson alone."""
    try:
        return fields.text_of(raw), ""
    except Unchecked as unchecked:
        return "", unchecked.reason


@given(st.data())
def test_the_texts_of_many_records_are_those_of_each(data: st.DataObject) -> None:
    """Whole or damaged, with the field or without it or with two of it."""
    names = st.sampled_from([b"text", b"tex", b"texts", b"other", b"", b"\xc3\xa9", b"\xff"])
    kinds = st.sampled_from([(kind, value) for kind, value, _ in _VALUES.values()])
    texts = st.sampled_from([b"", b"ascii", "中文".encode(), b"\xff", b"\xed\xa0\x80", b"a\0b"])
    strings = texts.map(lambda text: (0x02, _string(text)))
    elements = st.builds(lambda name, found: _element(found[0], name, found[1]), names, strings | kinds)
    raws = []
    for found in data.draw(st.lists(st.lists(elements, max_size=4), max_size=4)):
        raw = bytearray(_document(*found))
        for _ in range(data.draw(st.sampled_from([0, 0, 0, 1, 2]))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        is_cut = data.draw(st.sampled_from([False, False, False, True]))
        raws.append(bytes(raw[: data.draw(st.integers(0, len(raw)))] if is_cut else raw))
    for paths in (("text",), ("é",), ("text.0",), ("text", "other")):
        fields = TextFields(paths)
        assert [one[:2] for one in fields.texts_of(raws)] == [_singly(fields, raw) for raw in raws]


@given(st.data())
def test_a_damaged_record_gives_text_or_a_reason(data: st.DataObject) -> None:
    others = [_element(kind, b"other", value) for kind, value, _ in _VALUES.values()]
    raw = bytearray(_document(*data.draw(st.lists(st.sampled_from(others), max_size=4)), _TEXT))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))

    with contextlib.suppress(Unchecked):
        TextFields(("text", "other.0")).text_of(bytes(raw)).encode()


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"title": "t", "body": "b"}, ExtractedText("t\nb")),
        ({"title": "t"}, ExtractedText("t", is_partial=True)),
        ({"title": "t", "body": None}, ExtractedText("t", is_partial=True)),
        ({"title": "", "body": "b"}, ExtractedText("\nb", is_partial=True)),
        ({"title": "t", "body": " \n"}, ExtractedText("t\n \n", is_partial=True)),
        ({"title": "t", "body": 3}, ExtractedText("", "not_text:number")),
        ({"title": "t", "body": ["b"]}, ExtractedText("", "not_text:list")),
        ({}, ExtractedText("", "missing")),
    ],
)
def test_a_record_is_judged_by_what_is_left_of_its_fields(
    record: dict[str, Any], found: ExtractedText
) -> None:
    assert TextFields(("title", "body")).texts_of([encode(record)]) == [found]


def test_of_a_single_field_nothing_can_be_left() -> None:
    assert not any(found.is_partial for found in TextFields(("a",)).texts_of([encode({"a": ""}), encode({})]))


def test_the_fields_with_text_come_first_by_how_many_have_it() -> None:
    records = [{"_id": 1, "n": 1, "title": "x"}, {"_id": 2, "n": 2, "title": "y", "page": {"body": "z"}}]
    fields = count_field_kinds(map(encode, records))
    assert {path: dict(kinds) for path, kinds in fields.items()} == {
        "n": {"number": 2},
        "title": {"text": 2},
        "page.body": {"text": 1},
    }
    assert count_text_fields(fields) == {"title": 2, "page.body": 1}


def test_kinds_of_one_field_are_told_apart() -> None:
    fields = count_field_kinds(encode({"a": value}) for value in ("x", None, 1, True, [], {}, b"x"))
    assert dict(fields["a"]) == {"text": 1, "null": 1, "number": 1, "boolean": 1, "binary": 1}


def test_a_list_shows_its_first_item_by_a_path_that_fields_takes() -> None:
    assert count_text_fields(count_field_kinds([encode({"pages": [{"body": "x"}, {"other": "y"}]})])) == {
        "pages.0.body": 1
    }


def test_a_record_without_end_is_looked_at_in_part() -> None:
    deep = {"a": {"b": {"c": {"d": {"e": "too deep"}}}}}
    wide = {f"f{n}": "x" for n in range(10 * MAX_PATHS)}
    assert count_field_kinds([encode(deep)]) == {}
    assert len(count_field_kinds([encode(wide)])) == MAX_PATHS


def test_what_is_no_bson_is_left_out() -> None:
    assert count_text_fields(count_field_kinds([b"\x05\0\0", b"", encode({"a": "x"})])) == {"a": 1}
