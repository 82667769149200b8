"""A cluster of Kafka: its groups and logs, read as polls read them, against the tables.

Kafka counts nothing that could be compared by its increase, so a number is compared by its value.
What a poll read lies between what the reading before it and the reading after it have: the end and
the start of a log only grow, and so does the offset of a group that is not set back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from app.config.reconcile import ReconcileSettings
from app.read.relations import Warehouse
from app.show.reconcile.cluster_reading import Reading, reading_of
from app.show.reconcile.group_rows import rows_of
from app.show.reconcile.group_tables import Tables
from app.show.reconcile.measures import LOST
from app.show.reconcile.spans import Row, differs
from app.sources.kafka.groups_client import GroupsClient
from app.sources.kafka.kafka_client import deadline_in
from app.sources.lasting import SHOWN
from app.sources.polling import noted

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.config.source import SourceSettings

ANSWERS = 3
"""A reading may take as long as so many answers."""


class Cluster:
    """A cluster whose groups a feed polls."""

    reading = Reading

    def __init__(self, settings: Settings, feed: SourceSettings, chosen: ReconcileSettings) -> None:
        # Retention is not compared.
        self._own = feed.polled.model_copy(update={"retention_as_quota": False})
        self._chosen = chosen
        self._tables = Tables(Warehouse.of(settings.location), self._own.cluster)
        self.names = (self._own.cluster,)

    def read(self, stopping: threading.Event) -> Iterator[tuple[str, Reading | str]]:
        """Offsets of groups, and starts and ends of logs; or why they were not answered."""
        from_ms = _now_ms()
        topics, known = self._tables.live(from_ms)
        deadline = deadline_in(ANSWERS * self._own.timeout_ms / 1000)
        with closing(GroupsClient(self._own, stopping)) as client:
            problems: list[str] = []
            with noted(problems):
                answers = client.ask(topics, known, deadline)
        if problems:
            yield self._own.cluster, problems[0]
            return
        yield self._own.cluster, reading_of(answers, from_ms, _now_ms())

    def odd(self, name: str, found: Reading) -> list[str]:
        """What was not answered."""
        more = len(found.problems) - SHOWN
        rest = [f"{name}: and {more} more"] if more > 0 else []
        return [*(f"{name}: {text}" for text in found.problems[:SHOWN]), *rest]

    def compared(self, kept: list[Reading], now_ms: int) -> tuple[list[Row] | None, list[Reading]]:
        """The rows between the first two readings; a span without a check is joined with the next."""
        before, after = kept[:2]
        if now_ms < after.to_ms + self._chosen.settle_ms:
            return None, kept
        weir = self._tables.between(before, after)
        late = now_ms >= after.to_ms + self._chosen.wait_ms
        if weir.check is None and weir.reached and len(kept) > 2:
            return [], [before, *kept[2:]]
        if weir.check is None and not late:
            return None, kept
        rows = rows_of(before, after, weir)
        if any(differs(row) for row in rows if row["measure"] == LOST):
            # What polls found empty long ago is no loss either.
            rows = rows_of(before, after, self._tables.between(before, after, since_ms=0))
        if any(row["reason"] == "NOT_REACHED" for row in rows) and not late:
            return None, kept
        about = {"cluster": self._own.cluster, "broker": self._own.broker}
        return [{**about, **row} for row in rows], kept[1:]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
