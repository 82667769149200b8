"""The file system of the warehouse: full, read-only."""

from __future__ import annotations

import shutil
from functools import partial

from tests.crash.disaster import Disaster
from tests.crash.killed_run import ALL
from tests.crash.service import PATIENCE_S, Failed, killed_at
from tests.crash.site import Site
from tests.support.small_disk import fill, mount, no_mount, read_only, small_disk, unmount

SIZE = "96m"
PLACE_SIZE = "24m"
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


PLACES = (
    "_weir/checkpoints/govern/offsets",
    "_weir/checkpoints/govern/commits",
    "_weir/checkpoints/govern/state",
    "_weir/checkpoints/govern/sources",
    "_weir/checkpoints/govern/gathered",
    "_weir/checkpoints/govern",
    "_weir",
)
"""Each of them on a disk of its own is full at another write than the others."""
BESIDE = ("_weir/progress", "_weir/alerts", "_weir/quality", "alerts", "quality_results")
"""What a run goes on without."""
TABLES = ("throttle_events", "throttle_events/_delta_log", "quarantine", "chunk_messages")
"""Rows of these wait for a later commit, which a warning says."""


def full_at(place: str, site: Site) -> None:
    """The disk of one folder is full: the run stops and names the disk, or goes on where it can;
    with room again it has every row."""
    site.write_config(commit_interval_ms=500, quality={"interval_ms": 2_000})
    with site.running() as run:
        run.wait_for_batches(1)
        run.stop()
    folder = site.warehouse / place
    folder.mkdir(parents=True, exist_ok=True)
    with small_disk(folder, PLACE_SIZE):
        with site.running() as run:
            run.wait_for_batches(1)
            ballast = fill(folder)
            if place in BESIDE:
                run.wait_for_batches(2)
                run.stop()
            elif place in TABLES:
                names = f"warehouse: {folder} cannot be written (No space left on device)"
                run.wait(lambda: names in run.said, "the warning")
                run.wait_for_batches(2)
                run.stop()
            else:
                said = " ".join(run.refused(PATIENCE_S))
                if "o space left on " not in said:
                    raise Failed(f"stopped by {said}")
            if "internal error" in run.said:
                raise Failed(f"says {run.end}")
        if place not in BESIDE:
            _expect(site.refused(), "cannot be written (No space left on device)", "")
        ballast.unlink()
        site.finish()
        kept = site.folder / "kept"
        shutil.copytree(folder, kept)
    shutil.copytree(kept, folder, dirs_exist_ok=True)


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


def becomes_read_only(site: Site) -> None:
    """A read-only warehouse stops the run; when it can be written again the run goes on."""
    with site.running() as run:
        run.wait_for_batches(site.chance.randint(1, 3))
        with read_only(site.warehouse):
            said = run.refused()
            _expect(site.refused(), "cannot be written (Read-only file system)", "")
    _expect(said, "read-only", "start again")
    site.finish()


def _expect(said: list[str], first: str, remedy: str) -> None:
    if first not in said[0] or remedy not in " ".join(said):
        raise Failed(f"stopped by {said}")


DISASTERS = [
    Disaster("disk-full", full, "stops", obstacle=no_mount),
    *(
        Disaster(
            f"full-{place.replace('/', '-')}",
            partial(full_at, place),
            "goes on" if place in (*BESIDE, *TABLES) else "stops",
            obstacle=no_mount,
        )
        for place in (*PLACES, *BESIDE, *TABLES)
    ),
    Disaster("archive-full", archive_full, "goes on", obstacle=no_mount),
    Disaster("read-only", becomes_read_only, "stops", obstacle=no_mount),
]
