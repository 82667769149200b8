"""The brokers' own durations of their checks of quotas, as `reconcile` has read them last.

Neither records nor replays know them, so they are the only metrics that are passed on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from app.errors import UserError
from app.telemetry.part import Sample
from app.warehouse.small_files import RECONCILE, read_text

if TYPE_CHECKING:
    from app.config.settings import Settings

NAME = "pulsar_storage_backlog_quota_check_duration_seconds"


def samples(settings: Settings) -> Iterator[Sample]:
    """The histogram of each broker at its newest reading."""
    with suppress(UserError, ValueError, KeyError, TypeError, AttributeError):
        for kept in json.loads(read_text(settings, RECONCILE) or "{}")["scrapes"].values():
            newest = kept[-1]
            broker = (str(newest["cluster"]), str(newest["broker"]))
            for end, value in newest["checks"].items():
                if end in ("count", "sum"):
                    yield f"{NAME}_{end}", broker, float(value)
                else:
                    yield f"{NAME}_bucket", (*broker, str(end)), float(value)
