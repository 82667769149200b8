"""An exporter of Prometheus metrics, which answers what a JMX exporter has answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.conftest import ROOT

OLDER = b'kafka_server_quota_byte_rate{resource="Fetch, user=bob",clientId="app",} 1.0\n'
"""With rules that take two tags for one; at the path /older."""
RECORDED = ROOT / "tests" / "data" / "exporters" / "jmx-exporter.txt"


@contextmanager
def exporting() -> Iterator[str]:
    """What a JMX exporter has answered, at an address of this machine."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = RECORDED.read_bytes() + (OLDER if self.path == "/older" else b"")
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def exporter() -> Iterator[str]:
    """The same, for a test."""
    with exporting() as address:
        yield address
