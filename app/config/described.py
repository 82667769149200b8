"""A configuration as a report shows it, and as a run leaves it in its warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.config.settings import Settings


@dataclass(frozen=True)
class Described:
    """A configuration without secrets, and its hashes."""

    started_ms: int | None
    """When the run began; None for a configuration that no run has."""
    config_hash: str
    params_hash: dict[str, str]
    """By job."""
    config: dict[str, Any]


def described(settings: Settings, started_ms: int | None = None) -> Described:
    """A configuration without secrets, and its hashes."""
    return Described(
        started_ms, settings.config_hash(), settings.params_hashes(), settings.display()
    )
