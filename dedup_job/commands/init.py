"""`init`: write a new settings file from a few answers and a list of the server's collections."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dedup_job import config
from dedup_job.config import to_toml
from dedup_job.errors import StorageFull, UsageError
from dedup_job.mongo.connect_and_retry import RetryPolicy, connect
from dedup_job.mongo.server import Catalog
from dedup_job.recipe_from_settings import make_recipe
from dedup_job.text.fields import TextFields, count_field_kinds, count_text_fields

PAGE = """\
# Settings of dedup-job; docs/reference/settings.md has all of them.
# Next: dedup-job doctor -c {name}     then: dedup-job report -c {name}

[source]
database = {source_database}
collection = {source_collection}
fields = {fields}   # dotted paths; their texts are joined in this order
{filter}
{uri_file}

[target]
database = {target_database}
collection = {target_collection}   # the ledger lives beside it

[clean]
# drop_after = ["收录:"]           # cut the text at the first of these
# remove = ["nav", "footer"]      # CSS selectors of elements to leave out: docs/how-to/boilerplate.md

[limits]
{allow_plaintext}
# max_docs_per_second = 500       # limit the load on a server that others use

[report]
{directory}
"""
# Lines for settings without an answer.
UNSET = {
    "filter": """# filter = '{"lang": "zh"}'       # only these records, in extended JSON""",
    "uri_file": '# uri_file = "source.uri"         # holds the connection string, mode 0600; '
    "instead of DEDUP_SOURCE_URI",
    "allow_plaintext": "# allow_plaintext = true          # allow connections to other machines without TLS",
    "directory": '# directory = "reports"           # each run writes its report here, as JSON',
}


@dataclass(frozen=True, slots=True)
class CollectionName:
    """The name of a collection and of its database."""

    database: str
    collection: str

    @classmethod
    def named(cls, name: str) -> CollectionName:
        """Parse DATABASE.COLLECTION.

        Raises:
            ValueError: If either name is missing.
        """
        database, dot, collection = name.partition(".")
        if not (database and dot and collection):
            raise ValueError(f"expected DATABASE.COLLECTION, as in shop.pages, not {name!r}")
        return cls(database, collection)

    @property
    def proposed_target(self) -> CollectionName:
        """The collection beside it that `init` proposes for the unique records."""
        return replace(self, collection=f"{self.collection}_unique")

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"


@dataclass(frozen=True, slots=True)
class Draft:
    """The answers that a new settings file is made from; None leaves a setting at its default."""

    source: CollectionName
    fields: Sequence[str]
    target: CollectionName
    filter: str | None = None
    uri_file: Path | None = None
    reports: Path | None = None
    allow_plaintext: bool = False

    def as_toml(self, name: str) -> str:
        """Return the text of a settings file.

        Args:
            name: The file's name, for the commands in its first lines.
        """
        answers = {
            "filter": self.filter,
            "uri_file": self.uri_file and str(self.uri_file),
            "allow_plaintext": self.allow_plaintext or None,
            "directory": self.reports and str(self.reports),
        }
        lines = {
            key: UNSET[key] if value is None else f"{key} = {to_toml(value)}"
            for key, value in answers.items()
        }
        return PAGE.format(
            name=name,
            source_database=to_toml(self.source.database),
            source_collection=to_toml(self.source.collection),
            fields=to_toml(list(self.fields)),
            target_database=to_toml(self.target.database),
            target_collection=to_toml(self.target.collection),
            **lines,
        )


# Records whose fields are searched for text.
FIELD_SAMPLE = 100
# Short, as a person waits for the answer.
RETRY = RetryPolicy(10.0)


@contextmanager
def open_catalog(uri_file: Path | None, allow_plaintext: bool) -> Iterator[Catalog]:
    """Connect to the source's server, and list its databases and collections.

    Raises:
        ConfigError: If no connection string is set, or the server refuses the user.
        Unreachable: If the server does not answer.
    """
    uri = config.connection_string(config.SOURCE_URI, uri_file)
    with connect(uri, "source", RETRY.seconds, RETRY, allow_plaintext) as client:
        yield Catalog(client, RETRY)


def propose_fields(raws: Sequence[bytes]) -> dict[str, tuple[int, int]]:
    """Return the number of records and the average length of each field with text.

    The field with the most text in total comes first.
    """
    totals = {
        path: (count, sum(len(text.text) for text in TextFields((path,)).texts_of(raws)))
        for path, count in count_text_fields(count_field_kinds(raws)).items()
    }
    ordered = sorted(totals.items(), key=lambda item: -item[1][1])
    return {path: (count, total // count) for path, (count, total) in ordered}


def check_new_file(path: Path) -> None:
    """Raise UsageError if the file exists."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already and was not changed; name another file with -c")


def write_settings(path: Path, draft: Draft) -> None:
    """Write the settings file.

    Raises:
        ConfigError: If a run would not accept one of the values.
        UsageError: If the file exists.
        StorageFull: If the file cannot be written.
    """
    text = draft.as_toml(path.name)
    # Checked as a run checks it, before the file exists.
    make_recipe(config.check_settings(tomllib.loads(text), str(path), path.absolute().parent))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        check_new_file(path)
    except OSError as error:
        raise StorageFull(f"{path} cannot be written: {error.strerror}") from None
