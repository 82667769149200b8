"""Traces of the generator's cache scenarios, as files and packed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from app.config.settings import Settings
from app.jobs.entry_cache.whatif.curves import BakeOff
from app.jobs.entry_cache.whatif.trace import PackedTrace, read_trace
from benchmarks.generator.write import write_files
from tests.support.cache import records
from tests.support.planned import planned

Record = dict[str, Any]
SETTINGS = Settings(entry_cache={"release_event": "entry_released"})  # type: ignore[arg-type]


def generated(folder: Path, scenario: str, events: int) -> PackedTrace:
    """A scenario's trace, read from the files that `generate` writes."""
    write_files(planned(scenario, 7, events), folder)
    return read_trace(SETTINGS, folder)


def bake_off(trace: PackedTrace) -> BakeOff:
    """A trace, ready to be replayed."""
    return BakeOff(SETTINGS, trace, "entry_released")


@cache
def cache_records(scenario: str = "cache-key-shared", events: int = 12_000) -> list[Record]:
    """What a cache sees of a scenario, each record once and under the one name of its topic."""
    found = [{k: v for k, v in r.items() if k != "partition"} for r in records(scenario, events)]
    return [{**r, "seq": i} for i, r in enumerate(found)]


def write_lines(path: Path, lines: list[Record]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(r) + "\n" for r in lines))
    return path
