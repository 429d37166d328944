from __future__ import annotations

from bson import encode

from dedup_job.text.fields import MAX_PATHS, count_field_kinds, count_text_fields


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
