"""Views of the job: limits in force, entities over all brokers, clients without a limit, and limits
that bind nobody."""

from __future__ import annotations

from app.jobs.client_quotas.bases import LIMITED, NAME, SHARES, UNASKED, UNLIMITED, WINDOWS
from app.tables.view import View

# `user` is written with its table: alone, the word is a function in some engines.
_NOW = """
WITH ranked AS (
  SELECT s.cluster, s.broker, s.quota_type, s.user AS user, s.client, s.bound, s.bound_level,
    s.basis, s.rate_max, s.utilisation, s.throttled, s.window_start_ms, row_number() OVER (
      PARTITION BY s.cluster, s.broker, s.quota_type, s.user, s.client
      ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC, s.basis DESC
    ) AS place
  FROM client_quota_stats AS s
)
SELECT r.cluster, r.broker, r.quota_type, r.user AS user, r.client, r.bound, r.bound_level,
  r.basis, r.rate_max, r.utilisation, r.throttled, r.window_start_ms
FROM ranked AS r WHERE r.place = 1 AND r.bound IS NOT NULL
""".strip()

_FLEET = f"""
SELECT r.cluster, r.quota_type, r.user AS user, r.client, r.window_start_ms, r.window_ms,
  count(DISTINCT r.broker) AS brokers, sum(r.rate_avg) AS rate, sum(r.rate_max) AS rate_max,
  max(r.utilisation) AS utilisation, max_by(r.broker, r.utilisation) AS fullest_broker,
  count(DISTINCT CASE WHEN r.throttled > 0 THEN r.broker END) AS throttling_brokers,
  CAST(sum(r.throttle_ms) AS BIGINT) AS throttle_ms,
  CAST(sum(r.observed_throttle_ms) AS BIGINT) AS observed_throttle_ms
FROM ({WINDOWS}) AS r
GROUP BY r.cluster, r.quota_type, r.user, r.client, r.window_start_ms, r.window_ms
""".strip()

# Whose requests are unknown is known by the rates that brokers measure, if they do.
_UNLIMITED = f"""
WITH requests AS (
  SELECT u.cluster, u.principal, u.client_id, {NAME.format("u.principal")} AS name,
    CAST(sum(u.requests) AS BIGINT) AS requests, CAST(sum(u.bytes) AS BIGINT) AS bytes,
    sum(u.handler_time_ms) AS handler_time_ms, count(DISTINCT u.broker) AS brokers,
    max(u.window_start_ms) AS newest_ms
  FROM client_usage AS u WHERE u.principal IS NOT NULL
  GROUP BY u.cluster, u.principal, u.client_id
), measured AS (
  SELECT s.cluster, CASE WHEN s.user <> '' THEN concat('User:', s.user) ELSE '' END AS principal,
    s.client AS client_id, s.user AS name, CAST(NULL AS BIGINT) AS requests,
    CAST(nullif(least(coalesce(sum(CASE WHEN s.quota_type IN ('produce', 'fetch')
      THEN s.rate_avg * s.window_ms / 1000 END), -1), 9e18), -1) AS BIGINT) AS bytes,
    sum(CASE WHEN s.quota_type = 'request' THEN s.rate_avg * s.window_ms / 100 END)
      AS handler_time_ms,
    count(DISTINCT s.broker) AS brokers, max(s.window_start_ms) AS newest_ms
  FROM client_quota_stats AS s
  WHERE s.basis = 'metrics' AND (s.user <> '' OR s.client <> '')
  GROUP BY s.cluster, s.user, s.client
), used AS (
  SELECT * FROM requests
  UNION ALL
  SELECT * FROM measured AS m
  WHERE {UNASKED.format(asked="requests", same="a.cluster = m.cluster")}
), {LIMITED}
SELECT c.cluster, c.principal, c.client_id, c.requests, c.bytes, c.handler_time_ms, c.brokers,
  c.newest_ms
FROM used AS c WHERE {UNLIMITED}
""".strip()

_UNLIMITED_USE = f"""
{SHARES}, {LIMITED}
SELECT c.cluster, c.broker, c.principal, c.client_id, c.window_start_ms, c.window_ms, c.byte_rate,
  c.byte_share, c.threads, c.thread_share
FROM shares AS c WHERE c.principal IS NOT NULL AND {UNLIMITED}
""".strip()

# In a cluster where no client has a limit nobody is missing one.
_WITHOUT_LIMIT = f"""
{SHARES}, {LIMITED}
SELECT c.cluster, c.broker, c.principal, c.client_id, c.window_start_ms, c.window_ms, c.byte_rate,
  c.threads, c.of_bytes, c.of_time, c.share
FROM shares AS c
WHERE c.share >= 0.25 AND c.principal IS NOT NULL AND {UNLIMITED}
  AND EXISTS (SELECT 1 FROM limited AS l WHERE l.cluster = c.cluster)
""".strip()

_IDLE = """
SELECT s.cluster, s.quota_type, s.user AS user, s.client, max(s.bound) AS bound,
  max_by(s.bound_level, s.window_start_ms) AS bound_level, max(s.rate_max) AS rate_max,
  max(s.utilisation) AS utilisation, count(DISTINCT s.window_start_ms) AS windows,
  max(s.window_start_ms) AS newest_ms
FROM client_quota_stats AS s WHERE s.bound > 0
GROUP BY s.cluster, s.quota_type, s.user, s.client
HAVING max(s.utilisation) < 0.01
""".strip()

VIEWS = (
    View(
        "client_quotas_now",
        "Limits of clients in force on each broker, by the newest window of each entity.",
        _NOW,
        reads=("client_quota_stats",),
    ),
    View(
        "client_quota_fleet",
        "Per window and entity over all brokers of a cluster: rates together, the fullest broker"
        " and how many throttle. Brokers judge alone.",
        _FLEET,
        reads=("client_quota_stats",),
    ),
    View(
        "unlimited_clients",
        "Clients that no limit of any type was in force for, with what they used and the start of their"
        " newest window; without requests, by the rates that brokers measure. These may be of a client"
        " id whatever its user: then the principal is empty.",
        _UNLIMITED,
        reads=("client_usage", "client_quota_stats"),
    ),
    View(
        "unlimited_use",
        "Per window and broker, what each of `unlimited_clients` used: bytes per s and request handler"
        " threads, and its share of those of all clients.",
        _UNLIMITED_USE,
        reads=("client_usage", "client_quota_stats"),
    ),
    View(
        "clients_without_limit",
        "The windows of `unlimited_use` in which a client is among the largest of its broker: a quarter of"
        " the bytes, of 1 MiB per s at least, or of the request handler time, of one thread at least,"
        " where other clients of the cluster have limits.",
        _WITHOUT_LIMIT,
        reads=("client_usage", "client_quota_stats"),
    ),
    View(
        "idle_quotas",
        "Limits whose entity used less than 1 % of them in every window, with the start of the newest.",
        _IDLE,
        reads=("client_quota_stats",),
    ),
)
