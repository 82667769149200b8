"""The HTTP server of the exporter: one thread reads the requests of all connections.

Anybody who reaches the port may open connections. A connection costs no thread: it waits in the
loop, HEAD_S at most for a whole request and LONGEST_S for all, however it drips, and is a socket and
a timer until its first byte. Where there are too many, the oldest idle one of the address that has
most is closed. Health is answered by the loop itself, so that neither idle connections nor slow
readers of the metrics are before a probe.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from app.show.metrics.listen import listening

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

MOST_CONNECTIONS = 512
MOST_ANSWERS = 32
"""Connections whose answer is computed or sent; each holds it in memory."""
BACKLOG = 100
"""Connections that are accepted at once: few beside MOST_CONNECTIONS, so that a request is read
before later connections can displace it."""
QUEUE = 4096
"""Connections that wait to be accepted, as many as Linux lets: a further one, a probe perhaps, tries
again after a second."""
THREADS = 2
"""Compute answers; the loop needs its share of the interpreter."""
HEAD_S = 5.0
"""From a connection to the end of its request."""
LONGEST_S = 30.0
"""From a connection to the end of its answer; Prometheus waits 10 s by default."""
LINGER_S = 1.0
"""For what a client sends behind its request; unread it would take the answer from it."""
MOST_HEAD = 16 << 10
BROKEN = (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError)
"""A client that goes away, is too slow, sends no HTTP, or is displaced; no error of the exporter."""


class Server:
    """Answers one request of each connection, then closes it."""

    def __init__(
        self, host: str, port: int, app: WSGIApplication, at_once: Collection[str] = ()
    ) -> None:
        """`at_once` are the paths whose answers take no time; an OSError if the address cannot be
        listened on."""
        self._socket = listening(host, port, QUEUE)
        at, self.server_port = self._socket.getsockname()[:2]
        self._app = _named_locally(app) if is_loopback(at) else app
        self._at_once = at_once
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="weir-metrics")
        self._idle: dict[_Silent | asyncio.Task[Any], str] = {}
        """Connections without a whole request and their addresses, the oldest first."""
        self._busy: dict[_Silent | asyncio.Task[Any], str] = {}
        """Connections with one."""

    def serve_forever(self) -> None:
        """Serve until `shutdown`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def shutdown(self) -> None:
        """End all connections and the serving; another thread calls it."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        self._socket.setblocking(False)
        self._listen()
        await self._stop.wait()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for each in (*self._idle, *self._busy):
            each.cancel()

    def _listen(self) -> None:
        if not self._stop.is_set():
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, (address, *_) = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left
                self._loop.remove_reader(self._socket)
                self._loop.call_later(LINGER_S, self._listen)
                return
            silent = _Silent(self._loop, connection, self._begun)
            self._idle[silent] = str(address)
            if len(self._idle) + len(self._busy) > MOST_CONNECTIONS:
                _displace(self._idle or self._busy)

    def _begun(self, silent: _Silent) -> None:
        silent.release()
        task = self._loop.create_task(self._connected(silent.connection, silent.since))
        task.add_done_callback(lambda _: silent.connection.close())
        self._idle[task] = self._idle.pop(silent)

    async def _connected(self, connection: socket.socket, since: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        with suppress(*BROKEN), ExitStack() as ending:
            ending.callback(self._idle.pop, task, "")
            ending.callback(self._busy.pop, task, "")
            async with asyncio.timeout_at(since + LONGEST_S):
                async with asyncio.timeout_at(since + HEAD_S):
                    reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_HEAD)
                    ending.callback(writer.transport.abort)
                    environ = await _request(reader)
                address = self._idle.pop(task)
                if environ["PATH_INFO"] in self._at_once:
                    answer = self._answer(environ)
                else:
                    self._busy[task] = address
                    if len(self._busy) > MOST_ANSWERS:
                        _displace(self._busy)
                    computed = self._loop.run_in_executor(self._pool, self._answer, environ)
                    answer = await computed
                writer.transport.set_write_buffer_limits(0)  # drained is sent
                writer.write(answer)
                await writer.drain()
                writer.write_eof()
                async with asyncio.timeout(LINGER_S):
                    while await reader.read(MOST_HEAD):
                        pass

    def _answer(self, environ: WSGIEnvironment) -> bytes:
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        parts = self._app(environ, lambda status, headers, *_: begun.append((status, headers)))  # type: ignore[arg-type]
        body = b"".join(parts)
        status, headers = begun[-1]
        fields = {"Content-Length": str(len(body)), "Connection": "close", **dict(headers)}
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items())]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head if environ["REQUEST_METHOD"] == "HEAD" else head + body


class _Silent:
    """A connection without a byte; `begun` is called at its first one, or at the deadline."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        begun: Callable[[_Silent], None],
    ) -> None:
        connection.setblocking(False)
        self.connection, self.since, self._loop = connection, loop.time(), loop
        self._timer = loop.call_at(self.since + HEAD_S, begun, self)
        loop.add_reader(connection, begun, self)

    def release(self) -> None:
        """Leave the connection to another reader."""
        self._loop.remove_reader(self.connection)
        self._timer.cancel()

    def cancel(self) -> None:
        self.release()
        self.connection.close()


def _displace(connections: dict[_Silent | asyncio.Task[Any], str]) -> None:
    """End the oldest connection of the address that has most of them."""
    greedy = Counter(connections.values()).most_common(1)[0][0]
    task = next(task for task, address in connections.items() if address == greedy)
    del connections[task]
    task.cancel()


async def _request(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The environment of a request without its body; ValueError for what is no request of HTTP."""
    first = await reader.readexactly(1)
    if not first.isupper():
        raise ValueError("no method: a hello of TLS, for example")
    head = first + await reader.readuntil(b"\r\n\r\n")
    request, *fields = head.decode("latin-1").rstrip().split("\r\n")
    method, target, _ = request.split(" ")
    path, _, query = target.partition("?")
    environ = {"REQUEST_METHOD": method, "PATH_INFO": unquote(path), "QUERY_STRING": query}
    for field in fields:
        name, _, value = field.partition(":")
        key = f"HTTP_{name.strip().upper().replace('-', '_')}"
        # One Host beside another is that of nobody.
        environ[key] = f"{environ[key]}, {value.strip()}" if key in environ else value.strip()
    return environ


def start(
    host: str, port: int, app: WSGIApplication, at_once: Collection[str] = ()
) -> tuple[Server, threading.Thread]:
    """Serve an application on an address; an OSError if it cannot be listened on."""
    server = Server(host, port, app, at_once)
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="weir-metrics-server")
    thread.start()
    return server, thread


def _named_locally(app: WSGIApplication) -> WSGIApplication:
    """The application for requests that name a local host. A page in a browser can give a name of
    its own to this machine's address and would read the metrics under it."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if _is_local(str(environ.get("HTTP_HOST", ""))):
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"Host: an address of this machine or localhost\n"]

    return answer


def _is_local(host: str) -> bool:
    """Whether a Host header, which may be absent, names a local address and no other name."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]").rstrip(".").lower()
    return not name or name == "localhost" or name.endswith(".localhost") or is_loopback(name)


def is_loopback(text: str) -> bool:
    """Whether a text is an address of this machine alone."""
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False
