"""Policy documents: scopes, limits and the types of limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.config import policies as configured
from state.backlog import shared as backlog
from state.engine.documents import USER_CLIENT, changes, full_topic_name, pair_name, pair_of, parsed
from state.entry_cache import settings as entry_cache
from state.policies import (
    LIMIT_TYPES,
    SCOPES,
    WITHOUT_EFFECT,
    name_problem,
    parse_document,
    problem,
    unknown_limits,
)
from state.producer_ids import shared as producer_ids
from tests.reference import policies as reference
from udfs.topics import normal_topic


def document(scope: str = "topic", name: Any = "a/b/c", **limits: Any) -> dict[str, Any]:
    return {"scope": scope, "name": name, "limits": limits}


RETENTION = "one of producer_request_hold, producer_exception, consumer_backlog_eviction"


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (document(), None),
        (document(publishRateInMsgs=10, publishRateInBytes=-1), None),
        (document(publishRateInMsgs=1.5), None),
        (document("broker", "*", maxPublishRatePerTopicInMessages=0), None),
        (document("namespace", "a/b", resource_group="g"), None),
        (document("user", "<default>", producer_ids_rate=0.5), None),
        (document(backlog_quota={}), None),
        (
            document(
                backlog_quota={"message_age": {"limitTime": 60, "policy": "producer_exception"}}
            ),
            None,
        ),
        ([], "not an object"),
        (document("cluster"), "unknown scope 'cluster'"),
        ({**document(), "scope": ["topic"]}, "unknown scope ['topic']"),
        ({"limits": {}}, "unknown scope None"),
        (document(name=None), "name is not a string"),
        (document(name=""), "name is not a string"),
        (document(name="\ud800"), "name is not a string"),
        ({**document(), "limits": None}, "limits is not an object"),
        (document(producer_ids_rate=1), None),
        (
            document(producer_ids_rate="x", publishRateInMsgs="x"),
            "publishRateInMsgs is not a number of 64 bits",
        ),
        (document("namespace", "a"), "name 'a' is not tenant/namespace"),
        (document("namespace", "a/b/c/d"), "name 'a/b/c/d' is not tenant/namespace"),
        (document("namespace", "a/"), "name 'a/' is not tenant/namespace"),
        (document(name="orders"), None),
        (document(name="a/b"), "name 'a/b' is not a topic ([scheme://]tenant/namespace/name)"),
        (
            document(name="https://a/b/c"),
            "name 'https://a/b/c' is not a topic ([scheme://]tenant/namespace/name)",
        ),
        (document(publishRateInMsgs="10"), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=True), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=None), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=2**63), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=float("nan")), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=float("inf")), "publishRateInMsgs is not a number of 64 bits"),
        (document("namespace", "a/b", resource_group=3), "resource_group is not a string"),
        (
            document("broker", "*", backlogQuotaCheckEnabled=1),
            "backlogQuotaCheckEnabled is not true or false",
        ),
        (
            document("broker", "*", backlogQuotaDefaultRetentionPolicy="hold"),
            f"backlogQuotaDefaultRetentionPolicy is not {RETENTION}",
        ),
        (document(backlog_quota=5), "backlog_quota is not an object"),
        (document(backlog_quota={"age": {}}), "backlog_quota has unknown type 'age'"),
        (document(backlog_quota={"message_age": 5}), "backlog_quota message_age is not an object"),
        (
            document(backlog_quota={"message_age": {"limit": 5}}),
            "backlog_quota message_age 'limit' is unknown",
        ),
        (
            document(backlog_quota={"message_age": {"limitTime": "5"}}),
            "backlog_quota message_age 'limitTime' is not a number of 64 bits",
        ),
        (
            document(backlog_quota={"message_age": {"policy": "x"}}),
            f"backlog_quota message_age 'policy' is not {RETENTION}",
        ),
    ],
)
def test_what_is_wrong_with_a_document(made: object, wrong: str | None) -> None:
    assert problem(made) == wrong


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (document(publishRateInMsgs=10), None),
        (document(producer_ids_rate=1), "unknown limit 'producer_ids_rate' in scope topic"),
        (
            document("broker", "*", newIn5=1, managedLedgerCacheSizeMB=1, newIn6="x"),
            "unknown limits 'newIn5','newIn6' in scope broker",
        ),
        ({"scope": "topic", "name": "a/b/c"}, None),
    ],
)
def test_unknown_limits_are_named_and_cost_nothing_else(made: Any, told: str | None) -> None:
    assert problem(made) is None
    assert unknown_limits(made) == told


def test_every_broker_key_decides_something_or_is_listed_as_one_that_does_not() -> None:
    read = {
        *backlog.KEYS,
        *entry_cache.BROKER_KEYS,
        *entry_cache.OTHER_NAMES,
        *producer_ids.BROKER_KEYS,
        *reference.PER_TOPIC,
        *reference.WHOLE_BROKER,
        reference.RECEIPT_WAIT,
        "maxPendingPublishRequestsPerConnection",
        "maxMessagePublishBufferSizeInMB",
        "numIOThreads",
    }
    assert not read & set(WITHOUT_EFFECT)
    assert read | set(WITHOUT_EFFECT) == SCOPES["broker"]


@pytest.mark.parametrize("name", ["a/b/c", "a/b/c/d", "persistent://a/b/c/d", "orders"])
def test_a_topic_of_a_policy_has_the_name_that_records_have(name: str) -> None:
    assert name_problem("topic", name) is None
    spelt = normal_topic(name, None, kafka="/" not in name)
    for full_name in (full_topic_name, reference.full_name):
        assert full_name(name) == spelt


@pytest.mark.parametrize(
    ("scope", "name", "kafka", "wrong"),
    [
        (
            "topic",
            "onlytopic",
            False,
            "'onlytopic' is not a topic of Pulsar (allowed:"
            " [scheme://]tenant/namespace/name), and source.format gives no topics of Kafka",
        ),
        ("topic", "onlytopic", True, None),
        ("topic", "a/b/c", True, None),
        (
            "topic",
            "a/b/c-partition-3",
            True,
            "'a/b/c-partition-3' is one partition; a policy holds for the topic (a/b/c)",
        ),
        ("topic", "a/b", True, "'a/b' is not a topic ([scheme://]tenant/namespace/name)"),
        ("namespace", "a/b/c/d", True, "'a/b/c/d' is not tenant/namespace"),
        ("user", "<default>", False, None),
    ],
)
def test_a_policy_that_can_never_apply_is_refused_in_a_configuration(
    scope: str, name: str, kafka: bool, wrong: str | None
) -> None:
    found = list(configured.problems(document(scope, name), kafka))
    assert found == ([] if wrong is None else [("name", wrong)])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{",
        '{"scope":NaN}',
        '{"scope":Infinity}',
        "[" * 100_000,
        "9" * 10_000,
        '{"scope":"topic","name":"t","limits":{"publishRateInMsgs":' + "9" * 10_000 + "}}",
    ],
    ids=range(8),
)
def test_text_that_is_no_json_never_raises(text: str) -> None:
    assert parse_document(text) == (None, "not JSON")


def test_a_document_comes_back_decoded() -> None:
    made = document(publishRateInBytes=2**53 + 1)
    assert parse_document(json.dumps(made)) == (made, None)


def test_every_scope_names_the_type_of_every_limit() -> None:
    assert {scope: frozenset(keys) for scope, keys in LIMIT_TYPES.items()} == SCOPES


VALUES = {
    "number": 1,
    "flag": True,
    "text": "g",
    "backlog quota": {},
    "retention policy": "producer_exception",
}
NAMES = {"namespace": "a/b", "topic": "a/b/c"}


@pytest.mark.parametrize("scope", SCOPES)
def test_the_stream_and_the_configuration_take_the_same_limits(scope: str) -> None:
    every = {key: VALUES[kind] for key, kind in LIMIT_TYPES[scope].items()}
    made = document(scope, NAMES.get(scope, "x"), **every)
    assert parse_document(json.dumps(made)) == (made, None)
    assert unknown_limits(made) is None
    assert list(configured.problems(made)) == []
    for key in every:
        for wrong in ([], None):
            changed = {**made, "limits": {**every, key: wrong}}
            assert problem(changed) is not None
            assert [at for at, _ in configured.problems(changed)] == [f"limits.{key}"]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"scope": "client", "name": "app", "limits": {"request_percentage": 0.5}}, None),
        ({"scope": "user", "name": "a", "client_id": "<default>", "limits": {}}, None),
        ({"scope": "user", "name": "a", "client_id": ""}, "client_id is not a string"),
        ({"scope": "user", "name": "a", "client_id": 7}, "client_id is not a string"),
        (
            {"scope": "client", "name": "a", "client_id": "b"},
            "client_id in scope client, which has none",
        ),
        (
            {"scope": "user", "name": "a", "limits": {"producer_byte_rate": 0}},
            "producer_byte_rate is not above 0",
        ),
        (
            {"scope": "client", "name": "a", "limits": {"controller_mutation_rate": -1}},
            "controller_mutation_rate is not above 0",
        ),
        (
            {"scope": "client", "name": "a", "limits": {"controller_mutation_rate": 0}},
            "controller_mutation_rate is not above 0",
        ),
    ],
)
def test_client_quotas_are_of_users_clients_and_both(made: Any, told: str | None) -> None:
    assert problem(made) == told


def test_a_document_with_a_client_id_is_another_one_than_that_of_its_user() -> None:
    user = {"scope": "user", "name": "a", "limits": {"request_percentage": 5}}
    pair = {**user, "client_id": "app-1"}
    assert parsed(json.dumps(user))[:2] == ("user", "a")
    assert parsed(json.dumps(pair)) == (USER_CLIENT, pair_name("a", "app-1"), user["limits"])
    assert pair_of(pair_name("a", "app-1")) == ("a", "app-1")
    changed = changes([json.dumps(user), json.dumps(pair)], [json.dumps(user)], None)
    assert changed == {(USER_CLIENT, pair_name("a", "app-1")): None}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"scope": "user", "name": "team-*", "limits": {"request_percentage": 5}}, "name"),
        ({"scope": "user", "name": "team-*", "client_id": "a", "limits": {}}, "name"),
        ({"scope": "user", "name": "team-*", "limits": {"producer_ids_rate": 5}}, None),
        ({"scope": "client", "name": "team-*", "limits": {"request_percentage": 5}}, None),
        (
            {"scope": "client", "name": "a", "limits": {"producer_ids_rate": 5}},
            "limits.producer_ids_rate",
        ),
        ({"scope": "user", "name": "a", "client_id": None, "limits": {}}, "client_id"),
    ],
)
def test_a_configured_client_quota_names_its_user(made: Any, told: str | None) -> None:
    """A client id may have any character: `*` in it is none of a pattern."""
    assert [key for key, _ in configured.problems(made)] == ([] if told is None else [told])
