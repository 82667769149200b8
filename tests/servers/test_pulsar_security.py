"""A Pulsar broker that asks for a token, by TLS: who may not read is refused, no token is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from app.cli import main
from app.config.settings import load_settings
from tests.crash.service import Service
from tests.servers.live import has_records
from tests.support.contents import contents
from tests.support.servers.pulsar import Pulsar, token, with_login
from tests.support.traces import identities, punctual_trace
from tests.support.waiting import wait_for

EVENTS = 17_000
ROLE = "weir"
VARIABLE = "WEIR_TEST_PULSAR"
DOES_NOT_ANSWER = "Pulsar does not answer at pulsar+ssl://"
"""The client tries a refused login again until its time is up, and then reports only that."""


@pytest.fixture(scope="module")
def secure(pulsar: Pulsar) -> Pulsar:
    """The broker, with login; it stays so, since whoever has no token is an administrator."""
    pulsar.run_with(**with_login())
    return pulsar


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """The records of a trace."""
    return [line for part in punctual_trace(EVENTS).slices() for line in part.lines()]


@pytest.fixture(scope="module")
def topic(secure: Pulsar, lines: list[bytes]) -> str:
    """A topic with the records, which ROLE may read."""
    namespace = f"acme/secure-{uuid4().hex}"
    secure.namespace(namespace)
    secure.ask("POST", f"namespaces/{namespace}/permissions/{ROLE}", ["consume"])
    name = f"{namespace}/events"
    secure.create_topic(name, 2)
    secure.produce_to(name, [(n % 2, line) for n, line in enumerate(lines)])
    return name


@pytest.fixture
def config(secure: Pulsar, topic: str, tmp_path: Path) -> Path:
    """A configuration that logs in by TLS, with a token from a variable."""
    file = tmp_path / "config" / "weir.yaml"
    file.parent.mkdir()
    write(file, secure, topic)
    return file


def write(file: Path, secure: Pulsar, topic: str, **options: Any) -> None:
    file.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(file.parent.parent / "ran" / "warehouse"),
                "partitions": 2,
                "idle_advance_ms": 600_000,
                "commit_interval_ms": {"events": 0},
                "source": {
                    "format": "pulsar",
                    "options": {
                        "serviceUrl": secure.secure_service_url,
                        "topics": topic,
                        "tlsTrustCertsFilePath": str(secure.certificate),
                        "token": f"${{env:{VARIABLE}}}",
                        **options,
                    },
                },
            }
        )
    )


def test_a_run_with_a_token_reads_everything_and_writes_the_token_nowhere(
    config: Path, tmp_path: Path, lines: list[bytes]
) -> None:
    ran, secret = tmp_path / "ran", token(ROLE)
    (ran / "spark-events").mkdir(parents=True)
    variables, settings = {VARIABLE: secret}, load_settings(config)
    service = Service(
        config,
        variables=variables,
        confs=[
            "spark.log.level=DEBUG",
            "spark.eventLog.enabled=true",
            "spark.eventLog.compress=false",
            f"spark.eventLog.dir=file://{ran / 'spark-events'}",
        ],
    )
    try:
        path = settings.warehouse
        wait_for(lambda: has_records(settings, len(lines)), 180)
        wait_for(lambda: len(identities(path)) == len(lines))
        service.stop()
    finally:
        service.close()
    (ran / "run.log").write_text(service.said)
    written = dict(contents(ran))
    assert any(name.startswith("spark-events/") for name in written)
    assert b" DEBUG " in written["run.log"]
    assert [name for name, content in written.items() if secret.encode() in content] == []


@pytest.mark.parametrize(
    ("given", "options", "reason"),
    [
        (token(ROLE, b"another key that signs tokens of 32 bytes"), {}, DOES_NOT_ANSWER),
        (token("somebody"), {}, "Pulsar refuses this user"),
        (
            token(ROLE),
            {"tlsTrustCertsFilePath": "/etc/ssl/certs/ca-certificates.crt"},
            DOES_NOT_ANSWER,
        ),
    ],
    ids=["wrong key", "no permission", "unknown certificate"],
)
def test_who_may_not_read_is_refused_without_repeating_the_token(
    config: Path,
    secure: Pulsar,
    topic: str,
    given: str,
    options: dict[str, str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(config, secure, topic, **options)
    monkeypatch.setenv(VARIABLE, given)
    assert main(["validate", "--connect", "--config", str(config)]) == 2
    said = "".join(capfd.readouterr())
    assert reason in said and given not in said
    assert "source.options: " in said


def test_a_token_that_may_read_connects(
    config: Path, topic: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, token(ROLE))
    assert main(["validate", "--connect", "--config", str(config)]) == 0
    assert f"topic persistent://{topic} with 2 partitions" in "".join(capfd.readouterr())
