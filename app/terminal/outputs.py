"""Files that an option of a command names, to be written at its end."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from app import folders
from app.errors import UserError


def require_folder(path: Path | None, option: str = "--out") -> None:
    """UserError where the folder of a file does not exist, so that nothing is computed for it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: the folder {path.absolute().parent} does not exist")


def write_whole(out: Path, text: str, option: str = "--out") -> None:
    """Write a file that an option names, whole or not at all."""
    whole = out.is_file() or not out.exists()
    try:
        # What a link names is replaced, not the link; a pipe or a device takes the text.
        with folders.replacing(out.resolve()) if whole else nullcontext(out) as file:
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{option} {out}: cannot be written: {error.strerror}\n"
            "name a file in a folder that this user may write"
        ) from error
