"""Entry caches: operations of the core by policy, bytes of state, what each further cache costs,
and the published run of PIP-430."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.engine.routing import Route
from benchmarks.blobs import parsed, shipped
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.result import Result, middle
from benchmarks.stages import Stages
from benchmarks.stream import Bench
from benchmarks.trace import START_MS, START_NS
from state.engine.reach import Reach
from state.entry_cache import broker, flow
from state.entry_cache.belady import compare
from state.entry_cache.operator import EntryCache
from state.entry_cache.settings import BY_MARK_DELETE, ONLINE, TTL_MAX_MS, TTL_MS
from state.entry_cache.shard import COLUMNS
from state.jobs import DECLARED
from tests.unit.state.shipping import params_of

JOB = DECLARED["entry_cache"]
Array = np.ndarray
KINDS = pa.array(["cursor_state", "entry_added", "entry_read", "entry_released"])
ENTRY_BYTES = 8192
OPERATIONS = 500_000
"""How many a further cache is measured over, at least."""
RATE = 50_000
"""Entries per second, as in the published run."""
ROOMY, TIGHT = 4.0, 0.64
"""Sizes of a cache in seconds of what is added: one without pressure, the published one."""
MS = 1_000_000
MORE = 8
"""Caches of a policy beside the first, in what one more of them costs."""
REACHED = 12_500
"""What the scenario takes for the rate of the published run."""
LASTING: dict[str, Any] = {TTL_MS: 10**6, TTL_MAX_MS: 10**6, "allowed_lateness_ms": 0}
BEHIND = 50_000
"""Entries that a subscription of the published run may be behind: a tenth of what is in flight."""
PUBLISHED: tuple[tuple[str, dict[str, Any], float | None], ...] = (
    ("expected_reads", {"policy": "expected_reads"}, 98.4),
    ("fifo, the previous default", {"policy": "fifo"}, 76.85),
    ("fifo by mark-delete", {"policy": "fifo", BY_MARK_DELETE: True}, 59.97),
    ("proportional", {"policy": "proportional"}, None),
    ("lru", {"policy": "lru"}, None),
    ("belady", {"policy": "belady"}, None),
)
"""What was measured there, as a cache here, and its hit rate (%; None = not published)."""
ROUTE = Route(JOB.columns, JOB.key)
KERNEL = SimpleNamespace(**vars(flow))
"""The kernel as the broker calls it; what calls itself inside stays unwrapped and compiles."""


def run(bench: Bench) -> Result:
    """Speed and size of the core, and hit rates beside those that were published."""
    entries = 2_000 if bench.small else 400_000
    result = Result("entry_cache", entries, bench.small)
    trace = Readers(entries)
    blobs = trace.blobs()
    result.events = trace.records
    _policies(result, trace, blobs)
    _state(result, bench.small)
    fewer = Readers(min(entries, 50_000))
    _further(result, fewer, fewer.blobs())
    _published(result, bench.small)
    return result


# -- the core --------------------------------------------------------------------------------


def _played(
    blobs: list[bytes], variants: list[dict[str, Any]], **params: Any
) -> tuple[list[float], list[float], bytes, list[dict[str, Any]]]:
    """CPU seconds of the kernel and of everything per batch, the state at the end, the totals."""
    job = EntryCache(
        params_of(JOB.name, release_event="entry_released", variants=variants, **params)
    )
    state: bytes | None = None
    kernel, whole = [], []
    for blob in blobs:
        stages = Stages(time.process_time)
        watched = stages.watching({"kernel": [(KERNEL, "run"), (KERNEL, "advance")]})
        with watched, patch.object(broker, "flow", KERNEL):
            began = time.process_time()
            state = job.step(state, [blob], Reach(0)).state
            whole.append(time.process_time() - began)
        kernel.append(stages.seconds["kernel"])
    assert state is not None
    return kernel, whole, state, job.totals(state)


def _policies(result: Result, trace: Readers, blobs: list[bytes]) -> None:
    """Operations per second of the compiled core, with room and under pressure."""
    size = trace.records / len(blobs)
    for policy in ONLINE:
        for load, seconds in (("with room", ROOMY), ("under pressure", TIGHT)):
            cache = {"policy": policy, "max_bytes": int(trace.bytes_per_s * seconds)}
            kernel, whole, _, (totals,) = _played(blobs, [cache])
            speeds = [size / s for s in kernel[1:] or kernel]
            value, spread = middle(speeds)
            everything, _ = middle([size / s for s in whole[1:] or whole])
            result.add(
                f"{policy}, {load}",
                value,
                "operations/s",
                spread,
                note=f"with blobs, order and state {everything:,.0f}/s; hit ratio "
                f"{totals['hit_ratio']:.3f}, {totals['work']:,} entries visited",
            )


def _state(result: Result, small: bool) -> None:
    """Bytes of state per cached entry, where nothing is evicted."""
    few, many = 1_000, 2_000 if small else 200_000
    for policy in ONLINE:
        sizes = [
            len(
                _played(
                    Readers(n, idle=1, behind_ms=(0.01,)).blobs(), [{"policy": policy}], **LASTING
                )[2]
            )
            for n in (few, many)
        ]
        result.add(
            f"state, {policy}",
            (sizes[1] - sizes[0]) / (many - few),
            "bytes per entry",
        )


def _further(result: Result, trace: Readers, blobs: list[bytes]) -> None:
    """What one more cache of a policy costs beside others of the same trace: the least time of
    many less the least of one, taken in turn, and the more often the shorter the trace."""
    turns = max(2, OPERATIONS // trace.records)
    for policy in ONLINE:
        sizes = [int(trace.bytes_per_s * TIGHT * (1 + i / MORE)) for i in range(1 + MORE)]
        caches = [{"policy": policy, "max_bytes": size} for size in sizes]
        spent = [
            [sum(_played(blobs, some)[1]) for some in (caches[:1], caches)] for _ in range(turns)
        ]
        one, many = (min(times) for times in zip(*spent, strict=True))
        each = (many - one) / MORE
        result.add(
            f"one more cache, {policy}",
            1e9 * each / trace.records,
            "ns per operation",
            note=f"{100 * each / one:.0f} % of the time of a single one",
        )


# -- the trace -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Readers:
    """Entries at random times and of random size on topics that are alike; subscriptions behind
    the tail."""

    entries: int
    topics: int = 100
    idle: int = 0
    """Subscriptions of each topic that have a cursor and read nothing."""
    behind_ms: tuple[float, ...] = (2, 8, 60, 700)
    """How far each subscription of a topic reads behind the tail."""

    @property
    def records(self) -> int:
        """Entries added, read and released, and first the cursors."""
        each = len(self.behind_ms)
        return self.entries * (1 + 2 * each) + self.topics * (each + self.idle)

    @property
    def bytes_per_s(self) -> float:
        """What a cache takes in."""
        return RATE * ENTRY_BYTES

    def blobs(self, batch: int = 250_000) -> list[bytes]:
        """The records in order, so many to a blob."""
        i, each = np.arange(self.entries), len(self.behind_ms) + self.idle
        rng = np.random.default_rng(8)
        added = np.sort(rng.integers(0, self.entries * (1_000_000_000 // RATE), self.entries))
        size = rng.integers(ENTRY_BYTES // 2, 3 * ENTRY_BYTES // 2, self.entries)
        none = np.zeros(self.topics * each, np.int64)
        parts = [
            (
                none,
                np.repeat(np.arange(self.topics), each),
                np.tile(np.arange(each), self.topics),
                none,
                none,
                none,
            )
        ]
        topic, entry = i % self.topics, i // self.topics
        nobody = np.full(self.entries, -1)
        parts.append((np.full(self.entries, 1), topic, nobody, entry, added, size))
        for subscription, behind in enumerate(self.behind_ms):
            at = added + int(behind * MS)
            mine = np.full(self.entries, subscription)
            parts.append((np.full(self.entries, 2), topic, mine, entry, at, size))
            parts.append((np.full(self.entries, 3), topic, mine, entry, at + 5 * MS, size))
        columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
        order = np.argsort(columns[4], kind="stable")
        return [
            self._blob(*(c[picked] for c in columns), seq=begin)
            for begin in range(0, len(order), batch)
            for picked in [order[begin : begin + batch]]
        ]

    def _blob(
        self,
        kind: Array,
        topic: Array,
        mine: Array,
        entry: Array,
        at: Array,
        size: Array,
        seq: int,
    ) -> bytes:
        n, cursor = len(kind), pa.array(kind == 0)
        topics = pa.array([f"persistent://shop/feeds/feed-{t:03d}" for t in range(self.topics)])
        names = [f"app-{s}" for s in range(len(self.behind_ms) + self.idle)]
        of_reader = pa.array(mine, mask=(mine < 0) | (kind == 3))
        of_entry = pa.array(np.full(n, 1), mask=kind == 0)
        return shipped(
            COLUMNS,
            KINDS.take(pa.array(kind)),
            {
                "source_feed": pa.repeat(pa.scalar("contract"), n),
                "cluster": pa.repeat(pa.scalar("bench"), n),
                "broker": pa.repeat(pa.scalar("1"), n),
                "seq": pa.array(np.arange(seq, seq + n)),
                "ts_mono_ns": pa.array(START_NS + at),
                "ts_wall_ms": pa.array(START_MS + at // MS),
                "topic": topics.take(pa.array(topic)),
                "subscription": pa.array(names).take(of_reader),
                "ledger_id": of_entry,
                "entry_id": pa.array(entry, mask=kind == 0),
                "entry_bytes": pa.array(size, mask=(kind == 0) | (kind == 3)),
                "active": pc.if_else(cursor, True, None),
                "read_pos": pc.if_else(cursor, "1:0", None),
                "mark_delete": pc.if_else(cursor, "1:-1", None),
            },
        )


# -- the published run -----------------------------------------------------------------------


def _published(result: Result, small: bool) -> None:
    """Hit rates of the trace that is like the published one, at three rates that may have been
    reached: a reader that is 50,000 entries behind is one second behind at the highest of them."""
    for name, _, theirs in PUBLISHED:
        if theirs is not None:
            result.add(f"published, {name}", theirs, "%")
    first, second = (theirs for _, _, theirs in PUBLISHED[:2])
    assert first is not None and second is not None
    result.add("published, gap of the first two", first - second, "points")
    for rate in (50_000, 25_000, REACHED):
        scenario = load_scenario("cache-rolling-restart")
        assert scenario.cache is not None and scenario.cache.scale is not None
        scale = scenario.cache.scale.model_copy(update={"entries_per_s": rate})
        readers = {
            name: group.model_copy(update={"lag_ms": (0, 1000 * BEHIND / rate)})
            for name, group in scenario.cache.readers.items()
        }
        spec = scenario.cache.model_copy(update={"scale": scale, "readers": readers})
        trace = plan_trace(
            scenario.model_copy(update={"cache": spec}), 20_000 if small else 400_000, 7
        )
        lines = [line for part in trace.slices() for line in part.lines()]
        blobs, _ = parsed(lines, "entry_cache", ROUTE, 1)
        assert trace.cache is not None
        caches = [{**given, "max_bytes": trace.cache.max_bytes} for _, given, _ in PUBLISHED]
        found = compare(
            blobs[0],
            params_of(
                JOB.name, release_event="entry_released", storage_reads="all", variants=caches
            ),
            until_ms=scenario.start_ms + scenario.duration_s * 1000,
        )
        ours = [
            result.add(f"{rate:,} entries/s, {name}", 100 * row["hit_ratio"], "%")
            for (name, _, _), row in zip(PUBLISHED, found, strict=True)
        ]
        if rate == REACHED:
            result.add(f"{rate:,} entries/s, gap of the first two", ours[0] - ours[1], "points")
