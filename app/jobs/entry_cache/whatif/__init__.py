"""The command `bakeoff`: replays a trace under every eviction policy at several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings

COMMAND = "bakeoff"


def answer(
    settings: Settings,
    trace: Path | None,
    policies: str | None,
    sizes: str | None,
    vary: Sequence[str],
    keep: bool,
    as_json: bool,
) -> int:
    """Compare the caches, with `keep` also into `cache_bakeoff`."""
    from app.jobs.entry_cache.whatif.command import BakeoffRequest, bakeoff

    return bakeoff(settings, BakeoffRequest(trace, policies, sizes, vary), keep, as_json)
