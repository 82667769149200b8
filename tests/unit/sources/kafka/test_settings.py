"""The settings: which groups and topics are meant, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.config.kafka_groups import KafkaGroupsSettings
from app.errors import UserError

OPTIONS = {"bootstrap.servers": "h:9092"}


def make(**keys: Any) -> KafkaGroupsSettings:
    return KafkaGroupsSettings.model_validate({"options": OPTIONS, **keys})


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ([], {"orders", "orders-eu", "_schemas"}),
        (["orders"], {"orders"}),
        ("^orders.*", {"orders", "orders-eu"}),
        (["^.*"], {"orders", "orders-eu", "_schemas"}),
        (["orders", "__consumer_offsets"], {"orders", "__consumer_offsets"}),
        (["^__.*"], {"__consumer_offsets"}),
        (["^order"], set()),
    ],
)
def test_topics(chosen: Any, wanted: set[str]) -> None:
    settings = make(topics=chosen)
    there = ("orders", "orders-eu", "_schemas", "__consumer_offsets", "orders-partition-3")
    assert {name for name in there if settings.wants_topic(name)} == wanted


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        ([], {"billing", "console-consumer-1", "a b/ü"}),
        (["a b/ü", "none"], {"a b/ü"}),
        ("^(?!console-consumer-).*", {"billing", "a b/ü"}),
    ],
)
def test_groups(chosen: Any, wanted: set[str]) -> None:
    settings = make(groups=chosen)
    there = ("billing", "console-consumer-1", "a b/ü")
    assert {name for name in there if settings.wants_group(name)} == wanted


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"options": {}}, "bootstrap.servers: is missing"),
        ({"options": {**OPTIONS, "kafka.sasl.username": "u"}}, "own name, sasl.username"),
        ({"groups": [""]}, "an empty name"),
        ({"groups": ["^("]}, "is not a pattern"),
        ({"topics": ["orders*"]}, "is not the name of a topic"),
        ({"topics": ["orders-partition-3"]}, "ends like a partition"),
        ({"interval_ms": 0}, "interval_ms"),
        ({"bytes_per_message": -1}, "bytes_per_message"),
        ({"broker": ""}, "broker"),
    ],
)
def test_settings_that_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(**keys)


def test_secrets_come_from_the_environment_and_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {**OPTIONS, "sasl.password": "${env:KG_SECRET}", "ssl.key.password": "abcdef"}
    settings = make(options=options)
    assert "abcdef" not in repr(settings) + str(settings.display())
    assert settings.display()["options"]["sasl.password"] == "${env:KG_SECRET}"
    with pytest.raises(UserError, match=r"source\.groups\.options\.sasl\.password"):
        settings.client_options()
    monkeypatch.setenv("KG_SECRET", "pw")
    assert settings.client_options()["sasl.password"] == "pw"
