"""The file system of the warehouse: full, read-only."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.disaster import Disaster
from tests.crash.killed_run import ALL
from tests.crash.service import Failed, killed_at
from tests.crash.site import Site

SIZE = "96m"
ARCHIVE_SIZE = "16m"
CHUNK = 1 << 20


@functools.cache
def no_mount() -> str:
    """Why nothing can be mounted here; empty if it can."""
    with tempfile.TemporaryDirectory() as folder:
        done = _mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", folder)
        if done.returncode:
            return f"mount is refused: {done.stderr.strip()}"
        _umount(Path(folder))
    return ""


def full(site: Site) -> None:
    """A full disk stops the run; with room again it goes on where it was."""
    site.warehouse.mkdir()
    if _mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(site.warehouse)).returncode:
        raise Failed("the small disk cannot be mounted")
    site.afterwards.callback(_umount, site.warehouse)
    with site.running() as run:
        run.wait_for_batches(site.chance.randint(1, 3))
        ballast = _fill(site.warehouse)
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
    if _mount("-t", "tmpfs", "-o", f"size={ARCHIVE_SIZE}", "tmpfs", str(events)).returncode:
        raise Failed("the small disk cannot be mounted")
    site.afterwards.callback(_umount, events)
    with site.running() as run:
        run.wait_for_batches(1)
        ballast = _fill(events)
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


def _fill(folder: Path) -> Path:
    """A file that takes all the room there is."""
    ballast = folder / "ballast"
    size = CHUNK
    with ballast.open("wb", buffering=0) as file:
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                size //= 2
    return ballast


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """The folder mounted over itself: files that are open stay open for writing."""
    for words in (("--bind", str(folder), str(folder)), ("-o", "remount,ro,bind", str(folder))):
        for _ in range(50):  # busy while a file is open for writing
            done = _mount(*words)
            if not done.returncode:
                break
            time.sleep(0.02)
        else:
            _umount(folder)
            raise Failed(f"the warehouse cannot be made read-only: {done.stderr.strip()}")
    try:
        yield
    finally:
        _umount(folder)


def _mount(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["mount", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )


def _umount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


DISASTERS = [
    Disaster("disk-full", full, "stops", obstacle=no_mount),
    Disaster("archive-full", archive_full, "goes on", obstacle=no_mount),
    Disaster("read-only", read_only, "stops", obstacle=no_mount),
]
