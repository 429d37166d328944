"""Records that break such jobs, each with the verdict it must get; made by code, one kind at a time.

    python -m tests.support.poison_records NAME ...

fingerprints these kinds, or all of them, each in a separate process that is forked from one warm worker. It
prints a JSON object for each: the reason, whether its text was read to the end, CPU seconds, and the peak of
its memory above the idle worker's.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from itertools import chain
from random import Random
from typing import Any

from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp, encode
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from dedup_job.fingerprint.recipe import Recipe
from dedup_job.mongo.ids import document, elements
from dedup_job.pipeline import worker_tasks
from tests.support.recipes import recipe_of

TAIL = "此句写在最后仍须读到。"
# Bytes of a record.
LARGEST = 16 << 20
# After this time the kernel ends a trial.
CPU_SECONDS = 20
UUIDS: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
UNIQUE = ""


@dataclass(frozen=True)
class Poison:
    """One kind of bad record.

    Attributes:
        name: The defect; also the `_id`, unless the id is the defect.
        reason: "" if it is judged like any other record, otherwise the reason why it is unchecked.
        make: Returns the raw record.
        tail: Whether the record's text ends with TAIL, which must not be lost.
    """

    name: str
    reason: str
    make: Callable[[], bytes]
    tail: bool = False

    @property
    def raw(self) -> bytes:
        return self.make()


def raw_string(content: bytes, kind: bytes = b"\x02", name: bytes = b"text") -> bytes:
    """Return an element with arbitrary bytes as its text."""
    return kind + name + b"\0" + (len(content) + 1).to_bytes(4, "little") + content + b"\0"


def fields(**values: Any) -> bytes:
    return elements(encode(values, codec_options=UUIDS))


def _record(name: str, make: Callable[[], bytes]) -> bytes:
    return document(fields(_id=name), make())


def _text(name: str, make: Callable[[], str]) -> bytes:
    return document(fields(_id=name, text=f"{make()}{TAIL}", page=name))


def _tagged(name: str, make: Callable[[], str]) -> str:
    """Return a text that only this kind has, so that two kinds are never duplicates."""
    rng = Random(name)
    return "".join(chr(rng.randrange(0x4E00, 0x9FA0)) for _ in range(40)) + make()


def nested(count: int, closed: bool) -> str:
    return "<div>" * count + "深处的文字" + "</div>" * count * closed + "<p>"


def entities() -> str:
    levels = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return f'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY l0 "ha">{levels}]><p>&l9;</p><p>'


def rare(count: int) -> str:
    rng = Random(1)
    return "".join(chr(rng.randrange(0x20000, 0x2A6D0)) for _ in range(count))


MARKUP: list[tuple[str, str, Callable[[], str]]] = [
    ("divs_254_closed", UNIQUE, lambda: nested(254, True)),
    ("divs_255_closed", UNIQUE, lambda: nested(255, True)),
    ("divs_300_closed", UNIQUE, lambda: nested(300, True)),
    ("divs_100000_closed", "too_complex", lambda: nested(100_000, True)),
    ("divs_254_open", UNIQUE, lambda: nested(254, False)),
    ("divs_255_open", UNIQUE, lambda: nested(255, False)),
    ("divs_300_open", UNIQUE, lambda: nested(300, False)),
    ("divs_100000_open", "too_complex", lambda: nested(100_000, False)),
    ("ends_without_beginnings", UNIQUE, lambda: "</div>" * 100_000 + "</p></table></b>"),
    ("attributes_200000", UNIQUE, lambda: f"<p {' '.join(f'a{n}=b' for n in range(200_000))}>"),
    ("attribute_of_1_mb", UNIQUE, lambda: f'<p class="{"x" * 1_000_000}">'),
    ("name_of_1_mb", "too_long", lambda: f"<p><{'x' * 1_000_000}>"),
    ("comments_opened_200000", UNIQUE, lambda: "<!--" * 200_000),
    ("comments_opened_250000", "too_long", lambda: "<!--" * 250_000),
    ("comments_200000", UNIQUE, lambda: "<p>" + "<!-- x -->" * 200_000),
    ("comment_unclosed", UNIQUE, lambda: "<p>甲</p><!-- 乙 "),
    ("comment_in_comment", UNIQUE, lambda: "<p>甲<!-- <!-- --> 乙 --!> 丙 "),
    ("cdata_unclosed", UNIQUE, lambda: "<p>甲</p><![CDATA[ 乙 "),
    ("cdata", UNIQUE, lambda: "<p>甲</p><![CDATA[ 乙 ]]>"),
    ("quote_unclosed", UNIQUE, lambda: '<p>甲</p><a href="http://a.b/c>乙</a> '),
    ("quote_unclosed_long", UNIQUE, lambda: '<p>甲</p><a href="' + "x y " * 20_000 + "<br>"),
    ("quotes_500000", UNIQUE, lambda: "<p>" + "<a b='\"" * 60_000),
    ("equals_500000", UNIQUE, lambda: "<p><a " + "a=" * 250_000 + "> "),
    ("script_unclosed", UNIQUE, lambda: "<p>甲</p><script>var a = 1; "),
    ("script_closed_in_string", UNIQUE, lambda: "<p>甲</p><script>a = '</scr' + 'ipt>'</script>"),
    ("style_unclosed", UNIQUE, lambda: "<p>甲</p><style>p {} "),
    ("textarea_unclosed", UNIQUE, lambda: "<p>甲</p><textarea>"),
    ("title_unclosed", UNIQUE, lambda: "<p>甲</p><title>"),
    ("head_unclosed", UNIQUE, lambda: "<html><head><p>甲</p>"),
    ("noscript_unclosed", UNIQUE, lambda: "<p>甲</p><noscript>"),
    ("template_unclosed", UNIQUE, lambda: "<p>甲</p><template>"),
    ("select_unclosed", UNIQUE, lambda: "<p>甲</p><select><option>"),
    ("plaintext", UNIQUE, lambda: "<p>甲</p><plaintext></plaintext>"),
    ("frames", UNIQUE, lambda: "<frameset><frame src=a></frameset><noframes>x</noframes>"),
    ("svg_and_math", UNIQUE, lambda: "<svg><foreignObject><math><mi>x</mi></math></foreignObject></svg>"),
    ("ruby", UNIQUE, lambda: "<ruby>漢<rt>かん</ruby>" * 2_000),
    ("readings_without_ruby_8000", "too_complex", lambda: "<p>甲</p>" + "<rt>" * 8_000),
    ("groups_without_select_8000", "too_complex", lambda: "<p>甲</p>" + "<optgroup>" * 8_000),
    ("tables_300", UNIQUE, lambda: "<table><tr><td>" * 100 + "</td></tr></table>" * 100),
    ("less_than_1000000", "too_complex", lambda: "<" * 1_000_000),
    ("greater_than_900000", UNIQUE, lambda: "<p>" + ">" * 900_000),
    ("tags_unfinished_200000", UNIQUE, lambda: "<p" * 200_000 + ">"),
    ("formatting_open_4000", "too_complex", lambda: "<p>甲</p>" + "<b>" * 4_000),
    ("formatting_crossed", "too_complex", lambda: "<p><b><i><u></p>" * 3_000),
    ("paragraphs_160000", UNIQUE, lambda: "<p>" * 160_000),
    ("price", UNIQUE, lambda: "价格<100元，很便宜>x "),
    ("comparison", UNIQUE, lambda: "if a<b and c>d: vector<int> v "),
    ("xml_says_gbk", UNIQUE, lambda: '<?xml version="1.0" encoding="gbk"?><p>中文</p>'),
    ("meta_says_gbk", UNIQUE, lambda: '<html><head><meta charset="gbk"></head><body>中文'),
    ("entity_bomb", UNIQUE, entities),
    ("markup_in_entities", UNIQUE, lambda: "&lt;p&gt;" * 1_000),
]  # fmt: skip

CHARACTERS: list[tuple[str, str, Callable[[], str]]] = [
    ("html_of_nul_15_mb", "suspect", lambda: "<p>甲</p>" + "\0" * 15_000_000),
    ("html_of_numbers_15_mb", "too_long", lambda: "<p>甲</p>" + "&#1" * 5_000_000),
    ("attributes_15_mb", UNIQUE, lambda: "<p>甲</p><a " + "a=b " * 3_700_000 + ">"),
    ("comment_15_mb", UNIQUE, lambda: f"<p>甲</p><!--{'x' * 15_000_000}-->"),
    ("script_15_mb", UNIQUE, lambda: f"<p>甲</p><script>{'x<y;' * 100_000}{'x' * 14_000_000}</script>"),
    ("text_node_12_mb", "too_long", lambda: "文字" * 2_000_000),
    ("amp_1000000", "too_long", lambda: "&amp;" * 1_000_000),
    ("amp_500000", UNIQUE, lambda: "&amp;" * 500_000),
    ("ampersands_900000", UNIQUE, lambda: "&" * 900_000),
    ("amp_amp_amp", UNIQUE, lambda: "&" + "amp;" * 200_000),
    ("number_out_of_range", UNIQUE, lambda: "&#x110000;&#99999999999;"),
    ("number_nul", UNIQUE, lambda: "&#0;&#x0;"),
    ("number_of_a_surrogate", UNIQUE, lambda: "&#xD800;&#56320;"),
    ("number_of_100000_digits", UNIQUE, lambda: f"&#{'1' * 100_000};"),
    ("number_of_100000_zeros", UNIQUE, lambda: f"&#x{'0' * 100_000}41;"),
    ("one_character_200000", UNIQUE, lambda: "的" * 200_000),
    ("rare_characters_900000", UNIQUE, lambda: rare(900_000)),
    ("rare_characters_1000000", "too_long", lambda: rare(1_000_000)),
    ("letters_900000", UNIQUE, lambda: "a" * 900_000),
    ("digits_900000", UNIQUE, lambda: "7" * 900_000),
    ("letters_1000000", "too_long", lambda: "a" * 1_000_000),
    ("digits_1000000", "too_long", lambda: "7" * 1_000_000),
    ("words_400000", UNIQUE, lambda: "a " * 400_000),
    ("numbers_100000", UNIQUE, lambda: " ".join(map(str, range(100_000)))),
    ("joiners_900000", UNIQUE, lambda: "a-b._" * 180_000),
    ("punctuation_900000", UNIQUE, lambda: "，。" * 450_000),
    ("emoji_400000", UNIQUE, lambda: "😀" * 400_000),
    ("emoji_families_100000", UNIQUE, lambda: "👨\u200d👩\u200d👧" * 100_000),
    ("zero_width_900000", UNIQUE, lambda: "\u200b" * 900_000),
    ("zero_width_in_every_word", UNIQUE, lambda: "零\u200b宽\ufeff" * 100_000),
    ("combining_marks_900000", "too_complex", lambda: "e" + "\u0301" * 900_000),
    ("combining_marks_crossed", "too_complex", lambda: "e" + "\u0301\u0323" * 400_000),
    ("combining_marks_in_words", UNIQUE, lambda: "e\u0301a\u0323 " * 100_000),
    ("accents_zalgo", UNIQUE, lambda: "".join(c + "\u0301\u0323\u0337" * 9 for c in "zalgo" * 2_000)),
    ("grows_18_times", "too_long", lambda: "\ufdfa" * 100_000),
    ("grows_in_lower_case", UNIQUE, lambda: "İ" * 300_000),
    ("hangul_jamo_300000", UNIQUE, lambda: "\u1100\u1161\u11a8" * 100_000),
    ("right_to_left", UNIQUE, lambda: "\u202e" * 100_000 + "שלום" * 1_000),
    ("private_use_300000", UNIQUE, lambda: "\ue000\uf8ff" * 150_000),
    ("not_characters", UNIQUE, lambda: "\ufffe\uffff\U0010ffff" * 100_000),
    ("controls", UNIQUE, lambda: "".join(map(chr, range(32))) * 10_000),
    ("variation_selectors", UNIQUE, lambda: "葛\U000e0100" * 100_000),
    ("line_feeds_900000", UNIQUE, lambda: "\r\n" * 450_000),
    ("every_space", UNIQUE, lambda: "\u00a0\u1680\u2003\u2028\u2029\u3000\x85\x0b" * 50_000),
    ("nul_in_text", UNIQUE, lambda: "前\0后"),
    ("nuls_900000", UNIQUE, lambda: "\0" * 900_000),
    ("byte_order_mark", UNIQUE, lambda: "\ufeff"),
    ("regex_like", UNIQUE, lambda: "(a+)+$ ^(.*)*\\ [[:alpha:]] " * 1_000),
    ("format_like", UNIQUE, lambda: "%s%n {0} {x.__class__} ${jndi:x} "),
]  # fmt: skip

UTF8 = {
    "utf8_truncated": b"\xe4\xb8",
    "utf8_truncated_inside": b"a\xe4\xb8b",
    "utf8_overlong": b"\xc0\xaf",
    "utf8_overlong_nul": b"\xc0\x80",
    "utf8_ff": b"\xff\xfe",
    "utf8_continuation": b"\x80\x80",
    "utf8_above_unicode": b"\xf4\x90\x80\x80",
    "utf8_five_bytes": b"\xf8\x88\x80\x80\x80",
    "utf8_gbk": "中文网页".encode("gbk"),
    "utf8_utf16": "中文".encode("utf-16-le"),
    "surrogate_high": b"a\xed\xa0\x80b",
    "surrogate_low": b"a\xed\xb0\x80b",
    "surrogate_pair": b"a\xed\xa0\xbd\xed\xb8\x80b",
    "latin1_900000": b"\xe9" * 900_000,
}

WRONG_TYPES: dict[str, tuple[str, Any]] = {
    "null": ("null", None),
    "double": ("not_text:number", 1.5),
    "nan": ("not_text:number", float("nan")),
    "int": ("not_text:number", 5),
    "long": ("not_text:number", Int64(5)),
    "decimal": ("not_text:number", Decimal128("1")),
    "decimal_nan": ("not_text:number", Decimal128("NaN")),
    "decimal_infinity": ("not_text:number", Decimal128("-Infinity")),
    "boolean": ("not_text:boolean", True),
    "document": ("not_text:document", {"a": "文字"}),
    "document_empty": ("not_text:document", {}),
    "list_of_texts": ("not_text:list", ["文字", "文字"]),
    "list_mixed": ("not_text:list", ["文字", 1, None, {"a": []}]),
    "list_empty": ("not_text:list", []),
    "binary": ("not_text:binary", Binary(b"text")),
    "binary_user": ("not_text:binary", Binary(b"text", 128)),
    "binary_old": ("not_text:binary", Binary(b"text", 2)),
    "uuid": ("not_text:binary", uuid.UUID(int=7)),
    "object_id": ("not_text:other", ObjectId("0123456789abcdef01234567")),
    "date": ("not_text:date", datetime(2024, 1, 1, tzinfo=UTC)),
    "timestamp": ("not_text:other", Timestamp(5, 6)),
    "regex": ("not_text:other", Regex("a", "i")),
    "code": ("not_text:other", Code("f()")),
    "code_with_scope": ("not_text:other", Code("f()", {"x": 1})),
    "reference": ("not_text:document", DBRef("c", 1)),
    "min_key": ("not_text:other", MinKey()),
    "max_key": ("not_text:other", MaxKey()),
    "text_empty": ("empty", ""),
    "text_blank": ("empty", " \t\r\n\u3000"),
    "text_of_tags": ("empty", "<p><br></p><!-- x --><script>x</script>"),
    "text_of_spaces_900000": ("empty", " " * 900_000),
    "text_of_zero_width": ("empty", "\u200b\ufeff\u2060"),
    "text_of_nul": ("empty", "\0"),
}


def depth(levels: int) -> bytes:
    """Return a document with this many levels."""
    inner = document()
    for _ in range(levels - 1):
        inner = document(b"\x03a\0" + inner)
    return inner


def padded(head: bytes, size: int) -> bytes:
    """Return a record of exactly this many bytes."""
    room = size - len(document(head, fields(pad=Binary(b""))))
    return document(head, fields(pad=Binary(b"x" * room)))


def judged(name: str, *around: bytes) -> bytes:
    """Return the elements of a good text, with odd elements beside it."""
    before, after = (*around, b"", b"")[:2]
    return before + fields(text=_tagged(name, lambda: TAIL)) + after


PAST = (
    b"\x09when\0"
    + (2**62).to_bytes(8, "little")
    + b"\x09then\0"
    + (-(2**62)).to_bytes(8, "little", signed=True)
)
ODD_FIELDS: dict[str, tuple[str, Callable[[str], bytes]]] = {
    "missing": ("missing", lambda name: b""),
    "undefined": ("null", lambda name: b"\x06text\0"),
    "symbol": (UNIQUE, lambda name: raw_string(_tagged(name, lambda: TAIL).encode(), b"\x0e")),
    "pointer": ("not_text:other", lambda name: b"\x0ctext\0\x02\0\0\0c\0" + bytes(12)),
    "date_after_9999": ("not_text:date", lambda name: b"\x09text\0" + (2**62).to_bytes(8, "little")),
    "date_before_1": ("not_text:date", lambda name: b"\x09text\0" + bytes(7) + b"\x80"),
    "field_twice": ("field_twice", lambda name: fields(text=f"{name} 第一次出现的文字。") + judged(name)),
    "field_twice_null_last": ("field_twice", lambda name: judged(name) + b"\x0atext\0"),
    "field_twice_null_first": ("field_twice", lambda name: b"\x0atext\0" + judged(name)),
    "other_dates": (UNIQUE, lambda name: judged(name, PAST, PAST)),
    "other_utf8": (UNIQUE, lambda name: judged(name, raw_string(b"\xff\xfe", name=b"bad"))),
    "other_name_utf8": (UNIQUE, lambda name: judged(name, b"\x0abad\xff\0")),
    "other_deprecated": (UNIQUE, lambda name: judged(name, b"\x06u\0" + b"\x0cp\0\x02\0\0\0c\0" + bytes(12))),
    "other_name_empty": (UNIQUE, lambda name: judged(name, fields(**{"": 1, "a.b": 2, "__proto__": 3}))),
    "other_name_operator": (UNIQUE, lambda name: judged(name, b"\x10$set\0" + bytes(4))),
    "other_fields_90000": (UNIQUE, lambda name: judged(name, fields(**{f"f{n}": n for n in range(90_000)}))),
    "deep_100": (UNIQUE, lambda name: judged(name, b"\x03deep\0" + depth(99))),
    # The server refuses documents with more levels.
    "deep_181": (UNIQUE, lambda name: judged(name, b"\x03deep\0" + depth(180))),
    "deep_text": ("not_text:document", lambda name: b"\x03text\0" + depth(99)),
    "timestamp_of_nothing_inside": (UNIQUE, lambda name: judged(name, fields(inner={"at": Timestamp(0, 0)}))),
    "vector_of_100000": (UNIQUE, lambda name: judged(name, fields(v=list(range(100_000))))),
}  # fmt: skip

ODD_IDS: dict[str, Any] = {
    "id_null": None,
    "id_int": 7,
    "id_long": Int64(2**40),
    "id_double": 2.5,
    "id_minus_zero": -0.0,
    "id_decimal": Decimal128("3.250"),
    "id_decimal_nan_of_decimals": Decimal128("1E+6144"),
    "id_infinity": float("inf"),
    "id_minus_infinity": float("-inf"),
    "id_nan": float("nan"),
    "id_denormal": 5e-324,
    "id_text_empty": "",
    "id_text_of_operator": '{"$gt": ""}',
    "id_text_of_dollar": "$where",
    "id_text_of_regex": "^.*$",
    "id_text_of_slashes": "/.*/i",
    "id_text_with_nul": "a\0b",
    "id_text_decomposed": "e\u0301",
    "id_text_composed": "\u00e9",
    "id_text_of_hex": "0123456789abcdef01234567",
    "id_text_of_900_bytes": "长" * 300,
    "id_document_empty": {},
    "id_document": {"a": {"b": 1}, "c": []},
    "id_document_reordered": {"c": [], "a": {"b": 1}},
    "id_document_of_dots": {"a.b": 1, "": {"": 2}},
    "id_document_of_regex": {"a": Regex(".*")},
    "id_reference": DBRef("c", 1),
    "id_document_of_nan": {"a": float("nan")},
    "id_binary": Binary(b"\0\1", 0),
    "id_binary_empty": Binary(b"", 0),
    "id_binary_user": Binary(b"x" * 5, 128),
    "id_uuid": uuid.UUID(int=5),
    "id_uuid_old": Binary(bytes(16), 3),
    "id_object_id": ObjectId("0123456789abcdef01234567"),
    "id_object_id_first": ObjectId("0" * 24),
    "id_object_id_last": ObjectId("f" * 24),
    "id_true": True,
    "id_false": False,
    "id_date": datetime(1969, 1, 1, tzinfo=UTC),
    "id_timestamp": Timestamp(5, 6),
    "id_timestamp_of_nothing": Timestamp(0, 1),
    "id_code": Code("f()"),
    "id_code_with_scope": Code("f()", {"x": 1}),
    "id_min_key": MinKey(),
    "id_max_key": MaxKey(),
}
RAW_IDS = {
    "id_symbol": b"\x0e_id\0\x04\0\0\0sym\0",
    "id_pointer": b"\x0c_id\0\x02\0\0\0c\0" + bytes(range(12)),
    "id_late_date": b"\x09_id\0" + (2**62).to_bytes(8, "little"),
    "id_utf8": raw_string(b"\xff\xfe", name=b"_id"),
    "id_surrogate": raw_string(b"\xed\xa0\x80", name=b"_id"),
}


def kinds() -> Iterator[Poison]:
    """Yield every kind."""
    for name, reason, text in chain(MARKUP, CHARACTERS):
        made = partial(_text, name, partial(_tagged, name, text))
        yield Poison(name, reason, made, tail=not reason)
    for name, content in UTF8.items():
        yield Poison(name, "invalid_utf8", partial(_record, name, partial(raw_string, content)))
    for name, (reason, value) in WRONG_TYPES.items():
        yield Poison(name, reason, partial(_record, name, partial(fields, text=value)))
    for name, (reason, make) in ODD_FIELDS.items():
        yield Poison(name, reason, partial(_record, name, partial(make, name)), tail=not reason)
    odd_ids = {name: partial(fields, _id=value) for name, value in ODD_IDS.items()}
    odd_ids |= {name: partial(bytes, raw) for name, raw in RAW_IDS.items()}
    for name, make_id in odd_ids.items():
        yield Poison(
            name, UNIQUE, lambda name=name, make_id=make_id: document(make_id(), judged(name)), tail=True
        )
    for size in (LARGEST - 1, LARGEST):
        name = f"record_of_{size}"
        yield Poison(name, UNIQUE, partial(_padded, name, size), tail=True)
    yield Poison(
        "text_of_16_mb",
        "too_long",
        partial(_record, "text_of_16_mb", lambda: fields(text="a" * (LARGEST - 60))),
    )
    for number in range(5):
        name = f"template_{number}"
        text = f"尊敬的客户您好，您的第{number * 7919}号订单已经发货，请注意查收。"
        yield Poison(
            name, UNIQUE, partial(_text, name, partial(_tagged, name, partial(str, text))), tail=True
        )


def _padded(name: str, size: int) -> bytes:
    return padded(fields(_id=name) + judged(name), size)


@cache
def recipe() -> Recipe:
    """Return the default recipe, which reads the field `text`."""
    return recipe_of("text")


def measure(poison: Poison) -> dict[str, Any]:
    """Fingerprint one record in a separate process; return its cost and its result."""
    raw = poison.raw
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        prints = worker_tasks.work([raw])
        used = resource.getrusage(resource.RUSAGE_SELF)
        seen = prints.reasons[0] or recipe().reader.texts([raw])[0][-len(TAIL) :]
        values = {
            "name": poison.name,
            "reason": prints.reasons[0],
            "saw_tail": seen == TAIL,
            "seconds": round(used.ru_utime + used.ru_stime, 2),
            "peak_mb": used.ru_maxrss >> 10,
        }
        os.write(writing, json.dumps(values).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        values = json.loads(answer.read() or json.dumps({"name": poison.name, "reason": "died"}))
    os.waitpid(child, 0)
    return values


if __name__ == "__main__":
    wanted = set(sys.argv[1:])
    worker_tasks.begin(recipe())
    worker_tasks.work([RawBSONDocument(encode({"_id": 1, "text": "热身"})).raw])
    idle = measure(Poison("idle", UNIQUE, lambda: encode({"_id": 1, "text": "热身"})))
    for one in kinds():
        if not wanted or one.name in wanted:
            trial = measure(one)
            trial["memory_mb"] = trial.pop("peak_mb") - idle["peak_mb"]
            sys.stdout.write(json.dumps(trial) + "\n")
