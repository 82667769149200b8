"""The configuration of the last run on a warehouse, kept in the warehouse."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from app.warehouse.documents import Document

if TYPE_CHECKING:
    from app.config.settings import Settings

NAME = "_weir/configuration.json"
_DOCUMENT: Document[dict[str, Any]] = Document(dict[str, Any], indent=1)


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
    _DOCUMENT.keep(settings, NAME, kept)


def load(settings: Settings) -> dict[str, Any] | None:
    """The configuration of the last run; None if there is none that can be read."""
    found = _DOCUMENT.usable(settings, NAME)
    if found is None:
        return None
    needed = {"config_hash": str, "params_hash": dict, "config": dict, "started_ms": int}
    whole = all(isinstance(found.get(name), kind) for name, kind in needed.items())
    return found if whole else None
