"""What tests share of rounds."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from app.config.settings import Settings
from tests.support.throttle_rows import TOPIC, write
from tests.unit.show.forecast.rows import (
    checked,
    reached,
)

Json = dict[str, Any]


def growing(hours: int = 100, name: str = TOPIC) -> list[Json]:
    """A backlog of 7 bytes an hour: at the end 7 * hours of a thousand."""
    return [checked(ago, 7 * (hours - ago), name=name) for ago in range(hours)]


def fill(warehouse: str, **tables: list[Json]) -> None:
    for name, rows in {"limiter_stats": [], **tables}.items():
        write(warehouse, name, [*rows, *([reached()] if name == "limiter_stats" else [])])


def stored(settings: Settings) -> list[Json]:
    found: list[Json] = DeltaTable(f"{settings.warehouse}/forecasts").to_pyarrow_table().to_pylist()
    return found
