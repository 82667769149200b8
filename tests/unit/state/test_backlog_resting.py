"""Topics that rest: nothing shows that they do, and nothing reads them without need."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from state.backlog import resting, shard
from state.backlog.layout import TopicProducer
from state.backlog.operator import Backlog
from state.engine.names import Names
from state.engine.reach import Reach
from state.engine.tables import NOBODY, find, table
from tests.support.effort import examples
from tests.unit.state.backlog_trace import (
    PARAMS,
    T0,
    ack,
    blob,
    created,
    cursor,
    entry,
    ledger,
    numbered,
    play,
    policy,
    record,
)
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.sizes import sizes_of

TOPICS = 1000
RULES = ("consumer_backlog_eviction", "producer_exception")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The sizes of what is read, in order."""
    sizes: list[int] = []
    plain = shard.read

    def counting(data: bytes, *more: Any) -> shard.Shard:
        sizes.append(len(data))
        return plain(data, *more)

    monkeypatch.setattr(shard, "read", counting)
    return sizes


def of(topic: int, *records: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**r, "topic": f"persistent://t/a/{topic}"} for r in records]


def state_of_many(job: Backlog) -> bytes:
    """A thousand topics that have all gone to rest but the last, of the first producer."""
    records = [
        r
        for i in range(TOPICS)
        for r in of(
            i,
            ledger(0, 1, 100, 10_000, T0),
            cursor(0, "s", "1:9"),
            cursor(0, "q", "1:99"),
            {**created(0, i % 7), "cnx_id": f"c{-i % 3}"},
            {**created(0, 9), "cnx_id": f"c{i % 5}"},
        )
    ]
    state = job.step(None, [blob(numbered(records))], Reach(0)).state
    last = of(TOPICS - 1, *(entry(at, 2, at) for at in range(1000, 30_000, 1000)))
    return job.step(state, [blob(numbered(last))], Reach(T0 + 1)).state


def job(**params: Any) -> Backlog:
    return Backlog(
        {**PARAMS, "allowed_lateness_ms": 0, "backlogQuotaCheckIntervalInSeconds": 60, **params}
    )


