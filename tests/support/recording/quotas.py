"""Slow and fast subscriptions under quotas of size and time, with both policies."""

from __future__ import annotations

import contextlib
import time

import pulsar as client

from tests.support.recording.scene import Json, Scene, drain, name_of
from tests.support.waiting import wait_for

NAME = "quotas"
SIZE, AGE = (name_of("quotas-evict", name) for name in ("size", "age"))
HELD = name_of("quotas-hold", "held")
EVICTED = "pulsar_storage_backlog_quota_exceeded_evictions_total"
EVICTION = "consumer_backlog_eviction"
ENTRIES = 40


def play(scene: Scene) -> None:
    """The slow subscription lets its messages lie, the fast one takes them at once."""
    for name in ("quotas-evict", "quotas-hold"):
        scene.namespace(name)
    with scene.client() as one:
        fast = []
        for topic in (SIZE, AGE, HELD):
            one.subscribe(topic, "slow").close()
            fast.append(one.subscribe(topic, "fast"))
        quota(
            scene,
            "namespaces/public/quotas-evict",
            "destination_storage",
            {"limitSize": 10_000, "policy": EVICTION},
        )
        quota(scene, topic_path(AGE), "message_age", {"limitTime": 4, "policy": EVICTION})
        quota(
            scene,
            "namespaces/public/quotas-hold",
            "destination_storage",
            {"limitSize": 10_000, "policy": "producer_exception"},
        )
        for topic, size in ((SIZE, 500), (AGE, 50)):
            publish(one, topic, size)
        held = publish(one, HELD, 500)
        for consumer in fast:
            drain(consumer, 1000)
        wait_for(lambda: evicted(scene, SIZE, "size") and evicted(scene, AGE, "time"))
        wait_for(lambda: refused(one))
        time.sleep(5)
        keep(scene)
        slow = one.subscribe(HELD, "slow")
        drain(slow, 1000)
        wait_for(lambda: not refused(one))
        with contextlib.suppress(client.PulsarException):
            held.close()
        time.sleep(3)
        scene.keep(
            NAME,
            f"unread messages of {HELD}, slow, at the end",
            "msgBacklog",
            backlog(scene, HELD, "slow"),
            behind(HELD, "slow"),
        )


def publish(one: client.Client, topic: str, size: int) -> client.Producer:
    """Entries of so many bytes."""
    producer = one.create_producer(topic, batching_enabled=False)
    for _ in range(ENTRIES):
        producer.send(b"x" * size)
    return producer


def refused(one: client.Client) -> bool:
    """Whether the broker lets nobody produce."""
    try:
        one.create_producer(HELD, producer_name="asks").close()
    except client.PulsarException:
        return True
    return False


def quota(scene: Scene, place: str, kind: str, limit: Json) -> None:
    """Set a quota of a namespace or topic."""
    scene.pulsar.ask("POST", f"{place}/backlogQuota?backlogQuotaType={kind}", limit)


def topic_path(topic: str) -> str:
    """A topic in the paths of the admin interface."""
    return topic.replace("://", "/")


def evicted(scene: Scene, topic: str, kind: str) -> int:
    """How often the broker has evicted, by its metric."""
    return int(scene.counter(EVICTED, topic=topic, quota_type=kind))


def backlog(scene: Scene, topic: str, subscription: str) -> int:
    """The broker's count of a subscription's unread entries."""
    return int(scene.stats(topic)["subscriptions"][subscription]["msgBacklog"])


def behind(topic: str, subscription: str, before: str = "true") -> str:
    """The same from the tables: of the newest check that meets a condition."""
    return (
        f"SELECT last(backlog_entries ORDER BY pass_ms) FROM backlog_subscriptions "
        f"WHERE topic = '{topic}' AND subscription = '{subscription}' AND {before}"
    )


def keep(scene: Scene) -> None:
    """Backlogs, and evictions by type of quota."""
    now_ms = int(time.time() * 1000)
    now = f"pass_ms <= {now_ms}"
    for topic in (SIZE, AGE, HELD):
        for subscription in ("slow", "fast"):
            scene.keep(
                NAME,
                f"unread messages of {topic}, {subscription}",
                "msgBacklog",
                backlog(scene, topic, subscription),
                behind(topic, subscription, now),
            )
        scene.keep(
            NAME,
            f"bytes of the backlog of {topic}",
            "backlogSize",
            scene.stats(topic)["backlogSize"],
            f"SELECT last(backlog_bytes ORDER BY pass_ms) FROM backlog_checks "
            f"WHERE topic = '{topic}' AND {now}",
        )
        for kind in ("size", "time"):
            scene.keep(
                NAME,
                f"evictions in {topic} by {kind}",
                EVICTED,
                evicted(scene, topic, kind),
                f"SELECT coalesce(sum(count_delta), 0) FROM backlog_evictions "
                f"WHERE topic = '{topic}' AND quota_type = '{kind}' "
                f"AND ts_wall_ms <= {now_ms}",
            )
    scene.keep(
        NAME,
        f"whether producers of {HELD} were refused",
        "applications",
        True,
        f"SELECT bool_or(action = 'disconnect_producers') FROM backlog_checks "
        f"WHERE topic = '{HELD}'",
    )
