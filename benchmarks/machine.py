"""The machine that figures come from, without its name."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

MEASURED = (".", ":!benchmarks/results", ":!tests/nightly.json")
"""What a commit is measured by: all but what measuring writes."""
PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "numba", "numpy", "pandas")


def describe() -> dict[str, Any]:
    """Processor, cores, memory and versions, the day, and the commit that is measured."""
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "python": platform.python_version(),
        "java": _java(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


def _commit() -> str | None:
    """The commit, with a mark where files other than outcomes are not as in it; None outside of a
    clone."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
    return f"{commit}-dirty" if commit and changed else commit or None


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def load() -> list[float]:
    """Load averages of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def load_within(most: float, patience_s: float) -> float:
    """The load of the last minute, once it is at most `most` or the time is up."""
    until = time.monotonic() + patience_s
    while (found := load()[0]) > most and time.monotonic() < until:
        time.sleep(1)
    return found


def _cpu() -> str:
    """Model, clock and the instruction set that matters to compiled loops."""
    info: dict[str, str] = {}
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            key, _, value = line.partition(":")
            info.setdefault(key.strip(), value.strip())
    name = info.get("model name") or platform.processor() or platform.machine()
    model = f" model {info['model']}" if "model" in info else ""
    wide = " avx512" if "avx512f" in info.get("flags", "") else ""
    return f"{name}{model}{wide}"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    done = subprocess.run(
        [f"{home}/bin/java" if home else "java", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stderr or done.stdout).splitlines()[0] if done.returncode == 0 else "none"
