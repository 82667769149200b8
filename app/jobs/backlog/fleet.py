"""What the first page of a fleet says of each cluster."""

from __future__ import annotations

from app.read.question import FleetColumns

_LAG = """
SELECT cluster, max(lag) AS worst_lag, arg_max(concat("group", ' on ', topic), lag) AS of_group
FROM group_lag_now GROUP BY cluster
""".strip()
_LOST = """
SELECT g.cluster, CAST(coalesce(sum(l.offsets), 0) AS BIGINT) AS lost
FROM (SELECT DISTINCT cluster FROM group_lag_now) AS g LEFT JOIN lost_messages AS l
  ON l.cluster = g.cluster AND l.ts_wall_ms >= $since AND l.ts_wall_ms < $until
GROUP BY g.cluster
""".strip()

FLEET = (
    FleetColumns(("worst_lag", "of_group"), ("group_lag_now",), _LAG),
    FleetColumns(("lost",), ("lost_messages", "group_lag_now"), _LOST),
)
