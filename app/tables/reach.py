"""Whether a warehouse can be reached without Spark."""

from __future__ import annotations

from app.errors import UserError
from app.tables.small_files import DELTA_RS, local_path


def by_delta_rs(warehouse: str) -> bool:
    """Whether delta-rs can open the warehouse."""
    return local_path(warehouse) is not None or warehouse.partition("://")[0].lower() in DELTA_RS


def require_delta_rs(warehouse: str, option: str = "warehouse") -> None:
    """UserError if only Spark reaches the warehouse, which an option or key names."""
    if not by_delta_rs(warehouse):
        raise UserError(
            f"{option}: only Spark reaches {warehouse}, and this command reads it without Spark\n"
            "take a folder or an object store"
        )
