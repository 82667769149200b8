"""A replay on a standalone cluster of this machine, with one executor of one CPU and with two.

A core of an executor is a thread of its JVM and a Python worker, which run beside each other: an
executor of one core keeps more than one CPU busy where it can. So each worker of the cluster is
pinned to a CPU, with all that it starts, and the driver shares that of the first one: from one
figure to the other a machine of one CPU is added, and nothing else.

Each number of executors is a session of its own, whose first replay starts the Python workers and
is not counted. What does not become shorter with more executors is measured apart: the driver's
CPU time, its planning (the first pass over two columns runs in tasks), its commits, and the time
that executors wait for a task between them.
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
PARTS = ("plan", "judge", "commit", "CPU of the driver", "CPU of executors", "CPU of the busier")
BUSY = "executors with a task, of the time between plan and commit"
LONGEST = "longest task, of all tasks"
BY_CPU = "by the CPU time of the busier machine"
"""The speed that nothing else on these CPUs makes slower."""


def run(bench: Bench) -> Result:
    """One executor and two, on the same archive."""
    config = archived(bench.folder, 20_000 if bench.small else 10_000_000)
    events = Archive(load_settings(config), {}).counted().total
    result = Result("replay-cluster", events, bench.small)
    names = {n: f"replay on {n} executor{'s' * (n > 1)} of one CPU" for n in EXECUTORS}
    for executors, name in names.items():
        with standalone(bench.folder, executors) as master:
            seconds, tasks_s = _in_session(master, executors, config, bench.folder)
        result.add(name, events / seconds["all"], "events/s")
        for part in PARTS:
            result.add(f"{part}, {name}", seconds[part], "s")
        busy = sum(tasks_s) / executors / seconds["judge"]
        result.add(f"{BUSY}, {name}", 100 * busy, "%")
        result.add(f"{LONGEST}, {name}", 100 * max(tasks_s) / sum(tasks_s), "%")
        result.add(f"{BY_CPU}, {name}", events / seconds["CPU of the busier"], "events/s")
    one, two = names.values()
    result.ratio(two, one)
    result.ratio(f"{BY_CPU}, {two}", f"{BY_CPU}, {one}")
    return result


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[str]:
    """The URL of a master with some workers of one core, each on a CPU."""
    port, *ports = free_ports(2 + workers)
    master = f"spark://127.0.0.1:{port}"
    spark = find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    # Weir's own configuration logs no start of a master
    started = ["env", f"SPARK_CONF_DIR={folder}", f"{Path(spark.origin).parent}/bin/spark-class"]
    at = ["--host", "127.0.0.1", "--webui-port"]
    program = "org.apache.spark.deploy"
    command = [*started, f"{program}.master.Master", *at, str(ports[0]), "--port", str(port)]
    servers = [(Server(command, folder / "master.log"), "New state: ALIVE")]
    for i, cpu in enumerate(_cpus()[:workers], 1):
        command = ["taskset", "--cpu-list", str(cpu), *started]
        command += [f"{program}.worker.Worker", *at, str(ports[i]), "--cores", "1"]
        command += ["--memory", "2g", "--work-dir", str(folder / f"work{i}"), master]
        servers.append((Server(command, folder / f"worker{i}.log"), "Successfully registered"))
    try:
        for server, text in servers:
            server.start(lambda log, text=text: text in log, timeout_s=90)
        yield master
    finally:
        for server, _ in reversed(servers):
            server.stop()


def _cpus() -> list[int]:
    """The CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


def _in_session(
    master: str, executors: int, config: Path, folder: Path
) -> tuple[dict[str, float], list[float]]:
    """Seconds of the second replay of a session, in a process of its own, and of its tasks."""
    events = folder / f"spark-events-{executors}"
    events.mkdir()
    confs = {
        "spark.executor.memory": MEMORY,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": f"file://{events}",
    }
    words = [word for key, value in confs.items() for word in ("--conf", f"{key}={value}")]
    variables = {**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join([*words, "pyspark-shell"])}
    out = str(folder / "out-cluster")
    command = ["taskset", "--cpu-list", str(_cpus()[0])]
    command += [sys.executable, "-m", __name__, master, str(config), out]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, text=True, stdout=subprocess.PIPE, check=True
    )
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    (log,) = events.iterdir()
    return seconds, _in_tasks(log, seconds.pop("planned_at"))


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
        before_s = _cpu_s_of(spark.sparkContext.applicationId)
        began = time.perf_counter()
        replay = Replay(settings, ReplayRequest(str(out)), spark)
        replay.plan()
        planned, planned_at = time.perf_counter(), time.time()
        replay.run()
        ended = time.perf_counter()
    after_s = _cpu_s_of(spark.sparkContext.applicationId)
    driver_s, *executors_s = (after_s[one] - before_s[one] for one in sorted(after_s))
    # The driver is on the CPU of one of the executors
    busier_s = max(executors_s[0] + driver_s, *executors_s)
    seconds = {
        "all": ended - began,
        "plan": planned - began,
        "judge": ended - planned - commit_s[0],
        "commit": commit_s[0],
        "planned_at": planned_at,
        "CPU of the driver": driver_s,
        "CPU of executors": sum(executors_s),
        "CPU of the busier": busier_s,
    }
    shutil.rmtree(out)
    spark.stop()
    return seconds


def _cpu_s_of(application: str) -> dict[tuple[int, int], float]:
    """CPU seconds of the driver, and of each executor with its Python workers, by the number of the
    executor's CPU; the driver comes first."""
    driver = psutil.Process()
    found = {(-1, 0): sum(map(_cpu_s, (driver, *driver.children())))}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if application in words and "--executor-id" in words:
            every = (process, *process.children(recursive=True))
            found[min(process.cpu_affinity()), process.pid] = sum(map(_cpu_s, every))
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _in_tasks(log: Path, since_s: float) -> list[float]:
    """Seconds of the tasks that began after a moment (s since the epoch)."""
    entries = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    tasks = (e["Task Info"] for e in entries if e["Event"] == "SparkListenerTaskEnd")
    return [
        (task["Finish Time"] - task["Launch Time"]) / 1000
        for task in tasks
        if task["Launch Time"] >= 1000 * since_s
    ]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
