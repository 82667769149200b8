"""The section of the configuration on maintenance: interval, history, file size, retention."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.config.base import Model, Positive

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Retention(Model):
    """How long rows of a table, or of one tenant in it, are kept."""

    table: str
    tenant: str | None = None
    keep_ms: Annotated[int, Field(ge=DAY_MS)]


class MaintenanceSettings(Model):
    """Compaction, retention and clean-up of the tables."""

    interval_ms: Positive | None = 600_000
    history_ms: Annotated[int, Field(ge=HOUR_MS)] = DAY_MS
    orphans_ms: Annotated[int, Field(ge=HOUR_MS)] = DAY_MS
    file_bytes: Annotated[int, Field(ge=1 << 20)] = 128 << 20
    memory_bytes: Annotated[int, Field(ge=256 << 20)] = 512 << 20
    retention: list[Retention] = [
        Retention(table="quality_results", keep_ms=30 * DAY_MS),
        Retention(table="reconciliation", keep_ms=30 * DAY_MS),
        Retention(table="forecasts", keep_ms=30 * DAY_MS),
    ]
