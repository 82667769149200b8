"""Topic names: parts, partitions and the one spelling."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.topics import (
    INCOMPLETE,
    NOT_PERSISTENT,
    Topic,
    classify_topics,
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


@settings(deadline=None)
@given(st.lists(st.text("ab/:-", max_size=12).flatmap(
    lambda rest: st.sampled_from(["", "persistent://", "non-persistent://", "x://"]).map(
        lambda scheme: scheme + rest)), max_size=10))
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
