"""Questions of the job: who is throttled, near a limit or without one, and what clients use."""

from __future__ import annotations

from app.jobs.client_quotas.throttled import throttled
from app.read.question import ROWS, Question

_THROTTLED = f"""
SELECT t.cluster, t.quota_type, t.user AS user, t.client, t.bound_level, t.bound, t.brokers,
  t.measured_windows, t.requests, t.refused, t.throttle_ms, t.longest_ms, t.observed_throttle_ms,
  t.sharers, CASE WHEN t.sharers IS NULL AND (t.user = '' OR t.client = '')
    THEN 'not known without a request log' ELSE t.largest_sharer END AS largest_sharer,
  t.largest_share, t.others_ms, t.top_topic, epoch_ms(t.first_ms) AS first,
  epoch_ms(t.last_ms) AS last
FROM ({
    throttled(
        "d.ts_wall_ms >= $since AND d.ts_wall_ms < $until",
        "m.window_start_ms >= $since AND m.window_start_ms < $until",
    )
}) AS t
ORDER BY t.throttle_ms DESC NULLS LAST, t.measured_windows DESC, t.cluster, t.quota_type, t.user,
  t.client, t.bound_level
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
ORDER BY c.bytes DESC NULLS LAST, c.cluster, c.principal, c.client_id
LIMIT $rows
""".strip()

# Limits whose clients came and used next to nothing, and polled limits whose clients never came, of
# types that are measured in the cluster.
_NAMED = r"regexp_replace({}, '^\\(\\*<default>)$', '\1')"
"""A name as it comes from that in a document."""
_IDLE = f"""
WITH policies AS (
  SELECT e.cluster, e.ts_wall_ms, e.seq,
    CASE WHEN json_valid(e.policy_json) THEN e.policy_json::JSON END AS document
  FROM events AS e WHERE e.event_type = 'policy'
), latest AS (
  SELECT p.cluster, p.document ->> '$.scope' AS scope, p.document ->> '$.name' AS name,
    p.document ->> '$.client_id' AS client_id,
    arg_max(p.document -> '$.limits', (p.ts_wall_ms, p.seq)) AS limits
  FROM policies AS p WHERE p.document ->> '$.scope' IN ('user', 'client') GROUP BY ALL
), named AS (
  SELECT l.cluster, t.quota_type, CASE WHEN l.scope = 'user' THEN l.name ELSE '' END AS user,
    CASE WHEN l.scope = 'user' THEN coalesce(l.client_id, '') ELSE l.name END AS client,
    (l.limits ->> t.key)::DOUBLE AS bound,
    concat_ws('_', CASE WHEN l.scope = 'user' THEN if(l.name = '<default>', 'default_user', 'user') END,
      CASE WHEN l.scope = 'client' THEN if(l.name = '<default>', 'default_client', 'client')
        WHEN l.client_id IS NOT NULL THEN if(l.client_id = '<default>', 'default_client', 'client') END
    ) AS bound_level
  FROM latest AS l CROSS JOIN (VALUES ('produce', 'producer_byte_rate'),
    ('fetch', 'consumer_byte_rate'), ('request', 'request_percentage'),
    ('controller_mutation', 'controller_mutation_rate')) AS t(quota_type, key)
), unused AS (
  SELECT n.* FROM named AS n
  WHERE n.bound IS NOT NULL AND EXISTS (
    SELECT 1 FROM client_quota_stats AS s
    WHERE s.cluster = n.cluster AND s.quota_type = n.quota_type
  ) AND NOT EXISTS (
    SELECT 1 FROM client_quota_stats AS s
    WHERE s.cluster = n.cluster AND s.quota_type = n.quota_type AND s.bound_level = n.bound_level
      AND (n.user IN ('', '<default>') OR s.user = {_NAMED.format("n.user")})
      AND (n.client IN ('', '<default>') OR s.client = {_NAMED.format("n.client")})
  )
)
SELECT q.cluster, q.quota_type, q.user AS user, q.client, q.bound, q.bound_level, q.rate_max,
  q.utilisation, epoch_ms(q.newest_ms) AS newest
FROM idle_quotas AS q
UNION ALL
SELECT n.cluster, n.quota_type, n.user AS user, n.client, n.bound, n.bound_level, NULL, 0, NULL
FROM unused AS n
ORDER BY utilisation, cluster, quota_type, user, client
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

_REQUESTS = "a row needs requests of clients: a request log of a broker has them, metrics do not"
QUESTIONS = (
    Question(
        "throttled-clients",
        "Entities that a client quota throttles: by which limit, set where, on which brokers, in how"
        " many windows by the metrics of these brokers, and by single requests for how long, how many"
        " clients share it, which of them was charged most and how long the others waited, and the topic"
        " of the largest request.",
        ("client_quota_decisions", "client_quota_stats"),
        _THROTTLED,
        first=(
            "cluster",
            "quota_type",
            "user",
            "client",
            "bound",
            "throttle_ms",
            "largest_sharer",
            "last",
        ),
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
        needs="a row needs a client that no limit of any type holds for, and requests or rates of it",
    ),
    Question(
        "idle-quotas",
        "Client quotas that bind nobody: less than 1 % was used in every window, or no client of a polled"
        " limit came (newest is null).",
        ("idle_quotas", "client_quota_stats", "events"),
        _IDLE,
        (ROWS,),
    ),
    Question(
        "topics-of-client",
        "Which topics the bytes of each client go to and come from.",
        ("client_usage",),
        _TOPICS,
        needs=_REQUESTS,
    ),
    Question(
        "handler-time",
        "Who uses the request handler threads of each broker, and for which requests.",
        ("client_usage",),
        _HANDLER_TIME,
        needs=_REQUESTS,
    ),
)
