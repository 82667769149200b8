"""States that an earlier release wrote are read and continued by this one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from state.backlog.operator import Backlog
from state.backlog.resting import REST
from state.chunks.operator import Chunks
from state.engine import codec
from state.engine.job import Job
from state.engine.records import FLAGS
from state.entry_cache.operator import EntryCache
from state.producer_ids.operator import ProducerIds
from state.rate_limits.operator import RateLimits
from tests.unit.state import backlog_trace, cache_trace, chunk_trace, producer_id_trace, trace
from tests.unit.state.backlog_trace import (
    T0,
    ack,
    created,
    cursor,
    document,
    entry,
    ledger,
    policy,
    quota,
    record,
)
from tests.unit.state.shipping import Row, params_of, read_by
from tests.unit.state.trace import publish
from tests.unit.state.trace import record as broker_record

STATES = Path(__file__).parent / "data" / "states.json"
"""By job the state that version 0.1.0 has after the first batches of its case (base64)."""


@dataclass(frozen=True)
class Case:
    """A job, the batches before its state was kept, and those after it."""

    job: Job
    before: Sequence[Sequence[Row]]
    after: Sequence[Sequence[Row]]
    tables: set[str]
    """What has rows after it."""
    blob: Callable[[Sequence[Row]], bytes]

    def state(self) -> bytes:
        """The state of this release where the kept one was written."""
        state = None
        for i, batch in enumerate(self.before):
            state = self.job.step(state, [self._blob(batch)], T0 + 1000 * i).state
        assert state is not None
        return state

    def rows(self, state: bytes) -> dict[str, list[Row]]:
        """What the rest of the case gives from a state on."""
        found: dict[str, list[Row]] = {}
        for batch, stream_ms in ((self.after[0], T0 + 3000), ([], T0 + 400_000)):
            step = self.job.step(state, [self._blob(batch)] if batch else [], stream_ms)
            state = step.state
            for name, table in step.tables.items():
                found.setdefault(name, []).extend(table.to_pylist())
        return found

    def _blob(self, batch: Sequence[Row]) -> bytes:
        return self.blob(read_by(self.job.name, batch))


def of(topic: int, *records: Row) -> list[Row]:
    return [{**r, "topic": f"persistent://t/a/{topic}"} for r in records]


def backlog() -> Case:
    first = [
        policy(0, "namespace", "t/a", **quota(50, 30, "consumer_backlog_eviction")),
        record("broker_started", 0, topic=None, seq=4),
        *(
            r
            for i in range(9)
            for r in of(
                i,
                ledger(10, 1, 10, 1_000, T0),
                ledger(11, 2, 5, 500),
                cursor(12, "s", "1:3"),
                cursor(13, "reader", "1:0", durable=False),
                ack(14, "s", 1, 6 + i % 3),
                entry(20, 2, 5),
                created(30, i),
            )
        ),
    ]
    second = of(1, entry(5_000, 2, 6), entry(5_400, 2, 7, broker_time_ms=T0 + 5_390))
    last = of(0, entry(6_000, 2, 7), cursor(9_000, "s", "2:1")) + of(2, created(8_000, 44))
    params = params_of("backlog", forecast_checks=3, apply_evictions=True, check_rows="all")
    return Case(
        Backlog(params, [document("topic", "t/a/3", **quota(1_200))]),
        [first, second],
        [last],
        {"backlog_checks", "backlog_evictions", "backlog_subscriptions"},
        backlog_trace.blob,
    )


def producer_ids() -> Case:
    def batch(at_ms: int, user: str, pid: int, **columns: Any) -> Row:
        return record(
            "produce_batch",
            at_ms,
            principal=f"User:{user}",
            producer_id=pid,
            topic="orders",
            partition=1,
            client_id="app",
            **columns,
        )

    first = [
        record("broker_started", 0, topic=None, seq=4),
        policy(0, "user", "alice", producer_ids_rate=2),
        *(batch(10 + i, user, i) for i in range(30) for user in ("alice", "bob")),
    ]
    second = [batch(5_000, "alice", 31), batch(5_400, "carol", 1, seq=9), batch(5_400, "alice", 3)]
    last = [batch(6_000, "alice", 2), batch(6_001, "bob", 77), batch(8_000, "carol", 1)]
    policies = [
        document("user", "<default>", producer_ids_rate=10),
        document("broker", "*", **{"producer.id.quota.window.num": 5}),
    ]
    return Case(
        ProducerIds(params_of("producer_ids"), policies),
        [first, second],
        [last],
        {"producer_id_decisions", "producer_id_stats"},
        producer_id_trace.blob,
    )


def chunks() -> Case:
    def chunk(at_ms: int, uuid: str, number: int, of: int, entry_id: int, who: str = "c1") -> Row:
        return record(
            "dispatch",
            at_ms,
            subscription="s",
            consumer=who,
            sub_type="shared",
            ledger_id=1,
            entry_id=entry_id,
            entry_bytes=9,
            producer_name="p",
            sequence_id=7,
            uuid=uuid,
            chunk_id=number,
            num_chunks=of,
            total_chunk_bytes=4 * of,
            payload=uuid[:4].encode() if uuid < "m5" else None,
        )

    first = [
        record("consumer_created", 0, subscription="s", consumer="c1", sub_type="shared"),
        record("consumer_created", 0, subscription="s", consumer="c2", sub_type="shared"),
        *(chunk(10 + i, f"m{i:03}", 0, 3, 10 * i, f"c{1 + i % 2}") for i in range(8)),
        chunk(40, "m001", 1, 3, 11, "c2"),
        chunk(41, "m003", 0, 3, 30, "c2"),
        record("ack", 50, subscription="s", ledger_id=1, entry_id=20),
    ]
    second = [chunk(5_000, "m001", 2, 3, 12, "c2"), chunk(5_400, "m800", 1, 2, 90)]
    last = [chunk(6_000, "m002", 1, 3, 21), chunk(6_001, "m002", 2, 3, 22)]
    return Case(
        Chunks(params_of("chunks", assemble_payload=True)),
        [first, second],
        [last],
        {"chunk_events", "chunk_messages", "chunk_topic_stats", "chunk_state"},
        chunk_trace.blob,
    )


def rate_limits() -> Case:
    def second(number: int) -> int:
        return number * 1_000_000_000

    def policy(at_s: int, scope: str, name: str, broker: str = "b1", **limits: int) -> Row:
        text = document(scope, name, **limits)
        return broker_record("policy", second(at_s), broker=broker, policy_json=text)

    def topic(i: int) -> str:
        return f"persistent://t/a/{i}"

    first = [
        broker_record("broker_started", 0, seq=4),
        policy(0, "namespace", "t/a", publishRateInMsgs=10),
        policy(1, "broker", "*", broker="*", maxPendingPublishRequestsPerConnection=3),
        # holds only later
        policy(7, "topic", "t/a/2", broker="*", publishRateInMsgs=1),
        *(
            publish(
                second(1) + i,
                topic(i % 4),
                f"c{i % 3}",
                i,
                9,
                broker=broker,
                seq=10 + i,
                io_thread=i % 2,
                supports_throttle=True,
            )
            for i in range(40)
            for broker in ("b1", "b2")
        ),
        *(
            broker_record(
                "entry_added",
                second(1) + 50 + i,
                seq=60 + i,
                topic=topic(i % 4),
                ledger_id=1,
                entry_id=i,
                entry_bytes=9,
            )
            for i in range(20)
        ),
        {**policy(8, "topic", "t/a/3", publishRateInMsgs=2), "ts_mono_ns": None},
    ]
    then = [publish(second(5) + i, topic(i), "c1", i, 50, seq=100 + i) for i in range(4)]
    then.append(publish(second(4), topic(5), "c7", broker="b3"))
    last = [
        publish(second(9) + i, topic(i % 4), f"c{i % 3}", i, 9, broker=broker, seq=200 + i)
        for i in range(20)
        for broker in ("b1", "b2")
    ]
    configured = [
        document("topic", "t/a/1", publishRateInMsgs=4),
        document("broker", "b2", brokerPublisherThrottlingMaxMessageRate=40),
    ]
    params = params_of(
        "rate_limits",
        extra_outputs=("publish_verdicts",),
        protocol="pip385",
        receipt_model="observed",
    )
    return Case(
        RateLimits(params, configured),
        [first, then],
        [last],
        {
            "throttle_events",
            "topic_throttle_stats",
            "limiter_stats",
            "producer_throttle",
            "publish_verdicts",
        },
        trace.blob,
    )


def entry_cache() -> Case:
    def added(at_ms: int, number: int, broker: str = "b1") -> Row:
        return in_cache("entry_added", at_ms, broker, ledger_id=1, entry_id=number, entry_bytes=90)

    def in_cache(kind: str, at_ms: int, broker: str = "b1", **columns: Any) -> Row:
        return broker_record(
            kind, at_ms * 1_000_000, topic="persistent://t/a/1", broker=broker, **columns
        )

    def policy(at_ms: int, name: str, broker: str, **limits: Any) -> Row:
        text = document("broker", name, **limits)
        return {**in_cache("policy", at_ms, broker, policy_json=text), "topic": None}

    def read(at_ms: int, number: int, subscription: str, broker: str = "b1") -> Row:
        return in_cache(
            "dispatch",
            at_ms,
            broker,
            ledger_id=1,
            entry_id=number,
            entry_bytes=90,
            subscription=subscription,
        )

    first = [
        {**in_cache("broker_started", 0, seq=4), "topic": None},
        policy(1, "*", "*", managedLedgerCacheEvictionTimeThresholdMillis=2_000),
        policy(7_000, "*", "*", managedLedgerCacheEvictionTimeThresholdMillis=300),
        *(
            in_cache(
                "cursor_state", 2, broker, subscription=s, read_pos="1:0", durable=True, active=True
            )
            for s in ("s", "t")
            for broker in ("b1", "b2")
        ),
        policy(3, "b2", "b2", managedLedgerCacheEvictionIntervalMs=50),
        *(added(10 + i, i, broker) for i in range(40) for broker in ("b1", "b2")),
        *(read(60 + i, i, "s") for i in range(30)),
        in_cache("replay_queued", 100, subscription="s", ledger_id=1, entry_id=3),
        {**policy(8_000, "b1", "b1", managedLedgerCacheEvictionIntervalMs=20), "ts_mono_ns": None},
    ]
    then = [*(added(5_000 + i, 40 + i) for i in range(6)), added(4_000, 0, "b3")]
    last = [read(6_000 + i, 20 + i, s) for i in range(26) for s in ("s", "t")]
    last += [added(9_000 + i, 50 + i) for i in range(9)]
    variants = [{"policy": p, "max_bytes": 3_000} for p in ("expected_reads_stash", "proportional")]
    params = params_of(
        "entry_cache", extra_outputs=("cache_evictions", "cache_reads"), variants=variants
    )
    configured = [document("broker", "b1", managedLedgerCacheEvictionTimeThresholdMillisMax=4_000)]
    return Case(
        EntryCache(params, configured),
        [first, then],
        [last],
        {"cache_stats", "cache_evictions", "cache_reads"},
        cache_trace.blob,
    )


CASES = {case.__name__: case for case in (backlog, producer_ids, chunks, rate_limits, entry_cache)}


VARYING = {"names", "name_lengths", "resting.pages"}
"""Arrays of which two states of one content may have different lengths."""


ADDED = {
    "rate_limits": (),
    "chunks": (),
    "producer_ids": (),
    "backlog": (
        *(
            f"cursors.{field}"
            for field in (
                "answered_ms",
                "waits",
                "transaction",
                "producer",
                "begun_ms",
                "told",
                "client",
                "host",
                "type",
                "group_epoch",
                "assignment_epoch",
            )
        ),
        *(
            f"{part}.{column}"
            for part in ("waiting", "shared")
            for column in (
                "client_id",
                "client_host",
                "group_type",
                "group_epoch",
                "assignment_epoch",
            )
        ),
    ),
    "entry_cache": (),
}
"""Arrays, and fields of arrays, that states have got since, without another version: a state that
is older reads as one without gaps."""


WIDER = {
    "name_lengths": "<i4",
    "resting.pages": "|u1",
    **{f"{part}.{flag}": "|i1" for part in ("waiting", "shared") for flag in FLAGS},
}
"""Arrays that had elements of another type before."""


def layout(state: bytes) -> dict[str, Any]:
    """The arrays of a state."""
    about = codec.describe(state)
    arrays = {
        a["name"]: (a["fields"], None if a["name"] in VARYING else a["length"])
        for a in about["arrays"]
    }
    return {"job": about["job"], "version": about["version"], "arrays": arrays}


def without(found: dict[str, Any], added: Sequence[str]) -> dict[str, Any]:
    """A layout as it was before arrays (`name`, `name.` for each of its columns) and fields
    (`name/field`) were added or became wider."""
    arrays = {
        name: (
            [[f[0], WIDER.get(name, f[1]), f[2]] for f in fields if f"{name}/{f[0]}" not in added],
            length,
        )
        for name, (fields, length) in found["arrays"].items()
        if not any(name == one or (one.endswith(".") and name.startswith(one)) for one in added)
    }
    return {**found, "arrays": arrays}


@pytest.mark.parametrize("name", CASES)
def test_a_state_of_an_earlier_release_goes_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REST, "page", 8)  # some topics of backlog rest
    monkeypatch.setattr(REST, "after_ms", 3000)
    case = CASES[name]()
    kept = base64.b64decode(json.loads(STATES.read_text("utf-8"))[name])
    now = case.state()
    assert layout(kept) == without(layout(now), ADDED[name])
    rows = case.rows(kept)
    assert case.tables <= rows.keys()
    assert rows == case.rows(now)
