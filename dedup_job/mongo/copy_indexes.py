"""Build the source's indexes on the target, each with a majority of the members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.son import SON
from pymongo.errors import OperationFailure

from dedup_job.mongo.connect_and_retry import is_refused, name_of_refusal
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.server import STANDALONE, Rights, kind_of_deployment

REASONS: Mapping[int | None, str] = {
    11000: "unique, and several records have the same value",
    85: "there is another index on the same fields",
    86: "there is another index of this name",
    171: "a record has lists in several of its fields",
}

Index: TypeAlias = Mapping[str, Any]


class IndexRefused(Exception):
    """The server refuses to build an index; its own message may hold parts of a record."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason


def build_indexes(collection: RetryingCollection, indexes: Iterable[Index]) -> None:
    """Build indexes in one pass over the records; existing indexes cost nothing.

    Raises:
        IndexRefused: If the server refuses one of them; then none is built.
    """
    command: SON[str, Any] = SON(createIndexes=collection.name, indexes=list(indexes))
    # By default a replica set waits for all voting members, and for ever if one is down.  A standalone server
    # refuses the option.
    if kind_of_deployment(collection.hello()) != STANDALONE:
        command["commitQuorum"] = "majority"

    def build() -> None:
        try:
            collection.database.command(command)
        except OperationFailure as error:
            if not is_refused(error):
                raise
            other = f"the server refuses it ({name_of_refusal(error)})"
            raise IndexRefused(collection.what, REASONS.get(error.code, other)) from None

    collection.attempt(build)


ID_INDEX = "_id_"
EXPIRY = "expireAfterSeconds"
# Indexes that only differ in these options serve the same queries; the last two are from old servers.
IGNORED_OPTIONS = frozenset({"name", EXPIRY, "ns", "background"})
# Must be given explicitly in a collection with another default collation.
SIMPLE: SON[str, Any] = SON(locale="simple")
ORDERED: CodecOptions[Any] = CodecOptions(
    document_class=SON, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of copying the source's indexes to the target.

    Attributes:
        target: Name of the target.
        built: Names of the indexes that were built.
        there: Names of the indexes that existed.
        refused: Reasons of refused indexes, by name.
        expiries: Seconds after which an index of the source deletes records, by name. The target's index
            does not delete records.
    """

    target: str
    built: Sequence[str] = ()
    there: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    expiries: Mapping[str, float] = field(default_factory=dict)


class Indexes:
    """Copies the indexes of the source to the target."""

    def __init__(self, source: RetryingCollection, target: RetryingCollection) -> None:
        self._source, self._target = source, target

    def check_allowed(self) -> None:
        """Raise NotPermitted if the user may not copy indexes, so that a long run does not end with it."""
        Rights.of(self._source).check(self._source, ["listIndexes"])
        Rights.of(self._target).check(self._target, ["listIndexes", "createIndex"])

    def compare(self) -> Copied:
        """Compare the source's indexes with the target's; builds none, and `refused` has the missing ones."""
        of_source, there = self._list()
        missing = [one["name"] for one in of_source if _comparison_key(one) not in there]
        return self._result(of_source, there, dict.fromkeys(missing, "the target lacks it"))

    def copy(self) -> Copied:
        """Build the source's indexes that the target lacks.

        All options are copied except expiry: with it, the server would delete kept records, and no copy of
        their duplicates would be left.
        """
        of_source, there = self._list()
        # An index of the target is sent again, in the target's form, as its build may be unfinished.
        wanted = {one["name"]: there.get(_comparison_key(one), _without_expiry(one)) for one in of_source}
        return self._result(of_source, there, self._build_wanted(wanted))

    def _list(self) -> tuple[list[Index], dict[str, Index]]:
        """Return the indexes of the source, and those of the target by what they serve."""
        of_target = _list_indexes(self._target)
        return _list_indexes(self._source), {_comparison_key(one): one for one in of_target}

    def _result(
        self, of_source: Sequence[Index], there: Mapping[str, Index], refused: Mapping[str, str]
    ) -> Copied:
        """Return the result; indexes of the source that are neither there nor refused were built."""
        accepted = {one["name"]: one for one in of_source if one["name"] not in refused}
        counterparts = {name: there.get(_comparison_key(one)) for name, one in accepted.items()}
        return Copied(
            target=self._target.name,
            built=[name for name, counterpart in counterparts.items() if counterpart is None],
            there=[name for name, counterpart in counterparts.items() if counterpart is not None],
            refused=refused,
            expiries={
                name: one[EXPIRY]
                for name, one in accepted.items()
                if EXPIRY in one and EXPIRY not in (counterparts[name] or {})
            },
        )

    def _build_wanted(self, wanted: Mapping[str, Index]) -> dict[str, str]:
        """Build indexes in one pass; if one is refused, build each alone.

        Returns:
            The reasons of refused indexes, by name.
        """
        if not wanted:
            return {}
        try:
            build_indexes(self._target, wanted.values())
        except IndexRefused as refusal:
            if len(wanted) == 1:
                return dict.fromkeys(wanted, refusal.reason)
            return {
                name: why for one in wanted for name, why in self._build_wanted({one: wanted[one]}).items()
            }
        return {}


def _list_indexes(collection: RetryingCollection) -> list[Index]:
    """Return the indexes of a collection, without the index on `_id`; none if it does not exist."""
    ordered = collection.unretried.with_options(codec_options=ORDERED)
    found = collection.attempt(lambda: list(ordered.list_indexes()))
    return [one for one in found if one["name"] != ID_INDEX and dict(one["key"]) != {"_id": 1}]


def _with_collation(index: Index) -> Index:
    """Return an index with its collation given explicitly; version 1 indexes have none."""
    return index if index.get("v") == 1 else SON({"collation": SIMPLE, **index})


def _without_expiry(index: Index) -> Index:
    """Return the definition of an index for the target, without expiry."""
    gone = IGNORED_OPTIONS - {"name"}
    return SON((name, value) for name, value in _with_collation(index).items() if name not in gone)


def _comparison_key(index: Index) -> str:
    """Return a key that is equal for two indexes that serve the same queries."""
    options = _with_collation(index)
    return repr([(name, options[name]) for name in sorted(options) if name not in IGNORED_OPTIONS])
