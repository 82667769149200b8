"""Where the warehouse is."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.config.base import resolved
from app.errors import UserError

STORES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "https")
"""Schemes of the object stores that a warehouse can be in."""


def require_reached(address: str, option: str = "warehouse") -> None:
    """UserError for an address, of a key or option, that is neither a folder nor in one of these
    stores.
    """
    scheme, is_address, _ = address.partition("://")
    if is_address and scheme.lower() not in ("file", *STORES):
        stores = ", ".join(f"{name}://" for name in STORES)
        raise UserError(f"{option}: no tables can be in {address}\nallowed: a folder, {stores}")


@dataclass(frozen=True)
class Location:
    """A folder or object-store prefix, and the options with which tables are opened there."""

    uri: str
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    """As they are configured: secrets are names of variables."""

    def storage(self) -> dict[str, str]:
        """Options for the object store, with secrets from the environment."""
        return resolved(self.storage_options, "storage_options")
