"""The command `policy suggest client-quotas`: the limits that users and clients of Kafka need.

    client_quota_stats, client_usage ─► client_history (windows of each entity) ─► documents

Start with `client_limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.config.settings import Settings

COMMAND = "policy suggest client-quotas"


def answer(settings: Settings, asked: Mapping[str, Any], output: Mapping[str, Any]) -> int:
    """Print the limits, or write them to a file. `asked` has the values of a request, with the owner
    and types as they are typed; `output` the further options of `client_limits.suggest`.
    """
    from app.jobs.client_quotas.whatif.client_history import owner_of, types_of
    from app.jobs.client_quotas.whatif.client_limits import ClientHistoryRequest, suggest

    per, types = owner_of(asked["per"]), types_of(asked["types"])
    return suggest(
        settings, ClientHistoryRequest(**{**asked, "per": per, "types": types}), **output
    )
