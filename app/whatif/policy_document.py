"""Suggested limits as a file of policies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from app.config.policies import WITH_PATTERNS, problems
from app.errors import UserError
from app.terminal.outputs import require_folder, write_whole
from app.terminal.printable import printable
from app.terminal.program import PROGRAM
from state.engine.globs import escaped
from state.policies import CLIENT_ID

MADE = f"# Written by {PROGRAM} policy suggest"
LARGEST = 2**63 - 1
"""Largest limit that is written."""
Document = dict[str, Any]


def document(
    scope: str, name: str, limits: Mapping[str, Any], client_id: str | None = None
) -> Document:
    """A policy document of one name, whatever characters it has; of a user also with a client id."""
    written = escaped(name) if scope in WITH_PATTERNS else name
    of_client = {} if not client_id else {CLIENT_ID: client_id}
    return {"scope": scope, "name": written, **of_client, "limits": dict(limits)}


def problem(scope: str, name: str) -> str | None:
    """Why no policy document can have this name; None if one can."""
    return next((text for _, text in problems(document(scope, name, {}))), None)


def require_writable(path: Path | None, option: str = "--out") -> None:
    """UserError if the policy file cannot be written, or would overwrite another file."""
    require_folder(path, option)
    if path is not None and (path.is_dir() or (path.exists() and not _made(path))):
        raise UserError(
            f"{option} {path}: exists, and policy suggest did not write it\n"
            "allowed: a new file, or one that policy suggest wrote"
        )


def _made(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MADE)) == MADE.encode()


def write(path: Path, documents: Sequence[Document], about: str, notes: Sequence[str] = ()) -> None:
    """Write the documents, whole or not at all; `about` is one line, and so is each note."""
    text = yaml.safe_dump(list(documents), sort_keys=False, width=2**31)
    comments = "".join(f"# {printable(note)}\n" for note in notes)
    write_whole(path, f"{MADE} {about}\n{comments}{text}")


def change(limit: float, in_force: float | None) -> str:
    """What a limit is to the one in force."""
    if in_force is None:
        return "new"
    return "same" if limit == in_force else "raise" if limit > in_force else "cut"


def with_headroom(needed: int, headroom: float) -> int:
    """A limit with a share of itself on top, rounded up."""
    on_top = headroom * needed
    return min(needed + math.ceil(on_top), LARGEST) if math.isfinite(on_top) else LARGEST
