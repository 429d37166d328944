"""Connection strings: which options they give, which hosts they name, and who could read along."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

from pymongo.errors import InvalidURI
from pymongo.uri_parser import parse_uri

from dedup_job.errors import ConfigError

SRV = "mongodb+srv:"


def options(uri: str) -> dict[str, str]:
    """Return the options of a connection string, names and values in lower case."""
    query = uri.partition("?")[2].replace(";", "&")
    return {name.lower(): value.lower() for name, value in parse_qsl(query)}


def is_encrypted(uri: str) -> bool:
    """Return whether a connection string asks for TLS; `mongodb+srv:` does unless it says otherwise."""
    given = options(uri)
    return given.get("tls", given.get("ssl", str(uri.startswith(SRV)).lower())) == "true"


def seeds(uri: str) -> list[str]:
    """Return the hosts that a connection string names; raises an error of the driver for a malformed one."""
    if uri.startswith(SRV):
        return [urlsplit(uri).hostname or ""]
    try:
        return [host for host, _ in parse_uri(uri, validate=False)["nodelist"]]
    except ValueError:  # what the driver raises for a bad port
        raise InvalidURI from None


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
