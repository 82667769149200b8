"""Answers of kafka-clients as JSON; tests/servers/test_kafka_producers.py has them from a broker."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import MagicMock

import pytest

from app.sources.kafka.java_admin import JavaAdmin, grants_of, leaders_of, states_of
from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_owners import Grant
from app.sources.kafka.producer_states import IdState
from app.sources.polling import Unanswered


def test_leaders() -> None:
    nodes = [{"id": 1, "idString": "1"}, {"id": 12, "idString": "12", "rack": "east (1)"}, None]
    partitions = [{"partition": n, "leader": node} for n, node in enumerate(nodes)]
    assert leaders_of({"name": "a", "partitions": partitions}) == {0: "1", 1: "12", 2: None}


def test_states() -> None:
    state = {"producerId": 2**40, "producerEpoch": 3, "lastSequence": -1, "lastTimestamp": -1}
    assert states_of({"activeProducers": [state]}) == [IdState(2**40, 3, -1, -1)]
    assert states_of({"activeProducers": []}) == []


def test_grants() -> None:
    def binding(name: str, pattern: str, principal: str, operation: str) -> dict[str, Any]:
        entry = {"principal": principal, "operation": operation, "permissionType": "ALLOW"}
        return {"pattern": {"name": name, "patternType": pattern}, "entry": {"data": entry}}

    bindings = [
        binding("orders", "LITERAL", "User:CN=a, host=b,O=c", "WRITE"),
        binding("pay", "PREFIXED", "User:bob", "ALL"),
        binding("orders", "LITERAL", "User:carol", "READ"),
    ]
    assert grants_of(bindings) == [
        Grant("orders", "LITERAL", "User:CN=a, host=b,O=c", "WRITE"),
        Grant("pay", "PREFIXED", "User:bob", "ALL"),
    ]


@pytest.mark.parametrize("answer", ['{"a": {"partitions": [{"partition": 0}]}}', "[1", "3"])
def test_another_form_is_an_error_and_no_smaller_number(answer: str) -> None:
    view = MagicMock()
    view.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString.return_value = answer
    admin = JavaAdmin({}, 1000, jvm=lambda: view)
    problems: list[str] = []
    assert admin.states([Place("a", 0)], time.monotonic() + 1, problems) == {}
    assert len(problems) == 1
    assert problems[0].startswith("partition a/0: kafka-clients answers in another form")
    with pytest.raises(Unanswered, match="ACLs: kafka-clients answers in another form"):
        admin.grants(time.monotonic() + 1)
