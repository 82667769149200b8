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
from state.producer_ids.operator import ProducerIds
from tests.state import backlog_trace, chunk_trace, producer_id_trace
from tests.state.backlog_trace import (
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
from tests.state.shipping import Row, params_of, read_by

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
        *(r for i in range(9) for r in of(
            i, ledger(10, 1, 10, 1_000, T0), ledger(11, 2, 5, 500), cursor(12, "s", "1:3"),
            cursor(13, "reader", "1:0", durable=False), ack(14, "s", 1, 6 + i % 3),
            entry(20, 2, 5), created(30, i),
        )),
    ]
    second = of(1, entry(5_000, 2, 6), entry(5_400, 2, 7, broker_time_ms=T0 + 5_390))
    last = of(0, entry(6_000, 2, 7), cursor(9_000, "s", "2:1")) + of(2, created(8_000, 44))
    params = params_of("backlog", forecast_checks=3, apply_evictions=True, check_rows="all")
    return Case(
        Backlog(params, [document("topic", "t/a/3", **quota(1_200))]), [first, second], [last],
        {"backlog_checks", "backlog_evictions", "backlog_subscriptions"}, backlog_trace.blob,
    )


def producer_ids() -> Case:
    def batch(at_ms: int, user: str, pid: int, **columns: Any) -> Row:
        return record("produce_batch", at_ms, principal=f"User:{user}", producer_id=pid,
                      topic="orders", partition=1, client_id="app", **columns)

    first = [
        record("broker_started", 0, topic=None, seq=4),
        policy(0, "user", "alice", producer_ids_rate=2),
        *(batch(10 + i, user, i) for i in range(30) for user in ("alice", "bob")),
    ]
    second = [batch(5_000, "alice", 31), batch(5_400, "carol", 1, seq=9), batch(5_400, "alice", 3)]
    last = [batch(6_000, "alice", 2), batch(6_001, "bob", 77), batch(8_000, "carol", 1)]
    policies = [document("user", "<default>", producer_ids_rate=10),
                document("broker", "*", **{"producer.id.quota.window.num": 5})]
    return Case(
        ProducerIds(params_of("producer_ids"), policies), [first, second], [last],
        {"producer_id_decisions", "producer_id_stats"}, producer_id_trace.blob,
    )


def chunks() -> Case:
    def chunk(at_ms: int, uuid: str, number: int, of: int, entry_id: int, who: str = "c1") -> Row:
        return record(
            "dispatch", at_ms, subscription="s", consumer=who, sub_type="shared", ledger_id=1,
            entry_id=entry_id, entry_bytes=9, producer_name="p", sequence_id=7, uuid=uuid,
            chunk_id=number, num_chunks=of, total_chunk_bytes=4 * of,
            payload=uuid[:4].encode() if uuid < "m5" else None,
        )

    first = [
        record("consumer_created", 0, subscription="s", consumer="c1", sub_type="shared"),
        record("consumer_created", 0, subscription="s", consumer="c2", sub_type="shared"),
        *(chunk(10 + i, f"m{i:03}", 0, 3, 10 * i, f"c{1 + i % 2}") for i in range(8)),
        chunk(40, "m001", 1, 3, 11, "c2"), chunk(41, "m003", 0, 3, 30, "c2"),
        record("ack", 50, subscription="s", ledger_id=1, entry_id=20),
    ]
    second = [chunk(5_000, "m001", 2, 3, 12, "c2"), chunk(5_400, "m800", 1, 2, 90)]
    last = [chunk(6_000, "m002", 1, 3, 21), chunk(6_001, "m002", 2, 3, 22)]
    return Case(
        Chunks(params_of("chunks", assemble_payload=True)), [first, second], [last],
        {"chunk_events", "chunk_messages", "chunk_topic_stats", "chunk_state"}, chunk_trace.blob,
    )


CASES = {case.__name__: case for case in (backlog, producer_ids, chunks)}


VARYING = {"names", "name_lengths", "resting.pages"}
"""Arrays of which two states of one content may have different lengths."""


def layout(state: bytes) -> dict[str, Any]:
    """The arrays of a state."""
    about = codec.describe(state)
    arrays = {
        a["name"]: (a["fields"], None if a["name"] in VARYING else a["length"])
        for a in about["arrays"]
    }
    return {"job": about["job"], "version": about["version"], "arrays": arrays}


@pytest.mark.parametrize("name", CASES)
def test_a_state_of_an_earlier_release_goes_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REST, "page", 8)  # some topics of backlog rest
    monkeypatch.setattr(REST, "after_ms", 3000)
    case = CASES[name]()
    kept = base64.b64decode(json.loads(STATES.read_text("utf-8"))[name])
    now = case.state()
    assert layout(kept) == layout(now)
    rows = case.rows(kept)
    assert case.tables <= rows.keys()
    assert rows == case.rows(now)
