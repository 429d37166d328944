"""Who could read along: what a connection string says of encryption and of hosts."""

from __future__ import annotations

import pytest
from pymongo.errors import PyMongoError

from dedup_job.errors import ConfigError
from dedup_job.mongo.address import check_loopback, is_encrypted, seeds


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://db.example.org/?tls=true",
        "mongodb://db.example.org/?TLS=True&w=1",
        "mongodb://a,b/shop?replicaSet=x&ssl=true",
        "mongodb+srv://db.example.org/",
        "mongodb+srv://db.example.org/?tls=true",
    ],
)
def test_tls_is_asked_for(uri: str) -> None:
    assert is_encrypted(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://db.example.org/",
        "mongodb://tls=true:x@db.example.org/",
        "mongodb://db.example.org/tls=true",
        "mongodb://db.example.org/?tls=false&ssl=true",
        "mongodb://db.example.org/?tls=false;ssl=true",
        "mongodb://db.example.org/?appName=tls=true",
        "mongodb+srv://db.example.org/?tls=false",
        "mongodb+srv://db.example.org/?ssl=FALSE",
    ],
)
def test_tls_is_not_asked_for(uri: str) -> None:
    assert not is_encrypted(uri)


@pytest.mark.parametrize(
    ("uri", "hosts"),
    [
        ("mongodb://u:p@db.example.org:27018/", ["db.example.org"]),
        ("mongodb://127.0.0.1,[::1]:2,localhost/x", ["127.0.0.1", "::1", "localhost"]),
        ("mongodb://%2Ftmp%2Fmongodb-27017.sock/", ["/tmp/mongodb-27017.sock"]),
        ("mongodb+srv://u:p@db.example.org/", ["db.example.org"]),
    ],
)
def test_the_hosts_of_a_connection_string(uri: str, hosts: list[str]) -> None:
    assert seeds(uri) == hosts


@pytest.mark.parametrize("uri", ["", "mongo://x/", "mongodb://", "mongodb://x:y/", "mongodb://x:99999/"])
def test_a_malformed_connection_string_is_an_error_of_the_driver(uri: str) -> None:
    with pytest.raises(PyMongoError):
        seeds(uri)


def test_this_machine_may_be_spoken_to_in_the_clear() -> None:
    check_loopback("the source", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "/tmp/mongodb-27017.sock"])


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "db", "localhost.example.org", "127.0.0.1.example.org", "::", "0.0.0.0", ""]
)
def test_no_other_host_may(host: str) -> None:
    with pytest.raises(ConfigError, match="allow_plaintext") as caught:
        check_loopback("the source", ["127.0.0.1", host])
    assert caught.value.exit_code == 78
