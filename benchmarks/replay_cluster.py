"""A replay on a standalone cluster of this machine, with one executor of one core and with two.

Each number of executors is a session of its own, whose first replay starts the Python workers and
is not counted. What does not become shorter with more executors is measured apart: the driver's
planning (the first pass over two columns runs in tasks), and its commits.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil

from app.config.settings import load_settings
from app.run.session import build_session
from app.whatif.replay.archive import Archive
from app.whatif.replay.out import ReplayFolder
from app.whatif.replay.replay_command import Replay
from app.whatif.replay.replay_request import ReplayRequest
from benchmarks.replay import ROOT, archived
from benchmarks.result import Result
from benchmarks.stream import Bench
from tests.support.servers.process import Server, free_ports

EXECUTORS = (1, 2)
MEMORY = "1536m"


def run(bench: Bench) -> Result:
    """One executor and two, on the same archive."""
    config = archived(bench.folder, 20_000 if bench.small else 10_000_000)
    events = Archive(load_settings(config), {}).counted().total
    result = Result("replay-cluster", events, bench.small)
    names = {n: f"replay on {n} executor{'s' * (n > 1)} of one core" for n in EXECUTORS}
    with standalone(bench.folder) as master:
        for executors, name in names.items():
            found = _in_session(master, executors, config, bench.folder / "out-cluster")
            result.add(name, events / found["all_s"], "events/s")
            for part in ("plan_s", "judge_s", "commit_s", "driver_cpu_s"):
                result.add(f"{part.removesuffix('_s')}, {name}", found[part], "s")
    result.ratio(names[2], names[1], 1.8)
    return result


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    port, *ports = free_ports(6)
    master = f"spark://127.0.0.1:{port}"
    spark = find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    # Weir's own configuration logs no start of a master
    started = ["env", f"SPARK_CONF_DIR={folder}", f"{Path(spark.origin).parent}/bin/spark-class"]
    at = ["--host", "127.0.0.1", "--webui-port"]
    program = "org.apache.spark.deploy"
    command = [*started, f"{program}.master.Master", *at, str(ports[0]), "--port", str(port)]
    servers = [(Server(command, folder / "master.log"), "New state: ALIVE")]
    for i in EXECUTORS:
        command = [*started, f"{program}.worker.Worker", *at, str(ports[i]), "--cores", "1"]
        command += ["--memory", "2g", "--work-dir", str(folder / f"work{i}"), master]
        servers.append((Server(command, folder / f"worker{i}.log"), "Successfully registered"))
    try:
        for server, text in servers:
            server.start(lambda log, text=text: text in log, timeout_s=90)
        yield master
    finally:
        for server, _ in reversed(servers):
            server.stop()


def _in_session(master: str, executors: int, config: Path, out: Path) -> dict[str, float]:
    """The second replay of a session, in a process of its own."""
    confs = {"spark.cores.max": executors, "spark.executor.memory": MEMORY}
    words = [word for key, value in confs.items() for word in ("--conf", f"{key}={value}")]
    variables = {**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join([*words, "pyspark-shell"])}
    command = [sys.executable, "-m", __name__, master, str(config), str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, text=True, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(master: str, config: Path, out: Path) -> dict[str, float]:
    """Seconds of a replay, and of its parts, in a session that has replayed before."""
    settings = load_settings(config)
    spark = build_session(settings, "weir-bench", master=master)
    commit, commit_s = ReplayFolder.commit, [0.0]

    def timed(*arguments: object) -> int:
        began = time.perf_counter()
        rows = commit(*arguments)  # type: ignore[arg-type]
        commit_s[0] = time.perf_counter() - began
        return rows

    ReplayFolder.commit = timed  # type: ignore[method-assign]
    for _ in range(2):
        shutil.rmtree(out, ignore_errors=True)
        cpu_s, began = _driver_cpu_s(), time.perf_counter()
        replay = Replay(settings, ReplayRequest(str(out)), spark)
        replay.plan()
        planned = time.perf_counter()
        replay.run()
        ended = time.perf_counter()
    shutil.rmtree(out)
    return {
        "all_s": ended - began,
        "plan_s": planned - began,
        "judge_s": ended - planned - commit_s[0],
        "commit_s": commit_s[0],
        "driver_cpu_s": _driver_cpu_s() - cpu_s,
    }


def _driver_cpu_s() -> float:
    """CPU seconds of this process and of its JVM."""
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children())]
    return sum(one.user + one.system for one in times)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
