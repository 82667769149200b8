"""Questions of the job: who is throttled, near a limit or without one, and what clients use."""

from __future__ import annotations

from app.read.question import ROWS, Question

_SINCE = "d.ts_wall_ms >= $since AND d.ts_wall_ms < $until"

# Who shares a limit: clients of its user, or users of its client where it has no user.
_THROTTLED = f"""
WITH decided AS (
  SELECT d.*, CASE WHEN d.user = '' THEN d.principal ELSE d.client_id END AS sharer,
    sum(d.charged) OVER (
      PARTITION BY d.cluster, d.quota_type, d.user, d.client, d.bound_level, sharer
    ) AS of_sharer
  FROM client_quota_decisions AS d WHERE {_SINCE}
)
SELECT d.cluster, d.quota_type, d.user AS user, d.client, d.bound_level,
  arg_max(d.bound, d.ts_wall_ms) AS bound, list(DISTINCT d.broker ORDER BY d.broker) AS brokers,
  count(*) AS requests, count(*) FILTER (WHERE d.verdict = 'refused') AS refused,
  sum(d.throttle_ms)::BIGINT AS throttle_ms, max(d.throttle_ms) AS longest_ms,
  sum(d.observed_throttle_ms)::BIGINT AS observed_throttle_ms,
  count(DISTINCT d.sharer) AS sharers, arg_max(d.sharer, d.of_sharer) AS largest_sharer,
  max(d.of_sharer) / sum(d.charged) AS largest_share, mode(d.top_topic) AS top_topic,
  epoch_ms(min(d.ts_wall_ms)) AS first_request, epoch_ms(max(d.ts_wall_ms)) AS last_request
FROM decided AS d
GROUP BY d.cluster, d.quota_type, d.user, d.client, d.bound_level
ORDER BY throttle_ms DESC, d.cluster, d.quota_type, d.user, d.client, d.bound_level
LIMIT $rows
""".strip()

_NEAR = """
SELECT f.cluster, f.quota_type, f.user AS user, f.client, max(f.utilisation) AS utilisation,
  arg_max(f.fullest_broker, f.utilisation) AS fullest_broker, max(f.rate) AS rate_of_all,
  max(f.brokers) AS brokers, max(f.throttling_brokers) AS throttling_brokers,
  epoch_ms(arg_max(f.window_start_ms, f.utilisation)) AS fullest_window
FROM client_quota_fleet AS f
WHERE f.window_start_ms >= $since AND f.window_start_ms < $until AND f.utilisation >= 0.8
GROUP BY f.cluster, f.quota_type, f.user, f.client
ORDER BY utilisation DESC, f.cluster, f.quota_type, f.user, f.client
LIMIT $rows
""".strip()

_UNLIMITED = """
SELECT c.cluster, c.principal, c.client_id, c.requests, c.bytes, c.handler_time_ms, c.brokers,
  epoch_ms(c.newest_ms) AS newest
FROM unlimited_clients AS c
ORDER BY c.bytes DESC, c.cluster, c.principal, c.client_id
LIMIT $rows
""".strip()

_IDLE = """
SELECT q.cluster, q.quota_type, q.user AS user, q.client, q.bound, q.bound_level, q.rate_max,
  q.utilisation, epoch_ms(q.newest_ms) AS newest
FROM idle_quotas AS q
ORDER BY q.utilisation, q.cluster, q.quota_type, q.user, q.client
LIMIT $rows
""".strip()

_TOPICS = """
SELECT u.cluster, u.principal, u.client_id, u.topic, u.api, sum(u.bytes)::BIGINT AS bytes,
  sum(u.requests)::BIGINT AS requests, sum(u.throttle_ms)::BIGINT AS throttle_ms,
  count(DISTINCT u.broker) AS brokers
FROM client_usage AS u
WHERE u.topic IS NOT NULL AND u.window_start_ms >= $since AND u.window_start_ms < $until
GROUP BY u.cluster, u.principal, u.client_id, u.topic, u.api
ORDER BY bytes DESC, u.cluster, u.principal, u.client_id, u.topic, u.api
LIMIT $rows
""".strip()

_HANDLER_TIME = """
SELECT u.cluster, u.broker, u.principal, u.client_id, u.api,
  sum(u.handler_time_ms) AS handler_time_ms, sum(u.requests)::BIGINT AS requests,
  sum(u.handler_time_ms) / nullif(sum(u.requests), 0) AS ms_per_request,
  sum(u.handler_time_ms) / sum(sum(u.handler_time_ms)) OVER (PARTITION BY u.cluster, u.broker)
    AS share
FROM client_usage AS u
WHERE u.window_start_ms >= $since AND u.window_start_ms < $until
GROUP BY u.cluster, u.broker, u.principal, u.client_id, u.api
HAVING sum(u.handler_time_ms) > 0
ORDER BY handler_time_ms DESC, u.cluster, u.broker, u.principal, u.client_id, u.api
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "throttled-clients",
        "Entities that a client quota throttled: by which limit, set where, on which brokers, for"
        " how long, how many clients share it, which of them was charged most, and the topic with"
        " most of the bytes.",
        ("client_quota_decisions",),
        _THROTTLED,
    ),
    Question(
        "near-client-quota",
        "Entities that used 80 % of a client quota or more, with the broker where they are nearest"
        " to it and their rate over all brokers.",
        ("client_quota_fleet",),
        _NEAR,
    ),
    Question(
        "unlimited-clients",
        "Clients that have no limit, the largest first.",
        ("unlimited_clients",),
        _UNLIMITED,
        (ROWS,),
    ),
    Question(
        "idle-quotas",
        "Client quotas that bind nobody: less than 1 % was used in every window.",
        ("idle_quotas",),
        _IDLE,
        (ROWS,),
    ),
    Question(
        "topics-of-client",
        "Which topics the bytes of each client go to and come from.",
        ("client_usage",),
        _TOPICS,
    ),
    Question(
        "handler-time",
        "Who uses the request handler threads of each broker, and for which requests.",
        ("client_usage",),
        _HANDLER_TIME,
    ),
)
