"""Whom client quotas throttle, in SQL: by single requests, and by what brokers measure."""

from __future__ import annotations

_KEY = "cluster, quota_type, user, client, bound_level"


def by_sharer(decided: str = "true") -> str:
    """A row for each of those who share a limit: clients of its user, or users of its client where it
    has no user. `decided` is a condition on decisions `d`.
    """
    return f"""
SELECT d.cluster, d.quota_type, d.user AS user, d.client AS client, d.bound_level,
  CASE WHEN d.user = '' THEN d.principal ELSE d.client_id END AS sharer,
  arg_max(d.bound, d.ts_wall_ms) AS bound, count(*) AS requests,
  count(*) FILTER (WHERE d.verdict = 'refused') AS refused, list(DISTINCT d.broker) AS brokers,
  sum(d.charged) AS charged, sum(d.throttle_ms)::BIGINT AS throttle_ms,
  max(d.throttle_ms) AS longest_ms, sum(d.observed_throttle_ms) AS observed_throttle_ms,
  arg_max(d.top_topic, d.charged) AS top_topic, max(d.charged) AS most_charged,
  min(d.ts_wall_ms) AS first_ms, max(d.ts_wall_ms) AS last_ms
FROM client_quota_decisions AS d WHERE {decided}
GROUP BY d.cluster, d.quota_type, d.user, d.client, d.bound_level, sharer"""


def throttled(decided: str = "true", measured: str = "true") -> str:
    """A row for each limit that throttled or refused a request, or that throttles by the metrics of a
    broker, whose requests may be unknown: then columns of requests are null. The conditions are on
    decisions `d` and windows `m`.
    """
    return f"""
WITH judged AS (
  SELECT s.cluster, s.quota_type, s.user AS user, s.client AS client, s.bound_level,
    arg_max(s.bound, s.last_ms) AS bound, flatten(list(s.brokers)) AS brokers,
    sum(s.requests)::BIGINT AS requests, sum(s.refused)::BIGINT AS refused,
    sum(s.throttle_ms)::BIGINT AS throttle_ms, max(s.longest_ms) AS longest_ms,
    sum(s.observed_throttle_ms)::BIGINT AS observed_throttle_ms, count(*) AS sharers,
    arg_max(s.sharer, s.charged) AS largest_sharer,
    max(s.charged) / sum(s.charged) AS largest_share,
    (sum(s.throttle_ms) - arg_max(s.throttle_ms, s.charged))::BIGINT AS others_ms,
    arg_max(s.top_topic, s.most_charged) AS top_topic, min(s.first_ms) AS first_ms,
    max(s.last_ms) AS last_ms
  FROM ({by_sharer(decided)}) AS s
  GROUP BY s.cluster, s.quota_type, s.user, s.client, s.bound_level
), measured AS (
  SELECT m.cluster, m.quota_type, m.user AS user, m.client AS client, m.bound_level,
    arg_max(m.bound, m.window_start_ms) AS bound, list(DISTINCT m.broker) AS brokers,
    count(DISTINCT m.window_start_ms) AS windows, min(m.window_start_ms) AS first_ms,
    max(m.window_start_ms + m.window_ms) AS last_ms
  FROM client_quota_stats AS m WHERE m.basis = 'metrics' AND m.throttled > 0 AND {measured}
  GROUP BY m.cluster, m.quota_type, m.user, m.client, m.bound_level
)
SELECT cluster, quota_type, coalesce(j.user, m.user) AS user, client, bound_level,
  coalesce(j.bound, m.bound) AS bound,
  list_sort(list_distinct(list_concat(j.brokers, m.brokers))) AS brokers, m.windows AS measured_windows,
  j.requests, j.refused, j.throttle_ms, j.longest_ms, j.observed_throttle_ms, j.sharers,
  j.largest_sharer, j.largest_share, j.others_ms, j.top_topic,
  least(j.first_ms, m.first_ms) AS first_ms, greatest(j.last_ms, m.last_ms) AS last_ms
FROM judged AS j FULL JOIN measured AS m USING ({_KEY})"""
