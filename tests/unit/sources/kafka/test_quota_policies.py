"""Answers of DescribeClientQuotas as policy documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.sources.kafka.quota_policies import (
    limits_by_entity,
    policy_documents,
    policy_records,
    quota_kinds,
)
from state.engine.globs import name_of_text, name_text
from state.policies import parse_document

QUOTAS = [
    ({"user": "alice"}, {"producer_byte_rate": 1_048_576.0, "request_percentage": 12.5}),
    ({"user": "alice", "client-id": "app"}, {"consumer_byte_rate": 5.0}),
    ({"user": None}, {"producer_byte_rate": 9.0}),
    ({"user": None, "client-id": None}, {"controller_mutation_rate": 2.0}),
    ({"client-id": "app"}, {"producer_byte_rate": 1.0}),
    ({"client-id": None}, {"producer_byte_rate": 3.0}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
]


def test_every_level_is_a_document() -> None:
    now = limits_by_entity(QUOTAS)
    assert policy_documents({}, now) == [
        {"scope": "client", "name": "<default>", "limits": {"producer_byte_rate": 3}},
        {"scope": "client", "name": "app", "limits": {"producer_byte_rate": 1}},
        {"scope": "user", "name": "<default>", "limits": {"producer_byte_rate": 9}},
        {
            "scope": "user",
            "name": "<default>",
            "client_id": "<default>",
            "limits": {"controller_mutation_rate": 2},
        },
        {
            "scope": "user",
            "name": "alice",
            "limits": {"producer_byte_rate": 1_048_576, "request_percentage": 12.5},
        },
        {"scope": "user", "name": "alice", "client_id": "app", "limits": {"consumer_byte_rate": 5}},
    ]


def test_a_name_that_is_the_text_of_the_default_is_another_entity() -> None:
    """KAFKA-18808: tools pass <default> as a name; the default is the entity without one."""
    text = "<default>"
    now = limits_by_entity(
        [
            ({"user": text}, {"producer_byte_rate": 1000.0}),
            ({"user": None}, {"producer_byte_rate": 5e6}),
            ({"client-id": text}, {"consumer_byte_rate": 777.0}),
            ({"user": None, "client-id": text}, {"consumer_byte_rate": 7.0}),
            ({"user": f"\\{text}", "client-id": None}, {"consumer_byte_rate": 8.0}),
        ]
    )
    assert list(now) == [
        ("\\<default>", None),
        ("<default>", None),
        (None, "\\<default>"),
        ("<default>", "\\<default>"),
        ("\\\\<default>", "<default>"),
    ]
    assert [name_of_text(name_text(name)) for name in (None, text, f"\\{text}", "a\\")] == [
        *(None, text, f"\\{text}", "a\\")
    ]


@pytest.mark.parametrize(
    "value", ["NaN", float("nan"), 2.0**63, 1e300, -1, -1.0, 0, -(2.0**64), "-Infinity"]
)
def test_a_limit_that_throttles_nobody_is_the_largest_of_a_policy(value: Any) -> None:
    now = limits_by_entity([({"user": "a"}, {"producer_byte_rate": value})])
    (document,) = policy_documents({}, now)
    assert document["limits"] == {"producer_byte_rate": 2**63 - 1}
    assert parse_document(json.dumps(document)) == (document, None)
    assert policy_documents(now, now) == []


def test_only_what_changed_comes_again_and_what_is_gone_without_limits() -> None:
    before = limits_by_entity(QUOTAS)
    now = limits_by_entity([({"user": "alice"}, {"producer_byte_rate": 7.0}), *QUOTAS[2:]])
    assert policy_documents(before, now) == [
        {"scope": "user", "name": "alice", "client_id": "app", "limits": {}},
        {"scope": "user", "name": "alice", "limits": {"producer_byte_rate": 7}},
    ]
    assert policy_documents(now, now) == []


def test_records_hold_on_every_broker() -> None:
    document = {"scope": "user", "name": "alice", "limits": {}}
    (record,) = policy_records([document], 5, "east", None)
    assert json.loads(record.pop("policy_json")) == document
    assert record == {
        "event_type": "policy",
        "source_feed": "kafka_quotas",
        "cluster": "east",
        "broker": "*",
        "ts_wall_ms": 5,
    }


@pytest.mark.parametrize(
    ("features", "kinds"),
    [
        ({"metadata.version": 29, "share.version": 1}, "in_force"),
        ({"metadata.version": 28}, "in_force"),
        ({"metadata.version": 27, "group.version": 1}, "remembered"),
        ({}, "remembered"),
    ],
)
def test_documents_say_what_their_brokers_do_with_kinds_of_limits(
    features: dict[str, int], kinds: str
) -> None:
    """Levels of 4.2-IV1, 4.2-IV0, 4.1-IV1, and of a broker with ZooKeeper."""
    document = {"scope": "user", "name": "alice", "limits": {}}
    (record,) = policy_records([document], 5, "east", quota_kinds(features))
    assert json.loads(record["policy_json"]) == {**document, "quota_kinds": kinds}
    assert parse_document(record["policy_json"])[1] is None
