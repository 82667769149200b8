"""The settings: which groups and topics are meant, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.config.kafka_groups import KafkaGroupsSettings
from app.config.kafka_options import as_java
from app.config.source import SourceSettings
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
        (
            {"options": {**OPTIONS, "ssl.key.location": "/k.pem"}},
            r"options\.ssl\.key\.location: is librdkafka's; Kafka's Java client has ssl\.keystore",
        ),
        (
            {"options": {**OPTIONS, "sasl.username": "u"}},
            r"options\.sasl\.mechanism: .*PLAIN, SCRAM",
        ),
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
    options = {
        **OPTIONS,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "${env:KG_SECRET}",
        "ssl.key.password": "abcdef",
    }
    settings = make(options=options)
    assert "abcdef" not in repr(settings) + str(settings.display())
    assert settings.display()["options"]["sasl.password"] == "${env:KG_SECRET}"
    with pytest.raises(UserError, match=r"source\.groups\.options\.sasl\.password"):
        settings.client_options()
    monkeypatch.setenv("KG_SECRET", "pw")
    assert settings.client_options()["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="pw";'
    )


def test_options_may_stand_where_those_of_other_kafka_sources_do() -> None:
    java = {"kafka.bootstrap.servers": "h:9092", "kafka.sasl.jaas.config": "m required;"}
    given = {"format": "kafka_groups", "groups": {"cluster": "east"}}
    groups = SourceSettings.model_validate({**given, "options": java}).groups
    assert groups is not None
    assert groups.options == {"bootstrap.servers": "h:9092", "sasl.jaas.config": "m required;"}
    both = {**given, "groups": {"options": OPTIONS}, "options": java}
    with pytest.raises(ValueError, match=r"options\.kafka\..*, unless groups\.options has them"):
        SourceSettings.model_validate(both)
    with pytest.raises(ValueError, match=r"options\.subscribe: format kafka_groups takes kafka"):
        SourceSettings.model_validate({**given, "options": {**java, "subscribe": "t"}})


@pytest.mark.parametrize(
    ("options", "java"),
    [
        ({}, {}),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanisms": "SCRAM-SHA-512",
                "sasl.username": 'al"ice',
                "sasl.password": "p w\\",
                "ssl.ca.location": "/ca.pem",
            },
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
                r'required username="al\"ice" password="p w\\";',
                "ssl.truststore.location": "/ca.pem",
                "ssl.truststore.type": "PEM",
            },
        ),
        (
            {"ssl.endpoint.identification.algorithm": "none", "ssl.certificate.pem": "C"},
            {
                "ssl.endpoint.identification.algorithm": "",
                "ssl.keystore.certificate.chain": "C",
                "ssl.keystore.type": "PEM",
            },
        ),
        (
            {"sasl.jaas.config": "m required;", "ssl.truststore.type": "JKS"},
            {"sasl.jaas.config": "m required;", "ssl.truststore.type": "JKS"},
        ),
    ],
)
def test_options_of_librdkafka_as_those_of_the_java_client(
    options: dict[str, str], java: dict[str, str]
) -> None:
    assert as_java({**OPTIONS, **options}) == {**OPTIONS, **java}


@pytest.mark.parametrize("form", ["kafka", "kafka_messages", "kafka_producers"])
def test_other_sources_take_the_names_of_java_alone(form: str) -> None:
    options = {"kafka.bootstrap.servers": "h:9092", "kafka.sasl.username": "u"}
    if form != "kafka_producers":
        options["subscribe"] = "t"
    with pytest.raises(ValueError, match=r"kafka\.sasl\.username: .* has sasl\.jaas\.config"):
        SourceSettings.model_validate({"format": form, "options": options})
