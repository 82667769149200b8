"""How long everything that is compiled takes to compile, as set-up does it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.result import Result
from benchmarks.stream import Bench

ROOT = Path(__file__).resolve().parents[1]


def run(bench: Bench) -> Result:
    """`app.setup.warm` into an empty cache; of a small run what all jobs share."""
    cache = bench.folder / "numba"
    cache.mkdir()
    command = [sys.executable, "-m", "app.setup.warm"]
    if bench.small:
        command = [sys.executable, "-c", "from app.setup.warm import warm; warm([])"]
    before = _cpu_s()
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, check=True)
    passed = time.perf_counter() - began
    result = Result("compile", 0, bench.small)
    stored = sum(path.suffix == ".nbi" for path in cache.rglob("*"))
    assert stored
    result.add("floor: CPU time by cores", (_cpu_s() - before) / (os.cpu_count() or 1), "s")
    result.add("compilation", passed, "s", note=f"{stored} functions, processes' start included")
    result.ratio("compilation", "floor: CPU time by cores")
    return result


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
