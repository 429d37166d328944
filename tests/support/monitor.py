"""A monitoring server for tests of pings."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

SECRET = "/ping/4c0e-s3cret"


class Monitor(BaseHTTPRequestHandler):
    """Notes what it is asked for; answers 404 where that is wanted."""

    code = 200
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
