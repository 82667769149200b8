"""What answers at an address, before a client connects that trusts the answer.

Clients of Kafka and Pulsar try for long where a port refuses, and allocate the length that it answers:
of TLS, HTTP or noise gigabytes. A knock has a bound on the answer and on the time, and sends nothing
secret, so TLS is taken with any certificate: whether it is trusted, the client decides.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import NamedTuple

from app.address import parsed
from app.errors import NotNow, UserError
from app.plain_text import is_digits

SECONDS = 5.0
GRACE_S = 0.5
"""For the other addresses, once one has answered."""
SECOND_LOOK_S = 2.0
"""For the question whether an address that closes the connection speaks TLS, or does not."""
MOST_BYTES = 64 << 10
TLS_RECORDS = b"\x14\x15\x16\x17"
Ask = Callable[[str, float], None]
"""Asks a server until a time (monotonic, s): Unreachable, BrokenOff or an OSError where it cannot be used."""


class Unreachable(Exception):
    """No server answered; the message has the addresses and the reasons."""

    of_user: type[UserError] = NotNow
    """The error that a command ends with."""
    how = "does not answer at"
    """What stands between the server's name and the message."""


class WrongAnswer(Unreachable):
    """Something answers that the options of the client do not fit, or an address is none: it must not
    connect."""

    of_user = UserError
    how = "at"


class BrokenOff(Exception):
    """The other end has closed the connection before its whole answer."""

    begun = b""
    """What has come of it."""


class Answering(NamedTuple):
    """The addresses that a client may have, and why others answer what it must not see."""

    servers: list[str]
    wrong: dict[str, str]


def knock(server: str) -> None:
    """Connect to `host:port`; Unreachable where nothing listens."""
    answering([server], lambda each, until: connected(*place(each), left(until)).close())


def missing(urls: Iterable[str]) -> type[UserError]:
    """The error of a command that has no answer of servers of HTTP: that of what may pass where none
    of them takes a connection."""
    for _, host, port in (parsed(url).origin for url in urls):
        with suppress(Unreachable):
            knock(f"{host}:{port}")
            return UserError
    return NotNow


def answering(servers: Sequence[str], ask: Ask, seconds: float = SECONDS) -> Answering:
    """Ask all servers at once; Unreachable if none can be used, a WrongAnswer if one of them answers
    otherwise than it should.

    A server that answers GRACE_S after another, or not at all, is in neither list.
    """
    servers = list(dict.fromkeys(each.strip() for each in servers))
    until = time.monotonic() + seconds
    pool = ThreadPoolExecutor(min(len(servers), 32), thread_name_prefix="knock")
    asked = {pool.submit(ask, each, until): each for each in servers}
    open_, found = set(asked), list[str]()
    why: dict[str, Unreachable] = {}
    ends = until + SECOND_LOOK_S + GRACE_S
    while open_ and time.monotonic() < ends:
        done, open_ = wait(open_, max(ends - time.monotonic(), 0), FIRST_COMPLETED)
        for each in done:
            error = _error(each)
            if error is None:
                found.append(asked[each])
                ends = min(ends, time.monotonic() + GRACE_S)
            else:
                why[asked[each]] = error
    pool.shutdown(wait=False, cancel_futures=True)
    wrong = {name: str(error) for name, error in why.items() if isinstance(error, WrongAnswer)}
    if found:
        return Answering([each for each in servers if each in found], wrong)
    silent = Unreachable("does not answer in time")
    said = "; ".join(f"{server}: {why.get(server, silent)}" for server in servers)
    raise (WrongAnswer if wrong else Unreachable)(said)


def refuse_wrong(ask: Callable[[], Answering]) -> None:
    """WrongAnswer if something else answers; servers that do not answer may come back."""
    try:
        wrong = ask().wrong
    except WrongAnswer:
        raise
    except Unreachable:
        return
    if wrong:
        raise WrongAnswer("; ".join(f"{server}: {why}" for server, why in wrong.items()))


def _error(asked: Future[None]) -> Unreachable | None:
    """Why a server cannot be used; None if it can."""
    try:
        asked.result()
    except Unreachable as error:
        return error
    except ValueError:
        return WrongAnswer("is not host:port")
    except BrokenOff:
        return Unreachable("closes the connection without an answer")
    except TimeoutError:
        return Unreachable("does not answer in time")
    except OSError as error:
        return Unreachable(error.strerror or str(error))
    return None


def place(server: str, port: str = "") -> tuple[str, int]:
    """Host and port of an address, which may begin with a protocol; ValueError for what has none."""
    name = server.strip().rpartition("://")[2].rstrip("/")
    host, sign, number = name.rpartition(":")
    if port and (not sign or name.endswith("]")):
        host, number = name, port
    if not (is_digits(number) and 0 < int(number) < 1 << 16):
        raise ValueError(f"{server} is not host:port")
    return host.strip("[]"), int(number)


def connected(host: str, port: int, seconds: float) -> socket.socket:
    """A connection; an OSError where there is none in time, or no such port."""
    try:
        return socket.create_connection((host, port), timeout=seconds)
    except UnicodeError as error:
        raise OSError(f"no such address: {error}") from None


def wrapped(sock: socket.socket, host: str) -> ssl.SSLSocket:
    """The connection behind a handshake of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(sock, server_hostname=host)


def read(sock: socket.socket, size: int, until: float) -> bytes:
    """So many bytes of an answer; BrokenOff where it ends before."""
    found = b""
    while len(found) < size:
        sock.settimeout(left(until))
        part = sock.recv(size - len(found))
        if not part:
            closed = BrokenOff()
            closed.begun = found
            raise closed
        found += part
    return found


def named(begun: bytes, tls: bool, protocol: str, with_tls: str) -> str:
    """What an answer is that is none of a protocol; `with_tls` is what to set where it is TLS."""
    if begun[0] in TLS_RECORDS and begun[1:2] == b"\x03":
        return f"answers as TLS: set {with_tls}"
    if begun.startswith(b"HTTP"):
        return f"answers HTTP{'S' if tls else ''}, it is no port of {protocol}"
    return f"answers something else than {protocol} (first bytes {begun!r})"


def left(until: float) -> float:
    """The seconds until a time; a TimeoutError behind it."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
