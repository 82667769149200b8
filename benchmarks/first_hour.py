"""What a first user waits for: refusals before Spark starts, and the first lines of a run.

Every command runs through `spark-submit.sh`, in a process of its own. The floor of a refusal is a
Python process that imports what a configuration is read with; that of a run is Spark itself, until
its session exists.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.generator.write import write_files
from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from tests.support.servers.process import free_ports

ROOT = Path(__file__).resolve().parents[1]
FLOOR, START = "floor: Python with pydantic and yaml", "floor: a Spark session"
AWAY = "a broker that is not there"
SESSION = """
from app.config.settings import load_settings
from app.run.session import build_session
build_session(load_settings(None, {"partitions": 2}), "floor").stop()
"""


def run(bench: Bench) -> Result:
    """Refusals some times each, and one run."""
    events = 20_000 if bench.small else 300_000
    result = Result("first_hour", events, bench.small)
    _refusals(result, bench.folder, 1 if bench.small else 5)
    _first_lines(result, bench.folder, events)
    return result


def _refusals(result: Result, folder: Path, repeats: int) -> None:
    bad = folder / "bad.yaml"
    bad.write_text("warehouse: w\nsource: {format: files, pth: /in}\n")
    (port,) = free_ports(1)
    away = folder / "away.yaml"
    away.write_text(
        f"warehouse: {folder / 'w'}\nsource: {{format: kafka, options: "
        f"{{kafka.bootstrap.servers: '127.0.0.1:{port}', subscribe: t}}}}\n"
    )
    commands: dict[str, Sequence[str]] = {
        "an unknown command": ["rum"],
        "an unknown option": ["run", "--confg", "x"],
        "a configuration that is missing": ["run", "--config", str(folder / "none.yaml")],
        "a mistake in a configuration": ["run", "--config", str(bad)],
        AWAY: ["run", "--config", str(away)],
    }
    value, spread = middle(
        [_seconds([sys.executable, "-c", "import pydantic, yaml"], 0) for _ in range(repeats)]
    )
    result.add(FLOOR, value, "s", spread)
    for name, words in commands.items():
        command = [str(ROOT / "spark-submit.sh"), *words]
        code = 75 if name == AWAY else 2
        value, spread = middle([_seconds(command, code) for _ in range(repeats)])
        result.add(f"refused: {name}", value, "s", spread)
        result.ratio(f"refused: {name}", FLOOR)


def _seconds(command: Sequence[str], code: int) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, cwd=ROOT, env=plain(), check=False)
    assert done.returncode == code, done.stderr.decode()
    return time.perf_counter() - began


def _first_lines(result: Result, folder: Path, events: int) -> None:
    write_files(plan_trace(load_scenario("demo"), events, 7), folder / "in")
    config = folder / "first.yaml"
    config.write_text(
        f"warehouse: {folder / 'first'}\nsource: {{format: files, path: {folder / 'in'}}}\n"
    )
    result.add(START, _seconds([sys.executable, "-c", SESSION], 0), "s")
    began = time.perf_counter()
    with subprocess.Popen(
        [str(ROOT / "spark-submit.sh"), "run", "--config", str(config), "--available-now"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=plain(),
    ) as process:
        assert process.stderr is not None
        seen: dict[str, float] = {}
        for line in process.stderr:
            for name, sign in (
                ("first line", r"Z INFO "),
                ("queries started", "waiting for the first batch"),
                ("figures of a batch", r"govern: [\d,]+ events/s"),
            ):
                if name not in seen and re.search(sign, line):
                    seen[name] = time.perf_counter() - began
    assert process.returncode == 0
    for name, at in seen.items():
        result.add(f"run: {name}", at, "s")
    result.ratio("run: queries started", START)


def plain() -> dict[str, str]:
    """The environment of a user: nothing that the benchmarks set for Spark's workers."""
    ours = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "WEIR_DRIVER_MEMORY")
    return {k: v for k, v in os.environ.items() if k not in ours}
