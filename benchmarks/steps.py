"""What the five jobs cost without Spark: CPU of a small step, of packing, and of large batches.

The demo's trace goes through the packer and the cores in one process, in the order of time, as a
stream brings it. The records of one shard of each job, its busiest, are set aside; from them come
the small steps: a state is made first, then step after step has its number of records.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.config.settings import Settings, load_settings
from app.engine.operators import Operator, limits_of, operators
from app.engine.routing import packer
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import Trace, plan_trace
from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from state.engine.blobs import Blob
from state.engine.job import Step
from state.engine.reach import Reach
from state.events import TOO_LATE
from state.jobs import BY_DEFAULT

Pack = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
PACKED_AT_ONCE, STEPPED_AT_ONCE = 50_000, 200_000
WARM, FEW, CALLS, MANY, REPEATED = 5_000, 100, 100, 10_000, 3
"""Records before the first step that counts; records of a small step and how many there are, each
followed by one without records; records of a larger step, and how often each of them is called,
always with the same state."""
LATE_AT_MOST = 0.01
"""Share of records that come too late: what is refused does not cost what is judged costs."""
PACK, STEPS, SHUFFLED = "pack, five jobs", "steps, five jobs", "shuffled"


def run(bench: Bench) -> Result:
    """Large batches of the whole trace, then small steps of each job."""
    events = 60_000 if bench.small else 4_000_000
    trace = plan_trace(load_scenario("demo"), events, 7)
    settings = load_settings(None, {"partitions": 2, "policies": trace.policies})
    jobs = operators(settings, BY_DEFAULT)
    busiest = _busiest(plan_trace(load_scenario("demo"), 60_000, 7), settings, jobs)
    result = Result("steps", 0, bench.small)
    large = Large(settings, jobs, busiest)
    size = 10_000 if bench.small else PACKED_AT_ONCE
    for batch in _batches(trace, size):
        large.take(batch, 2 * size if bench.small else STEPPED_AT_ONCE)
    result.events = large.packed.events
    assert large.refused <= LATE_AT_MOST * result.events, f"{large.refused:,} records too late"
    for name, (value, spread), unit in (
        (PACK, large.packed.cost(), "µs per event"),
        (STEPS, large.stepped.cost(), "µs per event"),
        (SHUFFLED, (large.bytes / large.packed.events, None), "bytes per event"),
    ):
        result.add(name, value, unit, spread)
    for job in BY_DEFAULT:
        cost = [c / e for c, e in zip(large.by_job[job], large.stepped.counts, strict=True)]
        result.add(
            f"{job}, large batches", 1e6 * middle(cost[large.stepped.first :])[0], "µs per event"
        )
    for job in BY_DEFAULT:
        small = _small_steps(jobs[job], busiest[job], large.lines[job], settings, bench.small)
        for number, spent in small.items():
            value, spread = middle(spent)
            result.add(f"{job}, {number:,} records", value, "ms", spread, f"{len(spent)} calls")
    return result


@dataclass
class Cost:
    """CPU seconds and events of batches; the first ones, which warm a process up, do not count."""

    seconds: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    @property
    def events(self) -> int:
        """Events of all batches."""
        return sum(self.counts)

    @property
    def first(self) -> int:
        """How many batches do not count: a quarter of them."""
        return len(self.counts) // 4

    def cost(self) -> tuple[float, tuple[float, float] | None]:
        """Microseconds per event."""
        costs = [1e6 * s / n for s, n in zip(self.seconds, self.counts, strict=True)]
        return middle(costs[self.first :])


class Large:
    """The trace through packer and cores in large batches, and what they cost."""

    def __init__(
        self, settings: Settings, jobs: dict[str, Operator], shards: dict[str, int]
    ) -> None:
        """`shards` are those whose records are set aside, by job."""
        self.packed, self.stepped, self.bytes = Cost(), Cost(), 0
        self.by_job: dict[str, list[float]] = {job: [] for job in jobs}
        self.lines: dict[str, list[pa.RecordBatch]] = {job: [] for job in jobs}
        self._settings, self._jobs, self._shards = settings, jobs, shards
        self._pack = _packer(settings, jobs)
        self._states: dict[tuple[str, int], bytes] = {}
        self._blobs: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self._latest_ms = self._clock_ms = self._waiting = 0
        self.refused = 0
        """Records that came too late."""

    def take(self, batch: pa.RecordBatch, stepped_at_once: int) -> None:
        """Pack a batch; once as many events wait, the cores judge them."""
        began = time.process_time()
        packed = list(self._pack(iter([batch])))
        self.packed.seconds.append(time.process_time() - began)
        self.packed.counts.append(batch.num_rows)
        first = batch.column("source_offset")[0].as_py()
        for job, shard, blob in _blobs(packed):
            self.bytes += len(blob)
            self._blobs[job, shard].append(blob)
            if self._shards[job] == shard:
                self.lines[job].append(batch.take(pa.array(_offsets(blob) - first)))
        self._waiting += batch.num_rows
        self._latest_ms = max(self._latest_ms, _latest_ms(packed))
        if self._waiting >= stepped_at_once:
            self._step()

    def _step(self) -> None:
        """Judge what waits, by the stream's clock as the batch before left it."""
        used = dict.fromkeys(self._jobs, 0.0)
        for key, blobs in self._blobs.items():
            core = self._jobs[key[0]].job
            began = time.process_time()
            answer = core.step(self._states.get(key), blobs, Reach(self._clock_ms))
            used[key[0]] += time.process_time() - began
            self._states[key] = answer.state
            self.refused += _too_late(answer)
        for job, costs in self.by_job.items():
            costs.append(used[job])
        self.stepped.seconds.append(sum(used.values()))
        self.stepped.counts.append(self._waiting)
        self._blobs.clear()
        self._clock_ms = max(self._latest_ms - self._settings.idle_advance_ms, 0)
        self._waiting = 0


