"""The folder of a demo: its checks, and the removal of an earlier demo."""

from __future__ import annotations

import json
from pathlib import Path

from app import folders
from app.errors import UserError
from app.tables import run_lock

MARKER = "weir-demo.json"
MADE_HERE = (
    "events",
    "warehouse",
    "weir.yaml",
    "policies.yaml",
    "report.html",
)


def refuse(out: Path) -> None:
    """UserError for a folder that is not the demo's or in use; nothing is changed."""
    marker = out / MARKER
    try:
        if out.exists() and not out.is_dir():
            raise UserError(f"--out {out}: is a file; a folder is needed")
        if out.is_dir() and folders.names(out) and not marker.is_file():
            raise UserError(
                f"--out {out}: is not empty and was not made by demo\n"
                "choose another folder, or empty this one"
            )
    except OSError as error:
        raise _not_ours(out, error) from error
    run_lock.refuse(str(out / "warehouse"))


def prepare(out: Path, scenario: str) -> None:
    """An empty folder for a demo; only files of an earlier demo are removed."""
    refuse(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / MARKER).write_text(json.dumps({"made_by": "weir demo", "scenario": scenario}))
        for name in MADE_HERE:
            folders.remove(out / name)
    except OSError as error:
        raise _not_ours(out, error) from error


def _not_ours(out: Path, error: OSError) -> UserError:
    return UserError(f"--out {out}: {error.filename or out}: {error.strerror}")
