"""What answers at an address of Pulsar's binary protocol, before its client allocates what that says."""

from __future__ import annotations

import ssl
import struct
import time
from pathlib import Path

import pytest

from app.sources.ports import Unreachable, WrongAnswer
from app.sources.pulsar.pulsar_port import brokers
from app.sources.pulsar.topic_client import connect
from tests.support.servers.kafka_port import Behave, drip, kafka, port, reset, says, silent
from tests.support.servers.tls import self_signed

CONNECTED = b"\x08\x03\x1a\x0a\x0a\x06server\x10\x15"
BROKER = says(struct.pack(">ii", len(CONNECTED) + 4, len(CONNECTED)) + CONNECTED, 1)
HTTP = says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 5)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return self_signed(tmp_path_factory.mktemp("tls"))[1]


@pytest.mark.parametrize(
    ("behave", "encrypted", "scheme", "said"),
    [
        (BROKER, False, "pulsar", None),
        (BROKER, True, "pulsar+ssl", None),
        (BROKER, True, "pulsar", "answers as TLS: set serviceUrl to pulsar+ssl://"),
        (BROKER, False, "pulsar+ssl", "answers without TLS: set serviceUrl to pulsar://"),
        (HTTP, False, "pulsar", "answers HTTP, it is no port of Pulsar"),
        (HTTP, True, "pulsar+ssl", "answers HTTPS, it is no port of Pulsar"),
        (kafka(), False, "pulsar", "closes the connection without an answer"),
        (reset, False, "pulsar", "closes the connection without an answer"),
        (silent, False, "pulsar", "does not answer in time"),
        (drip, False, "pulsar", "answers something else than Pulsar (first bytes"),
        (
            says(b"\x7f\xff\xff\xff\x7f\xff\xff\xfb\x08", 5),
            False,
            "pulsar",
            "answers something else than Pulsar (first bytes",
        ),
        (says(b"\x15\x03\x03\0\2\2\x28"), False, "pulsar", "answers as TLS: set serviceUrl to"),
        (
            says(b"noise"),
            False,
            "pulsar",
            "answers something else than Pulsar (first bytes b'noise'",
        ),
    ],
)
def test_what_answers_is_named_in_time(
    tls: ssl.SSLContext, behave: Behave, encrypted: bool, scheme: str, said: str | None
) -> None:
    began = time.monotonic()
    with port(behave, tls if encrypted else None) as opened:
        url = f"{scheme}://{opened.server}"
        if said is None:
            assert brokers(url) == ([opened.server], {})
        else:
            with pytest.raises(Unreachable) as error:
                brokers(url)
            assert str(error.value).startswith(f"{opened.server}: {said}")
            assert isinstance(error.value, WrongAnswer) == (" answers" in str(error.value))
    assert time.monotonic() - began < 8


def test_pulsars_client_gets_no_address_at_which_something_else_answers(tmp_path: Path) -> None:
    with port(HTTP) as http, port(BROKER) as broker:
        with pytest.raises(WrongAnswer, match=f"^{http.server}: answers HTTP"):
            connect({"serviceUrl": f"pulsar://{broker.server},{http.server}"})
        connect({"serviceUrl": f"pulsar://127.0.0.1:1,{broker.server}"}).shutdown()
        connect({"serviceUrl": "pulsar://127.0.0.1:1"}).shutdown()  # it may come back
