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
from tests.crash.service import Failed
from tests.crash.site import Site

SIZE = "96m"
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
    Disaster("read-only", read_only, "stops", obstacle=no_mount),
]
