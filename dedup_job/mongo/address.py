"""Connection strings, taken apart by the driver: which hosts and options they name, who could read along."""

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
    """What a connection string says, without its user and password.

    hosts         those that it names; of `mongodb+srv:` the name under which others are looked up
    is_looked_up  whether it is one of `mongodb+srv:`
    is_encrypted  whether it asks for TLS; `mongodb+srv:` does unless it says otherwise
    read_preference  in lower case
    """

    hosts: tuple[str, ...]
    is_looked_up: bool
    is_encrypted: bool
    read_preference: str


def read(what: str, uri: str) -> Address:
    """Take a connection string apart as the driver does, and ask nobody; raises ConfigError for a bad one.

    Nothing of the string is in the message, nor does it name an error that has something of it.  The driver
    takes `mongodb://u:p@ss/word@host/` for the host `ss`: an @ that is not the end of the user and the
    password belongs to one of them.
    """
    is_looked_up = uri.startswith(SRV)
    bare, _, query = uri.partition("?")
    if is_looked_up:  # the driver would ask for its hosts
        bare = PLAIN + bare.removeprefix(SRV)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("error", UserWarning)
            parsed = parse_uri(bare)
            options = {name.lower(): value for name, value in split_options(query).items()} if query else {}
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{what}: a file that the connection string names: {reason}") from None
    except (ConfigurationError, UserWarning, TypeError, ValueError):
        raise ConfigError(f"{what}: {EXPECTED}") from None
    if uri.count("@") != (parsed["username"] is not None):
        raise ConfigError(f"{what}: {EXPECTED}")
    return Address(
        hosts=tuple(host for host, _ in parsed["nodelist"]),
        is_looked_up=is_looked_up,
        is_encrypted=bool(options.get("tls", is_looked_up)),
        read_preference=str(options.get("readpreference", "primary")).lower(),
    )


def check_loopback(what: str, hosts: Iterable[str]) -> None:
    """Raise ConfigError when one of the hosts is not surely this machine."""
    for host in hosts:
        if not _is_here(host):
            raise ConfigError(
                f"{what}: the connection to {host} is not encrypted; add tls=true to the connection string, "
                "or set [limits] allow_plaintext = true in a network that you trust"
            )


def _is_here(host: str) -> bool:
    """Return whether a host is a loopback address or a Unix socket; what a name means, others may decide."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")
