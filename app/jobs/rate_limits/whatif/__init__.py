"""The command `policy suggest publish`: searches the archive for the smallest sufficient publish
limits.

    events ─► history (records of each limiter) ─► search (the core's buckets) ─► documents

Start with `command`; `verify` replays the archive under the limits that were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.config.settings import Settings

COMMAND = "policy suggest publish"


def answer(settings: Settings, asked: Mapping[str, Any], output: Mapping[str, Any]) -> int:
    """Print the limits, or write them to files. `asked` has the values of a request, with the
    owners and rates as they are typed; `output` the further options of `command.suggest`.
    """
    from app.jobs.rate_limits.whatif.command import PublishRequest, suggest
    from app.jobs.rate_limits.whatif.history import required as rated
    from app.jobs.rate_limits.whatif.owners import required as owned

    per, rates = owned(asked["per"]), rated(asked["rates"])
    request = PublishRequest(**{**asked, "per": per, "rates": rates})
    return suggest(settings, request, **output)
