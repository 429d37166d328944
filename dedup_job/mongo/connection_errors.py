"""Turn a driver error into one line per host: what failed and why."""

from __future__ import annotations

import errno
import re

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

REFUSED = "refuses the connection: is the server running, and listening on this port?"
UNKNOWN = "is not a host name that this machine can resolve"
SILENT = "does not answer in time: is it up, or does a firewall block it?"
NO_TLS = "does not speak TLS: remove tls=true if the server has none"
NO_TRUST = "has a certificate that is not accepted here: check the host name and tlsCAFile"
CLOSED = "closes the connection: does it ask for TLS (tls=true)?"
FOREIGN = "is not a MongoDB server: something else listens on this port"
ERRORS = {
    errno.ECONNREFUSED: REFUSED,
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
    ("SSL", NO_TLS),
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
        return UNKNOWN
    if known := next((plain for words, plain in WORDS if words in message), ""):
        return known
    number = NUMBER.search(message)
    return ERRORS.get(int(number[1]), "") if number else ""
