"""What answers at an address that is no server of HTTP, in words that name what to change."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from app import http
from tests.support.servers.kafka_port import Behave, kafka, port, reset, says, silent
from tests.support.servers.tls import self_signed


def reason(url: str, seconds: float = 0.5) -> str:
    with (
        pytest.raises(http.NoAnswer) as error,
        http.exchange(http.connections(), "GET", http.address(url), seconds) as answer,
    ):
        answer.read()
    return str(error.value)


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (kafka(), "closes the connection, as ports with TLS or of another protocol do"),
        (says(b""), "closes the connection, as ports with TLS or of another protocol do"),
        (says(b"\x15\x03\x03\x00\x02\x02\x28"), "answers as TLS: https://, or another port"),
        (says(b"SSH-2.0-OpenSSH_9\r\n"), "answers something else than HTTP"),
        (says(b"\0\0\0\x19\0\0\0\x15\x08\x03\n"), "answers something else than HTTP"),
        (says(b"x" * 200_000), "answers something else than HTTP"),
        (says(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000), "answers something else than HTTP"),
        (reset, "closes the connection, as ports with TLS or of another protocol do"),
        (silent, "no whole answer in time (0.5 s)"),
    ],
)
def test_what_is_no_http(behave: Behave, said: str) -> None:
    began = time.monotonic()
    with port(behave) as opened:
        assert reason(f"http://{opened.server}/x") == said
    assert time.monotonic() - began < 2


def test_a_port_with_tls_and_one_without(tmp_path: Path) -> None:
    certificate, context = self_signed(tmp_path)
    trusting = http.connections(ssl_context=ssl.create_default_context(cafile=certificate))
    with (
        port(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as plain,
        pytest.raises(http.NoAnswer, match=r"^answers without TLS: http://, or another port$"),
        http.exchange(trusting, "GET", http.address(f"https://{plain.server}"), 2),
    ):
        pass
    with port(silent, context) as secure:
        assert reason(f"http://{secure.server}") in (
            "answers as TLS: https://, or another port",
            "closes the connection, as ports with TLS or of another protocol do",
        )
