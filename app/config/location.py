"""Where the warehouse is."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.config.base import resolved


@dataclass(frozen=True)
class Location:
    """A folder or object-store prefix, and the options with which tables are opened there."""

    uri: str
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    """As they are configured: secrets are names of variables."""

    def storage(self) -> dict[str, str]:
        """Options for the object store, with secrets from the environment."""
        return resolved(self.storage_options, "storage_options")
