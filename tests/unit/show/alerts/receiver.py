"""A server on loopback that records the requests of sinks, with the statuses that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """What was posted: path, headers, body; `answers` are the next statuses, then 200."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], Any]] = []
        self.answers: list[int] = []
        self.attempts = 0
        self.url = ""

    def bodies(self) -> list[Any]:
        """The bodies of the posts that were taken."""
        return [body for _, _, body in self.posts]

    def notified(self, status: str, alert: str | None = None) -> list[dict[str, Any]]:
        """The alerts that Alertmanager notified of with a status, in order."""
        return [
            each
            for body in self.bodies()
            for each in body["alerts"]
            if each["status"] == status and alert in (None, each["labels"]["alertname"])
        ]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.attempts += 1
            status = receiver.answers.pop(0) if receiver.answers else 200
            if status == 200:
                receiver.posts.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("Location", "/elsewhere")
            text = b"" if status == 200 else b"not\n today"
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
