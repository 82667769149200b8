"""The windows of each broker that requests cover whole, and why one is no comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from app.show.reconcile.recorded_numbers import RecordedSide, Until
from app.show.reconcile.spans import Row
from state.client_quotas.declaration import NAME

LOOK_BACK_MS = 86_400_000
"""What a first comparison of a broker covers."""
_NEWEST = "SELECT cluster, broker, max(window_start_ms) FROM client_usage GROUP BY cluster, broker"
# Requests begin or end within a window that has none before or behind it.
_WHOLE = """
WITH every AS (
  SELECT DISTINCT cluster, broker, window_start_ms, window_ms FROM client_usage
  WHERE window_start_ms >= $least_ms
)
SELECT cluster, broker, window_start_ms, window_ms FROM every
WINDOW of_broker AS (PARTITION BY cluster, broker ORDER BY window_start_ms)
QUALIFY window_start_ms - lag(window_start_ms) OVER of_broker = window_ms
  AND lead(window_start_ms) OVER of_broker - window_start_ms = window_ms
ORDER BY ALL
"""
_GAPS = """
SELECT cluster, broker, coalesce(gap_from_wall_ms, 0), blind_until_ms FROM coverage_gaps
WHERE job = $job AND blind_until_ms > $least_ms
"""
_CHANGES = """
SELECT DISTINCT cluster, ts_wall_ms FROM events
WHERE event_type = 'policy' AND ts_wall_ms >= $least_ms
  AND json_extract_string(policy_json, '$.scope') IN ('user', 'client')
"""


PLACE = ("cluster", "broker", "window_start_ms", "window_ms")
"""What a row has of its window."""


class RequestWindow(NamedTuple):
    """A window of a broker."""

    cluster: str
    broker: str
    start_ms: int
    ms: int

    @property
    def place(self) -> str:
        """What is remembered to be compared."""
        return f"{self.cluster} {self.broker}"

    def row(self, user: str, client: str, measure: str, **numbers: Any) -> Row:
        """A row of a comparison."""
        return {
            **dict(zip(PLACE, self, strict=True)),
            "user": user,
            "client": client,
            "measure": measure,
            **numbers,
        }


class RequestWindows(NamedTuple):
    """The windows to be compared, and by window why one cannot be."""

    reasons: Mapping[RequestWindow, str | None]
    until: Until

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of a statement about them; see `IN_WINDOWS`."""
        columns = zip(*self.reasons, strict=True)
        names = ("clusters", "brokers", "starts", "lengths")
        return {
            **dict(zip(names, map(list, columns), strict=True)),
            "least_ms": min(window.start_ms - window.ms for window in self.reasons),
        }


IN_WINDOWS = """
windows AS (
  SELECT unnest($clusters) AS cluster, unnest($brokers) AS broker, unnest($starts) AS start_ms,
    unnest($lengths) AS length_ms
)
"""
"""The windows as a relation."""


def windows_of(side: RecordedSide) -> RequestWindows:
    """The windows that end behind what was compared."""
    since = {
        (cluster, broker): side.until.get(f"{cluster} {broker}", newest - LOOK_BACK_MS)
        for cluster, broker, newest in side.ask(_NEWEST, {})
    }
    if not since:
        return RequestWindows({}, {})
    least = {"least_ms": min(since.values()) - side.settings.stats_window_ms}
    found = [
        window
        for window in (RequestWindow(*row) for row in side.ask(_WHOLE, least))
        if window.start_ms >= since[window.cluster, window.broker]
    ]
    if not found:
        return RequestWindows({}, {})
    gaps = side.ask(_GAPS, {**least, "job": NAME})
    changes = side.ask(_CHANGES, least)
    reasons: dict[RequestWindow, str | None] = {}
    until: Until = {}
    for window in found:
        end_ms = window.start_ms + window.ms
        until[window.place] = end_ms
        reasons[window] = None
        # A poll learns of a change when it is made or soon after.
        if any(
            cluster == window.cluster and window.start_ms <= at_ms < end_ms + window.ms
            for cluster, at_ms in changes
        ):
            reasons[window] = "LIMIT_CHANGED"
        if any(
            (cluster, broker) == (window.cluster, window.broker)
            and since_ms < end_ms
            and blind_ms > window.start_ms
            for cluster, broker, since_ms, blind_ms in gaps
        ):
            reasons[window] = "GAP"
    return RequestWindows(reasons, until)
