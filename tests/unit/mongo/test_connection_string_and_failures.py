"""Who could read along: what a connection string says of encryption and of hosts."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.errors import AutoReconnect, ConnectionFailure

from dedup_job.errors import ConfigError, Unreachable
from dedup_job.mongo import connect_and_retry as the_client
from dedup_job.mongo.connect_and_retry import RetryPolicy, connect, named_errors
from dedup_job.mongo.connection_string_and_failures import check_loopback, describe_failure, read_address
from scripts.dev.local_mongod import LocalMongod
from tests.support.waiting import HANG_SECONDS


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
    assert read_address("the source", uri).is_encrypted


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
    assert not read_address("the source", uri).is_encrypted


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
    assert read_address("the source", uri).hosts == tuple(hosts)


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
        read_address("the source", uri)
    assert caught.value.__cause__ is None
    assert not any(part in str(caught.value) for part in ("S3cret", "Pass/", "example", "1234", "admin"))


def test_a_file_that_a_connection_string_names_and_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_address("the source", "mongodb://x/?tls=true&tlsCAFile=/nowhere/ca.pem")


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


Odd = Callable[[socket.socket], object]


@contextmanager
def answering(odd: Odd) -> Iterator[int]:
    """A port at which each connection is treated in an odd way."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                taken, _ = listener.accept()
                with taken, suppress(OSError):
                    taken.settimeout(HANG_SECONDS)
                    odd(taken)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def closes(taken: socket.socket) -> None:
    taken.recv(1000)


def speaks_http(taken: socket.socket) -> None:
    taken.recv(1000)
    taken.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def told_of(uri: str, *words: str) -> str:
    """Return what is told of servers; they are given more time where they have not said these words yet."""
    for seconds in (0.3, 3.0, 30.0):
        with pytest.raises(Unreachable) as caught:
            connect(uri, "source", seconds, RetryPolicy(0.3), allow_plaintext=True)
        assert caught.value.exit_code == 69
        if all(word in str(caught.value) for word in words):
            break
    return str(caught.value)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_a_refused_port_is_named() -> None:
    port = free_port()
    words = f"the source server does not answer: 127.0.0.1:{port} refuses the connection"
    assert told_of(f"mongodb://127.0.0.1:{port}/", words).startswith(words)


@pytest.mark.parametrize(
    ("what", "address"),
    [
        ("the source server", "DEDUP_SOURCE_URI or uri_file"),
        ("the archive", "DEDUP_SOURCE_URI or uri_file"),
        ("the ledger", "DEDUP_TARGET_URI or uri_file"),
        ("the reference shop.tests server", "uri_env of its [[reference]], or that of the source"),
    ],
)
def test_an_error_says_where_the_address_of_the_server_is_given(what: str, address: str) -> None:
    told = f"^{re.escape(what)} does not answer: .* {re.escape(f'(its address is from {address})')}$"
    with pytest.raises(Unreachable, match=told), named_errors(what):
        raise ConnectionFailure("x")


def test_a_host_that_nobody_knows_is_named() -> None:
    words = "the source server does not answer: db.invalid:9 is not a host name"
    assert told_of("mongodb://user:secret@db.invalid:9/", words).startswith(words)


def test_a_name_under_which_no_servers_are_found_is_named() -> None:
    told = told_of("mongodb+srv://user:secret@db.invalid/?connectTimeoutMS=300")
    assert told.startswith("the source server: db.invalid has no SRV record")


def test_tls_against_a_plain_server_is_told() -> None:
    with LocalMongod() as server:
        words = f" 127.0.0.1:{server.port} does not speak TLS: remove tls=true"
        assert words in told_of(f"mongodb://127.0.0.1:{server.port}/?tls=true", words)


def test_a_server_that_closes_the_connection_may_ask_for_tls() -> None:
    with answering(closes) as port:
        words = f" 127.0.0.1:{port} closes the connection: does it ask for TLS"
        assert words in told_of(f"mongodb://127.0.0.1:{port}/", words)


def test_what_is_no_mongodb_server_is_told() -> None:
    with answering(speaks_http) as port:
        words = f" 127.0.0.1:{port} is not a MongoDB server"
        assert words in told_of(f"mongodb://127.0.0.1:{port}/", words)


def test_a_server_that_says_nothing_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = f" 127.0.0.1:{port} does not answer in time"
        assert words in told_of(f"mongodb://127.0.0.1:{port}/", words)


def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none.sock")
    words = f" {path} does not exist"
    assert words in told_of(f"mongodb://{path.replace('/', '%2F')}/", words)


def test_of_several_hosts_each_is_told() -> None:
    first, second = free_port(), free_port()
    words = [f"127.0.0.1:{port} refuses the connection" for port in (first, second)]
    words.append("db.invalid:27017 is not a host name")
    told = told_of(f"mongodb://127.0.0.1:{first},127.0.0.1:{second},db.invalid/?replicaSet=x", *words)
    assert all(word in told for word in words)


def test_of_many_hosts_three_are_told() -> None:
    server = (
        "<ServerDescription ('h{}', 1) server_type: Unknown, rtt: None, error=AutoReconnect('h: timed out')>"
    )
    told = describe_failure(
        AutoReconnect("x, [" + ", ".join(server.format(number) for number in range(5)) + "]>")
    )
    assert re.findall(r"h\d:1", told) == ["h0:1", "h1:1", "h2:1"]
    assert told.endswith("; and 2 more")


CERTIFICATE = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("SSL handshake failed: db:1: " + CERTIFICATE, "db:1 has a certificate that is not accepted"),
        ("SSL handshake failed: db:1: [Errno 104] Connection reset by peer", "db:1 does not speak TLS"),
        ("::1:27017: [Errno 104] Connection reset by peer", "::1:27017 closes the connection"),
        ("db:1: The read operation timed out (configured timeouts: x)", "db:1 does not answer in time"),
        ("db:1: [Errno 113] No route to host", "db:1 cannot be reached from here"),
    ],
)
def test_an_error_of_one_connection_is_told(message: str, words: str) -> None:
    assert describe_failure(AutoReconnect(message)).startswith(words)


@pytest.mark.parametrize(
    "message", ["", "operation cancelled", "db:1: what nobody knows", "no: [Errno 9999] x"]
)
def test_of_an_error_that_is_not_known_nothing_is_said(message: str) -> None:
    assert describe_failure(AutoReconnect(message)) == ""


@pytest.mark.long
def test_a_server_that_goes_away_during_a_run_is_named() -> None:
    with LocalMongod() as server:
        uri = server.uri
        with connect(uri, "target", 10.0, RetryPolicy()) as client:
            server.stop()
            with pytest.raises(Unreachable) as caught, the_client.named_errors("the target"):
                client.admin.command("ping")
    assert f"127.0.0.1:{server.port} refuses the connection" in str(caught.value)
