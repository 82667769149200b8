"""Topic names: parts, partitions and the one spelling."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.topic_flags import classify_topics
from udfs.topics import (
    INCOMPLETE,
    NOT_PERSISTENT,
    Topic,
    is_system_topic,
    normal_topic,
    split_partition,
    split_topic,
)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("acme/orders/created", Topic("persistent", "acme", "orders", "created", None)),
        ("persistent://a/orders/created", Topic("persistent", "a", "orders", "created", None)),
        ("non-persistent://a/b/c-partition-12", Topic("non-persistent", "a", "b", "c", 12)),
        ("a/b/c/d", Topic("persistent", "a", "b", "c/d", None)),
        ("a/b/-partition-1", Topic("persistent", "a", "b", "-partition-1", None)),
        ("orders", None),
        ("acme/orders", None),
        ("acme//created", None),
        ("/orders/created", None),
        ("acme/orders/", None),
        ("", None),
        ("persistent://", None),
        ("persistent://acme/orders", None),
        ("http://acme/orders/created", None),
        ("://acme/orders/created", None),
    ],
)
def test_a_topic_has_tenant_namespace_and_name_or_is_none(name: str, parts: Topic | None) -> None:
    assert split_topic(name) == parts


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("acme/orders/created", False),
        ("persistent://acme/orders/__change_events", True),
        ("acme/orders/__change_events", True),
        ("persistent://acme/orders/__change_events-partition-3", True),
        ("persistent://acme/orders/__change_events-partition-03", False),
        ("persistent://acme/orders/not_really__change_events", False),
        ("persistent://acme/orders/__change_events-diff", False),
        ("persistent://acme/orders/__CHANGE_EVENTS", False),
        ("persistent://acme/orders/__transaction_buffer_snapshot", True),
        ("persistent://acme/orders/__transaction_buffer_snapshot-partition-0", True),
        ("persistent://acme/orders/__transaction_buffer_snapshot_segments", True),
        ("persistent://acme/orders/__transaction_buffer_snapshot_indexes", True),
        ("persistent://acme/orders/__transaction_buffer_snapshot_other", False),
        ("persistent://acme/orders/created-billing__transaction_pending_ack", True),
        ("persistent://acme/orders/created-partition-1-billing__transaction_pending_ack", True),
        ("persistent://acme/orders/x__transaction_pending_ack-partition-1", True),
        ("persistent://acme/orders/x__transaction_pending_acks", False),
        ("persistent://acme/orders/__pending_ack_state", False),
        ("persistent://acme/orders/__mine", False),
        ("persistent://pulsar/system/transaction_coordinator_assign-partition-0", True),
        ("persistent://pulsar/system/loadbalancer-service-unit-state", True),
        ("non-persistent://pulsar/system/resource-usage", True),
        ("persistent://acme/system/transaction_coordinator_assign", False),
        ("persistent://pulsar/systems/x", False),
        ("persistent://pulsar/broker-1.acme:8080/healthcheck", True),
        ("persistent://pulsar/standalone/x", False),
        ("persistent://sla-monitor/broker-1.acme:8080/x", True),
        ("persistent://sla-monitor/broker-1.acme/x", False),
        ("__consumer_offsets", False),
        ("__change_events", False),
    ],
)
def test_system_topics_are_those_of_the_broker(name: str, system: bool) -> None:
    assert is_system_topic(name) is system


@settings(deadline=None)
@given(
    st.lists(
        st.text("ab/:-", max_size=12).flatmap(
            lambda rest: st.sampled_from(["", "persistent://", "non-persistent://", "x://"]).map(
                lambda scheme: scheme + rest
            )
        ),
        max_size=10,
    )
)
def test_columns_are_judged_as_single_names(names: list[str]) -> None:
    flags = classify_topics(pa.array(names, pa.string()))
    assert [bool(f & INCOMPLETE) for f in flags] == [split_topic(name) is None for name in names]
    for name, flag in zip(names, flags, strict=True):
        assert bool(flag & NOT_PERSISTENT) == name.startswith("non-persistent://")


@pytest.mark.parametrize(
    ("name", "partition", "kafka", "normal"),
    [
        ("a/b/c", None, False, "persistent://a/b/c"),
        ("a/b/c", 3, False, "persistent://a/b/c-partition-3"),
        ("a/b/c-partition-3", 3, False, "persistent://a/b/c-partition-3"),
        ("persistent://a/b/c-partition-3", None, False, "persistent://a/b/c-partition-3"),
        ("a/b/c-partition-13", 3, False, "persistent://a/b/c-partition-13-partition-3"),
        ("non-persistent://a/b/c", 0, False, "non-persistent://a/b/c-partition-0"),
        ("a/b/c", -1, False, "persistent://a/b/c"),
        ("orders", 0, True, "orders-partition-0"),
        ("orders", None, True, "orders"),
    ],
)
def test_one_topic_has_one_spelling(
    name: str, partition: int | None, kafka: bool, normal: str
) -> None:
    assert normal_topic(name, partition, kafka) == normal
    assert normal_topic(normal, partition, kafka) == normal


def test_only_a_plain_number_is_a_partition() -> None:
    assert split_partition("t-partition-0") == ("t", 0)
    assert split_partition("t-partition-01") == ("t-partition-01", None)
    assert split_partition("t-partition-") == ("t-partition-", None)
    assert split_partition("t-partition-1\n") == ("t-partition-1\n", None)
    assert split_partition("t-partition-9999999999") == ("t-partition-9999999999", None)
