"""The compiled limiter against rate_limits.json and what the class of Pulsar 4.2.4 did."""

from __future__ import annotations

from typing import Any

import pytest

from state.rate_limits import limiter as compiled
from state.rate_limits.bucket import PERIOD_NS, RESOLUTION_NS, SATURATING, balance_at, pause_of
from state.rate_limits.connection import open_producer
from state.rate_limits.flow import no_room
from state.rate_limits.layout import (
    BUCKET_EMPTY,
    LIMIT_REMOVED,
    NULL,
    RELEASED,
    TOPIC,
    Amount,
    Instant,
)
from state.rate_limits.store import new_world
from state.rate_limits.timers import pop_timer
from state.rate_limits.world import NO_OUT, extend, grow
from tests.unit.state.recorded import cases, vectors

VECTORS = "rate_limits.json"
RECORDED = "limiter-4.2.4.jsonl.gz"
START_NS = 100_000_000_000
MOST_PRODUCERS = 16
IDLE_NS = 3_600_000_000_000


class OneLimiter:
    """One topic limiter, driven without the order of a key: timers run `delay_ns` after they are
    due."""

    def __init__(self, msgs: int, size: int, delay_ns: int) -> None:
        w = extend(
            new_world(0, 1),
            topics=1,
            touched=1,
            cnxs=1,
            producers=MOST_PRODUCERS,
            links=1,
            limiters=1,
            buckets=2,
        )
        w.key["idle_ns"] = IDLE_NS
        w.producers["producer_id"] = range(MOST_PRODUCERS)
        w.limiters["kind"][1], w.limiters["name"][1] = TOPIC, 0
        w.limiters["limit_msgs"][1], w.limiters["limit_bytes"][1] = msgs, size
        w.topics["limiter"] = 1
        for p in range(MOST_PRODUCERS):
            open_producer(w, p, START_NS)
        self._w, self._o = w, NO_OUT
        self._delay_ns, self.now = delay_ns, START_NS
        compiled.use(w, 1, START_NS)

    def _room(self) -> None:
        while no_room(self._w, self._o, 1):
            self._w, self._o = grow(self._w, self._o)

    def _due(self) -> list[int]:
        timers = self._w.timers[: int(self._w.key["timers"][0])]
        return sorted(int(due) for due in timers["due_ns"])

    def _rows(self, since: int) -> list[Any]:
        return list(self._o.rows[since : int(self._w.key["rows"][0])])

    def publish(self, producer: int, messages: int, size: int) -> tuple[bool, int | None]:
        """Whether it throttles, and the delay of the release task if it schedules one."""
        self._room()
        before, since = len(self._due()), int(self._w.key["rows"][0])
        throttled = compiled.charge_limiter(
            self._w, self._o, Instant(self.now, 0, 0), 1, producer, 0, Amount(messages, size)
        )
        rows = self._rows(since)
        assert [int(r["producer"]) for r in rows] == [producer] * throttled
        assert all(r["rule"] == BUCKET_EMPTY for r in rows)
        pause = None
        if len(self._due()) > before:
            pause = int(rows[0]["pause_ns"])
            assert self.now + pause in self._due()
        else:
            assert not rows or rows[0]["waiting"] > 1
        return bool(throttled), pause

    def change(self, msgs: int | None, size: int | None) -> list[int]:
        """Delays of the tasks that a change of limits schedules."""
        self._room()
        before = self._due()
        compiled.change_limits(self._w, 1, msgs or 0, size or 0, self.now, True)
        after = self._due()
        for due in before:
            after.remove(due)
        return [due - self.now for due in after]

    def advance(self, to: int) -> list[tuple[int, list[int], int | None]]:
        """Tasks that run on the way: when, whom they release, the delay they come back with."""
        ran = []
        while self._due() and self._due()[0] + self._delay_ns <= to:
            self._room()
            at = self._due()[0] + self._delay_ns
            since = int(self._w.key["rows"][0])
            self.now = at
            delay = compiled.release(self._w, self._o, Instant(at, 0, 0), pop_timer(self._w)[1])
            rows = self._rows(since)
            assert all(int(r["ts_mono_ns"]) == at for r in rows)
            expected = RELEASED if self.has_bucket else LIMIT_REMOVED
            assert all(r["rule"] == expected for r in rows)
            ran.append((at, [int(r["producer"]) for r in rows], None if delay == NULL else delay))
        self.now = to
        return ran

    @property
    def has_bucket(self) -> bool:
        return bool((self._w.buckets["rate"][2:4] > 0).any())

    @property
    def waiting(self) -> int:
        return int(self._w.limiters["waiting"][1])

    def balances(self) -> list[int | None]:
        """Message and byte balance as a reading gives them, None without the bucket."""
        return [
            int(balance_at(b, self.now, PERIOD_NS, RESOLUTION_NS, SATURATING))
            if b["rate"] > 0
            else None
            for b in self._w.buckets[2:4]
        ]

    def read(self) -> list[int | None]:
        """The same by a reading, which may move the buckets."""
        _, balances = compiled.read_limiter(self._w, 1, self.now)
        return [
            int(value) if b["rate"] > 0 else None
            for value, b in zip(balances, self._w.buckets[2:4], strict=True)
        ]

    def pauses(self) -> list[int]:
        return [
            int(pause_of(b, balance, PERIOD_NS, SATURATING)) if balance is not None else 0
            for b, balance in zip(self._w.buckets[2:4], self.balances(), strict=True)
        ]


