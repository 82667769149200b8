"""What a run of polled clusters weighs: one cluster, and twenty of them with the same groups."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import psutil
import yaml

from benchmarks.first_hour import ROOT, plain
from benchmarks.fleet import Fleet, committing
from benchmarks.result import Result
from benchmarks.stream import Bench

CLUSTERS = 20
WANTED_MB = 2000.0
SETTLED_S = 240


def run(bench: Bench) -> Result:
    """Runs by `spark-submit.sh` with its defaults; the clusters are one broker under several names."""
    result = Result("weight", 0, bench.small)
    fleet = Fleet(5 if bench.small else 250, per_topic=4)
    seconds = 25 if bench.small else SETTLED_S
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
            for name, held in _held_mb(config, seconds).items():
                result.add(f"{what}: {name}", held, "MB", note=f"after {seconds} s")
    together = f"{what}: together"
    result.add("wanted at most", WANTED_MB, "MB")
    result.ratio(together, "wanted at most", 1.0)
    result.ratio(together, f"1 cluster, {len(fleet.groups):,} groups each: together")
    return result


def _commit(fleet: Fleet, servers: str) -> None:
    with committing(fleet, servers) as commit:
        commit(1)


def _held_mb(config: Path, seconds: int) -> Mapping[str, float]:
    """Proportional set sizes of the processes of a run."""
    line = [str(ROOT / "spark-submit.sh"), "run", "--config", str(config)]
    with (
        config.with_suffix(".log").open("wb") as log,
        subprocess.Popen(line, stdout=log, stderr=log, cwd=ROOT, env=plain()) as process,
    ):
        time.sleep(seconds)
        assert process.poll() is None, config.with_suffix(".log").read_text()
        root = psutil.Process(process.pid)
        held: dict[str, float] = {"JVM": 0.0, "Python": 0.0}
        for each in (root, *root.children(recursive=True)):
            kind = "JVM" if each.name().startswith("java") else "Python"
            held[kind] += each.memory_full_info().pss / 1e6
        process.terminate()
    return {**held, "together": sum(held.values())}
