"""Kafka's quota arithmetic, compiled, against producer_ids.json and the classes of 4.1.0 and 3.7.2.

Doubles are compared to the last bit wherever they were recorded.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any
from urllib.parse import quote

import numba
import numpy as np
import pytest

from state.engine import kafka_quota
from state.producer_ids import flow, outputs, quota, shard
from state.producer_ids import layout as L
from state.producer_ids.layout import World
from state.producer_ids.shared import Timeline
from tests.reference import producer_ids as reference
from tests.support import broker_quota
from tests.unit.state.recorded import cases, vectors

VECTORS = "producer_ids.json"
NO_BOUND = float("nan")
RATES = (("last_event", "rate-4.1.0.jsonl.gz"), ("start_time", "rate-3.7.2.jsonl.gz"))
MANAGERS = ("quota-client-4.1.0.jsonl.gz", "quota-request-4.1.0.jsonl.gz")
MUTATION = "quota-mutation-4.1.0.jsonl.gz"
T0 = 1_000_000_000_000
LONG = quota.UNLIMITED["long"]


@numba.njit
def _tokens_at(w, key, now, bound, samples, window_ms):
    return kafka_quota.tokens_at(w.keys[key], now, bound, samples, window_ms)


@numba.njit
def _read_tokens(w, key, now, bound, samples, window_ms):
    return kafka_quota.read_tokens(w.keys[key], now, bound, samples, window_ms)


class Users:
    """Keys of a shard as the kernel has them, with the parameters that decide about quotas."""

    def __init__(
        self,
        count: int,
        math: str,
        samples: int,
        window_ms: int,
        stat: str = "last_event",
        idle_ms: int = 2**62,
    ) -> None:
        turns = np.zeros(1, L.TURN)
        turns["samples"], turns["span_ms"] = samples, window_ms
        none = np.full((count, 3), -1, np.int64)
        bounds = np.zeros(2, np.int64)
        timeline = Timeline(
            turns,
            np.array([0, 1]),
            np.zeros(count, np.int64),
            none,
            none[:1],
            bounds,
            bounds[:0],
            np.zeros(0),
            bounds[:0],
        )
        settings = {
            "math": quota.MATHS.index(math),
            "stat": kafka_quota.STATS.index(stat),
            "idle_ms": idle_ms,
        }
        parts = {**shard.read(None).parts, "keys": np.zeros(count, L.User.dtype)}
        self.w = shard.unpack(parts, settings, timeline)
        self.w.links["turn"] = 1
        for key in range(count):
            flow.new_sensor(self.w, key)

    def roomy(self) -> World:
        """The arrays, with room for one more block."""
        self.w = shard.more_room(self.w)
        return self.w


class Sensor:
    """The quota of one key, driven by what the job runs for every unseen id."""

    def __init__(
        self,
        math: str,
        samples: int,
        window_ms: int,
        bound: float | None,
        stat: str = "last_event",
        idle_ms: int = 2**62,
    ) -> None:
        self.users = Users(1, math, samples, window_ms, stat, idle_ms)
        self._shape = (samples, window_ms)
        self.set_bound(bound)

    def set_bound(self, bound: float | None) -> None:
        self.bound = NO_BOUND if bound is None else float(bound)

    def record(self, value: float, now: int) -> None:
        flow.record(self.users.roomy(), 0, float(value), now, self.bound)

    def violation(self, now: int) -> tuple[bool, int]:
        return flow.violation(self.users.roomy(), 0, now, self.bound)

    def charge(self, value: float, now: int, enforcement: str) -> tuple[str, int]:
        w = self.users.roomy()
        w.settings["enforcement"] = kafka_quota.ENFORCEMENTS.index(enforcement)
        verdict, throttle_ms = flow.charge(w, 0, float(value), now, self.bound)
        return outputs.VERDICTS[verdict], throttle_ms

    def tokens(self, now: int) -> float:
        """The balance; reading refills, and a look at it just before sees the same."""
        w, before = self.users.w, self.users.w.keys.copy()
        looked = _tokens_at(w, 0, now, self.bound, *self._shape)
        if self.bound == self.bound:
            assert flow.levels(w, 0, now, self.bound)[1] == looked
        assert (w.keys == before).all()
        assert looked == _read_tokens(w, 0, now, self.bound, *self._shape)
        return looked

    def rate(self, now: int) -> tuple[float, int]:
        """Rate and window; reading resets, and a look at them just before sees the same."""
        w, before = self.users.roomy(), self.samples()
        looked = flow.levels(w, 0, now, self.bound)[0]
        assert self.samples() == before
        read = flow.read_rate(w, 0, now)
        assert looked == read[0]
        return read

    def samples(self) -> list[list[float]]:
        """Start, last event and sum of each sample."""
        w = self.users.w
        at = int(w.links[0]["sample_at"])
        return [
            [int(w.sample_start[i]), int(w.sample_last[i]), float(w.sample_total[i])]
            for i in range(at, at + int(w.keys[0]["used"]))
        ]


class ReferenceSensor:
    """The same of the reference."""

    def __init__(
        self, math: str, samples: int, window_ms: int, bound: float | None, stat: str = "last_event"
    ) -> None:
        self._sensor = reference.Sensor()
        self._by = reference.Rules(samples, window_ms, bound, math, stat)

    def set_bound(self, bound: float | None) -> None:
        self._by.bound = bound

    def record(self, value: float, now: int) -> None:
        self._sensor.record(value, now, self._by)

    def violation(self, now: int) -> tuple[bool, int]:
        return self._sensor.violation(now, self._by)

    def charge(self, value: float, now: int, enforcement: str) -> tuple[str, int]:
        return self._sensor.charge(value, now, self._by, enforcement)

    def tokens(self, now: int) -> float:
        return self._sensor.tokens(now, self._by)

    def rate(self, now: int) -> tuple[float, int]:
        return self._sensor.rate(now, self._by)

    def samples(self) -> list[list[float]]:
        return [[s.start, s.last, s.total] for s in self._sensor.samples]


Made = type[Sensor] | type[ReferenceSensor]


@pytest.fixture(params=[Sensor, ReferenceSensor], ids=["core", "reference"])
def make(request: pytest.FixtureRequest) -> Made:
    """Both implementations answer alike."""
    return request.param


@pytest.mark.parametrize(("stat", "file"), RATES)
def test_recorded_rates(stat: str, file: str, make: Made) -> None:
    compared = 0
    for case in cases(file):
        s = make("sampled_rate", case["samples"], case["window_ms"], case["bound"], stat)
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            where = (case["id"], i, op)
            if op[0] == "q":
                s.set_bound(op[1])
                continue
            now = op[-1]
            if op[0] in ("r", "c"):
                s.record(op[1], now)
            if op[0] == "r":
                continue
            violated, throttle_ms = s.violation(now)
            rate, window_ms = s.rate(now)
            seen = (
                [violated, rate, throttle_ms, min(throttle_ms, 1000)]
                if violated
                else [False, None, None, None]
            )
            for got, told in zip([*seen, rate, window_ms], expected[:6], strict=True):
                assert told == "absent" or got == told, where
            if len(expected) > 6:
                compared += 1
                assert [
                    [start, last if stat == "last_event" else None, total]
                    for start, last, total in s.samples()
                ] == [[start, last, total] for start, last, _, total in expected[6]], where
    assert compared == 260


def test_recorded_buckets(make: Made) -> None:
    for case in cases("bucket-4.1.0.jsonl.gz"):
        s = make("token_bucket", case["samples"], case["window_ms"], case["bound"])
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            if op[0] == "q":
                s.set_bound(op[1])
                continue
            now = op[-1]
            if op[0] in ("r", "c"):
                s.record(op[1], now)
            if op[0] == "r":
                continue
            violated, _ = s.violation(now)
            tokens = s.tokens(now)
            assert [violated, tokens if violated else None, tokens] == expected, (case["id"], i, op)


DEFAULT = "<default>"
Entity = tuple[str | None, str | None]


class Manager:
    """Users and clients with their quotas, and a sensor for each set of tags."""

    def __init__(self, make: Made, math: str, samples: int, window_ms: int) -> None:
        self.make, self.shape = make, (math, samples, window_ms)
        self._quotas: dict[Entity, float] = {}
        self.kinds: set[tuple[bool, bool]] = set()
        self._sensors: dict[tuple[str, str], Sensor | ReferenceSensor] = {}

    def set(self, user: str | None, client: str | None, bound: float | None) -> None:
        user = user if user in (None, DEFAULT) else _sanitised(user)
        self.kinds.add((user is not None, client is not None))  # by a removal too
        if bound is None:
            self._quotas.pop((user, client), None)
        else:
            self._quotas[user, client] = bound

    def matched(self, user: str, client: str) -> Entity | None:
        """The entity whose quota is met first."""
        user = _sanitised(user)
        search: list[Entity] = [
            (user, client),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client),
            (None, DEFAULT),
        ]
        if len(self.kinds) < 2:
            kind = next(iter(self.kinds), (False, True))
            search = [e for e in search if (e[0] is not None, e[1] is not None) == kind]
        return next((e for e in search if e in self._quotas), None)

    def bound(self, user: str, client: str) -> float:
        entity = self.matched(user, client)
        return LONG if entity is None else self._quotas[entity]

    def tags(self, user: str, client: str) -> tuple[str, str]:
        """User and client of the sensor; empty for one that is not a tag."""
        entity: tuple[Any, Any] | None = self.matched(user, client)
        if len(self.kinds) < 2:
            by_user, by_client = next(iter(self.kinds), (False, True))
            entity = (by_user or None, by_client or None)
        elif entity is None:
            return "", client
        return ("" if entity[0] is None else _sanitised(user), "" if entity[1] is None else client)

    def sensor(self, user: str, client: str) -> Sensor | ReferenceSensor:
        s = self._sensors.setdefault(self.tags(user, client), self.make(*self.shape, None))
        s.set_bound(self.bound(user, client))
        return s


def _sanitised(user: str) -> str:
    return quote(user, safe="-._~")


def _about(m: Manager, op: list[Any]) -> Any:
    """What operations on quotas alone answer."""
    samples, window_ms = m.shape[1:]
    if op[0] == "e":
        return bool(m.kinds)
    if op[0] == "l":
        return m.bound(*op[1:])
    if op[0] == "w":
        if m.matched(*op[1:]) is None:
            return float(np.finfo(float).max)
        return broker_quota.largest_in_window(m.bound(*op[1:]), samples, window_ms)
    assert op[0] == "q"
    m.set(*op[1:])
    return None


@pytest.mark.parametrize("file", MANAGERS)
def test_recorded_managers_that_record_then_check(file: str, make: Made) -> None:
    for case in cases(file):
        window_ms = case["window_s"] * 1000
        m = Manager(make, "sampled_rate", case["samples"], window_ms)
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            if op[0] == "m":
                got: Any = m.sensor(*op[1:3]).rate(op[3])[0]
            elif op[0] == "r":
                user, client = m.tags(*op[1:3])
                _, throttle_ms = m.sensor(*op[1:3]).charge(op[3], op[4], "permissive")
                if case["kind"] == "request":
                    throttle_ms = min(throttle_ms, window_ms)
                got = [
                    kafka_quota.reported_throttle(throttle_ms, True),
                    {"client-id": client, "user": user},
                ]
            else:
                got = _about(m, op)
            assert got == expected, (case["id"], i, op)


def test_recorded_requests_strict_and_permissive(make: Made) -> None:
    for case in cases(MUTATION):
        m = Manager(make, "token_bucket", case["samples"], case["window_s"] * 1000)
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            where = (case["id"], i, op)
            if op[0] == "m":
                assert m.sensor(*op[1:3]).rate(op[3])[0] == expected, where
                continue
            if op[0] == "r":
                user, client = m.tags(*op[1:3])
                _, throttle_ms = m.sensor(*op[1:3]).charge(op[3], op[4], "strict")
                assert [
                    kafka_quota.reported_throttle(throttle_ms, True),
                    {"client-id": client, "user": user},
                ] == expected, where
                continue
            if op[0] not in ("s", "p"):
                assert _about(m, op) == expected, where
                continue
            _, user, client, permits, now, later = op
            answers: list[Any] = []
            last = 0
            for value in permits:
                verdict, throttle_ms = m.sensor(user, client).charge(
                    value, now, "strict" if op[0] == "s" else "permissive"
                )
                last = throttle_ms or last
                answers.append(
                    kafka_quota.reported_throttle(throttle_ms, True)
                    if verdict == "rejected"
                    else "ok"
                )
            seen = [
                answers,
                op[0] == "s" and last > 0,  # permissive requests never say so
                kafka_quota.reported_throttle(
                    broker_quota.remaining_throttle(last, now, now), True
                ),
                kafka_quota.reported_throttle(
                    broker_quota.remaining_throttle(last, now, now + later), True
                ),
            ]
            assert seen == expected, where


def _close(params: dict[str, Any], value: float) -> Any:
    return pytest.approx(value, abs=params.get("tolerance", 0.0), rel=0.0)


@pytest.mark.parametrize("stat", kafka_quota.STATS)
@pytest.mark.parametrize("vector", vectors(VECTORS, "sampled_rate"), ids=lambda v: v["id"])
def test_sampled_rate_vector(vector: dict[str, Any], stat: str, make: Made) -> None:
    p, given = vector["params"], vector["given"]
    s = make("sampled_rate", p["samples"], p["sample_ms"], None, stat)
    for r in given["records"]:
        s.record(r["value"], r["at_ms"])
    for read, expect in zip(given["reads"], vector["expect"][stat], strict=True):
        rate, window_ms = s.rate(read["at_ms"])
        assert (rate, window_ms) == (_close(p, expect["rate"]), expect["window_ms"])
        for bound in read["bounds"]:
            s.set_bound(bound)
            assert s.violation(read["at_ms"])[1] == expect["throttle_ms"][str(bound)]


@pytest.mark.parametrize("stat", kafka_quota.STATS)
@pytest.mark.parametrize("vector", vectors(VECTORS, "sampled_rate_read"), ids=lambda v: v["id"])
def test_sampled_rate_read_vector(vector: dict[str, Any], stat: str, make: Made) -> None:
    p, given = vector["params"], vector["given"]
    for reads in ("with_read_between", "without"):
        s = make("sampled_rate", p["samples"], p["sample_ms"], None, stat)
        first, second = given["records"]
        s.record(first["value"], first["at_ms"])
        if reads == "with_read_between":
            s.rate(given["read_between_at_ms"])
        s.record(second["value"], second["at_ms"])
        rate, window_ms = s.rate(given["read_at_ms"])
        expect = vector["expect"][reads][stat]
        assert (rate, window_ms) == (_close(p, expect["rate"]), expect["window_ms"])


@pytest.mark.parametrize("vector", vectors(VECTORS, "token_bucket"), ids=lambda v: v["id"])
def test_token_bucket_vector(vector: dict[str, Any], make: Made) -> None:
    p = vector["params"]
    s = make("token_bucket", p["samples"], p["sample_s"] * 1000, p["bound_per_s"])
    throttled = decided = 0
    for step in vector["steps"]:
        now, expect = step["at_ms"], step["expect"]
        if step["op"] == "set_bound":
            s.set_bound(step["bound_per_s"])
        elif step["op"] == "tokens":
            assert s.tokens(now) == expect["tokens"], step
        elif step["op"] == "wait":
            left = broker_quota.remaining_throttle(throttled, decided, now)
            assert left == expect["throttle_ms"], step
        else:
            verdict, throttled = s.charge(step["value"], now, p["enforcement"])
            decided = now
            assert {
                "outcome": "rejected" if verdict == "rejected" else "accepted",
                "throttle_ms": throttled,
                "tokens": s.tokens(now),
            } == expect, step


def test_bound_of_a_user_without_quotas() -> None:
    for name, bound in (("long", 2.0**63), ("int", 2.0**31 - 1)):
        assert quota.bound_in_force(math.nan, math.nan, quota.UNLIMITED[name]) == (
            bound,
            quota.FROM_NOWHERE,
        )


@pytest.mark.parametrize("vector", vectors(VECTORS, "precedence"), ids=lambda v: v["id"])
def test_precedence_vector(vector: dict[str, Any]) -> None:
    m = Manager(Sensor, "token_bucket", 11, 1000)
    for q in vector["params"]["quotas"]:
        m.set(q["user"], q["client_id"], q["bound"])
    for step in vector["steps"]:
        user, client = step["user"], step["client_id"]
        if step["op"] == "remove":
            m.set(user, client, None)
            continue
        entity = m.matched(user, client)
        assert entity is not None
        assert {
            "bound": m.bound(user, client),
            "matched": "/".join(level or "-" for level in entity),
        } == step["expect"]


@pytest.mark.parametrize("vector", vectors(VECTORS, "burst"), ids=lambda v: v["id"])
def test_burst_vector(vector: dict[str, Any]) -> None:
    given, expect = vector["given"], vector["expect"]
    window_ms = given["window_s"] * 1000
    bound = quota.bound_per_second(
        float(given["producer_ids_rate"]), window_ms, quota.UNITS.index(given["rate_unit"])
    )
    assert bound == _close(vector["params"], expect["bound_per_s"])
    burst = kafka_quota.burst_of(bound, given["samples"], window_ms)
    assert burst == pytest.approx(expect["burst"], rel=1e-12)


@pytest.mark.parametrize("vector", vectors(VECTORS, "throttle_range"), ids=lambda v: v["id"])
def test_throttle_range_vector(vector: dict[str, Any]) -> None:
    throttle_ms = np.int64(vector["given"]["throttle_ms_64bit"])
    assert {
        "[Q1]": kafka_quota.reported_throttle(throttle_ms, True),
        "[]": kafka_quota.reported_throttle(throttle_ms, False),
    } == vector["expect"]
    given = vector["given"]["throttle_ms_64bit"]
    assert {"[Q1]": reference.reported(given, ["Q1"]), "[]": reference.reported(given)} == vector[
        "expect"
    ]


def test_bound_zero() -> None:
    bucket = Sensor("token_bucket", 11, 1000, 0.0)
    assert bucket.charge(1, T0, "strict") == ("counted", 0)
    assert bucket.charge(1, T0, "strict") == ("rejected", 2**63 - 1)
    for stat in kafka_quota.STATS:
        rate = Sensor("sampled_rate", 11, 1000, 0.0, stat)
        assert rate.charge(1, T0, "permissive") == ("throttled", 2**63 - 1)
        assert rate.charge(1, T0, "strict") == ("rejected", 2**63 - 1)


def test_throttle_times_are_computed_in_this_order() -> None:
    rng = random.Random(4)
    for _ in range(5000):
        value = rng.uniform(0, 1) * 10.0 ** rng.randrange(10, 16)
        bound = rng.uniform(0.1, 30.0)
        span = rng.randrange(1, 10**7)
        for got, exact in (
            (kafka_quota.tokens_throttle(-value, bound), value / bound * 1000.0),
            (kafka_quota.rate_throttle(value, bound, span), (value - bound) / bound * span),
        ):
            assert got == min(math.floor(Fraction(exact) + Fraction(1, 2)), 2**63 - 1)


def test_tokens_given_back_stop_at_the_burst_of_that_moment() -> None:
    s = Sensor("token_bucket", 11, 1000, 1.0)
    s.record(5, T0)
    s.record(-50, T0)
    s.set_bound(10)
    assert s.tokens(T0) == 11.0


def test_strict_rate_tests_before_it_records() -> None:
    s = Sensor("sampled_rate", 11, 1000, 5.0)
    assert s.charge(100, T0, "strict") == ("counted", 0)
    before = s.samples()
    assert s.charge(100, T0, "strict") == ("rejected", 10_000)
    assert s.samples() == before
    assert s.charge(1, T0 + 10_999, "strict") == ("rejected", 8999 + 2)
    assert s.charge(1, T0 + 11_000, "strict") == ("counted", 0), "the sample has expired"


def test_rate_under_the_token_bucket_is_that_without_the_reads_of_a_check() -> None:
    rng = random.Random(5)
    bucket = Sensor("token_bucket", 11, 1000, 3.0)
    rate = Sensor("sampled_rate", 11, 1000, None)
    now = T0
    for _ in range(500):
        now += rng.choice((0, 1, 400, 999, 1000, 12_500))
        value = rng.randrange(20)
        if bucket.charge(value, now, "strict")[0] != "rejected":
            rate.record(value, now)
        assert bucket.samples() == rate.samples()
        before = bucket.samples()
        assert (
            flow.levels(bucket.users.w, 0, now, 3.0)[0]
            == flow.levels(rate.users.w, 0, now, NO_BOUND)[0]
        )
        assert bucket.samples() == before


def test_rejected_requests_do_not_keep_a_sensor_alive() -> None:
    idle_ms = 3_600_000
    for later, verdict in ((idle_ms, "rejected"), (idle_ms + 1, "counted")):
        s = Sensor("token_bucket", 1, 1000, 0.001, idle_ms=idle_ms)
        assert s.charge(100, T0, "strict") == ("counted", 0)
        assert s.charge(1, T0 + 1000, "strict")[0] == "rejected"
        assert s.charge(1, T0 + later, "strict")[0] == verdict


def test_rounding() -> None:
    assert kafka_quota.round_half_up(math.nan) == 0
    assert kafka_quota.round_half_up(math.inf) == 2**63 - 1
    assert kafka_quota.round_half_up(-math.inf) == -(2**63)
    rng = random.Random(9)
    values = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -1.5,
        -2.5,
        0.49999999999999994,
        -0.49999999999999994,
        0.5000000000000001,
        2.0**52 + 1,
        2.0**53 - 1,
        2.0**53 + 2,
        -(2.0**52) - 1,
        2.0**62,
        math.nextafter(2.0**63, 0.0),
        2.0**63,
        -(2.0**63),
        1e300,
        -1e300,
        5e-324,
        -5e-324,
    ]
    values += [rng.uniform(-1, 1) * 10.0 ** rng.randrange(-3, 20) for _ in range(5000)]
    values += [rng.randrange(-(10**6), 10**6) / 2 for _ in range(2000)]
    for x in values:
        exact = math.floor(Fraction(x) + Fraction(1, 2))
        assert kafka_quota.round_half_up(x) == max(min(exact, 2**63 - 1), -(2**63)), x
        assert reference.round_half_up(x) == kafka_quota.round_half_up(x)
    assert reference.round_half_up(math.nan) == 0


@pytest.mark.parametrize("enforcement", kafka_quota.ENFORCEMENTS)
@pytest.mark.parametrize("stat", kafka_quota.STATS)
@pytest.mark.parametrize("math", quota.MATHS)
def test_users_of_one_shard_do_not_touch_each_other(math: str, stat: str, enforcement: str) -> None:
    rng = random.Random(7)
    count, now, seen = 5, T0, set()
    users = Users(count, math, 11, 1000, stat)
    users.w.settings["enforcement"] = kafka_quota.ENFORCEMENTS.index(enforcement)
    alone = [Sensor(math, 11, 1000, 4.0, stat) for _ in range(count)]
    for _ in range(600):
        now += rng.randrange(40)
        user = rng.randrange(count)
        w = users.roomy()
        verdict, throttle_ms = flow.charge(w, user, 1.0, now, 4.0)
        expected = alone[user].charge(1, now, enforcement)
        assert (outputs.VERDICTS[verdict], throttle_ms) == expected
        assert flow.levels(w, user, now, 4.0) == flow.levels(alone[user].users.w, 0, now, 4.0)
        seen.add(expected[0])
    assert seen == {"counted", "rejected" if enforcement == "strict" else "throttled"}
