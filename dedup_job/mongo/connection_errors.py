"""Turn a driver error into one line per host: what failed and why."""

from __future__ import annotations

import errno
import re

SHOWN = 3  # hosts

# The driver keeps no more than the message of an error, and hosts beside it: no part of a connection string.
SERVER = re.compile(
    r"<ServerDescription \('([^']+)', (\d+|None)\) server_type: \w+, rtt: [^,>]+, error=(.*?\))>"
)
SINGLE = re.compile(r"^(SSL handshake failed: )?(\S+?)(?::(\d+))?: ")
NUMBER = re.compile(r"\[Errno (\d+)\]")
LOOK_UP = re.compile(r"\[Errno (-\d+|8)\]")  # getaddrinfo has numbers of its own

REFUSED = "refuses the connection: does the server run, and listen there?"
UNKNOWN = "is not a host name that is known here"
SILENT = "does not answer in time: is it up, or does a firewall keep it apart?"
NO_TLS = "does not speak TLS: is tls=true right for it?"
NO_TRUST = "has a certificate that is not accepted here: is its host name right, and tlsCAFile?"
CLOSED = "closes the connection: does it ask for TLS (tls=true)?"
FOREIGN = "is no MongoDB server: what answers there speaks something else"
ERRORS = {
    errno.ECONNREFUSED: REFUSED,
    errno.ENOENT: "is not there: no server has made this socket",
    errno.EACCES: "may not be opened by this user",
    errno.EHOSTUNREACH: "cannot be reached from here",
    errno.ENETUNREACH: "cannot be reached from here",
    errno.ETIMEDOUT: SILENT,
    errno.ECONNRESET: CLOSED,
}
# In this order: the first words that are in a message tell.
WORDS = (
    ("CERTIFICATE_VERIFY_FAILED", NO_TRUST),
    ("doesn't match", NO_TRUST),
    ("timed out", SILENT),
    ("SSL", NO_TLS),
    ("connection closed", CLOSED),
    ("response id", FOREIGN),
    ("ProtocolError", FOREIGN),
    ("Message length", FOREIGN),
)


def describe_failure(error: Exception) -> str:
    """Return what is wrong as `HOST:PORT refuses the connection: ...`, of a few hosts; "" if none is named.

    >>> describe_failure(OSError("db:27017: [Errno 111] Connection refused (configured timeouts: ...)"))
    'db:27017 refuses the connection: does the server run, and listen there?'
    """
    whole = str(error)
    servers = SERVER.findall(whole) or [(host, port, whole) for _, host, port in SINGLE.findall(whole)]
    known = ((_place(host, port), _explanation(message)) for host, port, message in servers)
    each = [f"{place} {what}" for place, what in known if what]
    more = f"; and {len(each) - SHOWN} more" if len(each) > SHOWN else ""
    return "; ".join(each[:SHOWN]) + more


def _place(host: str, port: str | None) -> str:
    return host if port in (None, "", "None") else f"{host}:{port}"


def _explanation(message: str) -> str:
    """Return what a message says of a host, in plain words; "" where it says nothing that is known."""
    if LOOK_UP.search(message):
        return UNKNOWN
    if known := next((plain for words, plain in WORDS if words in message), ""):
        return known
    number = NUMBER.search(message)
    return ERRORS.get(int(number[1]), "") if number else ""
