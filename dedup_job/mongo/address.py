"""Parse connection strings without connecting, and check that records do not travel in plain text."""

from __future__ import annotations

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


def read(what: str, uri: str) -> Address:
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
