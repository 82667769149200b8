"""Several disasters on one warehouse, one after the other: `python -m tests.crash --minutes 60
--only storm` is the soak, each time on other records."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.crash.clock import HOUR_S, no_compiler, shifted
from tests.crash.damage import damage_a_file, miss_a_file
from tests.crash.disaster import Disaster
from tests.crash.kills import found_processes
from tests.crash.service import WORKER, Failed, Service
from tests.crash.site import FILES, Site

STARTS = (2, 3)
CLOCKS_S = (0, HOUR_S // 2, HOUR_S, -HOUR_S, 24 * HOUR_S, -24 * HOUR_S)
"""How far the wall clock of all processes is ahead."""
MOST_BYTES = 1 << 30
"""Of memory in a process of Python."""
LOOK_S = 0.1


def storm(site: Site) -> None:
    """Kills, clocks that jump and files that vanish, a few times; at the end a file of the
    warehouse is damaged."""
    site.write_config(
        source={
            **site.settings.feed.model_dump(include={"format", "path"}),
            "options": {"maxFilesPerTrigger": 1},
        }
    )
    ahead_s = 0
    for _ in range(site.chance.randint(*STARTS)):
        with site.running(variables=shifted(site.folder, ahead_s)) as run, memory_bounded(run):
            for _ in range(site.chance.randint(1, 3)):
                _go_on(site, run)
                ahead_s = _happen(site, run, ahead_s)
                if not run.alive:
                    break
            else:
                run.stop()
        if site.chance.random() < 0.3:
            miss_a_file(site)
    damage_a_file(site.chance.choice((False, True)), site)


def _happen(site: Site, run: Service, ahead_s: int) -> int:
    """One disaster; returns how far the clock is ahead after it."""
    kind = site.chance.choice(("clock", "clock", "worker", "python", "jvm"))
    if kind == "clock":
        ahead_s = site.chance.choice(CLOCKS_S)
        with (site.folder / "clock").open("r+b") as file:
            file.write(struct.pack("=q", ahead_s))
    elif kind == "worker":
        site.chance.choice(found_processes(run, WORKER)).kill()
    else:
        run.kill(run.driver if kind == "python" else None)
    return ahead_s


def _go_on(site: Site, run: Service) -> None:
    """Wait for a moment of a batch, or until there is no more."""
    begun = run.batches("govern", "offsets")
    run.wait(
        lambda: (
            run.batches("govern", "offsets") > begun or run.batches("govern", "commits") >= FILES
        ),
        "a batch of govern",
    )
    time.sleep(site.chance.uniform(0, 2))


@contextmanager
def memory_bounded(run: Service) -> Iterator[None]:
    """Failed where a process of Python has had more than its share."""
    most = [0]
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            for each in run.processes("python"):
                try:
                    most.append(each.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            most[:] = [max(most)]

    watch = threading.Thread(target=look, daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
    if most[0] > MOST_BYTES:
        raise Failed(f"a process of Python had {most[0] / 2**20:.0f} MiB of memory")


DISASTERS = [Disaster("storm", storm, "goes on", obstacle=no_compiler)]
