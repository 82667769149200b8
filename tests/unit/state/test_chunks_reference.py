"""The vectors of chunks and a released client against core and reference, and its invariants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.reference.chunks import (
    TABLES,
    Consumer,
    Topic,
    is_chunk,
    judge,
    keys_of,
    position_of,
    records_of,
)
from tests.reference.words import words
from tests.support.effort import drawn
from tests.unit.state.chunk_core import CoreConsumer
from tests.unit.state.chunk_traces import Trace, traces
from tests.unit.state.recorded import cases, vectors

VECTORS = "chunks.json"
RECORDED = "chunk-cases-4.2.4.jsonl.gz"
UPSTREAM = ["B1", "B2", "B3", "B4", "B7", "B8"]
NOW_MS = 1_000_000
OLD_MS = 100_000


def ids(values: list[dict[str, Any]]) -> list[str]:
    return [v["id"] for v in values]


CHOSEN = vectors(VECTORS, "consumer")
CASES = cases(RECORDED)


@pytest.fixture(params=[Consumer, CoreConsumer], ids=["reference", "core"])
def client(request: pytest.FixtureRequest) -> type[Consumer] | type[CoreConsumer]:
    """Both implementations answer alike."""
    return request.param


@pytest.mark.parametrize("vector", CHOSEN, ids=ids(CHOSEN))
def test_vectors(vector: dict[str, Any], client: type[Consumer] | type[CoreConsumer]) -> None:
    consumer = client(vector["params"])
    for i, step in enumerate(vector["steps"]):
        got: dict[str, Any] = {}
        if step["op"] == "sweep":
            swept = consumer.sweep(step["now_ms"])
            got["acks"] = [p for d in swept for p in d.acks]
            got["side_effects"] = [d.outcome for d in swept]
        else:
            answer = consumer.chunk(
                step["uuid"],
                step["chunk_id"],
                step["num_chunks"],
                step["position"],
                step["total_bytes"],
                step["bytes"],
                step["now_ms"],
                step.get("publish_time_ms"),
            )
            got |= {
                name: getattr(answer, name)
                for name in words("outcome acks tracked permits side_effects")
            }
            if answer.message is not None:
                positions = answer.message.positions
                got |= {
                    "first": positions[0],
                    "last": positions[-1],
                    "assembled_bytes": answer.message.buffered,
                }
        got |= {
            "contexts": list(consumer.contexts),
            "counter": consumer.counter,
            "fifo": consumer.fifo,
        }
        expected = step["expect"]
        assert {name: got.get(name) for name in expected} == expected, i


class RecordedClient:
    """An exclusive consumer with its broker, as the cases were recorded."""

    def __init__(self, case: dict[str, Any], client: type[Consumer] | type[CoreConsumer]) -> None:
        self.consumer = client(
            {
                "maxPendingChunkedMessage": case["max_pending"],
                "autoAckOldestChunkedMessageOnQueueFull": case["auto_ack_oldest"],
                "expireTimeOfIncompleteChunkedMessageMillis": case["expire_ms"],
                "defects": UPSTREAM,
            }
        )
        self._entries: list[tuple[Any, ...]] = []
        self._acked: set[int] = set()
        self._tracker: set[str] = set()
        self._out: dict[str, Any] = {}

    def step(self, op: list[Any]) -> dict[str, Any]:
        """What the client showed after an operation; `permits` of this step alone."""
        before = set(self._tracker)
        self._out = {"received": [], "acked": [], "permits": 0, "outcomes": []}
        if op[0] in ("c", "o"):
            self._entries.append((*op[1:], NOW_MS - (OLD_MS if op[0] == "o" else 0)))
            self._deliver(len(self._entries) - 1)
        elif op[0] == "redeliver":
            self._tracker = set()
            for entry in [e for e in range(len(self._entries)) if e not in self._acked]:
                self._deliver(entry)
        elif op[0] == "age":
            if op[1] in self.consumer.contexts:
                self.consumer.contexts[op[1]].received_ms -= op[2]
        elif op[0] == "sweep":
            for decision in self.consumer.sweep(NOW_MS):
                self._acknowledge(decision.acks)
        return {
            **self._out,
            "acked": sorted(self._out["acked"], key=_number),
            "tracked": sorted(self._tracker - before, key=_number),
            "map": {u: c.last for u, c in self.consumer.contexts.items()},
            "count": self.consumer.counter,
            "queue": list(self.consumer.fifo),
        }

    def _deliver(self, entry: int) -> None:
        uuid, chunk_id, num_chunks, total, size, published = self._entries[entry]
        answer = self.consumer.chunk(
            uuid, chunk_id, num_chunks, f"e{entry}", total, size, NOW_MS, published
        )
        self._out["permits"] += answer.permits
        self._out["outcomes"].append(answer.outcome)
        self._acknowledge(answer.acks)
        self._tracker |= set(answer.tracked)
        if answer.message is not None:
            positions = answer.message.positions
            received = [positions[0], positions[-1], answer.message.buffered]
            self._out["received"].append(received)
            self._tracker.add(positions[-1])

    def _acknowledge(self, positions: list[str]) -> None:
        # the recording lists what was not acknowledged before
        self._out["acked"] += [p for p in positions if _number(p) not in self._acked]
        self._acked |= {_number(p) for p in positions}
        self._tracker -= set(positions)


def _number(position: str) -> int:
    return int(position[1:])


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_recorded(case: dict[str, Any], client: type[Consumer] | type[CoreConsumer]) -> None:
    recorded, permits = RecordedClient(case, client), 0
    for i, (op, out) in enumerate(zip(case["ops"], case["out"], strict=True)):
        got = recorded.step(op)
        if out["error"] == "TIMEOUT":
            assert got["outcomes"][-1] in ("OVERFLOW_EXCEPTION", "COUNT_EXCEPTION")
            return
        names = ("received", "acked", "tracked", "map", "count", "queue")
        expected = {name: out[name] for name in names}
        expected["acked"] = sorted(expected["acked"], key=_number)
        expected["tracked"] = sorted(expected["tracked"], key=_number)
        assert {name: got[name] for name in names} == expected, (i, op)
        if op[0] in ("c", "o"):
            returned = out["permits"] - permits - 1 - len(out["received"])
            assert got["permits"] == returned, (i, op)
        permits = out["permits"]


# -- random traces ---------------------------------------------------------------------------


class Whereabouts:
    """Where the chunks of one topic's ordered subscriptions are, kept from rows and buffers."""

    def __init__(self, topic: Topic, ordered: set[str]) -> None:
        self._topic, self._ordered = topic, ordered
        self._read = 0
        self._messages = 0
        self._consumer: dict[tuple[str, str], str] = {}
        """Consumer that a position was delivered to last."""
        self._settled: dict[tuple[str, str], str] = {}
        self._overflowed: set[tuple[str, str]] = set()
        """Kept by a buffer until the same chunk comes again and takes their place."""

    def deliver(self, record: dict[str, Any]) -> None:
        """A chunk is on its way: what became of an earlier delivery does not matter."""
        place = (record["subscription"], position_of(record))
        self._consumer[place] = record["consumer"]
        self._settled.pop(place, None)

    def check(self) -> None:
        """After a record or a timer every position is in one place; if a buffer lost some, a
        decision that loses them was made."""
        rows = self._topic.rows["chunk_events"][self._read :]
        self._read += len(rows)
        for row in rows:
            if row["subscription"] in self._ordered:
                for column in ("acks", "tracked", "orphaned"):
                    for position in row[column]:
                        self._settle(row, position, column)
                if row["outcome"] == "OVERFLOW_EXCEPTION":
                    self._overflowed.add((row["subscription"], row["position"]))
                if row["outcome"] == "ALREADY_ACKED":
                    # dropped, whatever a buffer keeps of an earlier delivery
                    self._consumer.pop((row["subscription"], row["position"]), None)
        done = self._topic.rows["chunk_messages"][self._messages :]
        self._messages += len(done)
        for row in done:
            for position in row["positions"]:
                self._settle(row, position, "completed")
        held = self._now_held()
        lost = {
            place for place in self._consumer if place not in held and place not in self._settled
        }
        for place in lost:
            self._settled[place] = "awaited"
        loses = {"RESTART_REDELIVERY", "COUNT_EXCEPTION"}
        if not any(row["outcome"] in loses for row in rows):
            assert lost <= self._overflowed, lost
        assert not held & set(self._settled), held & set(self._settled)

    def _settle(self, row: dict[str, Any], position: str, where: str) -> None:
        place = (row["subscription"], position)
        if self._consumer.get(place) == row["consumer"]:
            assert place not in self._settled, (place, where, self._settled[place])
            self._settled[place] = where

    def _now_held(self) -> set[tuple[str, str]]:
        found = [
            (name, position)
            for name in self._ordered
            if name in self._topic.subscriptions
            for seat in self._topic.subscriptions[name].seats.values()
            for context in seat.judge.contexts.values()
            for position in context.positions
            if self._consumer.get((name, position)) == seat.name
        ]
        assert len(found) == len(set(found)), found
        return set(found)


@drawn(50)
@given(traces())
def test_every_chunk_of_an_ordered_subscription_is_in_one_place(trace: Trace) -> None:
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
    seen = [r for r in trace.records if r["event_type"] != "gap"]  # what one hides is in no place
    for key in keys_of(seen):
        records = records_of(seen, key)
        topic = Topic(*key, trace.params)
        ordered = {r["subscription"] for r in records if "subscription" in r}
        ordered -= {r["subscription"] for r in records if r.get("sub_type") == "shared"}
        places = Whereabouts(topic, ordered)
        for record in records:
            topic.advance(record["ts_wall_ms"], record)
            places.check()
            delivers = record["event_type"] == "dispatch" and is_chunk(record)
            if delivers and record["subscription"] in ordered:
                places.deliver(record)
            topic.take(record)
            places.check()
        topic.advance(trace.end_ms)
        places.check()
        for table, found in topic.rows.items():
            rows[table] += found
    assert rows == judge(seen, trace.params, trace.end_ms)
    for row in rows["chunk_events"]:
        assert row["leaked"] == row["counter"] - row["contexts"]
        if "B1" not in trace.params["defects"]:
            assert row["leaked"] == 0
