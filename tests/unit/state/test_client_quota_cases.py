"""The sensors and limits of `client_quotas` against the managers of Kafka 4.1.0, case by case.

A recorded case gives a manager quotas and charges with a clock set by hand. Doubles are compared to
the last bit.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from state.client_quotas import flow, levels, sensors, shard
from state.client_quotas import layout as L
from state.client_quotas.shared import BOUNDS, MEANING
from state.engine import kafka_quota
from state.events import QUOTA_TYPES
from tests.support import broker_quota
from tests.unit.state.recorded import cases

UNLIMITED = 9.223372036854776e18
CASES = [
    (type_, case)
    for type_, file in (
        ("produce", "quota-client-4.1.0.jsonl.gz"),
        ("request", "quota-request-4.1.0.jsonl.gz"),
        ("controller_mutation", "quota-mutation-4.1.0.jsonl.gz"),
    )
    for case in cases(file)
]


class Manager:
    """One quota type of one broker, with what the job runs for every request."""

    def __init__(self, type_: str, case: dict[str, Any], stat: str = "last_event") -> None:
        self._type = QUOTA_TYPES.index(type_)
        samples, window_ms = case["samples"], 1000 * case["window_s"]
        self._samples, self._window_ms = samples, window_ms
        self.ops = [tuple(op) for op in case["ops"]]
        names = {"": 0, "*": 1, "cluster": 2, "b1": 3}
        for op in self.ops:
            for name in op[1:3]:
                if isinstance(name, str):
                    names.setdefault(name, len(names))
        self._names, self._text = names, list(names)
        set_ = [op for op in self.ops if op[0] == "q"]
        meaning = np.zeros(len(set_), MEANING)
        for row, (_, user, client, bound) in zip(meaning, set_, strict=True):
            row["what"] = 1 + (2 if None not in (user, client) else 0 if client is None else 1)
            row["user"], row["client"] = (
                L.DEFAULT if name in (None, "<default>") else names[name] for name in (user, client)
            )
            for field in BOUNDS:
                row[field] = np.nan
            row[BOUNDS[self._type]] = np.nan if bound is None else bound
        ones = np.ones(len(set_), np.int64)
        records: Any = {"cluster": 2 * ones, "broker": 3 * ones, "ts_wall_ms": ones}
        self._pairs = {
            pair: i
            for i, pair in enumerate(
                dict.fromkeys(
                    (names[op[1]], names[op[2]]) for op in self.ops if op[0] not in ("q", "e")
                )
            )
        }
        pairs = np.array([(0, *pair) for pair in self._pairs] or [(0, 0, 0)], np.int64)
        settings = {
            "samples": samples,
            "window_ms": window_ms,
            "mutation_samples": samples,
            "mutation_window_ms": window_ms,
            "stat": kafka_quota.STATS.index(stat),
            "wraps": 1,
            "idle_ms": 2**62,
            "period_ms": 60_000,
            "stride": samples + 1,
            "empty": 0,
            "everywhere": 1,
        }
        keys = np.zeros(1, L.QuotaBroker.dtype)
        keys["cluster"], keys["broker"], keys["began"] = 2, 3, 1
        parts = {**shard.read(None).parts, "keys": keys}
        self.w = shard.unpack(parts, settings, pairs, shard.limits_of(records, meaning, 0))

    def _pair(self, user: str, client: str) -> int:
        pair = self._pairs[self._names[user], self._names[client]]
        if self.w.pair_version[pair] != self.w.links[0]["version"]:
            levels.resolve(self.w, pair)
        return pair

    def _sensor(self, pair: int, now: int) -> int:
        self.w = shard.more_room(self.w)
        return int(sensors.sensor_of(self.w, pair, self._type, now))

    def _tags(self, pair: int) -> dict[str, str]:
        user, client = self.w.pair_tags[pair, self._type].tolist()
        return {
            "client-id": self._text[client],
            "user": quote(self._text[user]).replace("/", "%2F"),
        }

    def _bound(self, pair: int) -> float:
        return float(self.w.pair_bound[pair, self._type])

    def _limit(self, pair: int) -> float:
        bound = self._bound(pair)
        return UNLIMITED if bound != bound else bound

    def _is_set(self) -> bool:
        return bool(self.w.keys[0]["kinds"])

    def answer(self, op: str, *given: Any) -> Any:
        return getattr(self, f"_{op}")(*given)

    def _q(self, user: str | None, client: str | None, bound: float | None) -> None:
        flow.take_shared(self.w, 0)
        if bound is None:
            # a broker removes what it has; this manager was also asked to remove what it had not,
            # and remembers the kind
            kind = L.OF_BOTH if None not in (user, client) else L.OF_USER if user else L.OF_CLIENT
            self.w.keys["kinds"] |= 1 << (3 * self._type + kind)
            self.w.links["version"] += 1

    def _e(self) -> bool:
        return self._is_set()

    def _l(self, user: str, client: str) -> float:
        return self._limit(self._pair(user, client))

    def _w(self, user: str, client: str) -> float:
        limit = self._limit(self._pair(user, client))
        if limit == UNLIMITED:
            return float(np.finfo(np.float64).max)
        return broker_quota.largest_in_window(limit, self._samples, self._window_ms)

    def _r(self, user: str, client: str, value: float, now: int) -> Any:
        pair = self._pair(user, client)
        s = self._sensor(pair, now)
        if self._type == L.MUTATION:
            _, throttle, _ = sensors.charge_tokens(self.w, s, value, now, self._bound(pair), True)
        else:
            _, _, throttle = sensors.charge_rate(
                self.w, s, self._type, value, now, self._bound(pair)
            )
        return [throttle, self._tags(pair)]

    def _m(self, user: str, client: str, now: int) -> float:
        pair = self._pair(user, client)
        s = self._sensor(pair, now)
        if self.w.sensors.rows[s]["used"] == 0:
            sensors.record(self.w, s, self._type, 0.0, now)  # a read makes the first sample, too
        return float(sensors.read_rate(self.w, s, self._type, now)[0])

    def _mutate(
        self, strict: bool, user: str, client: str, permits: list[float], now: int, later: int
    ) -> Any:
        pair = self._pair(user, client)
        s = self._sensor(pair, now)
        told: list[Any] = []
        last, exceeded = 0, False
        for value in permits:
            _, throttle, refused = sensors.charge_tokens(
                self.w, s, value, now, self._bound(pair), strict
            )
            told.append(throttle if refused else "ok")
            exceeded |= bool(refused)
            last = throttle or last
        return [
            told,
            exceeded,
            *(broker_quota.remaining_throttle(last, now, at) for at in (now, now + later)),
        ]

    def _s(self, *given: Any) -> Any:
        return self._mutate(True, *given)

    def _p(self, *given: Any) -> Any:
        return self._mutate(False, *given)


@pytest.mark.parametrize(
    ("type_", "case"), CASES, ids=[f"{type_}-{case['id']}" for type_, case in CASES]
)
def test_a_manager_of_kafka_answers_the_same(type_: str, case: dict[str, Any]) -> None:
    manager = Manager(type_, case)
    for i, (op, wanted) in enumerate(zip(manager.ops, case["out"], strict=True)):
        assert manager.answer(*op) == wanted, (i, op)
