"""Digests of a real Pulsar broker: the same traffic whole and summed up gives the same counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.run.service import run
from tests.servers.pulsar_plugin import BATCHING, Json, batch, limit, rows, stats_of
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import Pulsar
from tests.support.servers.pulsar_plugin import connected
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from app.config.settings import Settings

RATE = 500
BATCHES = (600, 300, 300, 300)
"""Messages of each batch: the first empties the full bucket, the others what 0.2 s have put in. So
every one causes one pause."""
FREE = 3_000
"""Messages of a topic without a limit, on a connection that is never paused."""
NAMES = ("limited", "beside", "free", "chosen", "large")
DIGESTS = {"weirDigestMillis": "1000", "weirDigestWhole": "public/digested/chosen"}
DELIVERIES = ("dispatch", "ack")


@dataclass(frozen=True)
class Played:
    """The records of a broker and what it counted of each topic: messages, bytes, pauses."""

    folder: Path
    counted: dict[str, tuple[int, int, int]]

    def records(self, *kinds: str) -> list[Json]:
        return pulsar_plugin.records(self.folder, *kinds)

    def topics(self, *kinds: str) -> Counter[str]:
        return Counter(r["topic"].rsplit("/", 1)[1] for r in self.records(*kinds))


def topic(namespace: str, name: str) -> str:
    return f"persistent://public/{namespace}/{name}"


@contextmanager
def broker(pulsar: Pulsar, folder: Path, namespace: str, **more: str) -> Iterator[Pulsar]:
    pulsar_plugin.start(pulsar, folder, maxMessageSize="50000", **more)
    pulsar.ask("PUT", f"namespaces/public/{namespace}", {})
    yield pulsar


def play(pulsar: Pulsar, folder: Path, namespace: str, **more: str) -> Played:
    """Clients publish, read and acknowledge, at a broker with the plug-in."""
    at = {name: topic(namespace, name) for name in NAMES}
    with broker(pulsar, folder, namespace, **more), connected(pulsar) as one:
        with connected(pulsar) as other:
            readers = [other.subscribe(at[name], "s") for name in NAMES]
            limit(pulsar, at["limited"], RATE)
            limited = one.create_producer(
                at["limited"], batching_max_messages=max(BATCHES), **BATCHING
            )
            beside = one.create_producer(at["beside"])
            free = other.create_producer(
                at["free"],
                batching_enabled=False,
                block_if_queue_full=True,
                max_pending_messages=200,  # below what a connection may have in flight
            )
            chosen = other.create_producer(at["chosen"])
            for _ in range(FREE):
                free.send_async(b"x" * 100, None)
            free.flush()
            for count in BATCHES:
                batch(limited, count)
                beside.send(b"answered when the broker reads the connection again")
                chosen.send(b"written whole")
                time.sleep(0.2)
            large = other.create_producer(
                at["large"], chunking_enabled=True, batching_enabled=False
            )
            large.send(b"x" * 200_000)
            for reader, messages in zip(
                readers, (sum(BATCHES), len(BATCHES), FREE, len(BATCHES), 1), strict=True
            ):
                for _ in range(messages):
                    reader.acknowledge(reader.receive(10_000))
            stats = {name: stats_of(pulsar, at[name]) for name in NAMES}
        time.sleep(1.5)
        one.create_producer(at["chosen"]).send(b"what closes the clocks of what came before")
    wait_for(lambda: len(pulsar_plugin.records(folder, "connection_closed")) >= 2)
    counted = ("msgInCounter", "bytesInCounter", "publishRateLimitedTimes")
    return Played(folder, {name: tuple(stats[name][c] for c in counted) for name in NAMES})


@pytest.fixture(scope="module")
def whole(pulsar: Pulsar, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(pulsar, tmp_path_factory.mktemp("whole"), "whole")


@pytest.fixture(scope="module")
def digested(pulsar: Pulsar, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(pulsar, tmp_path_factory.mktemp("digested"), "digested", **DIGESTS)


@pytest.mark.parametrize("mode", ["whole", "digested"])
def test_messages_bytes_and_pauses_are_those_of_the_broker(
    mode: str, request: pytest.FixtureRequest, make_settings: Callable[..., Settings]
) -> None:
    played: Played = request.getfixturevalue(mode)
    settings = make_settings(
        source={"format": "files", "path": str(played.folder)},
        queries=[["rate_limits"]],
        stats_window_ms=1000,
        idle_advance_ms=1000,
    )
    assert run(settings, available_now=True) == 0
    assert rows(settings, "quarantine") == []
    stats = rows(settings, "topic_throttle_stats")
    last = {"chosen": 1}  # published after the broker was asked
    for name, (messages, size, pauses) in played.counted.items():
        of_topic = [r for r in stats if r["topic"] == topic(mode, name)]
        assert sum(r["messages"] for r in of_topic) - messages in (0, last.get(name, 0))
        assert name in last or sum(r["bytes"] for r in of_topic) == size
        assert sum(r["limited_times"] for r in of_topic) == pauses
    assert played.counted["limited"][2] == len(BATCHES)
    times = {
        name: [
            sum(r[f"{kind}_times"] for r in stats if r["topic"] == topic(mode, name))
            for kind in ("culprit", "shared", "collateral")
        ]
        for name in ("limited", "beside")
    }
    assert times == {"limited": [len(BATCHES), 0, 0], "beside": [0, 0, len(BATCHES)]}
    limited = topic(mode, "limited")
    assert {r["limit_msgs"] for r in stats if r["topic"] == limited and r["culprit_times"]} == {
        RATE
    }
    (paused, resumed) = (played.records(kind) for kind in ("reads_paused", "reads_resumed"))
    assert len(paused) == len(resumed) == len(BATCHES)
    ns = sum(r["ts_mono_ns"] for r in resumed) - sum(r["ts_mono_ns"] for r in paused)
    assert sum(r["culprit_ns"] for r in stats if r["topic"] == limited) == ns


def test_what_is_summed_up_and_what_is_whole(digested: Played) -> None:
    """Deliveries are those of the chosen topic and of the one with chunks; publishes of the paused
    connection are whole from the first pause on."""
    published, summed = digested.topics("publish"), digested.topics("publish_digest")
    assert set(digested.topics(*DELIVERIES)) == {"chosen", "large"}
    assert published["free"] == 0 < summed["free"] < 30
    assert sum(
        r["publishes"] for r in digested.records("publish_digest") if "free" in r["topic"]
    ) == (FREE)
    assert summed["chosen"] == summed["large"] == 0 < published["large"]
    assert published["limited"] + published["beside"] == 2 * len(BATCHES) - 1
    assert digested.topics("entry_added") == published
    of_limited = [
        r for r in digested.records("publish", "publish_digest") if "limited" in r["topic"]
    ]
    first_pause = digested.records("reads_paused")[0]["seq"]
    assert [(r["event_type"], r["seq"] < first_pause) for r in of_limited[:2]] == [
        ("publish_digest", True),
        ("publish", False),
    ]


def test_a_digest_ends_with_its_second(digested: Played) -> None:
    for r in digested.records("publish_digest"):
        assert r["digest_from_wall_ms"] <= r["ts_wall_ms"]
        assert r["digest_from_wall_ms"] // 1000 == r["ts_wall_ms"] // 1000
        assert r["digest_from_mono_ns"] <= r["ts_mono_ns"] + 1_000_000


def test_the_volume_of_digests(whole: Played, digested: Played) -> None:
    """A message without a limit takes four records, or a share of one."""
    of_free = [
        sum(len(line) for line in pulsar_plugin.lines(played.folder) if '/free"' in line)
        for played in (whole, digested)
    ]
    assert of_free[0] > 50 * of_free[1]
