"""Build the source's indexes on the target, each with a majority of the members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.son import SON
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from dedup_job.mongo.client import RetryPolicy, is_refused, name_of_refusal, named_errors
from dedup_job.mongo.rights import Rights
from dedup_job.mongo.server import STANDALONE, kind_of_deployment

REASONS: Mapping[int | None, str] = {
    11000: "unique, and several records have the same value",
    85: "there is another index on the same fields",
    86: "there is another index of this name",
    171: "a record has lists in several of its fields",
}

Index: TypeAlias = Mapping[str, Any]


class IndexRefused(Exception):
    """The server does not build an index; its own sentence may hold what is in a record."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason


def build_indexes(
    collection: Collection[Any], what: str, indexes: Iterable[Index], patience: RetryPolicy
) -> None:
    """Build indexes in one pass over the records; those that are there already are no work.

    what  the collection's name in messages

    Raises IndexRefused when the server will not build one of them, and then builds none.

    A replica set would wait without end for all members that vote, also for one that is down.  It is told to
    wait for a majority, as with every write of the job; the others follow when they can.
    """
    command: SON[str, Any] = SON(createIndexes=collection.name, indexes=list(indexes))
    database = collection.database
    with named_errors(what):
        hello = patience(lambda: database.client.admin.command("hello"))
        if kind_of_deployment(hello) != STANDALONE:  # which takes no such option
            command["commitQuorum"] = "majority"
        try:
            patience(lambda: database.command(command))
        except OperationFailure as error:
            if not is_refused(error):
                raise
            other = f"the server refuses it ({name_of_refusal(error)})"
            raise IndexRefused(what, REASONS.get(error.code, other)) from None


ID_INDEX = "_id_"
EXPIRY = "expireAfterSeconds"
# What two indexes may differ in and be one to those who read by them; the last two are of old servers.
ASIDE = frozenset({"name", EXPIRY, "ns", "background"})
SIMPLE: SON[str, Any] = SON(
    locale="simple"
)  # which a collection with a collation of its own needs to be told
ORDERED: CodecOptions[Any] = CodecOptions(
    document_class=SON, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of the source's indexes on the target, by their names.

    target   name of the collection
    built    now
    there    before
    refused  why they could not be built
    expiries  seconds of the indexes by which the server would delete records; on the target it does not yet
    """

    target: str
    built: Sequence[str] = ()
    there: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    expiries: Mapping[str, float] = field(default_factory=dict)


class Indexes:
    """The indexes of source and target."""

    def __init__(self, source: Collection[Any], target: Collection[Any], patience: RetryPolicy) -> None:
        self._source, self._target, self._patience = source, target, patience

    def check_allowed(self) -> None:
        """Raise NotPermitted where they could not be copied, so that this is known before a long run."""
        for what, collection, actions in (
            ("the source", self._source, ["listIndexes"]),
            ("the target", self._target, ["listIndexes", "createIndex"]),
        ):
            database = collection.database
            Rights.of(database, what, self._patience).check(what, actions, database.name, collection.name)

    def copy(self) -> Copied:
        """Build on the target what it lacks of the source's indexes; what is there already is left.

        All options are kept but one: by an index that lets records expire the server would delete kept
        records, and what they stand for would be nowhere.  Such an index is built without that.
        """
        of_source = self._listed(self._source, "the source")
        of_target = self._listed(self._target, "the target")
        there = {_alike(one): one for one in of_target}
        # What the target has is sent as it has it, since it may be half built.
        wanted = {one["name"]: there.get(_alike(one), _held_back(one)) for one in of_source}
        refused = self._built(wanted)
        return Copied(
            target=self._target.name,
            built=[
                one["name"] for one in of_source if _alike(one) not in there and one["name"] not in refused
            ],
            there=[one["name"] for one in of_source if _alike(one) in there and one["name"] not in refused],
            refused=refused,
            expiries={one["name"]: one[EXPIRY] for one in of_source if _is_new_expiry(one, there, refused)},
        )

    def _listed(self, collection: Collection[Any], what: str) -> list[Index]:
        """Return the indexes of a collection but that of `_id`; none where there is no collection."""
        ordered = collection.database.with_options(codec_options=ORDERED)[collection.name]
        with named_errors(what):
            found = self._patience(lambda: list(ordered.list_indexes()))
        return [one for one in found if one["name"] != ID_INDEX and dict(one["key"]) != {"_id": 1}]

    def _built(self, wanted: Mapping[str, Index]) -> dict[str, str]:
        """Build indexes in one pass over the records, or where one is refused each by itself.

        Returns why some are refused.
        """
        if not wanted:
            return {}
        try:
            build_indexes(self._target, "the target", wanted.values(), self._patience)
        except IndexRefused as refusal:
            if len(wanted) == 1:
                return dict.fromkeys(wanted, refusal.reason)
            return {name: why for one in wanted for name, why in self._built({one: wanted[one]}).items()}
        return {}


def _told_collation(index: Index) -> Index:
    """Return an index with the collation that it has; one of the first version has none, and takes none."""
    return index if index.get("v") == 1 else SON({"collation": SIMPLE, **index})


def _held_back(index: Index) -> Index:
    """Return an index as it is built on the target."""
    gone = ASIDE - {"name"}
    return SON((name, value) for name, value in _told_collation(index).items() if name not in gone)


def _alike(index: Index) -> str:
    """Return what is the same for two indexes that do the same; in the fields' order, as that matters."""
    options = _told_collation(index)
    return repr([(name, options[name]) for name in sorted(options) if name not in ASIDE])


def _is_new_expiry(index: Index, there: Mapping[str, Index], refused: Mapping[str, str]) -> bool:
    """Return whether records expire by an index in the source, and do not in the target."""
    if EXPIRY not in index or index["name"] in refused:
        return False
    return EXPIRY not in there.get(_alike(index), {})
