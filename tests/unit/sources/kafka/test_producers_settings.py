"""The settings of kafka_producers and its source: what is polled, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app import sources
from app.config.kafka_producers import KafkaProducersSettings, OwnerRule
from app.config.source import SourceSettings
from app.errors import UserError
from tests.support.servers.process import free_ports
from tests.unit.sources import source_adapter

SERVERS = {"kafka.bootstrap.servers": "h:9092"}


def source(tmp_path: Path, **keys: Any) -> Any:
    given = {"options": SERVERS, "producers": KafkaProducersSettings(), **keys}
    return source_adapter.settings(tmp_path, "kafka_producers", **given)


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ([], {"orders", "orders-eu", "_schemas"}),
        ("orders", {"orders"}),
        (["^orders.*", "__consumer_offsets"], {"orders", "orders-eu", "__consumer_offsets"}),
        (["^order"], set()),
    ],
)
def test_topics(chosen: Any, wanted: set[str]) -> None:
    settings = KafkaProducersSettings(topics=chosen)
    there = ("orders", "orders-eu", "_schemas", "__consumer_offsets", "orders-partition-3")
    assert {name for name in there if settings.wants_topic(name)} == wanted


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"topics": ["orders*"]}, "'orders\\*' is not the name of a topic"),
        ({"topics": ["^("]}, "is not a pattern"),
        ({"topics": [""]}, "an empty name"),
        ({"owners": [{"principal": "User:a"}]}, "topic or client_id: one of them is needed"),
        ({"owners": [{"topic": "^(", "principal": "User:a"}]}, "is not a pattern"),
        ({"owners": [{"topic": "orders"}]}, "principal"),
        ({"owners": [{"topic": "orders", "principal": ""}]}, "principal"),
        ({"request_logs": "s3://bucket/logs"}, "is not a path of this machine"),
        ({"time_zone": "Berlin"}, "'Berlin' is not a time zone"),
        ({"interval_ms": 0}, "interval_ms"),
        ({"bytes_per_state": 0}, "bytes_per_state"),
        ({"broker": "b"}, "broker"),
    ],
)
def test_settings_that_are_refused(keys: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        KafkaProducersSettings.model_validate(keys)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, "options.kafka.bootstrap.servers: is missing"),
        ({**SERVERS, "subscribe": "orders"}, "options.subscribe: unknown option"),
    ],
)
def test_options_are_those_of_the_client(options: dict[str, str], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        SourceSettings(format="kafka_producers", options=options)


def test_secrets_are_not_shown() -> None:
    options = {**SERVERS, "kafka.sasl.jaas.config": 'x password="hush";'}
    settings = SourceSettings(format="kafka_producers", options=options)
    assert "hush" not in f"{settings!r} {settings.display()}"


@pytest.mark.parametrize(
    ("topic", "client_id", "fits"),
    [
        ("orders", "shop", True),
        ("orders", "other", False),
        ("orders", None, False),
        ("bills", "shop", False),
    ],
)
def test_a_rule_with_both_names_needs_both(topic: str, client_id: str | None, fits: bool) -> None:
    rule = OwnerRule(topic="^ord.*", client_id="shop", principal="User:a")
    assert rule.fits(topic, client_id) == fits


def test_what_cannot_be_polled_is_refused(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    away = {"kafka.bootstrap.servers": f"127.0.0.1:{port}"}
    for keys, wrong in (
        ({"path": "polls"}, "source.path: format kafka_producers polls"),
        ({"warehouse": "s3://bucket/w"}, "source.producers.spool: is missing"),
        ({"options": away}, f"source.options: 127.0.0.1:{port}: Connection ref"),
    ):
        given = source(tmp_path, **keys)
        with pytest.raises(UserError, match=wrong):
            sources.check(given.feed, given.location)


def test_another_source_polls_nothing(tmp_path: Path) -> None:
    source_adapter.assert_polls_nothing(tmp_path, "producers")
