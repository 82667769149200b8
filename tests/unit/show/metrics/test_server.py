"""The exporter's port in hostile hands: half-open connections, slow clients, foreign names."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import urllib.error
import urllib.request

import pytest

from app.show.metrics import server as under_test
from tests.support.waiting import wait_for


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(under_test, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(under_test, "LONGEST_S", 0.5)
    # looks for ended connections, and whether to stop, twenty times a second
    serve = functools.partialmethod(under_test.Server.serve_forever, poll_interval=0.05)
    monkeypatch.setattr(under_test.Server, "serve_forever", serve)
    # else the client tries again after a second to connect
    monkeypatch.setattr(under_test.Server, "request_queue_size", 128)
    server, thread = under_test.start("127.0.0.1", 0, hello)
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def read(port, host=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/")
    if host is not None:
        request.add_unredirected_header("Host", host)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


def served(port):
    with contextlib.suppress(OSError):
        return read(port) == b"hello"
    return False


def test_half_open_connections_are_bounded_and_end(port):
    before = threading.active_count()
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    for each in sockets:
        with contextlib.suppress(OSError):
            each.sendall(b"GET / HT")
    assert threading.active_count() <= before + 4
    wait_for(lambda: served(port))
    for each in sockets:
        each.settimeout(10)
        with contextlib.suppress(OSError):
            assert each.recv(1000) == b"", "closed by the server"
        each.close()


def test_a_client_that_sends_byte_by_byte_is_ended(port):
    with socket.create_connection(("127.0.0.1", port)) as slow:
        ended = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                while not ended.wait(0.1):
                    slow.sendall(b"X")

        thread = threading.Thread(target=drip)
        thread.start()
        slow.settimeout(20)
        with contextlib.suppress(ConnectionError):
            assert slow.recv(10) == b""
        ended.set()
        thread.join()
    assert read(port) == b"hello"


@pytest.mark.parametrize("host", ["localhost", "localhost:9464", "127.0.0.1:1", "[::1]:9", "[::1]"])
def test_local_names_are_served(port, host):
    assert read(port, host) == b"hello"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "169.254.169.254",
        "127.0.0.1.evil.example:1",
    ],
)
def test_a_foreign_name_of_a_local_port_is_refused(port, host):
    with pytest.raises(urllib.error.HTTPError) as refused:
        read(port, host)
    assert refused.value.code == 421