def _small_steps(
    operator: Operator, shard: int, lines: Sequence[pa.RecordBatch], settings: Settings, small: bool
) -> dict[int, list[float]]:
    """Milliseconds of CPU of each call with a number of records of one shard."""
    records = pa.Table.from_batches(lines)
    pack = _packer(settings, {operator.job.name: operator})
    warm, calls, many = (100, 2, 150) if small else (WARM, CALLS, MANY)
    found: dict[int, list[float]] = {0: [], FEW: [], many: []}
    sizes = [warm] + [FEW] * calls
    sizes += [many] * ((records.num_rows - sum(sizes)) // many)
    state, clock, at, refused = None, 0, 0, 0
    for number, size in enumerate(sizes):
        packed = list(pack(iter(records.slice(at, size).combine_chunks().to_batches())))
        blobs = [blob for _, place, blob in _blobs(packed) if place == shard]
        at += size
        for _ in range(1 if number <= calls else REPEATED):
            spent, answer = _step(operator, state, blobs, clock)
            if number:
                found[size].append(spent)
        state, refused = answer.state, refused + _too_late(answer)
        clock = max(clock, _latest_ms(packed) - settings.idle_advance_ms)
        if 0 < number <= calls:
            spent, _ = _step(operator, state, [], clock)
            found[0].append(spent)
    assert refused <= LATE_AT_MOST * at, f"{operator.job.name}: {refused:,} records too late"
    return found


def _step(
    operator: Operator, state: bytes | None, blobs: Sequence[bytes], clock: int
) -> tuple[float, Step]:
    """Milliseconds of CPU, and the answer."""
    began = time.process_time()
    answer = operator.job.step(state, blobs, Reach(clock))
    return 1000 * (time.process_time() - began), answer


def _too_late(answer: Step) -> int:
    """Records that a step refused because they came too late."""
    quarantine = answer.tables.get("quarantine")
    if quarantine is None:
        return 0
    return int(pc.sum(pc.equal(quarantine["reason_code"], TOO_LATE)).as_py())


def _busiest(trace: Trace, settings: Settings, jobs: dict[str, Operator]) -> dict[str, int]:
    """By job the shard with the most records."""
    pack = _packer(settings, jobs)
    found: dict[str, Counter[int]] = {job: Counter() for job in jobs}
    for batch in _batches(trace, PACKED_AT_ONCE):
        for job, shard, blob in _blobs(pack(iter([batch]))):
            found[job][shard] += Blob(blob).length
    return {job: shards.most_common(1)[0][0] for job, shards in found.items()}


def _packer(settings: Settings, jobs: dict[str, Operator]) -> Pack:
    routes = {name: operator.route for name, operator in jobs.items()}
    return packer(routes, settings.shard_count, limits_of(settings))


def _batches(trace: Trace, size: int) -> Iterator[pa.RecordBatch]:
    """The trace as raw records in order of arrival; the last ones, fewer than `size`, are left
    out."""
    lines: list[bytes] = []
    offset = 0
    for part in trace.slices():
        lines += part.lines()
        while len(lines) >= size:
            yield pa.record_batch(
                {
                    "value": pa.array(lines[:size], pa.binary()),
                    "source_partition": pa.repeat(pa.scalar("0"), size),
                    "source_offset": pa.array(np.arange(offset, offset + size)),
                }
            )
            del lines[:size]
            offset += size


def _blobs(packed: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, bytes]]:
    """Job, shard and blob of the packed rows of jobs."""
    for rows in packed:
        columns = (rows.column(name).to_pylist() for name in ("job", "shard", "blob"))
        for job, shard, blob in zip(*columns, strict=True):
            if job in BY_DEFAULT:
                yield job, shard, blob


def _offsets(blob: bytes) -> np.ndarray:
    """Offsets of the records of a blob, in order of arrival."""
    (offsets,) = Blob(blob).values(("source_offset",))
    return np.sort(offsets)


def _latest_ms(packed: Iterable[pa.RecordBatch]) -> int:
    """The latest wall time of packed records."""
    latest = [pc.max(rows.column("ts").cast(pa.int64())).as_py() or 0 for rows in packed]
    return max(latest, default=0) // 1000
