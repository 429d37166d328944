"""A draft of a settings file, from a few answers; what is not asked for is there as a comment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PAGE = """\
# Settings of dedup-job; docs/settings.md has all of them.
# First: dedup-job doctor -c {name}     then: dedup-job report -c {name}

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
# remove = ["nav", "footer"]      # CSS selectors of what is no text: docs/boilerplate.md

[limits]
{allow_plaintext}
# max_docs_per_second = 500       # spare a server that others use

[report]
{directory}
"""
# What stands in the place of an answer that nobody gave.
UNSET = {
    "filter": """# filter = '{"lang": "zh"}'       # only these records, in extended JSON""",
    "uri_file": '# uri_file = "source.uri"         # holds the connection string, mode 0600; '
    "else DEDUP_SOURCE_URI does",
    "allow_plaintext": "# allow_plaintext = true          # another machine may be spoken to without TLS",
    "directory": '# directory = "reports"           # each run leaves its report here, as JSON',
}


@dataclass(frozen=True, slots=True)
class Place:
    """A collection in a database."""

    database: str
    collection: str

    @classmethod
    def named(cls, name: str) -> Place:
        """Take DATABASE.COLLECTION apart; ValueError for what has no dot in it."""
        database, dot, collection = name.partition(".")
        if not (database and dot and collection):
            raise ValueError(f"expected DATABASE.COLLECTION, as in shop.pages, not {name!r}")
        return cls(database, collection)

    @property
    def proposed_target(self) -> Place:
        """The place beside it that is proposed for its unique records."""
        return replace(self, collection=f"{self.collection}_unique")

    def __str__(self) -> str:
        return f"{self.database}.{self.collection}"


@dataclass(frozen=True, slots=True)
class Draft:
    """What the settings are to be; None for what is left as it is if not set."""

    source: Place
    fields: Sequence[str]
    target: Place
    filter: str | None = None
    uri_file: Path | None = None
    reports: Path | None = None
    allow_plaintext: bool = False

    def as_toml(self, name: str) -> str:
        """Return the file of this name."""
        given = {
            "filter": self.filter,
            "uri_file": self.uri_file and str(self.uri_file),
            "allow_plaintext": self.allow_plaintext or None,
            "directory": self.reports and str(self.reports),
        }
        lines = {
            key: UNSET[key] if value is None else f"{key} = {_value(value)}" for key, value in given.items()
        }
        return PAGE.format(
            name=name,
            source_database=_value(self.source.database),
            source_collection=_value(self.source.collection),
            fields=_value(list(self.fields)),
            target_database=_value(self.target.database),
            target_collection=_value(self.target.collection),
            **lines,
        )


def _value(value: Any) -> str:
    """Return a value as TOML has it: as JSON, but that nothing outside of ASCII is told by halves.

    >>> _value(["正文", "a\\x7f"])
    '["正文", "a\\\\u007f"]'
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
