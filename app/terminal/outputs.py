"""Files that an option of a command names, to be written at its end."""

from __future__ import annotations

from pathlib import Path

from app.errors import UserError


def require_folder(path: Path | None, option: str = "--out") -> None:
    """UserError where the folder of a file does not exist, so that nothing is computed for it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: the folder {path.absolute().parent} does not exist")


def write_whole(out: Path, text: str, option: str = "--out") -> None:
    """Write a file that an option names, whole or not at all."""
    unfinished = out.with_name(f".{out.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(out)
    except OSError as error:
        raise UserError(
            f"{option} {out}: cannot be written: {error.strerror}\n"
            "name a file in a folder that this user may write"
        ) from error
