"""What each layer of the query of five jobs costs: the query is run again with one more of them.

Text handed to Python and dropped; scanned, validated, routed and packed; shuffled to steps that
keep their state and answer nothing; and everything. The first three are floors: what remains of
the time when no rule of a job runs and no row is written. In large batches from JSON lines, and in
batches of 5,000 events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from app.engine import govern
from app.engine.messages import PACKED, PACKED_SCHEMA
from app.engine.operators import Operator, limits_of, operators
from app.engine.routing import packer
from app.sources import open_stream
from app.sources.worker import settle
from benchmarks import floors
from benchmarks.all_jobs import BATCHES, CONTRACT, SMALL_BATCHES, Demo
from benchmarks.result import Result, middle
from benchmarks.stream import END, Bench, Speed, finished
from state.engine.job import Step
from state.engine.reach import Reach
from state.jobs import BY_DEFAULT

if TYPE_CHECKING:
    from app.config.settings import Settings

Batches = Iterator[pa.RecordBatch]
HANDED, PACKED_ONLY, SILENT, ALL = (
    "text handed to Python",
    "packed",
    "shuffled to steps that answer nothing",
    "five jobs",
)


def run(bench: Bench) -> Result:
    """Layers in turn, several times; the middle of each counts."""
    events, rounds, parts = (20_000, 1, SMALL_BATCHES) if bench.small else (2_000_000, 3, BATCHES)
    size, batches = (6_000, 3) if bench.small else (5_000, 30)
    large = Demo.written(bench.folder / "layers-large", events, parts)
    small = Demo.in_batches(bench.folder / "layers-small", size, batches)
    floor: list[Speed] = []
    in_large: dict[str, list[Speed]] = {name: [] for name in LAYERS}
    in_small: dict[str, list[Speed]] = {name: [] for name in LAYERS}
    for number in range(rounds):
        parsed = floors.parsed(large.lines(bench), None)
        floor.append(bench.to_nothing(parsed, f"layers-floor-{number}"))
        for demo, found in ((large, in_large), (small, in_small)):
            for name, layer in LAYERS.items():
                key = f"{demo.folder.name}-{name.replace(' ', '-')}-{number}"
                settings = bench.settings(key, demo.source, policies=demo.policies)
                found[name].append(layer(bench, settings, key))
    result = Result("layers", large.events, bench.small)
    for name, speeds in {CONTRACT: floor, **in_large}.items():
        value, spread = middle([s.median for s in speeds])
        result.add(name, value, spread=spread)
    for name, speeds in in_small.items():
        value, spread = middle([s.batch_ms for s in speeds])
        result.add(f"{name}, batch of {size:,} events", value, "ms", spread)
    for name in LAYERS:
        result.ratio(name, CONTRACT)
    return result


def _handed(bench: Bench, settings: Settings, key: str) -> Speed:
    return bench.to_nothing(open_stream(bench.spark, settings).through(_dropped(), PACKED), key)


def _packed(bench: Bench, settings: Settings, key: str) -> Speed:
    routes = {name: o.route for name, o in operators(settings, BY_DEFAULT, in_stream=True).items()}
    pack = packer(routes, settings.shard_count, limits_of(settings))
    return bench.to_nothing(
        open_stream(bench.spark, settings).through(_dropped(pack), PACKED),
        key,
    )


def _dropped(pack: Callable[[Batches], Batches] | None = None) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow` that reads what it is given, or what `pack` makes of it."""

    def drop(batches: Batches) -> Batches:
        settle()  # what Weir's workers are spared, the floor is spared
        for _ in pack(batches) if pack else batches:
            yield _NOTHING

    return drop


_NOTHING = pa.RecordBatch.from_pylist([], PACKED_SCHEMA)


@dataclass(frozen=True)
class Silent:
    """The core of a job that keeps a state and judges nothing."""

    name: str

    def step(self, state: bytes | None, blobs: Sequence[bytes], reach: Reach) -> Step:
        """The state as it is."""
        return Step(state or b"state")


def _silent(bench: Bench, settings: Settings, key: str) -> Speed:
    def without_rules(*args: Any, **more: Any) -> dict[str, Operator]:
        return {
            name: replace(one, job=Silent(one.job.name))
            for name, one in operators(*args, **more).items()
        }

    with mock.patch.object(govern, "operators", without_rules):
        return finished(govern.start(bench.spark, settings, BY_DEFAULT, END))


def _all(bench: Bench, settings: Settings, key: str) -> Speed:
    return finished(govern.start(bench.spark, settings, BY_DEFAULT, END))


LAYERS = {HANDED: _handed, PACKED_ONLY: _packed, SILENT: _silent, ALL: _all}
