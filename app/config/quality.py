"""The section of the configuration on audits during a run."""

from __future__ import annotations

from app.config.base import Model, Positive


class QualitySettings(Model):
    """Audits of the committed tables."""

    interval_ms: Positive | None = 600_000