def quiet_trace(order: random.Random) -> list[dict[str, Any]]:
    """Six topics in turn, with pauses between their records; now and then a policy or a start."""
    records, now = [], 1000
    topics = [f"persistent://t/{'ab'[i % 2]}/{i}" for i in range(6)]
    tail = dict.fromkeys(topics, 0)
    for topic in topics:
        records += [
            {**r, "topic": topic}
            for r in (
                ledger(0, 1, 50, 5000, T0 - 90_000),
                ledger(0, 2, 0, 0),
                cursor(0, "s", "1:9"),
                cursor(0, "\u00e9", "1:49"),
            )
        ]
    for _ in range(150):
        now += order.choice((0, 1, 300, 2000, 2000, 9000))
        topic = order.choice(topics)
        tail[topic] += 1
        client = {"cnx_id": order.choice("abcdef"), "producer_id": order.randrange(3)}
        kind, name = order.choice("eeeeecccaapxbs"), order.choice(("s", "\u00e9", "new"))
        made = {
            "e": entry(now, 2, tail[topic]),
            "c": cursor(now, name, order.choice(("1:20", f"2:{tail[topic]}"))),
            "a": ack(now, name, 2, order.randrange(tail[topic])),
            "p": {**created(now, 0), **client},
            "x": {**record("producer_closed", now), **client},
            "b": policy(
                now,
                "topic",
                topic,
                backlog_quota={
                    "message_age": {
                        "limitTime": order.choice((5, 30)),
                        "policy": order.choice(RULES),
                    }
                },
            ),
            "s": record("broker_started", now),
        }[kind]
        if kind in "bs" and order.random() < 0.6:
            continue
        records.append(made if kind in "bs" else {**made, "topic": topic})
    return numbered(records)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_rest_changes_no_row(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    order = random.Random(seed)
    records = quiet_trace(order)
    params = {
        "backlogQuotaCheckIntervalInSeconds": order.choice((4, 60)),
        "check_rows": "all",
        "backlogQuotaDefaultLimitSecond": 20,
        "backlogQuotaDefaultRetentionPolicy": RULES[seed % 2],
        "preciseTimeBasedBacklogQuotaCheck": bool(seed % 3),
        "apply_evictions": bool(seed % 5),
    }
    end = records[-1]["ts_wall_ms"] + 3000
    whole = play([records], params, (), end)
    went, usual = [0, 0], (resting.rest, resting.wake)

    def rest(s: shard.Shard, *more: Any) -> Any:
        had, answer = len(s.resting.key), usual[0](s, *more)
        went[0] += len(s.resting.key) - had
        return answer

    def wake(s: shard.Shard, *more: Any, **named: Any) -> None:
        had = len(s.resting.key)
        usual[1](s, *more, **named)
        went[1] += had - len(s.resting.key)

    monkeypatch.setattr(resting, "rest", rest)
    monkeypatch.setattr(resting, "wake", wake)
    monkeypatch.setattr(resting, "REST", resting.Rest(5000 * (seed % 2), order.choice((1, 3))))
    size = order.choice((1, 2, 5))
    batches = [records[i : i + size] for i in range(0, len(records), size)]
    split = play(batches, params, (), end)
    JOBS["backlog"].assert_same(split, whole)
    assert min(went) > 5


def test_most_topics_rest_and_a_batch_reads_only_the_pages_it_needs(read: list[int]) -> None:
    mine = job()
    state = state_of_many(mine)
    found = shard.read(state)
    assert len(found.resting.key) == TOPICS - 1
    assert len(found.resting.pages) == 2
    read.clear()
    busy = of(TOPICS - 1, entry(30_500, 2, 40_000))
    state = mine.step(state, [blob(numbered(busy))], Reach(0)).state
    assert len(read) == 1
    state = mine.step(state, [blob(numbered(of(3, entry(31_000, 2, 0))))], Reach(0)).state
    assert len(read) == 3
    found = shard.read(state)
    assert len(found.resting.pages) == 1
    assert sizes_of(found)["keys"] == 1 + resting.REST.page


def test_a_pass_that_is_due_wakes_its_topics_and_they_rest_again(read: list[int]) -> None:
    mine = job(backlogQuotaDefaultLimitBytes=1)
    step = mine.step(state_of_many(mine), [], Reach(T0 + 60_001))
    assert step.tables["backlog_checks"].num_rows == TOPICS
    assert len(shard.read(step.state).resting.key) >= TOPICS - 1
    read.clear()
    assert mine.step(step.state, [], Reach(T0 + 60_500)).tables == {}
    assert len(read) == 1
    assert step.wake_at_ms is not None and step.wake_at_ms <= T0 + 120_000


@pytest.mark.parametrize(
    "told", [policy(31_000, "namespace", "t/a", backlog_quota={}), record("broker_started", 31_000)]
)
def test_what_holds_for_all_wakes_all(told: dict[str, Any], read: list[int]) -> None:
    mine = job()
    state = state_of_many(mine)
    read.clear()
    state = mine.step(state, [blob(numbered([told]))], Reach(0)).state
    assert len(read) == 3
    assert len(shard.read(state).resting.key) == 0
    state = mine.step(state, [], Reach(T0 + 50_000)).state
    assert len(shard.read(state).resting.key) == TOPICS


def test_other_parameters_wake_all() -> None:
    state = state_of_many(job())
    step = job(backlogQuotaCheckIntervalInSeconds=1).step(state, [], Reach(T0 + 40_000))
    assert step.wake_at_ms is not None and step.wake_at_ms <= T0 + 41_000


def test_topics_of_one_hash_are_both_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "key_hashes", lambda columns, names: 0 * columns[1] + 7)
    mine = job()
    state = state_of_many(mine)
    state = mine.step(state, [blob(numbered(of(3, entry(31_000, 2, 0))))], Reach(0)).state
    assert sizes_of(shard.read(state))["keys"] == TOPICS


def test_producers_are_found_after_their_connections_have_other_numbers() -> None:
    mine = job()
    records = [{**created(0, i), "cnx_id": name} for name in "abc" for i in (1, 2)]
    state = mine.step(None, [blob(numbered(records))], Reach(0)).state
    other = Names()
    other.intern(pa.array(["c", "b", "a"]))
    page = shard.read(mine.step(state, [], Reach(T0 + 1)).state, into=other)
    rows = page.parts["producers"]
    names = [(other.get(int(row["connection"])), int(row["producer"])) for row in rows]
    assert sorted(names) == [(name, i) for name in "abc" for i in (1, 2)]
    found = table(TopicProducer, rows)
    a = np.int64(other.intern_one("a"))
    assert rows[find(found, (np.int64(0), a, np.int64(2)))].tolist() == (0, a, 2)
    assert find(found, (np.int64(0), a, np.int64(3))) == NOBODY
