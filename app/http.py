"""HTTP exchanges with a deadline, over urllib3.

urllib3's time-out applies from one byte of an answer to the next. Here `seconds` is the time from
the beginning of a request to the last byte of its answer, however slow the server sends.
"""

from __future__ import annotations

import http.client
import io
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.exceptions import TimeoutError as TimedOut

from app.address import Address, parsed

# Its messages contain whole addresses, and those of chat services are secrets.
logging.getLogger("urllib3").propagate = False

NO_HTTP = "something else than HTTP"


class NoAnswer(Exception):
    """The reason for a missing answer; without address and headers, which may be secret."""

    def __init__(self, why: str, again: bool = True) -> None:
        super().__init__(why)
        self.again = again
        """Whether a repetition may help."""


def connections(proxy: Address | None = None, **options: Any) -> urllib3.PoolManager:
    """Connections that are used again, also by several threads; `options` are PoolManager's."""
    login = None if proxy is None else unquote(proxy.login or "") or None
    pools = (
        urllib3.PoolManager(num_pools=64, **options)
        if proxy is None
        else urllib3.ProxyManager(
            proxy.origin.url, proxy_headers=urllib3.make_headers(proxy_basic_auth=login), **options
        )
    )
    pools.pool_classes_by_scheme = _POOLS
    return pools


def address(url: str) -> Address:
    """The parts of an address; NoAnswer, which does not repeat it, where it cannot be used."""
    try:
        return parsed(url, may_log_in=True)
    except ValueError:
        raise NoAnswer("its address is not http(s)://host:port/path", again=False) from None


def connections_to(there: Address) -> urllib3.PoolManager:
    """Connections to one address, by the proxy that the environment names (`https_proxy`)."""
    origin = there.origin
    try:
        proxy = getproxies().get(origin.scheme)
        if proxy is None or proxy_bypass(f"{origin.host}:{origin.port}"):
            return connections()
        return connections(parsed(proxy if "://" in proxy else f"http://{proxy}", may_log_in=True))
    except ValueError:
        raise NoAnswer("the address of the proxy cannot be used", again=False) from None


@contextmanager
def exchange(
    pools: urllib3.PoolManager, method: str, there: Address, seconds: float, **request: Any
) -> Iterator[urllib3.BaseHTTPResponse]:
    """The answer to one request, read in the block; NoAnswer if it does not come or breaks off.

    A redirect is an answer like any other: what follows it decides whom to trust first.
    """
    try:
        if there.login is not None:
            headers = urllib3.HTTPHeaderDict(urllib3.make_headers(basic_auth=unquote(there.login)))
            headers.update(request.get("headers", {}))
            request["headers"] = headers
        answer = pools.request(
            method,
            there.url,
            timeout=urllib3.Timeout(total=seconds),
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
            **request,
        )
        try:
            yield answer
        finally:
            answer.close()
    except ValueError:
        raise NoAnswer("a header cannot be sent", again=False) from None
    except (HTTPError, http.client.HTTPException, OSError) as error:
        raise NoAnswer(_why(error, seconds)) from None


def beginning(answer: urllib3.BaseHTTPResponse) -> str:
    """The beginning of the body of an error response."""
    try:
        text = answer.read1(300).decode(errors="replace")
    except HTTPError:
        return ""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f" ({text})" if text else ""


def attempts(
    retries: int, stopping: threading.Event, first_pause_s: float, longest_pause_s: float
) -> Iterator[int]:
    """Counts the first attempt and `retries` more, after pauses that double, until `stopping`."""
    yield 0
    for attempt in range(1, retries + 1):
        stopping.wait(min(first_pause_s * 2 ** (attempt - 1), longest_pause_s))
        if stopping.is_set():
            return
        yield attempt


def _why(error: BaseException, seconds: float) -> str:
    """An error in a few words."""
    error = _root(error)
    if isinstance(error, TimedOut | TimeoutError):
        return f"no whole answer in time ({seconds:g} s)"
    if isinstance(error, ConnectionResetError):  # or closed, before an answer
        return "closes the connection, as ports with TLS or of another protocol do"
    if isinstance(error, http.client.IncompleteRead | ProtocolError):
        return "the answer breaks off"
    if isinstance(error, http.client.HTTPException):
        # The record of TLS that refuses what is no TLS.
        is_tls = str(error).strip("'\"").startswith(("\x15\x03", r"\x15\x03"))
        return f"answers {'as TLS: https://, or another port' if is_tls else NO_HTTP}"
    if getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "answers without TLS: http://, or another port"
    return f"cannot be reached ({getattr(error, 'strerror', None) or type(error).__name__})"


def _root(error: BaseException) -> BaseException:
    """What urllib3's errors wrap, as a cause or as an argument."""
    found = [one for one in (error.__cause__, *error.args) if isinstance(one, BaseException)]
    return _root(found[0]) if found and isinstance(error, HTTPError) else error


class _TimedSocket(io.RawIOBase):
    """A socket's bytes within one time-out for all reads; `makefile` applies it to each read."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._until = time.monotonic() + (sock.gettimeout() or 0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What `http.client` reads an answer from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what there is; a TimeoutError when the time is over."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Give the socket back."""
        self._raw.close()
        super().close()


def _answer(sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_TimedSocket(sock), **options)  # type: ignore[arg-type]


def _timed(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """A kind of pool whose answers have a deadline."""
    answers = {"response_class": staticmethod(_answer)}
    return type(
        "Pool", (pool,), {"ConnectionCls": type("Connection", (pool.ConnectionCls,), answers)}
    )


_POOLS = {"http": _timed(HTTPConnectionPool), "https": _timed(HTTPSConnectionPool)}
