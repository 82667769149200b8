"""The command `replay` over an archive of the demo's fleet, against Spark reading and shuffling it.

A replay is a process of its own, as a user starts it: its speed is what it prints, with everything
from the first file it opens to the last commit; its memory is the most that the process held. The
floor reads the same columns of the same records with Spark on the same two cores and shuffles them
once; five jobs, each by its own key, would have to shuffle them five times. The same replay on Spark
runs in the session of the floor: its first one starts the Python workers and compiles Java.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import yaml

from app.config.settings import Settings, load_settings
from app.engine.operators import operators
from app.engine.routing import needed
from app.whatif.replay.archive import Archive
from app.whatif.replay.replay_command import Replay
from app.whatif.replay.replay_request import ReplayRequest
from benchmarks import archives
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.result import Result, middle
from benchmarks.stream import Bench, open_session
from state.jobs import BY_DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
FLOOR = "read and shuffled by Spark"
ALL, ONE = "replay of five jobs", "replay of rate_limits"
ON_SPARK = "replay of five jobs on Spark"
TURNS = 3
LARGE = 100_000_000


def run(bench: Bench) -> Result:
    """Floor and replays in turn; the middle one counts."""
    events = 20_000 if bench.small else 10_000_000
    return measured(bench, "replay", events, 1 if bench.small else TURNS)


def large(bench: Bench) -> Result:
    """A hundred million events in one go."""
    return measured(bench, "replay-large", 50_000 if bench.small else LARGE, 1)


def measured(bench: Bench, name: str, events: int, turns: int) -> Result:
    """The figures of one archive."""
    config = archived(bench.folder, events)
    settings = load_settings(config)
    result = Result(name, Archive(settings, {}).counted().total, bench.small)
    floors: list[float] = []
    spark = bench.spark or open_session()
    speeds: dict[str, list[float]] = {ALL: [], ONE: [], ON_SPARK: []}
    held: dict[str, list[float]] = {ALL: [], ONE: []}
    for turn in range(turns):
        floors.append(floor(bench, settings, result.events))
        for about, jobs in ((ALL, BY_DEFAULT), (ONE, ("rate_limits",))):
            speed, bytes_ = replayed(config, jobs, bench.folder / f"out-{name}-{turn}")
            speeds[about].append(speed)
            held[about].append(bytes_ / 2**20)
        if not turn:
            first = replayed_on_spark(spark, settings, bench.folder / f"out-{name}-spark")
        speeds[ON_SPARK].append(
            replayed_on_spark(spark, settings, bench.folder / f"out-{name}-spark")
        )
    result.add(FLOOR, *_with_spread(floors))
    for about, values in speeds.items():
        result.add(about, *_with_spread(values))
        if about in held:
            result.add(f"memory, {about}", max(held[about]), "MiB")
        result.ratio(about, FLOOR)
    result.ratio(ON_SPARK, ALL)
    result.add(f"{ON_SPARK}, first of a session", first, "events/s")
    return result


def archived(folder: Path, events: int) -> Path:
    """The configuration of a warehouse with the archive of so many events; one that is there
    stays."""
    place = folder / f"archive-{events}"
    config = place / "weir.yaml"
    if not config.exists():
        trace = plan_trace(load_scenario("demo"), events, 7)
        place.mkdir(parents=True)
        settings = {
            "warehouse": str(place / "warehouse"),
            "partitions": 2,
            "policies": trace.policies,
        }
        archives.build(load_settings(None, settings), trace, min(events // 4, 1_000_000))
        config.write_text(yaml.safe_dump(settings))
    return config


def floor(bench: Bench, settings: Settings, events: int) -> float:
    """Events per second that Spark reads, with the columns of all jobs, and shuffles."""
    spark = bench.spark or open_session()
    routes = {name: operator.route for name, operator in operators(settings, BY_DEFAULT).items()}
    columns, kinds = needed(routes)
    rows = spark.read.format("delta").load(f"{settings.warehouse}/events")
    rows = rows.where(rows.event_type.isin(*kinds)).select(*columns)
    began = time.perf_counter()
    rows.repartition(settings.shard_count, "cluster", "topic").write.format("noop").mode(
        "overwrite"
    ).save()
    return events / (time.perf_counter() - began)


def replayed(config: Path, jobs: tuple[str, ...], out: Path) -> tuple[float, int]:
    """Events per second of a replay, and the most bytes that its process held."""
    shutil.rmtree(out, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "app.main",
        "replay",
        "--config",
        str(config),
        "--out",
        str(out),
        "--jobs",
        ",".join(jobs),
    ]
    most = 0
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                most = max(most, watched.memory_info().rss)
            except psutil.Error:
                break
            time.sleep(0.05)
        assert process.stdout is not None
        printed = process.stdout.read()
    assert process.returncode == 0, printed
    shutil.rmtree(out)
    return _speed(printed), most


def replayed_on_spark(spark: SparkSession, settings: Settings, out: Path) -> float:
    """Events per second of a replay in a Spark session."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        replay = Replay(settings, ReplayRequest(str(out)), spark)
        replay.plan()
        replay.run()
    shutil.rmtree(out)
    return _speed(printed.getvalue())


def _speed(printed: str) -> float:
    """The records per second that a replay has printed."""
    found = re.search(r"records in .* \(([\d,]+) a second\)", printed)
    assert found is not None, printed
    return float(found[1].replace(",", ""))


def _with_spread(values: list[float]) -> tuple[float, str, tuple[float, float] | None]:
    value, spread = middle(values)
    return value, "events/s", spread
