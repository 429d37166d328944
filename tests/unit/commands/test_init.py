from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job import config
from dedup_job.commands.init import CollectionName, Draft, propose_fields, write_settings
from dedup_job.errors import ConfigError, StorageFull, UsageError
from tests.support.text_pairs import raw

PLAIN = Draft(CollectionName("shop", "pages"), ["data"], CollectionName("shop", "pages").proposed_target)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\x00./\\ "$*<>:|?'), min_size=1)


def loaded(draft: Draft) -> config.Settings:
    return config.check_settings(tomllib.loads(draft.as_toml("new.toml")), "new.toml")


@given(NAMES.filter(lambda name: len(name) <= 63), NAMES, st.lists(NAMES, min_size=1))
def test_whatever_the_names_are_the_file_says_them(database: str, collection: str, fields: list[str]) -> None:
    source = CollectionName(database, collection)
    settings = loaded(Draft(source, fields, source.proposed_target))
    assert (settings.source.database, settings.source.collection) == (database, collection)
    assert (settings.target.database, settings.target.collection) == (database, f"{collection}_unique")
    assert list(settings.source.fields) == fields


def test_what_nobody_answered_is_as_it_is_if_not_set() -> None:
    bare = {"source": {"database": "shop", "collection": "pages", "fields": ["data"]}}
    bare["target"] = {"database": "shop", "collection": "pages_unique"}  # type: ignore[dict-item]
    assert loaded(PLAIN) == config.check_settings(bare, "bare")


def test_what_was_answered_is_set() -> None:
    more = Draft(
        PLAIN.source,
        ["title", "page.body"],
        CollectionName("other", "a.b"),
        '{"lang": "zh"}',
        Path("source.uri"),
        Path("reports"),
        True,
    )
    settings = loaded(more)
    assert settings.source.condition == {"lang": "zh"}
    assert (settings.source.uri_file, settings.report.directory) == (Path("source.uri"), Path("reports"))
    assert settings.limits.allow_plaintext
    assert settings.target.collection == "a.b"


@pytest.mark.parametrize("name", ["shop", "shop.", ".pages", ""])
def test_a_place_has_a_database_and_a_collection(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected DATABASE\.COLLECTION"):
        CollectionName.named(name)


def test_a_file_is_written_where_there_is_none_and_with_settings_that_a_run_takes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.toml"
    with pytest.raises(ConfigError, match=r"\[source\] fields: expected dotted paths"):
        write_settings(path, Draft(PLAIN.source, ["a..b"], PLAIN.target))
    assert not path.exists()
    write_settings(path, PLAIN)
    assert config.load_settings(path) == loaded(PLAIN)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="exists already and was not changed"):
        write_settings(path, Draft(PLAIN.source, ["title"], PLAIN.target))
    assert path.read_bytes() == before
    with pytest.raises(StorageFull, match="cannot be written: No such file"):
        write_settings(tmp_path / "nowhere" / "new.toml", PLAIN)


def test_the_field_with_the_most_text_is_proposed_first() -> None:
    from bson import encode

    raws = [encode({"url": "u" * 9, "page": {"body": "x" * 100}, "views": 3, "title": "t"}), raw("y" * 20)]
    assert propose_fields(raws) == {
        "page.body": (1, 100),
        next(iter(propose_fields(raws[1:]))): (1, 20),
        "url": (1, 9),
        "title": (1, 1),
    }
