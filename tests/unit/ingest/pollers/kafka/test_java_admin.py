"""The texts of kafka-clients; tests/servers/test_kafka_producers.py has them from a broker."""

from __future__ import annotations

import pytest

from app.ingest.pollers.kafka.java_admin import parse_grants, parse_leaders, parse_states
from app.ingest.pollers.kafka.offsets import Place
from app.ingest.pollers.kafka.producer_owners import Grant
from app.ingest.pollers.kafka.producer_states import State
from app.ingest.pollers.polling import Unanswered

NODE = "127.0.0.1:9092 (id: {} rack: {})"
EAST, FAR = NODE.format(1, "null"), NODE.format(12, "east (1)")
TOPICS = (
    "{a.b-c_d=(name=a.b-c_d, internal=false, partitions="
    f"(partition=0, leader={EAST}, replicas={EAST}, isr={EAST}, elr=, lastKnownElr=),"
    f"(partition=1, leader={FAR}, replicas={EAST}, {FAR}, isr={FAR}, elr=, lastKnownElr=), "
    "authorizedOperations=null), empty-3=(name=empty-3, internal=false, partitions="
    f"(partition=0, leader=none, replicas={EAST}, isr=, elr=, lastKnownElr=), "
    "authorizedOperations=null)}"
)
STATE = (
    "ProducerState(producerId={}, producerEpoch={}, lastSequence={}, lastTimestamp={}, "
    "coordinatorEpoch={}, currentTransactionStartOffset={})"
)


def test_leaders() -> None:
    assert parse_leaders([TOPICS]) == {"a.b-c_d": {0: "1", 1: "12"}, "empty-3": {0: None}}


def test_states() -> None:
    states = [
        STATE.format(7, 0, 41, 1_800_000_000_000, "OptionalInt.empty", "OptionalLong.empty"),
        STATE.format(2**40, 3, -1, -1, "OptionalInt[5]", "OptionalLong[12]"),
    ]
    text = (
        f"{{orders-eu-0=PartitionProducerState(activeProducers=[{', '.join(states)}]), "
        "orders-eu-11=PartitionProducerState(activeProducers=[])}"
    )
    places = [Place("orders-eu", 0), Place("orders-eu", 11)]
    assert parse_states(text, places) == {
        places[0]: [State(7, 0, 41, 1_800_000_000_000), State(2**40, 3, -1, -1)],
        places[1]: [],
    }


def test_grants() -> None:
    one = (
        "(pattern=ResourcePattern(resourceType=TOPIC, name={}, patternType={}), "
        "entry=(principal={}, host=*, operation={}, permissionType=ALLOW))"
    )
    text = ", ".join(
        [
            one.format("orders", "LITERAL", "User:CN=a, host=b,O=c", "WRITE"),
            one.format("pay", "PREFIXED", "User:bob", "ALL"),
            one.format("orders", "LITERAL", "User:carol", "READ"),
        ]
    )
    assert parse_grants(f"[{text}]", 3) == [
        Grant("orders", "LITERAL", "User:CN=a, host=b,O=c", "WRITE"),
        Grant("pay", "PREFIXED", "User:bob", "ALL"),
    ]


@pytest.mark.parametrize(
    "parse",
    [
        lambda: parse_leaders(["(name=a, internal=false, partitions=(partition=0, chief=1))"]),
        lambda: parse_states("a-0=PartitionProducerState([State(producerId=1)])", [Place("a", 0)]),
        lambda: parse_states("{}", [Place("a", 0)]),
        lambda: parse_grants("[(pattern=other)]", 1),
    ],
)
def test_another_form_is_an_error_and_no_smaller_number(parse: object) -> None:
    with pytest.raises(Unanswered, match="kafka-clients prints"):
        parse()  # type: ignore[operator]
