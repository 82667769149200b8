"""The exporter's port in hostile hands: health is answered, whatever others do with connections."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from app.show.metrics import server as under_test
from app.show.metrics.endpoints import HEALTH, READY, endpoints
from tests.support.waiting import wait_for

LARGE = b"weir 1\n" * (2 << 20)
"""More than the system takes of an answer that nobody reads."""
Connect = Callable[..., socket.socket]


class Metrics:
    """What `/metrics` answers; with `slow` only when it is let."""

    def __init__(self) -> None:
        self.body = b"weir 1\n"
        self.slow = False
        self.let = threading.Event()
        self.asked = 0

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        self.asked += 1
        if self.slow:
            self.let.wait(20)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [self.body]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def port(metrics: Metrics) -> Iterator[int]:
    app = endpoints(metrics, lambda: "")
    server, thread = under_test.start("127.0.0.1", 0, app, (HEALTH, READY))
    yield server.server_port
    metrics.let.set()
    server.shutdown()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def connect(port: int) -> Iterator[Connect]:
    """Opens connections, from an address of this machine, that the test's end closes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as opened:

        def one(sends: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
            found = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
            opened.enter_context(found)
            if sends:
                with contextlib.suppress(OSError):
                    found.sendall(sends)
            return found

        yield one
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read(port: int, path: str = HEALTH, host: str | None = None) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if host is not None:
        request.add_unredirected_header("Host", host)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


def healthy(port: int) -> bool:
    """Ten probes, one after the other, each answered within the second that Kubernetes waits by
    itself."""
    times = []
    for _ in range(10):
        begun = time.monotonic()
        assert read(port) == b"ok\n"
        times.append(time.monotonic() - begun)
    return max(times) < 1


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            found += part
    return found


@pytest.mark.parametrize(("number", "begun"), [(40, b""), (400, b"GET /metrics HT"), (2000, b"")])
def test_idle_connections_keep_no_probe_from_its_answer(
    port: int, connect: Connect, number: int, begun: bytes
) -> None:
    before = threading.active_count()
    for _ in range(number):
        connect(begun)
    assert healthy(port)
    assert threading.active_count() <= before + under_test.THREADS
    assert read(port, "/metrics") == b"weir 1\n"


def test_connections_without_a_descriptor_are_answered_when_there_is_one(
    port: int, connect: Connect
) -> None:
    waiting = connect(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert rest(waiting).startswith(b"HTTP/1.1 200 OK\r\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    late = socket.socket()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
        late.connect(("127.0.0.1", port))
        time.sleep(0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with late:
        late.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert rest(late).startswith(b"HTTP/1.1 200 OK\r\n")
    assert healthy(port)


def test_the_oldest_idle_connection_of_the_greedy_address_goes_first(
    port: int, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "MOST_CONNECTIONS", 4)
    other = connect(source="127.0.0.9")
    greedy = [connect() for _ in range(5)]
    assert [rest(each) for each in greedy[:2]] == [b"", b""]
    for each in (other, *greedy[2:]):
        each.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert rest(each).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("sends", [b"", b"G", b"GET /healthz HTTP/1.1\r\nA: b\r\n"])
def test_a_request_has_a_deadline_from_its_connection_on(
    port: int, connect: Connect, monkeypatch: pytest.MonkeyPatch, sends: bytes
) -> None:
    monkeypatch.setattr(under_test, "HEAD_S", 0.4)
    slow, begun, ended = connect(sends), time.monotonic(), threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                slow.sendall(b"X")

    thread = threading.Thread(target=drip)
    thread.start()
    assert rest(slow) == b""
    ended.set()
    thread.join()
    assert 0.3 < time.monotonic() - begun < 3
    assert healthy(port)


def test_clients_that_do_not_read_are_bounded_and_end(
    port: int, connect: Connect, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "LONGEST_S", 3.0)
    monkeypatch.setattr(under_test, "MOST_ANSWERS", 4)
    metrics.body = LARGE
    begun = time.monotonic()
    unread = [connect(b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(8)]
    assert healthy(port)
    assert read(port, "/metrics") == LARGE
    time.sleep(max(0.0, 3.5 - (time.monotonic() - begun)))
    assert all(len(rest(each)) < len(LARGE) for each in unread)


def test_slow_answers_keep_no_probe_from_its_answer(
    port: int, connect: Connect, metrics: Metrics
) -> None:
    metrics.slow = True
    asked = [connect(b"GET /metrics HTTP/1.1\r\n\r\n") for _ in range(100)]
    wait_for(lambda: metrics.asked == under_test.THREADS)
    assert healthy(port)
    metrics.let.set()
    answers = [rest(each) for each in asked]
    assert [each for each in answers if each][-1].endswith(b"\r\n\r\nweir 1\n")
    assert sum(not each for each in answers) == 100 - under_test.MOST_ANSWERS


@pytest.mark.parametrize(
    "sends",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x10\x00\x12",
        b"get / HTTP/1.1\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET " + b"/" * 40_000,
    ],
    ids=["TLS", "Kafka", "no method", "HTTP/0.9", "long"],
)
def test_what_is_no_request_is_closed_at_once(port: int, connect: Connect, sends: bytes) -> None:
    begun = time.monotonic()
    assert rest(connect(sends)) == b""
    assert time.monotonic() - begun < 2


def test_a_half_closed_connection_has_its_answer(port: int, connect: Connect) -> None:
    one = connect(b"GET /healthz HTTP/1.1\r\n\r\n")
    one.shutdown(socket.SHUT_WR)
    assert rest(one).endswith(b"\r\n\r\nok\n")
    cut = connect(b"GET /hea")
    cut.shutdown(socket.SHUT_WR)
    assert rest(cut) == b""


@pytest.mark.parametrize(
    "behind",
    [b"GET /metrics HTTP/1.1\r\n\r\n" * 3000, b"x" * 500_000],
    ids=["pipelined", "body"],
)
def test_the_first_request_of_a_connection_has_an_answer(
    port: int, connect: Connect, behind: bytes
) -> None:
    one = connect(b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\n" + behind)
    found = rest(one)
    assert found.startswith(b"HTTP/1.1 200 OK\r\n") and found.endswith(b"\r\n\r\nok\n")
    assert found.count(b"HTTP/1.1") == 1
    assert b"\r\nConnection: close\r\n" in found


def test_a_head_has_no_body(port: int, connect: Connect) -> None:
    found = rest(connect(b"HEAD /metrics HTTP/1.1\r\n\r\n"))
    assert b"\r\nContent-Length: 7\r\n" in found and found.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("host", ["localhost", "localhost:9464", "127.0.0.1:1", "[::1]:9", "[::1]"])
def test_local_names_are_served(port: int, host: str) -> None:
    assert read(port, "/metrics", host) == b"weir 1\n"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "169.254.169.254",
        "127.0.0.1.evil.example:1",
        "localhost\r\nHost: evil.example",
    ],
)
def test_a_foreign_name_of_a_local_port_is_refused(port: int, connect: Connect, host: str) -> None:
    for path in ("/metrics", HEALTH):
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"
        assert rest(connect(request.encode())).startswith(b"HTTP/1.1 421 ")
