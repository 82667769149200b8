"""Vectors of rate_limits.json played as whole traces: from records to rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.state.recorded import vectors
from tests.unit.state.trace import START_MS, START_NS, play, publish, record
from tests.unit.state.traces import document

VECTORS = "rate_limits.json"
A, B = "persistent://t/ns/a", "persistent://t/ns/b"
DRAIN_MS = 3_600_000


def topic_limit(name: str, msgs: int, size: int) -> str:
    return document("topic", name, publishRateInMsgs=msgs, publishRateInBytes=size)


def offset(row: dict[str, Any]) -> int:
    return int(row["ts_mono_ns"]) - START_NS


@pytest.mark.parametrize("vector", vectors(VECTORS, "limiter"), ids=lambda v: v["id"])
def test_limiter_in_a_trace(vector: dict[str, Any]) -> None:
    """RL8, RL16, RL17: marks, verdicts, pauses and the moments of release."""
    p = vector["params"]
    steps = [s for s in vector["steps"] if s["op"] == "publish"]
    trace = [
        publish(
            s["offset_ns"],
            topic=A,
            producer=s["producer"],
            messages=s["messages"],
            size=s["bytes"],
            seq=i,
        )
        for i, s in enumerate(steps)
    ]
    rows = play(
        [trace], policies=[topic_limit(A, p["rate_msgs"], p["rate_bytes"])], drain_ms=DRAIN_MS
    )
    verdicts = rows["publish_verdicts"]
    marks = [r for r in rows["throttle_events"] if r["action"] == "mark"]
    seen = []
    for s, v in zip(steps, verdicts, strict=True):
        throttle = not (v["messages_ok"] and v["bytes_ok"])
        scheduled = None
        if throttle:
            mark = marks.pop(0)
            assert (offset(mark), mark["producer_id"]) == (s["offset_ns"], s["producer"])
            if mark["waiting"] == 1:
                scheduled = mark["pause_model_ns"]
        seen.append(
            {
                "messages_ok": v["messages_ok"],
                "bytes_ok": v["bytes_ok"],
                "throttle": throttle,
                "scheduled_ns": scheduled,
            }
        )
    assert seen == [s["expect"] for s in steps]
    assert marks == []
    released: dict[int, list[int]] = {}
    for r in rows["throttle_events"]:
        if r["action"] == "unmark":
            released.setdefault(offset(r), []).append(r["producer_id"])
    tasks = [t for s in vector["steps"] if s["op"] == "advance" for t in s["expect"]["timers"]]
    assert released == {t["offset_ns"]: t["released"] for t in tasks if t["released"]}


def test_pause_counts_for_every_topic_of_the_connection() -> None:
    (vector,) = vectors(VECTORS, "attribution")
    assert vector["id"] == "RL13"
    names = {"A": A, "B": B}
    created = [
        record("producer_created", 0, seq=i, cnx_id="c1", topic=names[p["topic"]], producer_id=i)
        for i, p in enumerate(vector["given"]["producers"])
    ]
    pauses = [
        publish(1 + i, topic=names[p["topic"]], messages=10)
        for i, p in enumerate(vector["given"]["pauses"])
    ]
    rows = play([created + pauses], policies=[topic_limit(A, 10, 0)], drain_ms=DRAIN_MS)
    mark = rows["throttle_events"][0]
    assert mark["reason"] == vector["given"]["pauses"][0]["reason"]
    expected = vector["expect"]
    assert mark["culprit_topic"] == names[expected["culprit_topic"]]
    assert mark["collateral_topics"] == [names[t] for t in expected["collateral_topics"]]
    counted = {r["topic"]: r["limited_times"] for r in rows["topic_throttle_stats"]}
    assert counted == {names[t]: n for t, n in expected["limited_times"].items()}
    culprits = {r["topic"]: r["culprit_times"] for r in rows["topic_throttle_stats"]}
    assert culprits == {A: 1, B: 0}


def test_limit_removed_while_producers_wait_releases_at_once() -> None:
    (vector,) = vectors(VECTORS, "limit_change")
    assert vector["id"] == "RL14"
    waiting = vector["params"]["waiting_producers"]
    trace = [publish(0, topic=A, producer=1, messages=5000, seq=1)]
    trace += [publish(0, topic=A, producer=i, messages=0, seq=i) for i in range(2, waiting + 1)]
    gone = record("policy", 10_000_000, seq=9, policy_json=document("topic", A))
    rows = play([[*trace, gone]], policies=[topic_limit(A, 1000, 0)], drain_ms=DRAIN_MS)
    marks = [r for r in rows["throttle_events"] if r["action"] == "mark"]
    unmarks = [r for r in rows["throttle_events"] if r["action"] == "unmark"]
    assert marks[0]["pause_model_ns"] == vector["params"]["scheduled_in_ns"]
    assert len(unmarks) == vector["expect"]["immediate"]["released"]
    assert [offset(r) for r in unmarks] == [10_000_001] * waiting
    assert {r["rule"] for r in unmarks} == {"limit_removed"}


def _reason_policies(reason: str) -> list[str]:
    if reason == "TopicProduceQuotaExceeded":
        return [topic_limit(A, 1, 0)]
    if reason == "ResourceGroupProduceQuotaExceeded":
        return [
            document("namespace", "t/ns", resource_group="g"),
            document("resource_group", "g", publishRateInMsgs=1),
        ]
    limits = {
        "BrokerProduceQuotaExceeded": {"brokerPublisherThrottlingMaxMessageRate": 1},
        "ConnectionPendingMessagesBreach": {"maxPendingPublishRequestsPerConnection": 1},
        "MessageBufferSizeBreach": {
            "maxMessagePublishBufferSizeInMB": 1,
            "numIOThreads": 1024 * 1024,
        },
    }[reason]
    return [document("broker", "*", **limits)]


@pytest.mark.parametrize("vector", vectors(VECTORS, "pause_pip_ms"), ids=lambda v: v["id"])
def test_pause_asked_by_the_proposal(vector: dict[str, Any]) -> None:
    """RP1 to RP6: rest of the second for topic and group, 0 for the other reasons."""
    given = vector["given"]
    at_ms = given["ts_wall_ms"] - START_MS
    opened = record("connection_opened", at_ms * 1_000_000, seq=1, cnx_id="c1", io_thread=3)
    sent = publish(at_ms * 1_000_000, topic=A, size=2, seq=2)
    later = record("reads_resumed", (at_ms + 10_000) * 1_000_000, seq=3, cnx_id="c9")
    rows = play([[opened, sent, later]], policies=_reason_policies(given["reason"]))
    mark = rows["throttle_events"][0]
    assert mark["reason"] == given["reason"]
    assert mark["ts_wall_ms"] == given["ts_wall_ms"]
    assert mark["pause_pip_ms"] == vector["expect"]["pause_pip_ms"]
