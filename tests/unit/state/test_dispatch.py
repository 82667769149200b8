"""Dispatch buckets: one lump of tokens per period, charged after sending, fixed or relative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from state.rate_limits.bucket import VERSIONS
from state.rate_limits.dispatch import DISPATCH, PUBLISH, Permits, Quota, permits
from tests.unit.state.recorded import vectors

START = 100_000_000_000
S = 1_000_000_000


def judge(events: list[tuple[int, int, int]], quota: Quota, version: str = "saturating") -> Permits:
    """Permits before the dispatches of (kind, offset in ns, messages), each of 10 bytes."""
    kind, offset, messages = (np.array(column, np.int64) for column in zip(*events, strict=True))
    return permits(
        kind,
        START + offset,
        messages,
        np.full(len(kind), 10, np.int64),
        quota,
        VERSIONS.index(version),
    )


@pytest.mark.parametrize(
    "vector",
    [v for v in vectors("rate_limits.json", "token_bucket") if v["id"].startswith("RL11")],
    ids=lambda v: v["id"],
)
def test_one_lump_per_period(vector: dict[str, Any]) -> None:
    """RL11 as dispatches: the first takes everything, the others ask and send nothing."""
    p = vector["params"]
    events = [
        (int(DISPATCH), s["offset_ns"], s["k"] if s["op"] == "consume" else 0)
        for s in vector["steps"]
    ]
    found = judge(events, Quota(p["rate"], -1, p["period_ns"]), p["tokenbucket"])
    asked = [s["expect"]["available"] for s in vector["steps"] if s["op"] == "available"]
    assert found.msgs[1:].tolist() == asked
    assert (found.size == -1).all()


def test_what_finds_no_permit_is_held_and_charged_all_the_same() -> None:
    sent = [(int(DISPATCH), i, 4) for i in range(5)]
    later = [(int(DISPATCH), S + 1, 1), (int(DISPATCH), 2 * S + 2, 1)]
    found = judge([*sent, *later], Quota(10, -1))
    # 10, 6, 2, then nothing; 20 of 10 were sent, so the next lump only pays the debt
    assert found.msgs.tolist() == [10, 6, 2, 0, 0, 0, 9]
    assert found.held.tolist() == [False, False, False, True, True, True, False]


def test_either_limit_holds() -> None:
    found = judge([(int(DISPATCH), 0, 1), (int(DISPATCH), 1, 1)], Quota(100, 10))
    assert found.size.tolist() == [10, 0]
    assert found.held.tolist() == [False, True]


def test_relative_to_what_was_published_in_the_period_before() -> None:
    published = [(int(PUBLISH), 0, 30), (int(PUBLISH), 10, 20)]
    asked = [(int(DISPATCH), offset, 0) for offset in (20, S + 5, 2 * S + 10, 3 * S + 15)]
    relative = judge([*published, *asked], Quota(5, -1, relative=True))
    # the configured 5; 50 were published in the first period, none in those after it
    assert relative.msgs.tolist() == [5, 55, 5, 5]
    assert judge([*published, *asked], Quota(5, -1)).msgs.tolist() == [5, 5, 5, 5]


def test_nothing_to_judge() -> None:
    none = np.zeros(0, np.int64)
    assert len(permits(none, none, none, none, Quota(5, 5)).held) == 0
