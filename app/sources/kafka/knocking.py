"""What answers at the addresses of a Kafka cluster, before a client of Java's connects to them.

Java's client allocates the length that an address answers: of TLS, HTTP or noise gigabytes, in the
JVM that Spark shares. Here an answer has a bound and a deadline. Two requests are sent, which every
listener answers without a login: ApiVersions (version 0) and SaslHandshake, whose answer tells a
listener with a login from one without (KIP-35, KIP-43). Nothing secret is sent, so TLS is taken with
any certificate: whether it is trusted, the client decides.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import NamedTuple

from app.sources.ports import Unreachable, connected, place

SECONDS = 5.0
GRACE_S = 0.5
"""For the other addresses, once one has answered."""
SECOND_LOOK_S = 2.0
"""For the question whether an address that closes the connection speaks TLS, or does not."""
HOLDS_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 300.0
MOST_BYTES = 64 << 10
API_VERSIONS, SASL_HANDSHAKE = 18, 17
NO_ERROR, UNSUPPORTED_MECHANISM, ILLEGAL_STATE = 0, 33, 34
TLS_RECORDS = b"\x14\x15\x16\x17"


class WrongAnswer(Unreachable):
    """Something answers that the options of the client do not fit: it must not connect."""


class Answering(NamedTuple):
    """The addresses that a client may have, and those at which something else answers."""

    servers: list[str]
    wrong: dict[str, str]


class _Closed(Exception):
    """The other end has closed the connection before its whole answer."""


def answering(options: Mapping[str, str], seconds: float = SECONDS) -> Answering:
    """Knock at all servers of a client's options at once; Unreachable if none can be used, a
    WrongAnswer if one of them answers what the options do not fit.

    A server that answers GRACE_S after another, or not at all, is in neither list.
    """
    servers = [each.strip() for each in options.get("bootstrap.servers", "").split(",")]
    until = time.monotonic() + seconds
    pool = ThreadPoolExecutor(min(len(servers), 32), thread_name_prefix="knock")
    asked = {pool.submit(_knock, each, options, until): each for each in servers}
    open_, found = set(asked), list[str]()
    why: dict[str, Unreachable] = {}
    # a second look comes after the time of the first
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
    for each in open_:
        why[asked[each]] = Unreachable(f"does not answer in time ({seconds:g} s)")
    said = "; ".join(f"{server}: {why[server]}" for server in dict.fromkeys(servers))
    raise (WrongAnswer if wrong else Unreachable)(said)


class Knock:
    """Knocks for one client, from time to time."""

    def __init__(self, options: Mapping[str, str], seconds: float = SECONDS) -> None:
        self._options, self._seconds = options, seconds
        self._servers: list[str] = []
        self.wrong: frozenset[str] = frozenset()
        """The servers at which something else has answered."""
        self._reason, self._pause_s = "", 0.0
        self._next_s = float("-inf")

    def servers(self) -> list[str]:
        """The servers that a client may have; Unreachable without any. An answer holds for HOLDS_S.
        Where something else answers, it is asked again after pauses that double."""
        if time.monotonic() < self._next_s:
            if self._reason:
                raise WrongAnswer(self._reason)
            return self._servers
        try:
            self._servers, wrong = answering(self._options, self._seconds)
        except WrongAnswer as error:
            self._reason = str(error)
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._next_s = time.monotonic() + self._pause_s
            raise
        self._reason, self._pause_s, self.wrong = "", 0.0, frozenset(wrong)
        self._next_s = time.monotonic() + HOLDS_S
        return self._servers


class _Ended(_Closed):
    """It has done so behind the handshake of TLS."""


def _error(asked: Future[None]) -> Unreachable | None:
    """Why a server cannot be used; None if it can."""
    try:
        asked.result()
    except Unreachable as error:
        return error
    except _Closed:
        return Unreachable("closes the connection without an answer")
    except TimeoutError:
        return Unreachable("does not answer in time")
    except OSError as error:
        return Unreachable(error.strerror or str(error))
    return None


def _knock(server: str, options: Mapping[str, str], until: float) -> None:
    """Ask one server in the way of the options."""
    protocol = options.get("security.protocol", "PLAINTEXT").strip().upper()
    tls, login = protocol.endswith("SSL"), protocol.startswith("SASL_")
    try:
        host, port = place(server)
    except ValueError:
        raise Unreachable("is not host:port") from None
    try:
        _ask(host, port, tls, until, options if login else None)
    except (_Closed, ConnectionResetError, BrokenPipeError, ssl.SSLError) as error:
        if tls and (isinstance(error, _Ended) or "ALERT" in (getattr(error, "reason", "") or "")):
            if any(key.startswith("ssl.keystore") for key in options):
                return  # a certificate that is not sent here
            raise WrongAnswer(
                "ends the connection in the handshake of TLS, as a broker that asks for a"
                " certificate: set ssl.keystore.location"
            ) from None
        if _speaks(host, port, not tls):
            how, key = ("without TLS", "PLAINTEXT") if tls else ("as TLS", "SSL")
            key = f"SASL_{key}" if login else f"{key} or SASL_{key}"
            raise WrongAnswer(f"answers {how}: set security.protocol to {key}") from None
        raise _Closed from None


def _ask(host: str, port: int, tls: bool, until: float, login: Mapping[str, str] | None) -> None:
    """The two requests; `login` are options with a mechanism of SASL."""
    with ExitStack() as opened:
        sock: socket.socket = opened.enter_context(connected(host, port, _left(until)))
        if tls:
            sock = opened.enter_context(_wrapped(sock, host))
        try:
            apis = _exchange(sock, API_VERSIONS, 0, b"", until, tls)
        except (_Closed, ConnectionError, ssl.SSLError) as error:
            raise (_Ended if tls else _Closed) from error
        listed = apis[6 : len(apis) - len(apis) % 6]  # an error, a count, and three numbers of each
        versions = {key: most for key, _, most in struct.iter_unpack(">3h", listed)}
        if SASL_HANDSHAKE not in versions:
            return
        mechanism = "PLAIN" if login is None else login.get("sasl.mechanism", "GSSAPI")
        try:
            version = min(versions[SASL_HANDSHAKE], 1)
            found = _exchange(sock, SASL_HANDSHAKE, version, _text(mechanism), until, tls)
        except (_Closed, ConnectionError):
            return  # as servers do that are not Kafka's own; the client asks as well
    code, offered = _mechanisms(found)
    if login is None and code in (NO_ERROR, UNSUPPORTED_MECHANISM):
        raise WrongAnswer(
            f"asks for SASL ({', '.join(offered)}): set security.protocol to"
            f" SASL_{'SSL' if tls else 'PLAINTEXT'}, sasl.mechanism and sasl.jaas.config"
        )
    if login is not None and code == ILLEGAL_STATE:
        raise WrongAnswer(
            f"takes no login: set security.protocol to {'SSL' if tls else 'PLAINTEXT'}"
        )
    if login is not None and code == UNSUPPORTED_MECHANISM:
        raise WrongAnswer(
            f"does not take {mechanism}: set sasl.mechanism (allowed: {', '.join(offered)})"
        )


def _speaks(host: str, port: int, tls: bool) -> bool:
    """Whether a second connection, with or without TLS, has an answer that is one."""
    until = time.monotonic() + SECOND_LOOK_S
    try:
        with connected(host, port, SECOND_LOOK_S) as sock:
            if tls:
                _wrapped(sock, host).close()
            else:
                _exchange(sock, API_VERSIONS, 0, b"", until, tls)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (_Closed, OSError):
        return False
    return True


def _wrapped(sock: socket.socket, host: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(sock, server_hostname=host)


def _exchange(
    sock: socket.socket, key: int, version: int, body: bytes, until: float, tls: bool
) -> bytes:
    """The body of the answer to one request."""
    asked = struct.pack(">hhi", key, version, key) + _text("weir") + body
    sock.settimeout(_left(until))
    sock.sendall(struct.pack(">i", len(asked)) + asked)
    begun = _read(sock, 8, until)
    size, number = struct.unpack(">ii", begun)
    if not 4 <= size <= MOST_BYTES or number != key:
        raise WrongAnswer(_named(begun, tls))
    return _read(sock, size - 4, until)


def _read(sock: socket.socket, size: int, until: float) -> bytes:
    found = b""
    while len(found) < size:
        sock.settimeout(_left(until))
        part = sock.recv(size - len(found))
        if not part and found:
            raise WrongAnswer(_named(found, isinstance(sock, ssl.SSLSocket)))
        if not part:
            raise _Closed
        found += part
    return found


def _named(begun: bytes, tls: bool) -> str:
    """What an answer is that is none of Kafka's."""
    if begun[0] in TLS_RECORDS and begun[1:2] == b"\x03":
        return "answers as TLS: set security.protocol to SSL or SASL_SSL"
    if begun.startswith(b"HTTP"):
        return f"answers HTTP{'S' if tls else ''}, it is no port of Kafka"
    return f"answers something else than Kafka (first bytes {begun!r})"


def _mechanisms(body: bytes) -> tuple[int, list[str]]:
    """The error and the mechanisms in the answer to SaslHandshake, as far as it is one."""
    try:
        error, count = struct.unpack_from(">hi", body)
        names, at = list[str](), 6
        for _ in range(min(count, 20)):
            (size,) = struct.unpack_from(">h", body, at)
            name = body[at + 2 : at + 2 + size].decode("ascii")
            names.append("".join(c for c in name if c.isalnum() or c in "-_")[:40])
            at += 2 + max(size, 0)
    except (struct.error, UnicodeDecodeError):
        raise WrongAnswer("answers something else than Kafka to a SaslHandshake") from None
    return error, names


def _text(text: str) -> bytes:
    found = text.encode()
    return struct.pack(">h", len(found)) + found


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
