"""Up to when rows have been removed by age: what a warehouse cannot have any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.tables.json_documents import Document

if TYPE_CHECKING:
    from app.config.location import Location

DONE = "_weir/maintenance.json"
REMOVED: Document[dict[str, int]] = Document(dict[str, int])
"""By rule (a table, with a tenant or without) the midnight up to which it has been applied."""


def whole_from_ms(warehouse: Location, table: str) -> int:
    """From when on no row of a table has been removed by its age."""
    done = REMOVED.usable(warehouse, DONE) or {}
    return max((ms for rule, ms in done.items() if rule.split()[0] == table), default=0)
