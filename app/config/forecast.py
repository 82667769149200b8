"""The section of the configuration on forecasts of quota use: interval and history."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.config.base import Model, Positive
from app.config.maintenance import DAY_MS, HOUR_MS


class ForecastSettings(Model):
    """Forecasts during a run, and the history that they are based on."""

    interval_ms: Positive | None = None
    history_ms: Annotated[int, Field(ge=HOUR_MS, le=90 * DAY_MS)] = 14 * DAY_MS
