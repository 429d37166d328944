from __future__ import annotations

import pytest
from bson.errors import InvalidBSON

from dedup_job.errors import ConfigError, StateError
from dedup_job.ledger.name_damaged_documents import name_damage


@name_damage("a row")
def parse(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [KeyError("at"), TypeError(), ValueError(), InvalidBSON("objsize too large")]
)
def test_a_document_that_cannot_be_parsed_is_named_without_its_contents(error: Exception) -> None:
    with pytest.raises(StateError) as raised:
        parse(error)

    assert str(raised.value) == (
        f"a row in the ledger is damaged ({type(error).__name__}); restore the target database from a backup"
    )


# bson raises the last one if memory runs out while it decodes.
@pytest.mark.parametrize("error", [MemoryError(), ConfigError("another version"), InvalidBSON("")])
def test_other_errors_keep_their_kind(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        parse(error)

    assert raised.value is error
