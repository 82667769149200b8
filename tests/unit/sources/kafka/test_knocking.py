"""What answers at an address, before Java's client allocates the length that it answers."""

from __future__ import annotations

import json
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.sources.kafka import kafka_client, knocking
from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.kafka_records import stream_options
from app.sources.kafka.knocking import Knock, answering
from app.sources.polling import Unanswered
from app.sources.ports import Answering, Unreachable, WrongAnswer
from tests.support.servers.kafka_port import Behave, Port, drip, kafka, port, reset, says, silent
from tests.support.servers.tls import self_signed

MakeSettings = Callable[..., Settings]

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return self_signed(tmp_path_factory.mktemp("tls"))[1]


def knocked(found: Port, seconds: float = 2.0, **options: str) -> Answering:
    named = {key.replace("_", "."): value for key, value in options.items()}
    return answering({"bootstrap.servers": found.server, **named}, seconds)


@pytest.mark.parametrize(
    ("mechanisms", "encrypted", "options"),
    [
        (None, False, {}),
        (None, True, {"security.protocol": "SSL"}),
        (["PLAIN", "SCRAM-SHA-512"], False, SCRAM),
        (["SCRAM-SHA-512"], True, {**SCRAM, "security.protocol": "sasl_ssl"}),
        (["GSSAPI"], False, {"security.protocol": "SASL_PLAINTEXT"}),
    ],
)
def test_a_listener_that_fits_the_options(
    opened: ExitStack,
    tls: ssl.SSLContext,
    mechanisms: list[str] | None,
    encrypted: bool,
    options: dict[str, str],
) -> None:
    found = opened.enter_context(port(kafka(mechanisms), tls if encrypted else None))
    servers = {"bootstrap.servers": f"PLAINTEXT://{found.server}"}
    assert answering({**servers, **options}) == Answering([f"PLAINTEXT://{found.server}"], {})


@pytest.mark.parametrize(
    ("mechanisms", "encrypted", "options", "said"),
    [
        (
            ["PLAIN", "OAUTHBEARER"],
            False,
            {},
            "asks for SASL (PLAIN, OAUTHBEARER): set security.protocol to SASL_PLAINTEXT,"
            " sasl.mechanism and sasl.jaas.config",
        ),
        (
            ["PLAIN"],
            True,
            {"security.protocol": "SSL"},
            "asks for SASL (PLAIN): set security.protocol to SASL_SSL, sasl.mechanism and"
            " sasl.jaas.config",
        ),
        (None, False, SCRAM, "takes no login: set security.protocol to PLAINTEXT"),
        (
            ["PLAIN", "GSSAPI"],
            False,
            SCRAM,
            "does not take SCRAM-SHA-512: set sasl.mechanism (allowed: PLAIN, GSSAPI)",
        ),
        (None, True, {}, "answers as TLS: set security.protocol to SSL or SASL_SSL"),
        (["PLAIN"], True, SCRAM, "answers as TLS: set security.protocol to SASL_SSL"),
        (
            None,
            False,
            {"security.protocol": "SSL"},
            "answers without TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT",
        ),
        (
            ["PLAIN"],
            False,
            {**SCRAM, "security.protocol": "SASL_SSL"},
            "answers without TLS: set security.protocol to SASL_PLAINTEXT",
        ),
    ],
)
def test_a_listener_that_does_not_fit_names_the_keys(
    opened: ExitStack,
    tls: ssl.SSLContext,
    mechanisms: list[str] | None,
    encrypted: bool,
    options: dict[str, str],
    said: str,
) -> None:
    found = opened.enter_context(port(kafka(mechanisms), tls if encrypted else None))
    began = time.monotonic()
    with pytest.raises(WrongAnswer) as error:
        answering({"bootstrap.servers": found.server, **options})
    assert str(error.value) == f"{found.server}: {said}"
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (says(HTTP), "answers HTTP, it is no port of Kafka"),
        (says(HTTP, 5), "answers HTTP, it is no port of Kafka"),
        (says(b"\x15\x03\x03\x00\x02\x02\x28"), "answers as TLS: set security.protocol to SSL"),
        (says(b"SSH-2.0-OpenSSH_9"), "answers something else than Kafka (first bytes b'SSH-2.0-'"),
        (says(b"\x7f\xff\xff\xff\0\0\0\x12", 5), "answers something else than Kafka (first bytes"),
        (says(b"\xff\xff\xff\xff\0\0\0\x12", 5), "answers something else than Kafka (first bytes"),
        (says(b"\0\0\0\x0a\0\0\0\x13junk", 5), "answers something else than Kafka (first bytes"),
        (says(b"\0\0\0\x0a\0\0\0\x12jk"), "answers something else than Kafka (first bytes b'jk')"),
        (says(b"\n"), "answers something else than Kafka (first bytes b'\\n')"),
        (says(b"\x1b[2J\xff\xfe\0\0"), "answers something else than Kafka (first bytes b'\\x1b[2J"),
        (says(b""), "closes the connection without an answer"),
        (reset, "closes the connection without an answer"),
        (silent, "does not answer in time"),
        (drip, "does not answer in time"),
    ],
)
def test_what_is_not_kafka_is_named_in_time(opened: ExitStack, behave: Behave, said: str) -> None:
    found = opened.enter_context(port(behave))
    began = time.monotonic()
    with pytest.raises(Unreachable) as error:
        knocked(found, 0.5)
    assert str(error.value).startswith(f"{found.server}: {said}")
    assert time.monotonic() - began < 4
    assert isinstance(error.value, WrongAnswer) == (" answers" in str(error.value))


