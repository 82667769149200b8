"""The configuration of the last run on a warehouse, kept in the warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.config.described import Described
from app.tables.json_documents import Document

if TYPE_CHECKING:
    from app.config.location import Location

NAME = "_weir/configuration.json"
_DOCUMENT: Document[Described] = Document(Described, indent=1)


def keep(warehouse: Location, described: Described) -> None:
    """Record the configuration of a run."""
    _DOCUMENT.keep(warehouse, NAME, described)


def load(warehouse: Location) -> Described | None:
    """The configuration of the last run; None if there is none that can be read."""
    return _DOCUMENT.usable(warehouse, NAME)
