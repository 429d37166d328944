"""The hosts and options of a connection string, and why hosts do not answer."""

from __future__ import annotations

import errno
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from pymongo.errors import ConfigurationError
from pymongo.uri_parser import parse_uri, split_options

from dedup_job.errors import ConfigError

PLAIN, SRV = "mongodb://", "mongodb+srv://"
EXPECTED = (
    "the connection string or an option in it is not valid; expected mongodb://USER:PASSWORD@HOST:PORT/, "
    "with special characters in user name and password percent-encoded (@ is %40, : is %3A, / is %2F)"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed connection string, without user name and password.

    Attributes:
        hosts: The hosts in the string; for `mongodb+srv:` the DNS name that lists the hosts.
        is_looked_up: Whether the string begins with `mongodb+srv:`.
        is_encrypted: Whether the string asks for TLS, the default of `mongodb+srv:`.
        read_preference: The read preference, in lower case.
    """

    hosts: tuple[str, ...]
    is_looked_up: bool
    is_encrypted: bool
    read_preference: str


def read_address(what: str, uri: str) -> Address:
    """Parse a connection string with the driver's parser, without any network access.

    Args:
        what: The name in messages, such as "the source server".
        uri: The connection string.

    Raises:
        ConfigError: If the string is not valid. Neither the message nor the chain of causes contains any part
            of the string, which may have a password.
    """
    is_looked_up = uri.startswith(SRV)
    bare, _, query = uri.partition("?")
    # The driver would look the hosts up in DNS.
    if is_looked_up:
        bare = PLAIN + bare.removeprefix(SRV)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("error", UserWarning)
            parsed = parse_uri(bare)
            options = {name.lower(): value for name, value in split_options(query).items()} if query else {}
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{what}: a file in the connection string cannot be read: {reason}") from None
    except (ConfigurationError, UserWarning, TypeError, ValueError):
        raise ConfigError(f"{what}: {EXPECTED}") from None
    # The driver reads `mongodb://u:p@ss/word@host/` as the host `ss`.  A second @ is part of the user name or
    # the password, and has to be percent-encoded.
    if uri.count("@") != (parsed["username"] is not None):
        raise ConfigError(f"{what}: {EXPECTED}")
    return Address(
        hosts=tuple(host for host, _ in parsed["nodelist"]),
        is_looked_up=is_looked_up,
        is_encrypted=bool(options.get("tls", is_looked_up)),
        read_preference=str(options.get("readpreference", "primary")).lower(),
    )


def check_loopback(what: str, hosts: Iterable[str]) -> None:
    """Raise ConfigError if a host may be another machine; `what` is the name in messages."""
    for host in hosts:
        if not _is_here(host):
            raise ConfigError(
                f"{what}: the connection to {host} is not encrypted; add tls=true to the connection string, "
                "or set [limits] allow_plaintext = true in a network that you trust"
            )


def _is_here(host: str) -> bool:
    """Return whether a host is a loopback address or a Unix socket.

    Other names are not trusted: DNS may point them anywhere.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")


# Hosts in one message.
SHOWN = 3

# The driver gives the cause only as text, in the message of its error.  The text has no part of a connection
# string except host names.
SERVER = re.compile(
    r"<ServerDescription \('([^']+)', (\d+|None)\) server_type: \w+, rtt: [^,>]+, error=(.*?\))>"
)
SINGLE = re.compile(r"^(SSL handshake failed: )?(\S+?)(?::(\d+))?: ")
NUMBER = re.compile(r"\[Errno (\d+)\]")
# Errors of getaddrinfo: negative on Linux, 8 on macOS.
LOOK_UP = re.compile(r"\[Errno (-\d+|8)\]")

SILENT = "does not answer in time: is it up, or does a firewall block it?"
NO_TRUST = "has a certificate that is not accepted here: check the host name and tlsCAFile"
CLOSED = "closes the connection: does it ask for TLS (tls=true)?"
FOREIGN = "is not a MongoDB server: something else listens on this port"
ERRORS = {
    errno.ECONNREFUSED: "refuses the connection: is the server running, and listening on this port?",
    errno.ENOENT: "does not exist: no server has created this socket",
    errno.EACCES: "is a socket that this user may not open",
    errno.EHOSTUNREACH: "cannot be reached from here",
    errno.ENETUNREACH: "cannot be reached from here",
    errno.ETIMEDOUT: SILENT,
    errno.ECONNRESET: CLOSED,
}
# In order: the first entry whose words are in the message counts.
WORDS = (
    ("CERTIFICATE_VERIFY_FAILED", NO_TRUST),
    ("doesn't match", NO_TRUST),
    ("timed out", SILENT),
    ("SSL", "does not speak TLS: remove tls=true if the server has none"),
    ("connection closed", CLOSED),
    ("response id", FOREIGN),
    ("ProtocolError", FOREIGN),
    ("Message length", FOREIGN),
)


def describe_failure(error: Exception) -> str:
    """Describe a connection failure in one sentence per host, for up to three hosts.

    Returns:
        The sentences; empty if the error names no host, or its cause is unknown.

    >>> describe_failure(OSError("db:27017: [Errno 111] Connection refused (configured timeouts: ...)"))
    'db:27017 refuses the connection: is the server running, and listening on this port?'
    """
    whole = str(error)
    servers = SERVER.findall(whole) or [(host, port, whole) for _, host, port in SINGLE.findall(whole)]
    known = ((_place(host, port), _explanation(message)) for host, port, message in servers)
    each = [f"{place} {explanation}" for place, explanation in known if explanation]
    more = f"; and {len(each) - SHOWN} more" if len(each) > SHOWN else ""
    return "; ".join(each[:SHOWN]) + more


def _place(host: str, port: str | None) -> str:
    return host if port in (None, "", "None") else f"{host}:{port}"


def _explanation(message: str) -> str:
    """Explain a driver message in plain words; empty if its cause is unknown."""
    if LOOK_UP.search(message):
        return "is not a host name that this machine can resolve"
    if known := next((plain for words, plain in WORDS if words in message), ""):
        return known
    number = NUMBER.search(message)
    return ERRORS.get(int(number[1]), "") if number else ""
