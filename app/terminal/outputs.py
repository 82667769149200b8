"""Files that an option of a command names, to be written at its end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from app.errors import UserError


def require_folder(path: Path | None, option: str = "--out") -> None:
    """UserError where the folder of a file does not exist, so that nothing is computed for it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: the folder {path.absolute().parent} does not exist")


def write_whole(out: Path, text: str, option: str = "--out") -> None:
    """Write a file that an option names, whole or not at all."""
    there = out.resolve()  # what a link names is replaced, not the link
    unfinished = there.with_name(f".{there.name}.unfinished")
    # A pipe or a device takes the text, and stays what it is.
    file = unfinished if there.is_file() or not there.exists() else there
    try:
        file.write_text(text, encoding="utf-8")
        file.replace(there)
    except OSError as error:
        with suppress(OSError):  # half of it takes room where there is none
            unfinished.unlink()
        raise UserError(
            f"{option} {out}: cannot be written: {error.strerror}\n"
            "name a file in a folder that this user may write"
        ) from error