def test_what_has_no_port_is_named() -> None:
    with pytest.raises(
        Unreachable, match=r"^127\.0\.0\.1:1: Connection refused; here: is not host"
    ):
        answering({"bootstrap.servers": "127.0.0.1:1,here"})
    with pytest.raises(Unreachable, match=r"h:99999: "):
        answering({"bootstrap.servers": "h:99999"})
    with pytest.raises(Unreachable, match="is not host:port"):
        answering({})


def test_a_client_has_the_servers_that_answer_as_kafka(opened: ExitStack) -> None:
    good, also = (opened.enter_context(port(kafka())) for _ in range(2))
    http = opened.enter_context(port(says(HTTP)))
    mute = opened.enter_context(port(silent))
    servers = ",".join([http.server, good.server, mute.server, "127.0.0.1:1", also.server])
    began = time.monotonic()
    found = answering({"bootstrap.servers": servers}, 5)
    assert found.servers == [good.server, also.server]
    assert found.wrong == {http.server: "answers HTTP, it is no port of Kafka"}
    assert time.monotonic() - began < 3, "the mute one is not awaited"


def test_a_client_certificate_that_is_asked_for(
    opened: ExitStack, tmp_path: Path, tls: ssl.SSLContext
) -> None:
    certificate, context = self_signed(tmp_path)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    found = opened.enter_context(port(kafka(), context))
    with pytest.raises(WrongAnswer, match=r"asks for a certificate: set ssl\.keystore\.location"):
        knocked(found, security_protocol="SSL")
    has = knocked(found, security_protocol="SSL", ssl_keystore_location="/a.p12")
    assert has.servers == [found.server]


def test_something_else_is_asked_again_after_pauses_that_double(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knocking, "FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr(knocking, "LONGEST_PAUSE_S", 0.8)
    found = opened.enter_context(port(says(HTTP)))
    knock = Knock({"bootstrap.servers": found.server})
    asked, until = [], time.monotonic() + 2.5
    while time.monotonic() < until:
        before = found.taken
        with pytest.raises(WrongAnswer, match="answers HTTP"):
            knock.servers()
        if found.taken > before:
            asked.append(time.monotonic())
        time.sleep(0.01)
    pauses = [round(b - a, 1) for a, b in pairwise(asked)]
    assert len(pauses) >= 3
    assert pauses[0] >= 0.2 and pauses[1] >= 0.4 and all(each >= 0.8 for each in pauses[2:])


def test_an_answer_holds_for_a_while_and_is_then_asked_for_again(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave: list[Behave] = [kafka()]
    found = opened.enter_context(port(lambda taken: behave[0](taken)))
    knock = Knock({"bootstrap.servers": found.server})
    assert knock.servers() == knock.servers() == [found.server]
    assert found.taken == 1
    monkeypatch.setattr(knocking, "HOLDS_S", 0.0)
    fresh = Knock({"bootstrap.servers": found.server})
    assert fresh.servers() == [found.server]
    behave[0] = says(struct.pack(">ii", 1 << 30, 18))
    with pytest.raises(WrongAnswer, match="answers something else"):
        fresh.servers()


def test_spark_gets_no_address_at_which_something_else_answers(
    opened: ExitStack, make_settings: MakeSettings
) -> None:
    http, good = (opened.enter_context(port(each)) for each in (says(HTTP), kafka()))

    def options(*servers: str) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": ",".join(servers), "subscribe": "t"}
        given["maxOffsetsPerTrigger"] = "5"
        return stream_options(make_settings(source={"format": "kafka", "options": given}).feed)

    assert options(good.server, "127.0.0.1:1")["maxOffsetsPerTrigger"] == "5"
    assert options("127.0.0.1:1")["subscribe"] == "t", "it may come back: the query waits"
    with pytest.raises(WrongAnswer, match=f"^{http.server}: answers HTTP"):
        options(good.server, http.server)


class Requests:
    """Java's side of a client: what it was opened with."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed = 0

    def newInstance(self) -> Requests:  # noqa: N802 - Java's
        return self

    def open(self, options: str) -> None:
        self.opened.append(json.loads(options)["bootstrap.servers"])

    def groups(self, _protocols: str, _ms: int) -> None:
        """A request."""

    def close(self, _: int) -> None:
        self.closed += 1


def test_an_open_client_goes_on_without_its_first_broker_and_ends_at_a_wrong_answer(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that the client knows by then may answer; one that speaks otherwise may not be asked."""
    monkeypatch.setattr(knocking, "HOLDS_S", 0.0)
    monkeypatch.setattr(knocking, "MISSING_S", 0.0)
    monkeypatch.setattr(kafka_client, "_compiled", lambda: java)
    java, behave = Requests(), [kafka()]
    found = opened.enter_context(port(lambda taken: behave[0](taken)))
    client = KafkaClient({"bootstrap.servers": found.server}, 300)

    def ask() -> None:
        client.groups(time.monotonic() + 5)

    ask()
    behave[0] = silent
    ask()
    assert (java.opened, java.closed) == ([found.server], 0)
    behave[0] = says(HTTP)
    for _ in range(2):
        with pytest.raises(Unanswered, match=f"^{found.server}: answers HTTP"):
            ask()
    assert (java.opened, java.closed) == ([found.server], 1)
