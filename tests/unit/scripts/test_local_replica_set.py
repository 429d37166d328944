"""The replica set of one's own: it has one primary, elects another, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import MongoClient

from scripts.dev.local_replica_set import LocalReplicaSet
from tests.support.processes import alive


@pytest.mark.long
def test_it_elects_another_primary_becomes_whole_again_and_leaves_nothing_behind() -> None:
    with LocalReplicaSet() as replica_set:
        with MongoClient[dict[str, Any]](replica_set.uri, w="majority") as client:
            client["test"]["things"].insert_one({})
        killed = replica_set.kill_primary()
        assert replica_set.primary() is not killed
        assert len(replica_set.secondaries()) == 1
        replica_set.whole()
        assert len(replica_set.secondaries()) == 2
        with MongoClient[dict[str, Any]](replica_set.uri) as client:
            assert client["test"]["things"].count_documents({}) == 1
        pids = [member.pid for member in replica_set.members]

    assert not any(map(alive, pids))
    assert not any(member.dbpath.exists() for member in replica_set.members)
