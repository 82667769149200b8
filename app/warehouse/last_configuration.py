"""The configuration of the last run on a warehouse, kept in the warehouse."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from app.warehouse.small_files import read_text, write_text

if TYPE_CHECKING:
    from app.config.settings import Settings

NAME = "_weir/configuration.json"


def described(settings: Settings) -> dict[str, Any]:
    """A configuration without secrets, and its hashes."""
    return {
        "config_hash": settings.config_hash(),
        "params_hash": {job: settings.params_hash(job) for job in settings.jobs},
        "config": settings.display(),
    }


def keep(settings: Settings) -> None:
    """Record the configuration of a run."""
    kept = {"started_ms": time.time_ns() // 1_000_000, **described(settings)}
    write_text(settings, NAME, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def load(settings: Settings) -> dict[str, Any] | None:
    """The configuration of the last run; None if there is none that can be read."""
    text = read_text(settings, NAME)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    needed = {"config_hash": str, "params_hash": dict, "config": dict, "started_ms": int}
    whole = isinstance(found, dict) and all(
        isinstance(found.get(name), kind) for name, kind in needed.items())
    return found if whole else None
