"""Write concern, TLS and read preference of connections, whatever the connection string says."""

from __future__ import annotations

import re

import pytest
from pymongo.read_preferences import ReadPreference

from dedup_job.errors import ConfigError, Unreachable
from dedup_job.mongo import connection_string_and_failures
from dedup_job.mongo.connect_and_retry import RetryPolicy, connect
from scripts.dev.local_mongod import SET_NAME, LocalMongod


@pytest.mark.parametrize(
    "options",
    [
        "w=0",
        "w=1&journal=false",
        "retryWrites=false&retryReads=false",
        "readConcernLevel=local",
        "wTimeoutMS=1",
    ],
)
def test_what_makes_a_write_safe_is_forced_whatever_the_connection_string_says(
    mongo_uri: str, options: str
) -> None:
    separator = "&" if "?" in mongo_uri else "/?"
    with connect(f"{mongo_uri}{separator}{options}", "target", 5.0, RetryPolicy(7.0), True) as client:
        assert client.write_concern.document == {"w": "majority", "j": True, "wtimeout": 7000}
        assert client.read_concern.level == "majority"
        assert (client.options.retry_writes, client.options.retry_reads) == (True, True)
        assert client.read_preference == ReadPreference.PRIMARY
        assert client.options.pool_options.connect_timeout == 5.0


def test_a_read_preference_is_refused(mongo_uri: str) -> None:
    separator = "&" if "?" in mongo_uri else "/?"
    with pytest.raises(ConfigError, match=r"remove readPreference from .* set \[source\] read_preference"):
        connect(f"{mongo_uri}{separator}readPreference=secondaryPreferred", "source")


@pytest.mark.parametrize("uri", ["mongodb://db.invalid/", "mongodb://127.0.0.1,10.0.0.1/?replicaSet=x"])
def test_another_machine_is_not_spoken_to_in_the_clear(uri: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("set [limits] allow_plaintext = true")):
        connect(uri, "source")


def test_another_machine_is_tried_when_that_is_allowed() -> None:
    with pytest.raises(Unreachable):
        connect("mongodb://db.invalid/", "source", 0.2, RetryPolicy(0.2), allow_plaintext=True)


def test_a_member_elsewhere_is_noticed_although_the_connection_string_does_not_name_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The set calls its member 127.0.0.1, which stands for another machine here."""
    monkeypatch.setattr(connection_string_and_failures, "_is_here", "localhost".__eq__)
    with LocalMongod() as server:
        uri = f"mongodb://localhost:{server.port}/?replicaSet={SET_NAME}"
        with pytest.raises(ConfigError, match=re.escape("127.0.0.1 is not encrypted")):
            connect(uri, "source")
        with connect(uri, "source", allow_plaintext=True) as client:
            assert client.admin.command("ping")["ok"]
