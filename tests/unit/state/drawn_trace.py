"""A random trace as the tests draw it, and the records that the writers of several jobs make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS, START_NS

NS_PER_MS = 1_000_000
BROKERS = ("b1", "b2")
EVERYWHERE = "*"
OFFSETS = (0, 7_000_001, -(5 * 10**15), 123_456_789_012, None)
"""How far a broker's monotonic clock is from the wall clock (ns); None: it has none."""


@dataclass
class Trace:
    """Records in the order in which they arrive, parameters, policies of the configuration, and a
    time after all records.

    Of jobs on wall time a policy may be up to 400 ms older than what arrived before it.
    """

    records: list[Row]
    params: dict[str, Any]
    configured: list[str]
    end_ms: int

    def __repr__(self) -> str:
        lines = "\n  ".join(str(_shown(r)) for r in self.records)
        return f"Trace({self.params}, {self.configured}, end {self.end_ms - START_MS},\n  {lines})"


def _shown(record: Row) -> Row:
    """What is not null, times counted from the start."""
    starts = {"ts_wall_ms": START_MS, "publish_time_ms": START_MS, "ts_mono_ns": START_NS}
    return {
        k: v - starts.get(k, 0) if k in starts else v
        for k, v in record.items()
        if v is not None and k not in ("cluster", "source_feed")
    }


def operations(kinds: Sequence[str], steps_ms: Sequence[int]) -> st.SearchStrategy[Any]:
    """A kind of step, how long after the last one it comes, and three numbers that choose among
    its possibilities."""
    return st.tuples(
        st.sampled_from(kinds),
        st.sampled_from(steps_ms),
        st.integers(0, 11),
        st.integers(0, 15),
        st.integers(0, 23),
    )


def clocks(draw: st.DrawFn, ticks: Sequence[bool] = (False, False, True)) -> dict[str, Any]:
    """What all records of a trace have in common."""
    offsets = st.sampled_from(OFFSETS)
    return {
        "seq": draw(st.sampled_from((True, True, False))),
        "offsets": (draw(offsets), draw(offsets), draw(offsets)),
        "holey": draw(st.sampled_from((False, False, True))),
        "ticks": draw(st.sampled_from(ticks)),
    }


def missing(ms: int, at_ms: int, at_ns: int | None, number: int) -> dict[str, Any]:
    """The columns of a gap that began so long before its time; on every third it is not known how
    long, or how much is missing."""
    if number % 3 == 0:
        return {"gap_from_mono_ns": None, "gap_from_wall_ms": None, "dropped": None}
    return {
        "gap_from_mono_ns": None if at_ns is None else at_ns - ms * NS_PER_MS,
        "gap_from_wall_ms": max(at_ms - ms, 0),
        "dropped": number if number % 2 else None,
    }


GAPS_MS = (0, 1, 400, 3000, 60_000)
"""How long records are missing."""


class WallWriter:
    """Writes the records of a job on wall time; `now` is the time of the next one (ms)."""

    def __init__(self, plain: dict[str, Any]) -> None:
        self.records: list[Row] = []
        self.now = START_MS
        self._plain = plain
        self._seq = dict.fromkeys((*BROKERS, EVERYWHERE), 0)

    def put(self, broker: str, kind: str, late_ms: int = 0, **columns: Any) -> None:
        """A record of now, or so much older."""
        if self._plain["ticks"] and not late_ms:
            self.now += 1
        seq = None
        if self._plain["seq"]:
            seq = self._seq[broker] = self._seq[broker] + 1
        at = self.now - late_ms
        if kind == "gap":
            columns = missing(columns.pop("since"), at, None, len(self.records))
        offset = self._plain["offsets"][(*BROKERS, EVERYWHERE).index(broker)]
        holey = self._plain["holey"] and len(self.records) % 5 == 0
        self.records.append(
            {
                "event_type": kind,
                "source_feed": "contract",
                "cluster": "c",
                "broker": broker,
                "seq": seq,
                "ts_wall_ms": at,
                "ts_mono_ns": None if offset is None or holey else at * NS_PER_MS + offset,
                **columns,
            }
        )
