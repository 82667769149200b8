"""The limits of clients, asked of a real broker."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.quota_policies import limits_by_entity, policy_documents
from tests.support.servers.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

USER = ("--entity-type", "users", "--entity-name", "kay")
BOTH = (*USER, "--entity-type", "clients", "--entity-default")


def test_limits_of_every_level_and_their_removal(kafka: Kafka, spark: SparkSession) -> None:
    with closing(KafkaClient({"bootstrap.servers": kafka.servers}, 5000)) as client:
        before = limits_by_entity(client.quotas(time.monotonic() + 10))
        kafka.configure(*USER, "--add-config", "producer_byte_rate=1000,request_percentage=2.5")
        kafka.configure(*BOTH, "--add-config", "consumer_byte_rate=7")
        now = limits_by_entity(client.quotas(time.monotonic() + 10))
        user = {"scope": "user", "name": "kay"}
        of_both = {**user, "client_id": "<default>"}
        assert policy_documents(before, now) == [
            {**user, "limits": {"producer_byte_rate": 1000, "request_percentage": 2.5}},
            {**of_both, "limits": {"consumer_byte_rate": 7}},
        ]
        kafka.configure(*USER, "--delete-config", "producer_byte_rate,request_percentage")
        kafka.configure(*BOTH, "--delete-config", "consumer_byte_rate")
        later = limits_by_entity(client.quotas(time.monotonic() + 10))
        assert later == before
        assert policy_documents(now, later) == [
            {**user, "limits": {}},
            {**of_both, "limits": {}},
        ]
