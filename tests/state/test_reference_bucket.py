"""The token buckets of the reference against rate_limits.json and three released classes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference.bucket import BUCKETS, PERIOD_NS, RESOLUTION_NS, Bucket
from tests.state.recorded import cases, vectors

VECTORS = "rate_limits.json"
RELEASES = {"saturating": "4.2.4", "wrapping": "4.0.8", "per_tick": "4.0.0"}
ILLEGAL, DIVISION = "throws IllegalArgumentException", "throws ArithmeticException"


def build(kind: type[Bucket], case: dict[str, Any], dynamic: bool) -> Bucket:
    """A bucket of a recorded case. The class can be given a target, which Weir never does; with a
    dynamic rate it is one per cent of the rate in every release."""
    if dynamic:
        kind = type("Dynamic", (kind,), {"target": property(lambda b: int(b.rate * 0.01))})
    elif case["target"] is not None and kind is not BUCKETS["per_tick"]:
        kind = type("Aimed", (kind,), {"target": property(lambda _: case["target"])})
    return kind(
        case["rate"], case["t0"], case["capacity"], case["initial"],
        PERIOD_NS if case["period_ns"] is None else case["period_ns"],
        RESOLUTION_NS if case["resolution_ns"] is None else case["resolution_ns"],
    )


def answer(b: Bucket, op: list[Any], now: int) -> Any:
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
            return b.pause(b.read_for_pause(now), value)
    except ValueError:
        return ILLEGAL
    except ZeroDivisionError:
        return DIVISION
    if name == "rate":
        b.rate = b.capacity = value
        return None
    return {"target": b.target, "cap": b.capacity}[name]


@pytest.mark.parametrize("kind", ["bucket", "dynamic"])
@pytest.mark.parametrize("version", RELEASES)
def test_bucket_answers_as_the_released_class(version: str, kind: str) -> None:
    compared = 0
    for case in cases(f"{kind}-{RELEASES[version]}.jsonl.gz"):
        now = case["t0"]
        try:
            b = build(BUCKETS[version], case, kind == "dynamic")
        except ZeroDivisionError:
            assert case["out"] == f"build {DIVISION}", case["id"]
            continue
        assert not isinstance(case["out"], str), case["id"]
        for i, (op, expected) in enumerate(zip(case["ops"], case["out"], strict=True)):
            got = None
            seen = expected[0] if case["state"] else expected
            if seen == "absent":
                continue
            if op[0] == "+":
                now += op[1]
            else:
                got = answer(b, op, now)
            if case["state"]:
                got = [got, b.tokens, b.last, b.remainder, b.pending]
            assert got == expected, (case["id"], i, op)
            compared += 1
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
def test_bucket_vector(version: str, vector: dict[str, Any]) -> None:
    p = vector["params"]
    start = p["start_ns"]
    b = BUCKETS[version](
        p["rate"], start, p["capacity"], p["initial"], p["period_ns"], p["resolution_ns"]
    )
    for step in vector["steps"]:
        assert bucket_step(b, step, start + step["offset_ns"]) == step["expect"], step


def bucket_step(b: Bucket, step: dict[str, Any], now: int) -> dict[str, Any]:
    op = step["op"]
    if op == "balance":
        return {"balance": b.take(0, now)}
    if op == "available":
        return {"available": max(b.take(0, now), 0)}
    if op == "pause":
        return {"pause_ns": b.pause(b.read_for_pause(now))}
    if op == "target":
        return {"target": b.target}
    if op == "remainder":
        return {"remainder_ns": b.remainder}
    if op == "consume":
        b.postpone(step["k"], now)
        return {}
    assert op == "take"
    passed = [b.take(step["k"], now) > 0 for _ in range(step.get("repeat", 1))]
    if "repeat" not in step:
        return {"contains_tokens": passed[0]}
    first = passed.index(False) + 1 if False in passed else None
    return {"results_true": sum(passed), "first_false": first}
