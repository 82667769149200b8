"""A folder that nobody can write to, not even root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """No file below the folder can be made or changed meanwhile.

    Modes do not bind root: for root the files are immutable, or mounted read-only where the file
    system does not know that. Skips where neither can be done.
    """
    for lock, unlock in _ways(folder):
        if shutil.which(lock[0][0]) is None or not _done(lock):
            _done(unlock)
            continue
        try:
            if _written(folder):
                continue
            yield
            return
        finally:
            assert _done(unlock)
    pytest.skip("nothing here makes a folder read-only for this user")


def _ways(folder: Path) -> Iterator[tuple[list[list[str]], list[list[str]]]]:
    """Commands that lock the folder, and those that unlock it."""
    name = str(folder)
    if os.geteuid() != 0:
        yield [["chmod", "-R", "a-w", name]], [["chmod", "-R", "u+w", name]]
        return
    yield [["chattr", "-R", "+i", name]], [["chattr", "-R", "-i", name]]
    mounted = [["mount", "--bind", name, name], ["mount", "-o", "remount,ro,bind", name]]
    yield mounted, [["umount", name]]


def _done(commands: list[list[str]]) -> bool:
    return all(
        subprocess.run(words, capture_output=True, check=False).returncode == 0
        for words in commands
    )


def _written(folder: Path) -> bool:
    try:
        (folder / "probe").touch()
        (folder / "probe").unlink()
    except OSError:
        return False
    return True
