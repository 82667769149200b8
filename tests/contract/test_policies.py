"""Policy documents: scopes, limits and the types of limits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app import policies as configured
from state.policies import LIMIT_TYPES, SCOPES, parse_document, problem


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
        (document(backlog_quota={"message_age": {"limitTime": 60, "policy": "producer_exception"}}),
         None),
        ([], "not an object"),
        (document("cluster"), "unknown scope 'cluster'"),
        ({**document(), "scope": ["topic"]}, "unknown scope ['topic']"),
        ({"limits": {}}, "unknown scope None"),
        (document(name=None), "name is not a string"),
        (document(name=""), "name is not a string"),
        (document(name="\ud800"), "name is not a string"),
        ({**document(), "limits": None}, "limits is not an object"),
        (document(producer_ids_rate=1), "unknown limit 'producer_ids_rate' in scope topic"),
        (document(publishRateInMsgs="10"), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=True), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=None), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=2**63), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=float("nan")), "publishRateInMsgs is not a number of 64 bits"),
        (document(publishRateInMsgs=float("inf")), "publishRateInMsgs is not a number of 64 bits"),
        (document("namespace", "a/b", resource_group=3), "resource_group is not a string"),
        (document("broker", "*", backlogQuotaCheckEnabled=1),
         "backlogQuotaCheckEnabled is not true or false"),
        (document("broker", "*", backlogQuotaDefaultRetentionPolicy="hold"),
         f"backlogQuotaDefaultRetentionPolicy is not {RETENTION}"),
        (document(backlog_quota=5), "backlog_quota is not an object"),
        (document(backlog_quota={"age": {}}), "backlog_quota has unknown type 'age'"),
        (document(backlog_quota={"message_age": 5}), "backlog_quota message_age is not an object"),
        (document(backlog_quota={"message_age": {"limit": 5}}),
         "backlog_quota message_age 'limit' is unknown"),
        (document(backlog_quota={"message_age": {"limitTime": "5"}}),
         "backlog_quota message_age 'limitTime' is not a number of 64 bits"),
        (document(backlog_quota={"message_age": {"policy": "x"}}),
         f"backlog_quota message_age 'policy' is not {RETENTION}"),
    ],
)
def test_what_is_wrong_with_a_document(made: object, wrong: str | None) -> None:
    assert problem(made) == wrong


@pytest.mark.parametrize(
    "text",
    ["", "x", "{", '{"scope":NaN}', '{"scope":Infinity}', "[" * 100_000, "9" * 10_000,
     '{"scope":"topic","name":"t","limits":{"publishRateInMsgs":' + "9" * 10_000 + "}}"],
    ids=range(8),
)
def test_text_that_is_no_json_never_raises(text: str) -> None:
    assert parse_document(text) == (None, "not JSON")


def test_a_document_comes_back_decoded() -> None:
    made = document(publishRateInBytes=2**53 + 1)
    assert parse_document(json.dumps(made)) == (made, None)


def test_every_scope_names_the_type_of_every_limit() -> None:
    assert {scope: frozenset(keys) for scope, keys in LIMIT_TYPES.items()} == SCOPES


def test_the_stream_takes_every_limit_that_the_configuration_takes() -> None:
    for scope, keys in configured.SCOPES.items():
        assert set(keys) <= SCOPES[scope]
