"""SIGKILL for a part of a run, at random moments and at the named steps of a commit."""

from __future__ import annotations

import time
from functools import partial

import psutil

from tests.crash.disaster import Disaster
from tests.crash.killed_run import ALL, GATHERED, STEPS
from tests.crash.service import EXECUTOR, LOCAL, WORKER, Failed, Service, batches, killed_at
from tests.crash.site import Site

KILLS = 2
FIRST = ("manifest", "identity")
"""Steps of the first start, each reached once."""
START_S = 12.0
BATCH_S = 1.5
CLUSTER = "local-cluster[2,1,1024]"


def _at_any_moment(site: Site, run: Service) -> None:
    """Wait for a moment of the start, or of a batch."""
    if site.chance.random() < 0.3:
        time.sleep(site.chance.uniform(0.5, START_S))
    else:
        within_a_batch(site, run)


def within_a_batch(site: Site, run: Service) -> None:
    begun = run.batches("govern", "offsets")
    run.wait(lambda: run.batches("govern", "offsets") > begun, "a batch of govern")
    time.sleep(site.chance.uniform(0, BATCH_S))


def found_processes(run: Service, word: str) -> list[psutil.Process]:
    """The processes with a word in their command that have no such child; waits for one."""
    found: list[psutil.Process] = []

    def look() -> bool:
        every = run.processes(word)
        parents = {each.ppid() for each in every if each.is_running()}
        found[:] = [each for each in every if each.pid not in parents]
        return bool(found)

    run.wait(look, f"a process {word}")
    return found


def jvm(site: Site) -> None:
    """The process that a service manager knows; everything else of the run ends with it."""
    for _ in range(KILLS):
        with site.running() as run:
            _at_any_moment(site, run)
            run.kill()
    site.finish()


def python(site: Site) -> None:
    """The driver's Python."""
    for _ in range(KILLS):
        with site.running() as run:
            within_a_batch(site, run)
            run.kill(run.driver)
    site.finish()


def helper(word: str, master: str, site: Site) -> None:
    """A process that Spark starts again, as the system does that has no memory left: a Python
    worker, or one of two executors. The run goes on."""
    with site.running(master) as run:
        for _ in range(KILLS):
            within_a_batch(site, run)
            site.chance.choice(found_processes(run, word)).kill()
        run.wait_for_batches(1)
        run.stop()
    site.finish()


def step(query: str, name: str, site: Site) -> None:
    """The driver, at one step of one of its first batches."""
    number = 1 if name in FIRST else site.chance.randint(1, 4)
    killed_at(site.config, query, name, number)
    if name in ("all-tables", "recorded", "synced", "answered", "ended"):
        of = "govern" if query == ALL else query
        before = batches(str(site.warehouse), of, "commits")
        killed_at(site.config, query, name, 2)  # the batch that is repeated, and the one after it
        if batches(str(site.warehouse), of, "commits") <= before:
            raise Failed(f"{query} came no further than batch {before}")
    site.finish()


DISASTERS = [
    Disaster("kill-jvm", jvm, "goes on"),
    Disaster("kill-python", python, "goes on"),
    Disaster("kill-worker", partial(helper, WORKER, LOCAL), "goes on"),
    Disaster("kill-executor", partial(helper, EXECUTOR, CLUSTER), "goes on"),
    *(
        Disaster(f"kill-{query}-{name}", partial(step, query, name), "goes on")
        for query, names in (
            (ALL, (*STEPS, *GATHERED)),
            ("govern", (*STEPS, *GATHERED)),
            ("archive", STEPS),
        )
        for name in names
    ),
]
