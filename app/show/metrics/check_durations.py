"""The brokers' own durations of their checks of quotas, as `reconcile` has read them last.

Neither records nor replays know them, so they are the only metrics that are passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.show.metrics.part import Sample
from app.tables.json_documents import Document
from app.tables.small_files import RECONCILE

if TYPE_CHECKING:
    from app.config.location import Location

NAME = "pulsar_storage_backlog_quota_check_duration_seconds"


@dataclass(frozen=True)
class Checks:
    """The histogram of a broker, at one reading."""

    cluster: str
    broker: str
    checks: dict[str, float]


@dataclass(frozen=True)
class Readings:
    """What the file has for the metrics."""

    scrapes: dict[str, list[Checks]]


_DOCUMENT: Document[Readings] = Document(Readings)


def samples(warehouse: Location) -> Iterator[Sample]:
    """The histogram of each broker at its newest reading."""
    found = _DOCUMENT.usable(warehouse, RECONCILE)
    for newest in (
        readings[-1] for readings in (found.scrapes.values() if found else ()) if readings
    ):
        broker = newest.cluster, newest.broker
        for end, value in newest.checks.items():
            yield NAME, (*broker, end), value
