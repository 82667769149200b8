"""What a run of polled clusters weighs: one cluster, and twenty of them with the same groups."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import psutil
import yaml

from benchmarks.first_hour import ROOT, plain
from benchmarks.fleet import Fleet, committing
from benchmarks.result import Result, middle
from benchmarks.stream import Bench

CLUSTERS = 20
SETTLED_S, LOOKED_S = 120, 120
"""The time from the start until the first look, and during which each second is looked at."""


def run(bench: Bench) -> Result:
    """Runs by `spark-submit.sh` with its defaults; the clusters are one broker under several names."""
    result = Result("weight", 0, bench.small)
    fleet = Fleet(5 if bench.small else 250, per_topic=4)
    settled_s, looked_s = (20, 5) if bench.small else (SETTLED_S, LOOKED_S)
    with bench.broker("weight", {"log.index.size.max.bytes": 4096}) as broker:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            process.submit(_commit, fleet, broker.servers).result()
        for clusters in (1, 2 if bench.small else CLUSTERS):
            what = f"{clusters} cluster{'s' if clusters > 1 else ''}, {len(fleet.groups):,} groups each"
            config = bench.folder / f"weight-{clusters}.yaml"
            feeds = [
                {
                    "cluster": f"cluster-{n:02d}",
                    "format": ["kafka_groups", "kafka_producers"],
                    "options": {"kafka.bootstrap.servers": broker.servers},
                }
                for n in range(clusters)
            ]
            warehouse = str(bench.folder / f"weight-{clusters}")
            config.write_text(yaml.safe_dump({"warehouse": warehouse, "source": feeds}))
            looks = _looks(config, settled_s, looked_s)
            for name in ("JVM", "Python", "together"):
                value, spread = middle([look[name] for look in looks])
                result.add(f"{what}: {name}", value, "MB", spread)
            result.add(f"{what}: at most", max(look["together"] for look in looks), "MB")
            seconds = looks[-1]["clock_s"] - looks[0]["clock_s"]
            used = looks[-1]["cpu_s"] - looks[0]["cpu_s"]
            result.add(f"{what}: CPU", 60 * used / seconds, "s a minute")
    result.ratio(f"{what}: at most", f"1 cluster, {len(fleet.groups):,} groups each: at most")
    return result


def _commit(fleet: Fleet, servers: str) -> None:
    with committing(fleet, servers) as commit:
        commit(1)


def _looks(config: Path, settled_s: int, looked_s: int) -> list[Mapping[str, float]]:
    """What the processes of a run hold (MB, proportional set sizes) and have used, second after
    second."""
    line = [str(ROOT / "spark-submit.sh"), "run", "--config", str(config)]
    with (
        config.with_suffix(".log").open("wb") as log,
        subprocess.Popen(line, stdout=log, stderr=log, cwd=ROOT, env=plain()) as process,
    ):
        time.sleep(settled_s)
        looks = []
        for _ in range(looked_s):
            time.sleep(1)
            assert process.poll() is None, config.with_suffix(".log").read_text()
            looks.append(_look(psutil.Process(process.pid)))
        process.terminate()
    return looks


def _look(root: psutil.Process) -> Mapping[str, float]:
    held, cpu_s = {"JVM": 0.0, "Python": 0.0}, 0.0
    for each in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):  # a worker that has ended
            kind = "JVM" if each.name().startswith("java") else "Python"
            held[kind] += each.memory_full_info().pss / 1e6
            cpu_s += sum(each.cpu_times()[:4])  # with those of its children that have ended
    return {
        **held,
        "together": sum(held.values()),
        "cpu_s": cpu_s,
        "clock_s": time.monotonic(),
    }
