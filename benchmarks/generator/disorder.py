"""When records arrive: most at once, some later than newer ones, a few twice, a few too late."""

from __future__ import annotations

from collections import Counter

import numpy as np

from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.scenario import Scenario
from benchmarks.generator.trace_rows import PLACE

AT, ARRIVES, FIXED = PLACE["at_ns"], PLACE["arrives_ns"], PLACE["fixed"]


def arrivals(
    scenario: Scenario,
    rows: np.ndarray,
    malformed: int,
    rng: np.random.Generator,
    planted: Counter[str],
) -> np.ndarray:
    """Gives rows their time of arrival and puts repeated ones in front of them.

    The last `malformed` rows stay the last ones. What is repeated or too late is added to
    `planted`. A shuffled or repeated record is at most `shuffle_ms` behind the newest one of its
    broker, since none arrives before its time.
    """
    spec, n = scenario.disorder, len(rows)
    delay = np.zeros(n, dtype=np.int64)
    shuffled = np.flatnonzero(rng.random(n) < spec.shuffled)
    delay[shuffled] = rng.integers(0, spec.shuffle_ms * MS + 1, shuffled.size)
    rows[:, ARRIVES] = rows[:, AT] + delay
    good = np.arange(n) < n - malformed
    again = np.flatnonzero(good & (rng.random(n) < spec.repeated))
    copies = rows[again]
    copies[:, ARRIVES] = copies[:, AT] + rng.integers(0, spec.shuffle_ms * MS + 1, again.size)
    low, high = (int(s * SECOND) for s in spec.too_late_s)
    free = good & (rows[:, FIXED] != 1) & (rows[:, AT] < scenario.duration_s * SECOND - high)
    free[again] = False
    late = np.flatnonzero(free & (rng.random(n) < spec.too_late))
    rows[late, ARRIVES] = rows[late, AT] + rng.integers(low, high + 1, late.size)
    planted.update({"DUPLICATE_RECORD": again.size, "TOO_LATE": late.size})
    return np.concatenate([copies, rows])
