"""`init`: write a new settings file from a few answers and proposals from the server."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dedup_job import config
from dedup_job.errors import StorageFull, UsageError
from dedup_job.mongo.catalog import Catalog
from dedup_job.mongo.client import Patience, connect
from dedup_job.settings.draft import Draft
from dedup_job.text.fields import TextFields
from dedup_job.text.inventory import inventory, with_text

LOOKED_AT = 100  # records whose fields are searched for text
PATIENCE = Patience(10.0)  # short, as a person waits for the answer


@contextmanager
def catalog(uri_file: Path | None, allow_plaintext: bool) -> Iterator[Catalog]:
    """Connect to the source's server, and list its databases and collections.

    Raises:
        ConfigError: If no connection string is set, or the server refuses the user.
        Unreachable: If the server does not answer.
    """
    uri = config.connection_string(config.SOURCE_URI, uri_file)
    with connect(uri, "source", PATIENCE.seconds, PATIENCE, allow_plaintext) as client:
        yield Catalog(client, PATIENCE)


def proposed_fields(raws: Sequence[bytes]) -> dict[str, tuple[int, int]]:
    """Return the number of records and the average length of each field with text.

    The field with the most text in total comes first.
    """
    totals = {
        path: (count, sum(len(text.text) for text in TextFields((path,)).texts_of(raws)))
        for path, count in with_text(inventory(raws)).items()
    }
    ordered = sorted(totals.items(), key=lambda item: -item[1][1])
    return {path: (count, total // count) for path, (count, total) in ordered}


def check_new(path: Path) -> None:
    """Raise UsageError if the file exists."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} exists already and was not changed; name another file with -c")


def write(path: Path, draft: Draft) -> None:
    """Write the settings file.

    Raises:
        ConfigError: If a run would not accept one of the values.
        UsageError: If the file exists.
        StorageFull: If the file cannot be written.
    """
    text = draft.as_toml(path.name)
    # Checked as a run checks it, before the file exists.
    config.check(tomllib.loads(text), str(path), path.absolute().parent).make_recipe()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        check_new(path)
    except OSError as error:
        raise StorageFull(f"{path} cannot be written: {error.strerror}") from None
