"""The command `policy suggest publish`: searches the archive for the smallest sufficient publish
limits.

    events ─► history (records of each limiter) ─► search (the core's buckets) ─► documents, page

Start with `command`; `verify` replays the archive under the limits that were found.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.whatif.replay.archive_reader import EventSpan

COMMAND = "policy suggest publish"


def answer(
    settings: Settings,
    per: str,
    rate: str,
    share: float,
    headroom: float,
    min_publishes: int,
    min_history_ms: int,
    span: EventSpan,
    out: Path | None,
    page: Path | None,
    verify: bool,
    curve: bool,
    every: bool,
    as_json: bool,
) -> int:
    """Print the limits, or write them to files."""
    from app.jobs.rate_limits.whatif.command import PublishRequest, suggest
    from app.jobs.rate_limits.whatif.history import required as rated
    from app.jobs.rate_limits.whatif.owners import required as owned

    asked = PublishRequest(
        owned(per), rated(rate), share, headroom, min_publishes, min_history_ms, span
    )
    return suggest(settings, asked, out, page, verify, curve, every, as_json)
