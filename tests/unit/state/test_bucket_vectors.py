"""The token buckets of core and reference against rate_limits.json and the classes of Pulsar 4.2.4,
4.0.8 and 4.0.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from state.rate_limits import bucket
from state.rate_limits.layout import BUCKET
from tests.reference.bucket import BUCKETS
from tests.unit.state.recorded import cases, vectors

VECTORS = "rate_limits.json"
VERSIONS = {"saturating": "4.2.4", "wrapping": "4.0.8", "per_tick": "4.0.0"}
"""Values of `tokenbucket` and the release that each was recorded from."""
FIXED = tuple((version, f"bucket-{release}.jsonl.gz") for version, release in VERSIONS.items())
DYNAMIC = tuple((version, f"dynamic-{release}.jsonl.gz") for version, release in VERSIONS.items())


@numba.njit
def _build(b, rate, capacity, initial, now, period, resolution, version):
    bucket.build(b[0], rate, capacity, initial, now, period, resolution, version)


@numba.njit
def _charge(b, k, now, period, resolution, version):
    return bucket.charge(b[0], k, now, period, resolution, version)


@numba.njit
def _read_for_pause(b, now, period, resolution, version):
    return bucket.read_for_pause(b[0], now, period, resolution, version)


@numba.njit
def _peek(b, now, period, resolution, version):
    return bucket.balance_at(b[0], now, period, resolution, version)


@numba.njit
def _pause(b, balance, period, version):
    return bucket.pause_of(b[0], balance, period, version)


class Compiled:
    """One compiled bucket of a version."""

    def __init__(
        self,
        version: str,
        rate: int,
        now: int,
        capacity: int | None,
        initial: int | None,
        period: int,
        resolution: int,
    ) -> None:
        self._b = np.zeros(1, BUCKET)
        self._version = bucket.VERSIONS.index(version)
        self._clock = (period, resolution, self._version)
        self.period, self.resolution = period, resolution
        capacity = rate if capacity is None else capacity
        initial = rate if initial is None else initial
        _build(self._b, rate, capacity, initial, now, *self._clock)

    def take(self, k: int, now: int) -> int:
        """Charge with a verdict."""
        return int(_charge(self._b, k, now, *self._clock))

    def pause(self, now: int, need: int | None = None) -> int:
        """The pause, or the time until `need` tokens are there."""
        if need is not None:
            return int(
                bucket.pause_until(
                    self.take(0, now), need, self._b["rate"][0], self.period, self._version
                )
            )
        peeked = _peek(self._b, now, *self._clock)
        balance = _read_for_pause(self._b, now, *self._clock)
        assert peeked == balance
        return int(_pause(self._b, balance, self.period, self._version))

    def set_rate(self, rate: int) -> None:
        """A dynamic rate: the capacity is the rate, the target one per cent of it."""
        self._b["rate"] = self._b["capacity"] = rate
        self._b["target"] = bucket.target_of(rate)

    def aim(self, target: int) -> None:
        """An explicit target, which Weir never sets."""
        self._b["target"] = target

    def postpone(self, k: int, now: int) -> None:
        """Charge without a verdict: only `per_tick` reads the clock."""
        if self._version == bucket.PER_TICK:
            self.take(k, now)
            return
        if k < 0:
            raise ValueError("negative consumption")
        self._b["pending"] += k

    @property
    def target(self) -> int:
        return int(self._b["target"][0])

    @property
    def capacity(self) -> int:
        return int(self._b["capacity"][0])

    @property
    def state(self) -> list[int]:
        b = self._b[0]
        return [int(b[f]) for f in ("tokens", "last_ns", "remainder_ns", "pending")]


class Reference:
    """The same of the reference, whose target is a rule: one that is given replaces it."""

    def __init__(
        self,
        version: str,
        rate: int,
        now: int,
        capacity: int | None,
        initial: int | None,
        period: int,
        resolution: int,
    ) -> None:
        self._b = BUCKETS[version](rate, now, capacity, initial, period, resolution)

    def take(self, k: int, now: int) -> int:
        return self._b.take(k, now)

    def pause(self, now: int, need: int | None = None) -> int:
        return self._b.pause(self._b.read_for_pause(now), need)

    def set_rate(self, rate: int) -> None:
        self._b.rate = self._b.capacity = rate
        self._rule(lambda b: int(b.rate * 0.01))

    def aim(self, target: int) -> None:
        self._rule(lambda _: target)

    def _rule(self, rule: Callable[[Any], int]) -> None:
        kind = type(self._b)
        self._b.__class__ = type(kind.__name__, (kind,), {"target": property(rule)})

    def postpone(self, k: int, now: int) -> None:
        self._b.postpone(k, now)

    target = property(lambda self: self._b.target)
    capacity = property(lambda self: self._b.capacity)
    state = property(
        lambda self: [self._b.tokens, self._b.last, self._b.remainder, self._b.pending]
    )


Made = type[Compiled] | type[Reference]


@pytest.fixture(params=[Compiled, Reference], ids=["core", "reference"])
def make(request: pytest.FixtureRequest) -> Made:
    """Both implementations answer alike."""
    return request.param


def answer(b: Any, op: list[Any], now: int) -> Any:
    """What one recorded operation answers."""
    name, value = op[0], op[1] if len(op) > 1 else None
    try:
        if name == "c":
            return b.take(value, now) > 0
        if name == "k":
            return b.postpone(value, now)
        if name == "g":
            return b.take(0, now)
        if name == "h":
            return b.take(0, now) > 0
        if name in ("p", "n"):
            return b.pause(now, value)
        if name == "rate":
            return b.set_rate(value)
    except ValueError:
        return "throws IllegalArgumentException"
    except ZeroDivisionError:
        return "throws ArithmeticException"
    return {"target": b.target, "cap": b.capacity}[name]


@pytest.mark.parametrize(("version", "file"), FIXED + DYNAMIC)
def test_recorded_answers_and_states(version: str, file: str, make: Made) -> None:
    compared = 0
    for case in cases(file):
        now = case["t0"]
        try:
            b = make(
                version,
                case["rate"],
                now,
                case["capacity"],
                case["initial"],
                case["period_ns"] or bucket.PERIOD_NS,
                case["resolution_ns"]
                if case["resolution_ns"] is not None
                else (bucket.RESOLUTION_NS),
            )
        except ZeroDivisionError:
            assert case["out"] == "build throws ArithmeticException", case["id"]
            continue
        assert not isinstance(case["out"], str), case["id"]
        if file.startswith("dynamic"):
            b.set_rate(case["rate"])
        if case["target"] is not None and version != "per_tick":  # which knows no such thing
            b.aim(case["target"])
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            if (expected[0] if case["state"] and op[0] != "+" else expected) == "absent":
                continue
            got = None
            if op[0] == "+":
                now += op[1]
            else:
                got = answer(b, op, now)
            seen = [got, *b.state] if case["state"] else got
            assert seen == expected, (case["id"], i, op)
            compared += op[0] != "+"
    assert compared > 3000


def bucket_vectors() -> list[Any]:
    """Every vector under its own value of `tokenbucket`; `wrapping` gives the answers of
    `saturating` where it has no variant."""
    found = vectors(VECTORS, "token_bucket")
    known = {v["id"] for v in found}
    pairs = [(v["params"]["tokenbucket"], v) for v in found]
    pairs += [
        ("wrapping", v)
        for version, v in pairs
        if version == "saturating" and f"{v['id']}-wrapping" not in known
    ]
    return [pytest.param(version, v, id=f"{v['id']}:{version}") for version, v in pairs]


@pytest.mark.parametrize(("version", "vector"), bucket_vectors())
def test_vector(version: str, vector: dict[str, Any], make: Made) -> None:
    p = vector["params"]
    start = p["start_ns"]
    b = make(
        version, p["rate"], start, p["capacity"], p["initial"], p["period_ns"], p["resolution_ns"]
    )
    for step in vector["steps"]:
        now = start + step["offset_ns"]
        assert _step(b, step, now) == step["expect"], step


def _step(b: Any, step: dict[str, Any], now: int) -> dict[str, Any]:
    op = step["op"]
    if op == "balance":
        return {"balance": b.take(0, now)}
    if op == "available":
        return {"available": max(b.take(0, now), 0)}
    if op == "pause":
        return {"pause_ns": b.pause(now)}
    if op == "target":
        return {"target": b.target}
    if op == "remainder":
        return {"remainder_ns": b.state[2]}
    if op == "consume":
        b.postpone(step["k"], now)
        return {}
    assert op == "take"
    passed = [b.take(step["k"], now) > 0 for _ in range(step.get("repeat", 1))]
    if "repeat" not in step:
        return {"contains_tokens": passed[0]}
    first = passed.index(False) + 1 if False in passed else None
    return {"results_true": sum(passed), "first_false": first}
