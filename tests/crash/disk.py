"""The file system of the warehouse: full, read-only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.disaster import Disaster
from tests.crash.killed_run import ALL
from tests.crash.service import Failed, killed_at
from tests.crash.site import Site
from tests.support.small_disk import fill, mount, no_mount, unmount

SIZE = "96m"
ARCHIVE_SIZE = "16m"


def full(site: Site) -> None:
    """A full disk stops the run; with room again it goes on where it was."""
    site.warehouse.mkdir()
    if mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(site.warehouse)).returncode:
        raise Failed("the small disk cannot be mounted")
    site.afterwards.callback(unmount, site.warehouse)
    with site.running() as run:
        run.wait_for_batches(site.chance.randint(1, 3))
        ballast = fill(site.warehouse)
        said = run.refused()
    _expect(said, "no space left on", "make room")
    _expect(site.refused(), "cannot be written (No space left on device)", "")
    ballast.unlink()
    site.finish()


def archive_full(site: Site) -> None:
    """The disk of the archive's records alone is full: the archive becomes a query of its own, also
    if the run is killed meanwhile, and decisions go on; with room again the archive catches up."""
    events = site.warehouse / "events"
    events.mkdir(parents=True)
    if mount("-t", "tmpfs", "-o", f"size={ARCHIVE_SIZE}", "tmpfs", str(events)).returncode:
        raise Failed("the small disk cannot be mounted")
    site.afterwards.callback(unmount, events)
    with site.running() as run:
        run.wait_for_batches(1)
        ballast = fill(events)
        run.wait(lambda: "archive cannot be written" in run.said, "a batch that cannot be written")
        run.kill()
    for _ in range(site.chance.randint(0, 1)):
        killed_at(site.config, ALL, "copied", 1)
    with site.running() as run:
        run.wait(lambda: "archive: cannot be written" in run.said, "the parting")
        run.wait_for_batches(2)
        if run.batches("archive", "commits") >= run.batches("govern", "commits"):
            raise Failed("the archive goes on")
        ballast.unlink()
        run.wait_for_batches(1, "archive")
        run.stop()
    site.finish()


def read_only(site: Site) -> None:
    """A read-only warehouse stops the run; when it can be written again the run goes on."""
    with site.running() as run:
        run.wait_for_batches(site.chance.randint(1, 3))
        with _read_only(site.warehouse):
            said = run.refused()
            _expect(site.refused(), "cannot be written (Read-only file system)", "")
    _expect(said, "read-only", "start again")
    site.finish()


def _expect(said: list[str], first: str, remedy: str) -> None:
    if first not in said[0] or remedy not in " ".join(said):
        raise Failed(f"stopped by {said}")


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """The folder mounted over itself: files that are open stay open for writing."""
    for words in (("--bind", str(folder), str(folder)), ("-o", "remount,ro,bind", str(folder))):
        for _ in range(50):  # busy while a file is open for writing
            done = mount(*words)
            if not done.returncode:
                break
            time.sleep(0.02)
        else:
            unmount(folder)
            raise Failed(f"the warehouse cannot be made read-only: {done.stderr.strip()}")
    try:
        yield
    finally:
        unmount(folder)


DISASTERS = [
    Disaster("disk-full", full, "stops", obstacle=no_mount),
    Disaster("archive-full", archive_full, "goes on", obstacle=no_mount),
    Disaster("read-only", read_only, "stops", obstacle=no_mount),
]
