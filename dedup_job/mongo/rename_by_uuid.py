"""Rename collections that are known by their UUIDs, which a rename does not change."""

from __future__ import annotations

from pymongo.errors import OperationFailure

from dedup_job.errors import StateError, UsageError
from dedup_job.mongo.collection_checks import check_collection_name, hex_uuid
from dedup_job.mongo.connect_and_retry import Disturbed
from dedup_job.mongo.retrying_collection import RetryingCollection
from dedup_job.mongo.server import RENAME, Rights, not_permitted

# Errors of a rename: no collection has the old name; another collection has the new one.
MISSING, TAKEN = 26, 48


class NameTaken(Exception):
    """Another collection has the name."""


class Renamer:
    """Renames collections of one database; nothing is ever dropped."""

    def __init__(self, neighbour: RetryingCollection) -> None:
        """Use the database of this collection, which need not exist."""
        self._neighbour = neighbour

    def uuids(self) -> dict[str, str]:
        """Return the UUIDs of all collections of the database, by name; empty for a view."""
        found = self._neighbour.list_collections({})
        return {about["name"]: hex_uuid(about) for about in found}

    def move(self, uuid: str, name: str) -> None:
        """Give a collection a name, unless it has it already.

        Raises:
            NameTaken: If another collection has the name.
            StateError: If the collection no longer exists.
        """

        def rename() -> None:
            now = self._find(uuid)
            if now is None:
                raise StateError(
                    f"the collection that is to be renamed to {name} no longer exists in "
                    f"{self._neighbour.database.name}: was it dropped? restore the database from a backup"
                )
            if now == name:
                return
            try:
                # Without dropTarget, so that the server refuses a name that is taken.
                self._neighbour.database[now].rename(name)
            except OperationFailure as error:
                if error.code == MISSING:
                    # A late command of a killed promotion has renamed it.
                    raise Disturbed("the collection was renamed meanwhile") from error
                if error.code != TAKEN:
                    raise
                if self._find(uuid) != name:
                    raise NameTaken(name) from error

        self._neighbour.attempt(rename)

    def _find(self, uuid: str) -> str | None:
        return next((name for name, one in self.uuids().items() if one == uuid), None)

    def check_name(self, name: str, option: str) -> None:
        """Raise UsageError if the server would refuse this name, or a collection or view has it."""
        database = self._neighbour.database.name
        check_collection_name(database, name, option)
        if self._neighbour.list_collections({"name": name}):
            raise UsageError(f"{database}.{name} exists; choose another name with {option}")

    def check_allowed(self, moves: dict[str, str]) -> None:
        """Raise NotPermitted if the user may not rename collections: new names by old names."""
        database, rights = self._neighbour.database.name, Rights.of(self._neighbour)
        if not rights.lacking([RENAME], database):
            return
        # The server accepts these instead of the right on the whole database.
        if any(
            rights.lacking(["find", "dropCollection"], database, old)
            or rights.lacking(["insert", "createIndex"], database, new)
            for old, new in moves.items()
        ):
            raise not_permitted(self._neighbour.what, [RENAME], database)
