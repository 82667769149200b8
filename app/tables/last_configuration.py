"""The configuration of the last run on a warehouse, kept in the warehouse."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.tables.json_documents import Document

if TYPE_CHECKING:
    from app.config.settings import Settings

NAME = "_weir/configuration.json"


@dataclass(frozen=True)
class Described:
    """A configuration without secrets, and its hashes."""

    started_ms: int | None
    """When the run began; None for a configuration that no run has."""
    config_hash: str
    params_hash: dict[str, str]
    """By job."""
    config: dict[str, Any]


_DOCUMENT: Document[Described] = Document(Described, indent=1)


def described(settings: Settings, started_ms: int | None = None) -> Described:
    """A configuration without secrets, and its hashes."""
    return Described(
        started_ms,
        settings.config_hash(),
        {job: settings.params_hash(job) for job in settings.jobs},
        settings.display(),
    )


def keep(settings: Settings) -> None:
    """Record the configuration of a run."""
    _DOCUMENT.keep(settings, NAME, described(settings, time.time_ns() // 1_000_000))


def load(settings: Settings) -> Described | None:
    """The configuration of the last run; None if there is none that can be read."""
    return _DOCUMENT.usable(settings, NAME)
