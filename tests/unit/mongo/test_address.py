"""Who could read along: what a connection string says of encryption and of hosts."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup_job.errors import ConfigError
from dedup_job.mongo.address import check_loopback, read
from dedup_job.mongo.client import connect


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://db.example.org/?tls=true",
        "mongodb://db.example.org/?TLS=true&w=1",
        "mongodb://a,b/shop?replicaSet=x&ssl=true",
        "mongodb+srv://db.example.org/",
        "mongodb+srv://db.example.org/?tls=true",
    ],
)
def test_tls_is_asked_for(uri: str) -> None:
    assert read("the source", uri).is_encrypted


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://db.example.org/",
        "mongodb://tls=true:x@db.example.org/",
        "mongodb://db.example.org/tls=true",
        "mongodb://db.example.org/?tls=false&w=1",
        "mongodb://db.example.org/?tls=false;w=1",
        "mongodb://db.example.org/?appName=tls%3Dtrue",
        "mongodb+srv://db.example.org/?tls=false",
        "mongodb+srv://db.example.org/?ssl=false",
    ],
)
def test_tls_is_not_asked_for(uri: str) -> None:
    assert not read("the source", uri).is_encrypted


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
    assert read("the source", uri).hosts == tuple(hosts)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "mongo://x/",
        "mongodb://",
        "mongodb://x:y/",
        "mongodb://x:99999/",
        "mongodb://x/?w",
        "mongodb://x/?tls=true&tls=false",
        "mongodb://x/?tls=true&ssl=false",
        "mongodb://x/?what=1",
        "mongodb+srv://",
        "mongodb://admin:S3cret@Pass/word@db.example.com:27017/",
        "mongodb://admin:S3cret@Pass/word@db.example.com:27017",
        "mongodb://admin:S3cret@Pass@db.example.com/",
        "mongodb://admin:1234?word@db.example.com/",
        "mongodb://admin:1234/word@db.example.com",
        "mongodb://admin:1234@Pass?appName=x@db.example.com",
        "mongodb+srv://admin:1234/word@db.example.com",
        "mongodb://admin:%zz@db.example.com",
    ],
)
def test_a_malformed_connection_string_is_a_mistake_that_says_what_to_encode(uri: str) -> None:
    with pytest.raises(ConfigError, match="percent-encoded") as caught:
        read("the source", uri)
    assert caught.value.__cause__ is None
    assert not any(part in str(caught.value) for part in ("S3cret", "Pass/", "example", "1234", "admin"))


def test_a_file_that_a_connection_string_names_and_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read("the source", "mongodb://x/?tls=true&tlsCAFile=/nowhere/ca.pem")


# Letters, digits and signs of which no run of four is in a message of ours.
PASSWORDS = st.text("aQ7xK9@:/?#[]%+&;=,. $é中", min_size=4, max_size=24).filter(str.strip)
FORMS = st.sampled_from(
    [
        "mongodb://user:{}@db.example.org/",
        "mongodb://user:{}@db.example.org:27018/shop?w=1",
        "mongodb://user:{}@db.example.org",
        "mongodb://{}@db.example.org/",
        "mongodb://{0}:{0}@db.example.org/",
        "mongodb+srv://user:{}@db.example.org/?tls=false",
        "mongodb://user:{}@a.example.org,b.example.org/?replicaSet=x",
        "user:{}@db.example.org",
    ]
)
CODES = st.sampled_from([quote_plus, quote, lambda password: quote(password, safe=""), str])


@given(PASSWORDS, FORMS, CODES)
def test_no_four_characters_of_a_password_are_in_a_message(password: str, form: str, code: Any) -> None:
    written = code(password)
    with pytest.raises(ConfigError) as caught:
        connect(form.format(written), "source")
    for secret in (password, written):
        assert not any(secret[at : at + 4] in str(caught.value) for at in range(len(secret) - 3))


@given(PASSWORDS)
def test_a_password_that_is_encoded_hides_no_host(password: str) -> None:
    with pytest.raises(ConfigError, match=r"the connection to db\.example\.org is not encrypted"):
        connect(f"mongodb://user:{quote_plus(password)}@db.example.org/", "source")


def test_this_machine_may_be_spoken_to_in_the_clear() -> None:
    check_loopback("the source", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "/tmp/mongodb-27017.sock"])


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "db", "localhost.example.org", "127.0.0.1.example.org", "::", "0.0.0.0", ""]
)
def test_no_other_host_may(host: str) -> None:
    with pytest.raises(ConfigError, match="allow_plaintext") as caught:
        check_loopback("the source", ["127.0.0.1", host])
    assert caught.value.exit_code == 78
