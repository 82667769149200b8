"""Benchmarks: floors and figures of one machine in one run.

    python -m benchmarks [--small] [--out FOLDER] [NAME...]
    python -m benchmarks --table
    python -m benchmarks generate [--scenario NAME] [--events N] [--seed N] --out FOLDER
    python -m benchmarks record

Without names all of them run but `suite`, `compile`, `replay_large`, `replay_cluster`. Results go to
benchmarks/results/NAME.json, each with the commit, the machine, its load and the floors that were
measured beside the figures; small runs write nothing without --out, and others do not begin on a
machine with a load above 0.7 unless --busy says so. `--table` measures nothing: it puts the
results into docs/benchmarks.md, and what the command `size` computes with into
app/setup/coefficients.json. `generate` writes a trace of a scenario with its configuration, `record`
makes the recording anew that the command `demo` plays.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHES = {
    "generator": "generating.run",
    "core": "core.run",
    "state": "core.state_size",
    "steps": "steps.run",
    "columnar": "columnar.run",
    "govern": "end_to_end.run",
    "demo": "end_to_end.demo",
    "govern_all": "all_jobs.run",
    "six_jobs": "all_jobs.six",
    "small_batches": "all_jobs.small_batches",
    "commits": "commits.run",
    "layers": "layers.run",
    "shadows": "shadows.run",
    "topics": "end_to_end.topics",
    "transport": "transport.run",
    "freshness": "freshness.run",
    "claim": "claim.run",
    "chunks": "chunks.run",
    "producer_ids": "producer_ids.run",
    "client_quotas": "client_quotas.run",
    "backlog": "backlog.run",
    "backlog_job": "backlog.job",
    "entry_cache": "entry_cache.run",
    "query": "query.run",
    "maintenance": "maintenance.run",
    "flood": "flood.run",
    "flood_shapes": "flood.shapes",
    "first_hour": "first_hour.run",
    "storage": "storage.run",
    "store": "object_store.run",
    "plugin": "plugin.run",
    "pollers": "pollers.run",
    "weight": "weight.run",
    "reporter": "reporter.run",
    "replay": "replay.run",
}
ALONE = {
    "suite": "suite.run",
    "compile": "compiling.run",
    "replay_large": "replay.large",
    "replay_cluster": "replay_cluster.run",
}
"""Benchmarks that run only if they are named."""
MOST_LOAD = 0.7
"""Of the last minute, at the beginning of each benchmark."""
AFTERWARDS_S = 300
"""How long the next benchmark waits for what the one before left behind."""
RESULTS = (
    "govern",
    "govern-demo",
    "govern-all",
    "six-jobs",
    "small-batches",
    "commits",
    "layers",
    "shadows",
    "columnar",
    "transport",
    "core",
    "steps",
    "topics",
    "state",
    "freshness",
    "generator",
    "claim",
    "chunks",
    "producer_ids",
    "client_quotas",
    "backlog",
    "backlog_job",
    "entry_cache",
    "query",
    "flood",
    "flood_shapes",
    "first_hour",
    "storage",
    "store",
    "plugin",
    "pollers",
    "weight",
    "reporter",
    "replay",
    "replay-large",
    "replay-cluster",
    "compile",
    "suite",
)
"""Result files in the order of docs/benchmarks.md."""
WITHOUT_SPARK = (
    "generator",
    "core",
    "state",
    "steps",
    "freshness",
    "claim",
    "backlog",
    "entry_cache",
    "query",
    "maintenance",
    "flood",
    "flood_shapes",
    "first_hour",
    "storage",
    "store",
    "plugin",
    "pollers",
    "weight",
    "reporter",
    "suite",
    "compile",
    "replay_cluster",
)


def environment() -> None:
    """What Spark's workers inherit; read once by pyspark and numba, so before their import."""
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        SPARK_CONF_DIR=str(ROOT / "conf"),
        SPARK_LOCAL_IP="127.0.0.1",
        OMP_NUM_THREADS="1",
        TZ="UTC",
    )
    os.environ.setdefault("WEIR_DRIVER_MEMORY", "4g")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".pytest_cache" / "numba"))
    os.environ.pop("SPARK_HOME", None)
    time.tzset()


def bench(name: str) -> Callable[..., object]:
    """The function of a benchmark."""
    module, function = {**BENCHES, **ALONE}[name].split(".")
    found: Callable[..., object] = getattr(import_module(f"benchmarks.{module}"), function)
    return found


def main() -> None:
    """Run the benchmarks that are named, or make a trace."""
    if sys.argv[1:2] in (["generate"], ["record"]):
        environment()
        from benchmarks.generator import generate_command, record

        if sys.argv[1] == "generate":
            sys.exit(generate_command.main(sys.argv[2:]))
        record.record(record.FOLDER, record.planned())
        return
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((*BENCHES, *ALONE)))
    parser.add_argument("--small", action="store_true", help="a few thousand events each")
    parser.add_argument("--out", type=Path, help="where the result files go")
    parser.add_argument("--busy", action="store_true", help="measure beside other work, too")
    parser.add_argument(
        "--table",
        action="store_true",
        help="rewrite docs/benchmarks.md and app/setup/coefficients.json",
    )
    options = parser.parse_args()
    for name in options.names:
        if name not in {*BENCHES, *ALONE}:
            parser.error(f"{name} is not one of {', '.join((*BENCHES, *ALONE))}")
    environment()
    if options.table:
        from benchmarks.coefficients import write
        from benchmarks.table import DOCUMENT, with_results

        DOCUMENT.write_text(with_results(DOCUMENT.read_text("utf-8"), RESULTS), "utf-8")
        write()
        return
    from benchmarks import machine
    from benchmarks.result import FOLDER, Result
    from benchmarks.stream import Bench, open_session

    is_free = options.small or options.busy
    names = options.names or list(BENCHES)
    spark = open_session() if any(n not in WITHOUT_SPARK for n in names) else None
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        for name in names:
            patience_s = 0 if name == names[0] else AFTERWARDS_S
            load = 0.0 if is_free else machine.load_within(MOST_LOAD, patience_s)
            if load > MOST_LOAD:
                parser.error(
                    f"the machine has other work (load {load}): wait for it, or say --busy"
                )
            print(name, flush=True)
            result = bench(name)(Bench(spark, Path(folder), options.small))
            assert isinstance(result, Result)
            if options.out or not options.small:
                result.write(options.out or FOLDER)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
