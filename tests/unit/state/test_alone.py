"""One limiter alone: the worked example of its page, and the ends of ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from state.rate_limits.alone import CLOSE, PUBLISH, Rules, Trace, effect

NS_PER_MS = 1_000_000
BEGIN_NS = 50_000_000_000
LARGEST = 2**63 - 1


def trace(rows: list[tuple[int, int, int]], end_ms: int = 10_000, others: int = 1) -> Trace:
    """One limiter and one connection; rows of (ms, kind, amount)."""

    def column(values: Any) -> np.ndarray:
        return np.array(values, np.int64)

    n = len(rows)
    return Trace(
        column([0, n]),
        column([kind for _, kind, _ in rows]),
        column([BEGIN_NS + at * NS_PER_MS for at, _, _ in rows]),
        column([k for *_, k in rows]),
        column([0] * n),
        column([others] * n),
        column([BEGIN_NS + end_ms * NS_PER_MS] * n),
    )


def test_the_worked_example_pauses_as_long_as_its_page_says() -> None:
    found = effect(trace([(0, PUBLISH, 250), (200, PUBLISH, 1)]), 100, Rules())
    assert (found.throttled, found.publishes, found.pauses) == (251, 2, 1)
    assert found.paused_ns == found.victim_ns == 1_530_000_003


def test_a_connection_that_closes_ends_its_pause() -> None:
    found = effect(trace([(0, PUBLISH, 250), (200, CLOSE, 0), (300, PUBLISH, 1)]), 100, Rules())
    # the first pause left a release task, so two of them look after the second
    assert (found.throttled, found.pauses) == (251, 2)
    assert found.paused_ns == 200 * NS_PER_MS + (1530 - 300) * NS_PER_MS + 2


def test_a_pause_is_counted_up_to_the_end_of_the_history() -> None:
    found = effect(trace([(0, PUBLISH, LARGEST)], end_ms=700, others=3), 1, Rules())
    assert (found.paused_ns, found.victim_ns) == (700 * NS_PER_MS, 2100 * NS_PER_MS)


@pytest.mark.parametrize(
    ("amount", "limit", "throttled"),
    [(LARGEST - 1, LARGEST, 0), (LARGEST, LARGEST, 1), (0, 1, 0), (1, 1, 1), (1, 2, 0)],
)
def test_the_balance_must_stay_above_zero(amount: int, limit: int, throttled: int) -> None:
    assert effect(trace([(0, PUBLISH, amount)]), limit, Rules()).publishes == throttled
