"""Init: writes a new settings file, after a look at what the server has, if it can be reached."""

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

LOOKED_AT = 100  # records
PATIENCE = Patience(10.0)  # a person waits


@contextmanager
def catalog(uri_file: Path | None, allow_plaintext: bool) -> Iterator[Catalog]:
    """Connect to the source's server; raises as a run would, and ConfigError where no address is set."""
    uri = config.connection_string(config.SOURCE_URI, uri_file)
    with connect(uri, "source", PATIENCE.seconds, PATIENCE, allow_plaintext) as client:
        yield Catalog(client, PATIENCE)


def proposed_fields(raws: Sequence[bytes]) -> dict[str, tuple[int, int]]:
    """Return for each field with text in how many records it is and how long on average, the most first."""
    found = {
        path: (count, sum(len(one.text) for one in TextFields((path,)).texts_of(raws)))
        for path, count in with_text(inventory(raws)).items()
    }
    ordered = sorted(found.items(), key=lambda one: -one[1][1])
    return {path: (count, total // count) for path, (count, total) in ordered}


def check_new(path: Path) -> None:
    """Raise UsageError where there is such a file already."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} is there already, and is left as it is; name another file with -c")


def write(path: Path, draft: Draft) -> None:
    """Write a settings file that a run takes; raises ConfigError for a value that it would not take."""
    text = draft.as_toml(path.name)
    config.check(tomllib.loads(text), str(path), path.absolute().parent).make_recipe()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        check_new(path)
    except OSError as error:
        raise StorageFull(f"{path} cannot be written: {error.strerror}") from None
