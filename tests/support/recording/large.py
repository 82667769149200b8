"""Large messages in chunks: interleaved, shared, killed half-way, sent again, expired."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pulsar as client

from tests.support.recording.scene import Scene, digest, drain, name_of, text_of
from tests.support.waiting import wait_for

NAME = "large"
INTERLEAVED, CROWDED, KILLED, RESENT = (
    name_of("large", name) for name in ("interleaved", "crowded", "killed", "resent")
)
SIZE = 220_000
SLOW = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 35_000}
FAST = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 100_000_000}


class Large:
    """The scenario; its clients stay until what was not finished has expired."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._got: dict[tuple[str, str], list[str]] = {}

    def play(self, one: client.Client) -> None:
        """All but the expiry."""
        scene = self._scene
        scene.namespace("large")
        self._killed = one.subscribe(KILLED, "archive", consumer_name="archive-killed")
        self._resent = one.subscribe(RESENT, "archive", consumer_name="archive-resent")
        self._half(KILLED, "stopped")
        self._half(RESENT, "returned")
        scene.set(RESENT, "publishRate", FAST)
        for _ in range(2):  # the first one meets the chunks of the killed producer
            again = one.create_producer(RESENT, producer_name="returned", chunking_enabled=True)
            again.send(text_of(SIZE, 1).encode())
            again.close()
        self._take(RESENT, "archive", [self._resent])
        other = one.create_producer(KILLED, producer_name="whole", chunking_enabled=True)
        scene.set(KILLED, "publishRate", FAST)
        other.send(text_of(SIZE, 2).encode())
        self._take(KILLED, "archive", [self._killed])
        self._interleave(
            one,
            INTERLEAVED,
            2,
            [
                ("archive", client.ConsumerType.Exclusive, 1, 10),
                ("workers", client.ConsumerType.Shared, 2, 10),
            ],
        )
        self._interleave(one, CROWDED, 4, [("narrow", client.ConsumerType.Exclusive, 1, 2)])

    def finish(self) -> None:
        """Wait until the client has given up the message that was never finished; keep numbers."""
        scene = self._scene
        wait_for(lambda: not scene.stats(KILLED)["subscriptions"]["archive"]["msgBacklog"], 150)
        time.sleep(5)
        with scene.client() as one:  # what moves the clocks of the topics
            for topic in {topic for topic, _ in self._got}:
                one.create_producer(topic).send(b"the last one")
        time.sleep(5)
        for (topic, subscription), digests in self._got.items():
            where = f"topic = '{topic}' AND subscription = '{subscription}'"
            scene.keep(
                NAME,
                f"large messages that applications got from {topic}, {subscription}",
                "applications",
                len(digests),
                f"SELECT count(*) FROM chunk_messages WHERE {where}",
            )
            scene.keep(
                NAME,
                f"their bytes (SHA-256), {topic}, {subscription}",
                "applications",
                sorted(digests),
                f"SELECT list(sha256(payload) ORDER BY sha256(payload)) FROM chunk_messages "
                f"WHERE {where}",
            )
            scene.keep(
                NAME,
                f"chunks not acknowledged in {topic}, {subscription}",
                "msgBacklog",
                scene.stats(topic)["subscriptions"][subscription]["msgBacklog"],
                f"SELECT last(backlog_entries ORDER BY pass_ms) FROM backlog_subscriptions "
                f"WHERE {where}",
            )
        scene.keep(
            NAME,
            "large messages that expired, never finished",
            "applications",
            1,
            "SELECT count(DISTINCT uuid) FROM chunk_events WHERE outcome = 'EXPIRED'",
        )

    def _half(self, topic: str, name: str) -> None:
        """A producer that is killed after its first chunks."""
        self._scene.set(topic, "publishRate", SLOW)
        process = self._scene.sender(topic, name, text_of(SIZE, 1))
        wait_for(lambda: self._scene.stats(topic)["msgInCounter"] >= 2)
        process.kill()
        process.wait()
        wait_for(lambda: not self._scene.stats(topic)["publishers"])

    def _interleave(
        self,
        one: client.Client,
        topic: str,
        producers: int,
        subscriptions: Sequence[tuple[str, client.ConsumerType, int, int]],
    ) -> None:
        """Producers of connections of their own send at the same time."""
        readers = {
            name: [
                one.subscribe(
                    topic,
                    name,
                    consumer_type=kind,
                    consumer_name=f"{name}-{number}",
                    max_pending_chunked_message=most,
                )
                for number in range(count)
            ]
            for name, kind, count, most in subscriptions
        }

        def send(number: int) -> None:
            with self._scene.client() as other:
                producer = other.create_producer(
                    topic, producer_name=f"large-{number}", chunking_enabled=True
                )
                ready.wait()
                for part in range(3):
                    producer.send(text_of(SIZE, 10 * number + part + 3).encode())

        ready = threading.Barrier(producers)
        threads = [threading.Thread(target=send, args=(number,)) for number in range(producers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name, consumers in readers.items():
            self._take(topic, name, consumers)

    def _take(self, topic: str, subscription: str, consumers: Sequence[Any]) -> None:
        got = [data for consumer in consumers for data in drain(consumer)]
        self._got[topic, subscription] = [digest(data) for data in got]
