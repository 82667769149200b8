"""A disk that is nearly full: a file system in memory, of a few megabytes."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CHUNK = 1 << 20


@functools.cache
def no_mount() -> str:
    """Why nothing can be mounted here; empty if it can."""
    with tempfile.TemporaryDirectory() as folder:
        done = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", folder)
        if done.returncode:
            return f"mount is refused: {done.stderr.strip()}"
        unmount(Path(folder))
    return ""


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A disk of its own below a folder, with a copy of what is there. Skips where none can be had."""
    if why := no_mount():
        pytest.skip(why)
    with tempfile.TemporaryDirectory() as aside:
        shutil.copytree(folder, aside, dirs_exist_ok=True)
        assert mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)).returncode == 0
        shutil.copytree(aside, folder, dirs_exist_ok=True)
    try:
        yield
    finally:
        unmount(folder)


def fill(folder: Path, left: int = 0) -> Path:
    """A file that takes all the room there is but so many bytes."""
    ballast, size = folder / "ballast", CHUNK
    with ballast.open("wb", buffering=0) as file:
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                size //= 2
        file.truncate(max(file.tell() - left, 0))
    return ballast


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder mounted over itself: files that are open stay open for writing."""
    for words in (("--bind", str(folder), str(folder)), ("-o", "remount,ro,bind", str(folder))):
        for _ in range(50):  # busy while a file is open for writing
            done = mount(*words)
            if not done.returncode:
                break
            time.sleep(0.02)
        else:
            unmount(folder)
            raise AssertionError(f"{folder} cannot be made read-only: {done.stderr.strip()}")
    try:
        yield
    finally:
        unmount(folder)


def mount(*words: str) -> subprocess.CompletedProcess[str]:
    """What `mount` says."""
    return subprocess.run(
        ["mount", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )


def unmount(folder: Path) -> None:
    """Take a disk away, whoever has a file of it open."""
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