def events(one: OneLimiter, op: list[Any], start: int) -> list[Any]:
    """What one recorded operation answers; release tasks tell their time from the start."""
    if op[0] == "+":
        told: list[Any] = []
        for at, released, delay in one.advance(one.now + op[1]):
            told.append(["timer", at - start])
            told += [["unthrottle", producer, at - start] for producer in released]
            told += [["schedule", delay]] if delay is not None else []
        return [told]
    if op[0] == "pub":
        throttled, delay = one.publish(*op[1:])
        told = [["throttle", op[1]]] if throttled else []
        told += [["schedule", delay]] if delay is not None else []
    else:
        told = [["schedule", delay] for delay in one.change(op[1], op[2])]
    return [told, *one.read()]


def test_recorded_events_and_balances() -> None:
    for case in cases(RECORDED):
        one = OneLimiter(case["msgs"] or 0, case["bytes"] or 0, case["fire_delay_ns"])
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            assert events(one, op, START_NS) == expected, (case["id"], i, op)


@pytest.mark.parametrize("vector", vectors(VECTORS, "limiter"), ids=lambda v: v["id"])
def test_vector(vector: dict[str, Any]) -> None:
    p = vector["params"]
    assert p["start_ns"] == START_NS
    one = OneLimiter(p["rate_msgs"], p["rate_bytes"], 1)
    for step in vector["steps"]:
        assert _step(one, step) == step["expect"], step


def _step(one: OneLimiter, step: dict[str, Any]) -> dict[str, Any]:
    at = START_NS + step["offset_ns"]
    if step["op"] == "advance":
        return {
            "timers": [
                {"offset_ns": t - START_NS, "released": who, "rescheduled_ns": delay}
                for t, who, delay in one.advance(at)
            ]
        }
    assert one.advance(at) == []
    if step["op"] == "publish":
        throttled, delay = one.publish(step["producer"], step["messages"], step["bytes"])
        msgs, size = one.balances()
        return {
            "messages_ok": msgs is None or msgs > 0,
            "bytes_ok": size is None or size > 0,
            "throttle": throttled,
            "scheduled_ns": delay,
        }
    assert step["op"] == "state"
    (msgs, size), (pause_msgs, pause_size) = one.balances(), one.pauses()
    return {
        "balance_msgs": msgs,
        "balance_bytes": size,
        "pause_msgs_ns": pause_msgs,
        "pause_bytes_ns": pause_size,
        "pause_ns": max(pause_msgs, pause_size),
        "waiting": one.waiting,
    }
