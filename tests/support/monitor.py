"""A monitoring server for tests of pings."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

SECRET = "/ping/4c0e-s3cret"


class Monitor(BaseHTTPRequestHandler):
    """Records requests; answers 404 if a test wants it."""

    code = 200
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
