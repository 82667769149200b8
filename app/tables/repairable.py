"""A problem of a warehouse that the command `repair` ends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.terminal.program import PROGRAM


class Repairable(str):
    """A problem with its remedy; `files` are those without which the next start mends it."""

    files: tuple[Path, ...]


def repairable(problem: str, then: str, files: Sequence[Path]) -> Repairable:
    """A problem that ends as `then` says once these files are gone."""
    named = " ".join(map(str, files))
    found = Repairable(f"{problem}\n{then}: {PROGRAM} repair --config FILE removes {named}")
    found.files = tuple(files)
    return found
