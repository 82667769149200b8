"""What tests share of pulsar plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulsar as client
from deltalake import DeltaTable

from app.config.settings import Settings
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import Pulsar
from tests.support.waiting import wait_for

Json = dict[str, Any]
BATCHING: Json = {"batching_enabled": True, "batching_max_publish_delay_ms": 10_000}


def batch(producer: client.Producer, count: int) -> None:
    """Publish so many messages as one entry."""
    for _ in range(count):
        producer.send_async(b"x" * 20, None)
    producer.flush()


def limit(pulsar: Pulsar, topic: str, rate: int) -> None:
    """Set a topic's publish limit (messages/s), and wait until the broker has it."""
    path = topic.replace("://", "/") + "/publishRate"
    pulsar.ask(
        "POST", path, {"publishThrottlingRateInMsg": rate, "publishThrottlingRateInByte": -1}
    )
    wait_for(lambda: pulsar.ask("GET", path) is not None)


def stats_of(pulsar: Pulsar, topic: str) -> Json:
    """What the broker counts of a topic."""
    path = topic.replace("://", "/")
    stats: Json = pulsar.ask("GET", f"{path}/stats?subscriptionBacklogSize=true")
    return stats


def rows(settings: Settings, name: str) -> list[Json]:
    """The rows of a table, none without the table."""
    path = f"{settings.warehouse}/{name}"
    if not DeltaTable.is_deltatable(path):
        return []
    found: list[Json] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


def limit_broker(pulsar: Pulsar, folder: Path, rate: int) -> None:
    """Set the limit of the whole broker while it runs, and wait until the plug-in has seen it."""
    key = "brokerPublisherThrottlingMaxMessageRate"
    pulsar.ask("POST", f"brokers/configuration/{key}/{rate}")
    wait_for(
        lambda: f'"{key}":{rate},' in pulsar_plugin.records(folder, "policy")[-1]["policy_json"]
    )
