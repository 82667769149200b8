"""What the first page of a fleet says of each cluster."""

from __future__ import annotations

from app.read.question import FleetColumns

_LAG = """
SELECT cluster, max(lag) AS worst_lag, arg_max(concat("group", ' on ', topic), lag) AS of_group
FROM group_lag_now GROUP BY cluster
""".strip()
_LOST = """
SELECT cluster, CAST(sum(offsets) AS BIGINT) AS lost FROM lost_messages
WHERE ts_wall_ms >= $since AND ts_wall_ms < $until GROUP BY cluster
""".strip()

FLEET = (
    FleetColumns(("worst_lag", "of_group"), ("group_lag_now",), _LAG),
    FleetColumns(("lost",), ("lost_messages",), _LOST),
)
