"""The usual way to keep state by key, for comparison: one group per topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from app.sources.worker import settle
from benchmarks import floors
from benchmarks.inputs import Input
from benchmarks.stream import Bench, Speed

if TYPE_CHECKING:
    import pandas as pd

RATE = 1500
PERIOD_NS = 1_000_000_000
OUT = "topic string, events bigint, throttled bigint, balance bigint"
STATE = "tokens bigint, last_ns bigint"


def speed(bench: Bench, trace: Input) -> Speed:
    """A plain token bucket per topic, a row per topic and batch, to nothing.

    It reads the first files only: each takes as long as ten of the sharded way.
    """
    messages = F.when(F.col("event_type") == "publish", F.col("num_messages")).otherwise(0)
    rows = (
        floors.typed(bench, trace, "000[0-5].parquet")
        .where(F.col("event_type").isin(*floors.READ))
        .select("cluster", "broker", "topic", "ts_mono_ns", messages.alias("messages"))
    )
    answers = rows.groupBy("cluster", "broker", "topic").applyInPandasWithState(
        step, OUT, STATE, "append", GroupStateTimeout.NoTimeout
    )
    return bench.to_nothing(answers, "one-group-per-topic")


def step(
    key: tuple[str, str, str], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Charge the messages of one topic in order of time."""
    import pandas as pd

    settle()
    rows = pd.concat(list(frames))
    at = rows["ts_mono_ns"].to_numpy()
    order = np.argsort(at, kind="stable")
    tokens, last = state.get if state.exists else (RATE, int(at.min()))
    kept = np.array([tokens, last], np.int64)
    throttled = _charge(at[order], rows["messages"].to_numpy()[order].astype(np.int64), kept)
    state.update((int(kept[0]), int(kept[1])))
    yield pd.DataFrame(
        {
            "topic": [key[2]],
            "events": [len(rows)],
            "throttled": [throttled],
            "balance": [int(kept[0])],
        }
    )


@numba.njit(cache=True, nogil=True)
def _charge(at: np.ndarray, messages: np.ndarray, kept: np.ndarray) -> int:
    throttled = 0
    for i in range(len(at)):
        new = max(at[i] - kept[1], 0) * RATE // PERIOD_NS
        if new > 0:
            kept[0], kept[1] = min(kept[0] + new, RATE), at[i]
        kept[0] -= messages[i]
        throttled += kept[0] < 0
    return throttled
