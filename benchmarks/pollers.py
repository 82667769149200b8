"""What a poll of consumer groups costs: a simulated fleet, and a real broker.

The floor of a poll is what its answers and its records cost alone: the same JSON texts from the JVM
to Python objects, and the lines of its file written.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from app.config.kafka_groups import KafkaGroupsSettings
from app.jvm import driver_jvm
from app.sources.kafka.groups_poll import GroupPoller
from app.sources.spool import MEMORY
from benchmarks.fleet import GROUPS, TOPICS, Answered, Fleet, FleetClient, committing
from benchmarks.result import Result
from benchmarks.stream import Bench

"""The time in which a poll of 100,000 partitions and 5,000 groups is to end."""
MOVED = (("the first poll", 0.0), ("a poll without a change", 0.0), ("a poll, 10 % moved", 0.1))
COMMITTED = {"the first poll": 0, "a poll without a change": None, "a poll, all groups moved": 1}
"""Polls of the real broker, and the offset that all groups commit before."""


class Cost(NamedTuple):
    """What a poll took."""

    seconds: float
    cpu_s: float
    """Of Python and the JVM."""
    file_mb: float
    memory_mb: float
    """The file memory.json."""
    records: int


class Costs(NamedTuple):
    """What the polls of a process took."""

    polls: list[Cost]
    python_mb: float
    jvm_mb: float
    """Largest resident memory."""
    floors: Sequence[float] = ()
    """CPU seconds of the floor of each."""


def run(bench: Bench) -> Result:
    """Polls of fleets, and of a real broker."""
    result = Result("pollers", 0, bench.small)
    for topics in (40,) if bench.small else (2_500, 25_000):
        _simulated(bench, result, topics)
    _real(bench, result, Fleet(4 if bench.small else 250))
    return result


def _sized(fleet: Fleet) -> str:
    return f"{fleet.partitions:,} partitions, {len(fleet.groups):,} groups"


def _simulated(bench: Bench, result: Result, topics: int) -> None:
    fleet = Fleet(topics)
    folders = []
    for number, (_, moved) in enumerate(MOVED):
        folders.append(bench.folder / f"fleet-{topics}-{number}")
        fleet.write(folders[-1], moved)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        costs = process.submit(_polls, folders, bench.folder / f"spool-{topics}").result()
    what = _sized(fleet)
    for (name, _), cost, least in zip(MOVED, costs.polls, costs.floors, strict=True):
        floor, figure = f"floor: {what}, {name}", f"{what}, {name}"
        result.add(floor, least, "CPU s")
        result.add(f"{figure}, CPU", cost.cpu_s, "CPU s")
        result.ratio(f"{figure}, CPU", floor)
        result.add(figure, cost.seconds, "s", note=f"{cost.records:,} records")
        result.add(f"{figure}: its file", cost.file_mb, "MB")
        result.add(f"{figure}: memory.json", cost.memory_mb, "MB")
    result.add(f"{what}: memory of Python", costs.python_mb, "MB")
    result.add(f"{what}: memory of the JVM", costs.jvm_mb, "MB")


def _real(bench: Bench, result: Result, fleet: Fleet) -> None:
    """Three polls of a real broker: the first, one like it, and one after the groups moved."""
    # An index takes its largest size from the start.
    with (
        bench.broker("pollers", {"log.index.size.max.bytes": 4096}) as broker,
        ProcessPoolExecutor(1, get_context("spawn")) as process,
    ):
        spool = bench.folder / "spool-real"
        costs = process.submit(_real_polls, fleet, broker.servers, spool).result()
    what = f"a real broker, {_sized(fleet)}"
    for name, cost in zip(COMMITTED, costs.polls, strict=True):
        result.add(f"{what}, {name}", cost.seconds, "s", note=f"{cost.records:,} records")
        result.add(f"{what}, {name}, CPU", cost.cpu_s, "CPU s")
    result.add(f"{what}: memory of Python", costs.python_mb, "MB")
    result.add(f"{what}: memory of the JVM", costs.jvm_mb, "MB")


def _real_polls(fleet: Fleet, servers: str, spool: Path) -> Costs:
    """Polls of a broker, in a process with a JVM of its own."""
    settings = KafkaGroupsSettings(
        options={"bootstrap.servers": servers}, topics=TOPICS, groups=GROUPS
    )
    poller = GroupPoller(settings, spool, print)
    jvm = _jvm()
    costs = []
    with closing(poller), committing(fleet, servers) as commit:
        for name, offset in COMMITTED.items():
            if offset is not None:
                commit(offset)
            costs.append(_poll(poller, int(time.time() * 1000), jvm))
            assert poller.last.polled == fleet.partitions, (name, poller.last)
    return Costs(costs, _peak_mb("self"), _peak_mb(jvm))


def _poll(poller: GroupPoller, at_ms: int, jvm: str) -> Cost:
    began, cpu = time.perf_counter(), _cpu(jvm)
    path = poller.poll_once(at_ms)
    seconds, used = time.perf_counter() - began, _cpu(jvm) - cpu
    assert path is not None and not poller.last.problems, poller.last
    memory = poller.spool.folder / MEMORY
    megabytes = [file.stat().st_size / 1e6 for file in (path, memory)]
    return Cost(seconds, used, *megabytes, poller.last.records)


def _polls(folders: list[Path], spool: Path) -> Costs:
    """A poll of each folder of answers, in a process with a JVM of its own."""
    at_ms = int(time.time() * 1000)
    settings = KafkaGroupsSettings(options={"bootstrap.servers": "127.0.0.1:1"}, timeout_ms=600_000)
    client = FleetClient(settings, at_ms)
    poller = GroupPoller(settings, spool, print, client=client)
    jvm = _jvm()
    costs = []
    for number, folder in enumerate(folders):
        client.requests.folder = folder
        costs.append(_poll(poller, at_ms + number * 60_000, jvm))
    peak = _peak_mb("self"), _peak_mb(jvm)
    files = sorted(poller.records.iterdir())
    floors = [_floor(*each, jvm) for each in zip(folders, files, strict=True)]
    return Costs(costs, *peak, floors)


def _floor(folder: Path, path: Path, jvm: str) -> float:
    """CPU seconds for the answers as Python objects, and for the lines packed and written."""
    lines = gzip.decompress(path.read_bytes())
    cpu = _cpu(jvm)
    for answer in folder.iterdir():
        json.loads(Answered(driver_jvm(), answer).json())
    with path.with_name("floor").open("wb") as out:
        out.write(gzip.compress(lines, 1))
        out.flush()
        os.fsync(out.fileno())
    used = _cpu(jvm) - cpu
    path.with_name("floor").unlink()
    return used


def _jvm() -> str:
    """The process id of the JVM."""
    pid: str = str(driver_jvm().java.lang.ProcessHandle.current().pid())
    return pid


def _cpu(jvm: str) -> float:
    """CPU seconds of this process and the JVM so far."""
    fields = Path(f"/proc/{jvm}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: str) -> float:
    """The largest resident memory of a process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kib,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return int(kib) / 1000
