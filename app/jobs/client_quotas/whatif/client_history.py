"""The windows of each entity of client quotas, from the tables of the job.

The largest rate of a window does not depend on the limit: under a limit that is not below it no request
of the window is throttled, under a smaller one the request that had it is, unless its throttle time
rounds to 0 ms. So the windows tell the smallest limit without a replay. Three things make it a bound
(`Certainty`): measured rates lack bursts between two measurements; throttled clients waited, and
their fetches were taken back; a bucket of mutations holds more than its rate, and what it lacks after
a burst throttles in later windows, so that their largest rate counts.

A broker measures a type only once a quota of it was set. In a cluster without one, `client_usage`
has the mean of each window.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from app.errors import UserError
from app.read.relations import ANY_ORDER, Warehouse, connect
from app.whatif.replay.event_span import EventSpan
from state.events import QUOTA_TYPES
from state.policies import CLIENT_QUOTAS

Owner = Literal["user", "client", "user-client"]
OWNERS: dict[str, tuple[str, str]] = {
    "user": ("u.name", "''"),
    "client": ("''", "u.client_id"),
    "user-client": ("u.name", "u.client_id"),
}
"""User and client of an entity of each, as SQL over `client_usage`."""
LIMITS = dict(zip(QUOTA_TYPES, CLIENT_QUOTAS, strict=True))
Basis = Literal["requests", "metrics", "usage"]
Certainty = Literal["exact", "at least", "enough"]

# What the requests of a window say is exacter than what the broker measured.
_WINDOWS = """
CREATE TEMP TABLE windows AS
WITH judged AS (
  SELECT s.cluster, s.quota_type, s.user AS user, s.client, s.basis, s.window_start_ms, s.window_ms,
    s.rate_max, s.throttled > 0 AS throttled, s.bound, s.bound_level
  FROM client_quota_stats AS s
  WHERE s.window_start_ms >= $begin AND s.window_start_ms < $end
  QUALIFY row_number() OVER (
    PARTITION BY s.cluster, s.broker, s.quota_type, s.user, s.client, s.window_start_ms
    ORDER BY s.basis DESC
  ) = 1
), used AS (
  SELECT u.cluster, u.broker, regexp_replace(u.principal, '^[^:]*:', '') AS name,
    coalesce(u.client_id, '') AS client_id, u.window_start_ms, u.window_ms, u.throttle_ms,
    unnest([
      {{'type': 'produce', 'used': if(u.api = 'PRODUCE', u.bytes * 1000::DOUBLE, 0)}},
      {{'type': 'fetch', 'used': if(u.api IN ('FETCH', 'SHARE_FETCH'), u.bytes * 1000::DOUBLE, 0)}},
      {{'type': 'request', 'used': u.handler_time_ms * 100::DOUBLE}}
    ]) AS charge
  FROM client_usage AS u
  WHERE u.principal IS NOT NULL AND u.window_start_ms >= $begin AND u.window_start_ms < $end
), means AS (
  SELECT u.cluster, u.charge.type AS quota_type, {user} AS user, {client} AS client,
    'usage' AS basis, u.window_start_ms, u.window_ms, sum(u.charge.used) / u.window_ms AS rate_max,
    sum(u.throttle_ms) > 0 AS throttled, NULL::DOUBLE AS bound, 'none' AS bound_level
  FROM used AS u WHERE NOT EXISTS (
    SELECT 1 FROM judged AS j WHERE j.cluster = u.cluster AND j.quota_type = u.charge.type
  )
  GROUP BY u.cluster, u.broker, u.charge.type, {user}, {client}, u.window_start_ms, u.window_ms
  HAVING sum(u.charge.used) > 0
)
SELECT w.* FROM (FROM judged UNION ALL BY NAME FROM means) AS w
WHERE list_contains($types, w.quota_type)
"""
_NEEDS = """
WITH fetched AS (
  SELECT DISTINCT d.cluster, regexp_replace(d.principal, '^[^:]*:', '') AS name,
    coalesce(d.client_id, '') AS client
  FROM client_quota_decisions AS d
  WHERE d.api IN ('FETCH', 'SHARE_FETCH') AND d.ts_wall_ms >= $begin AND d.ts_wall_ms < $end
), ranked AS (
  SELECT w.*, count(*) OVER entity AS windows,
    row_number() OVER (entity ORDER BY w.rate_max DESC NULLS LAST) AS place
  FROM windows AS w WINDOW entity AS (PARTITION BY w.cluster, w.quota_type, w.user, w.client)
)
SELECT r.cluster, r.user, r.client, r.quota_type, min(r.basis) AS basis, any_value(r.windows),
  count(*) FILTER (WHERE r.throttled),
  max(r.rate_max) FILTER (
    WHERE r.place = if(r.quota_type = 'controller_mutation', 1,
      least(floor($share * r.windows)::BIGINT + 1, r.windows))
  ),
  arg_max(r.bound, r.window_start_ms), arg_max(r.bound_level, r.window_start_ms),
  max(r.window_start_ms + r.window_ms) - min(r.window_start_ms),
  r.quota_type = 'fetch' AND EXISTS (
    SELECT 1 FROM fetched AS f WHERE f.cluster = r.cluster
      AND (r.user = '' OR f.name = r.user) AND (r.client = '' OR f.client = r.client)
  )
FROM ranked AS r GROUP BY r.cluster, r.user, r.client, r.quota_type
"""


class EntityNeed(NamedTuple):
    """What an entity needs of a quota type in a cluster."""

    cluster: str
    user: str
    client: str
    quota_type: str
    basis: Basis
    """`usage`: means of windows; `metrics`: some rates are those that brokers showed."""
    windows: int
    """Windows of all brokers, each of which judges alone."""
    throttled_windows: int
    """Those in which a limit throttled the entity."""
    rate: float | None
    """The smallest limit that keeps the share (per second); None where only tokens are measured."""
    in_force: float | None
    """The limit of its newest window, and what set it."""
    bound_level: str
    length_ms: int
    """From the begin of its first window to the end of its last."""
    fetches_taken_back: bool

    @property
    def certainty(self) -> Certainty:
        """Whether the limit is exact for the recorded requests, or a bound."""
        if self.basis != "requests" or self.throttled_windows or self.fetches_taken_back:
            return "at least"
        return "enough" if self.quota_type == QUOTA_TYPES[3] else "exact"


def owner_of(text: str) -> Owner:
    """UserError for what no quota is of."""
    if text not in OWNERS:
        raise UserError(f"--per {text}: has no quota\nallowed: {', '.join(OWNERS)}")
    return text  # type: ignore[return-value]


def types_of(text: str) -> tuple[str, ...]:
    """Quota types of a list; UserError for one that there is not."""
    types = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for one in types:
        if one not in QUOTA_TYPES:
            raise UserError(f"--types {one}: is no quota type\nallowed: {', '.join(QUOTA_TYPES)}")
    return types


def needs(
    warehouse: Warehouse, per: Owner, types: tuple[str, ...], share: float, span: EventSpan
) -> list[EntityNeed]:
    """What each entity needs so that at most `share` (0 to 1) of its windows have a throttled
    request. `per` says who the entities are where no quota of a type was ever set."""
    user, client = OWNERS[per]
    windows = _WINDOWS.format(user=user, client=client)
    values = {"begin": span.begin_ms, "end": span.end_ms}
    with connect(warehouse, windows + _NEEDS, config=ANY_ORDER) as connection:
        connection.execute(windows, {**values, "types": list(types)})
        rows = connection.execute(_NEEDS, {**values, "share": share}).fetchall()
    return [EntityNeed(*row) for row in rows]
