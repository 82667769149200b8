"""The command `policy suggest producer-ids`: the rate that each user needs. Start with `suggest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings

COMMAND = "policy suggest producer-ids"


def answer(
    settings: Settings, share: float, every: bool, as_json: bool, headroom: float, out: Path | None
) -> int:
    """Print the rates, or write them to a file."""
    from app.jobs.producer_ids.whatif.suggest import advise

    return advise(settings, share, every, as_json, headroom, out)
