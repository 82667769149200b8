"""What is known of clients window by window, in SQL: by their requests, and by what brokers measure
where no request is known."""

from __future__ import annotations

WINDOWS = """
SELECT w.* FROM (
  SELECT s.*, row_number() OVER (
      PARTITION BY s.cluster, s.broker, s.quota_type, s.user, s.client, s.window_start_ms,
        s.window_ms
      ORDER BY s.basis DESC
    ) AS place
  FROM client_quota_stats AS s
) AS w WHERE w.place = 1
""".strip()
"""Rows of `client_quota_stats`, one for each entity, type and window: that of requests if there is one."""

NAME = "CASE WHEN instr({0}, ':') > 0 THEN substr({0}, instr({0}, ':') + 1) ELSE {0} END"
"""The user that a principal names, as quotas have it."""

# Each condition is one of equal columns: engines join by these, not client by client.
UNASKED = """
NOT EXISTS (
    SELECT 1 FROM {asked} AS a
    WHERE {same} AND a.name = m.name AND coalesce(a.client_id, '') = m.client_id
  ) AND NOT EXISTS (
    SELECT 1 FROM {asked} AS a WHERE {same} AND a.name = m.name AND m.client_id = ''
  ) AND NOT EXISTS (
    SELECT 1 FROM {asked} AS a
    WHERE {same} AND coalesce(a.client_id, '') = m.client_id AND m.name = ''
  )
""".strip()
"""That a measured entity `m` has no requests in `asked`, which are of the `same` place."""
UNLIMITED = """
NOT EXISTS (
    SELECT 1 FROM limited AS l
    WHERE l.cluster = c.cluster AND l.name = c.name AND l.client = coalesce(c.client_id, '')
  ) AND NOT EXISTS (
    SELECT 1 FROM limited AS l WHERE l.cluster = c.cluster AND l.name = c.name AND l.client = ''
  ) AND NOT EXISTS (
    SELECT 1 FROM limited AS l
    WHERE l.cluster = c.cluster AND l.name = '' AND l.client = coalesce(c.client_id, '')
  )
""".strip()
"""That no limit of any type was in force for an entity that client `c` is a part of, by `LIMITED`."""
LIMITED = """
limited AS (
  SELECT DISTINCT s.cluster, s.user AS name, s.client FROM client_quota_stats AS s
  WHERE s.bound IS NOT NULL
)
""".strip()

_SAME_WINDOW = (
    "a.cluster = m.cluster AND a.broker = m.broker AND a.window_start_ms = m.window_start_ms"
)
# A broker measures whoever shares a limit: a user, a client, or both. Of a client without a limit that is
# often the client alone, whose users are unknown: its principal is empty.
_USED = f"""
WITH asked AS (
  SELECT u.cluster, u.broker, u.window_start_ms, u.window_ms, u.principal, u.client_id,
    {NAME.format("u.principal")} AS name, sum(u.bytes) * 1000e0 / u.window_ms AS byte_rate,
    sum(u.handler_time_ms) / u.window_ms AS threads
  FROM client_usage AS u
  GROUP BY u.cluster, u.broker, u.window_start_ms, u.window_ms, u.principal, u.client_id
), measured AS (
  SELECT s.cluster, s.broker, s.window_start_ms, s.window_ms,
    CASE WHEN s.user <> '' THEN concat('User:', s.user) ELSE '' END AS principal,
    s.client AS client_id, s.user AS name,
    sum(CASE WHEN s.quota_type IN ('produce', 'fetch') THEN s.rate_avg ELSE 0e0 END) AS byte_rate,
    sum(CASE WHEN s.quota_type = 'request' THEN s.rate_avg / 100 ELSE 0e0 END) AS threads
  FROM client_quota_stats AS s
  WHERE s.basis = 'metrics' AND (s.user <> '' OR s.client <> '')
  GROUP BY s.cluster, s.broker, s.window_start_ms, s.window_ms, s.user, s.client
), used AS (
  SELECT * FROM asked
  UNION ALL
  SELECT * FROM measured AS m WHERE {UNASKED.format(asked="asked", same=_SAME_WINDOW)}
)"""
SHARES = f"""
{_USED}, taken AS (
  SELECT u.cluster, u.broker, u.window_start_ms, u.window_ms, u.principal, u.client_id, u.name,
    u.byte_rate, u.byte_rate / nullif(sum(u.byte_rate) OVER of_broker, 0) AS byte_share,
    u.threads, u.threads / nullif(sum(u.threads) OVER of_broker, 0) AS thread_share
  FROM used AS u
  WINDOW of_broker AS (PARTITION BY u.cluster, u.broker, u.window_start_ms, u.window_ms)
), large AS (
  SELECT t.*, CASE WHEN t.byte_rate >= 1048576 THEN t.byte_share ELSE 0e0 END AS of_bytes,
    CASE WHEN t.threads >= 1 THEN t.thread_share ELSE 0e0 END AS of_time
  FROM taken AS t
), shares AS (
  SELECT l.*, greatest(l.of_bytes, l.of_time) AS share FROM large AS l
)""".strip()
"""CTEs, of which `shares` has the bytes per s and request handler threads of each client (`principal`,
`client_id`) in a window of a broker, and its shares of those of all clients. The principal of clients
that are not named is null. `of_bytes` and `of_time` are these shares where there is much of it, from 1
MiB per s and one thread on; `share` is the larger one."""
