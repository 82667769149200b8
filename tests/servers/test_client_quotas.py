"""The limits of clients, asked of a real broker."""

from __future__ import annotations

import math
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.quota_policies import LARGEST, limits_by_entity, policy_documents
from state.policies import CLIENT_QUOTAS, limit_problem
from tests.support.servers.kafka import Kafka
from tests.support.servers.raw_kafka import Entity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

USER: Entity = {"user": "kay"}
BOTH: Entity = {**USER, "client-id": None}


def test_limits_of_every_level_and_their_removal(kafka: Kafka, spark: SparkSession) -> None:
    with closing(KafkaClient({"bootstrap.servers": kafka.servers}, 5000)) as client:
        before = limits_by_entity(client.quotas(time.monotonic() + 10))
        limits = {"producer_byte_rate": 1000, "request_percentage": 2.5}
        assert kafka.limit(USER, limits) == ""
        assert kafka.limit(BOTH, {"consumer_byte_rate": 7}) == ""
        now = limits_by_entity(client.quotas(time.monotonic() + 10))
        user = {"scope": "user", "name": "kay"}
        of_both = {**user, "client_id": "<default>"}
        assert policy_documents(before, now) == [
            {**user, "limits": limits},
            {**of_both, "limits": {"consumer_byte_rate": 7}},
        ]
        assert kafka.limit(USER, dict.fromkeys(limits)) == ""
        assert kafka.limit(BOTH, {"consumer_byte_rate": None}) == ""
        later = limits_by_entity(client.quotas(time.monotonic() + 10))
        assert later == before
        assert policy_documents(now, later) == [
            {**user, "limits": {}},
            {**of_both, "limits": {}},
        ]


@pytest.mark.parametrize("value", [0, -1])
def test_kafka_and_a_policy_refuse_a_limit_that_is_not_above_0(kafka: Kafka, value: int) -> None:
    for key in CLIENT_QUOTAS:
        said = kafka.limit(USER, {key: value})
        assert f"Quota {key} must be greater than 0" in said
        assert limit_problem("user", key, value) == "is not above 0"


def test_a_limit_that_is_no_number_binds_nobody(kafka: Kafka, spark: SparkSession) -> None:
    """Kafka takes NaN, which no rate exceeds."""
    key = "producer_byte_rate"
    assert kafka.limit(USER, {key: math.nan}) == ""
    try:
        with closing(KafkaClient({"bootstrap.servers": kafka.servers}, 5000)) as client:
            now = limits_by_entity(client.quotas(time.monotonic() + 10))
        assert now["kay", None] == {key: LARGEST}
    finally:
        assert kafka.limit(USER, {key: None}) == ""
