"""Publish limits of topics, namespaces, a resource group and the broker."""

from __future__ import annotations

import time
from typing import Any

from tests.support.recording.scene import Scene, batch, name_of
from tests.support.waiting import wait_for

NAME = "limits"
TOPICS = LIMITED, BESIDE, STEADY = [
    name_of("limits", name) for name in ("limited", "beside", "steady")
]
OF_NAMESPACE = [name_of("limits-namespace", name) for name in ("a", "b")]
OF_GROUP = [name_of("limits-group", name) for name in ("a", "b")]
BATCHING: dict[str, Any] = {
    "batching_enabled": True,
    "batching_max_publish_delay_ms": 10_000,
    "batching_max_messages": 5000,
    "max_pending_messages": 10_000,
}
OF_BROKER = "brokerPublisherThrottlingMaxMessageRate"


def play(scene: Scene) -> None:
    """Bursts over every limit; topics share connections."""
    for name in ("limits", "limits-namespace", "limits-group"):
        scene.namespace(name)
    for topic in (LIMITED, STEADY):
        scene.topic(topic)
    scene.set(LIMITED, "publishRate", rate(500))
    scene.set(STEADY, "publishRate", rate(100))
    with scene.client() as one, scene.client() as two, scene.client() as three:
        limited, beside = (one.create_producer(topic, **BATCHING) for topic in (LIMITED, BESIDE))
        steady = one.create_producer(STEADY, batching_enabled=False)
        for count in (600, 300, 300, 300):
            batch(limited, count)
            batch(beside, 1)
            time.sleep(0.2)
        for _ in range(150):  # messages of their own: many short pauses
            steady.send_async(b"x" * 20, None)
        steady.flush()
        scene.set(LIMITED, "publishRate", rate(2000))  # meanwhile
        time.sleep(1.5)
        for count in (1500, 1500, 1500):
            batch(limited, count)
            batch(beside, 1)
            time.sleep(0.1)
        of_namespace(scene, two)
        of_group(scene, three)
        of_broker(scene, beside)
        time.sleep(1)
        keep(scene)


def of_namespace(scene: Scene, one: Any) -> None:
    """The limit of a namespace holds for each of its topics."""
    scene.pulsar.ask("POST", "namespaces/public/limits-namespace/publishRate", rate(300))
    producers = [one.create_producer(topic, **BATCHING) for topic in OF_NAMESPACE]
    time.sleep(1.5)
    for count in (400, 350):
        for producer in producers:
            batch(producer, count)
        time.sleep(0.5)


def of_group(scene: Scene, one: Any) -> None:
    """The limit of a resource group is shared by the topics of its namespaces."""
    scene.pulsar.ask(
        "PUT",
        "resourcegroups/batch",
        {
            "publishRateInMsgs": 200,
            "publishRateInBytes": 1_000_000,
            "dispatchRateInMsgs": 1_000_000,
            "dispatchRateInBytes": 100_000_000,
        },
    )
    wait_for(lambda: "batch" in scene.pulsar.ask("GET", "resourcegroups"))
    producers = [one.create_producer(topic, **BATCHING) for topic in OF_GROUP]
    scene.pulsar.ask("POST", "namespaces/public/limits-group/resourcegroup/batch")
    time.sleep(2)
    for _ in range(2):
        for producer in producers:
            batch(producer, 150)
        time.sleep(0.5)


def of_broker(scene: Scene, beside: Any) -> None:
    """The limit of the whole broker, for a while."""
    scene.pulsar.ask("POST", f"brokers/configuration/{OF_BROKER}/300")
    time.sleep(2)
    batch(beside, 500)
    batch(beside, 1)
    time.sleep(1)
    scene.pulsar.ask("POST", f"brokers/configuration/{OF_BROKER}/0")
    time.sleep(1.5)


def keep(scene: Scene) -> None:
    """How often each topic was limited, by the broker's own count."""
    for topic in (*TOPICS, *OF_NAMESPACE, *OF_GROUP):
        stats = scene.stats(topic)
        scene.keep(
            NAME,
            f"times that publishes of {topic} were limited",
            "publishRateLimitedTimes",
            stats["publishRateLimitedTimes"],
            f"SELECT sum(limited_times) FROM topic_throttle_stats WHERE topic = '{topic}'",
        )
        scene.keep(
            NAME,
            f"messages published to {topic}",
            "msgInCounter",
            stats["msgInCounter"],
            f"SELECT sum(messages) FROM topic_throttle_stats WHERE topic = '{topic}'",
        )


def rate(messages: int) -> dict[str, int]:
    """A publish limit."""
    return {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": -1}
