"""The section of the configuration on states that a run keeps for replays."""

from __future__ import annotations

from app.config.base import Model, Positive


class SavedStatesSettings(Model):
    """How often a run saves the states of its jobs, and how many of each query stay."""

    interval_ms: Positive | None = None
    keep: Positive = 24
