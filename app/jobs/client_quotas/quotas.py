"""The quotas of the job: bytes, request time and mutations of each entity with a limit."""

from __future__ import annotations

from app.tables.client_entity import client_entity
from app.tables.view import JobQuotas, Quota

# One row of an entity and window: what its requests say is exacter than what the broker measured.
_USAGE = f"""
SELECT CASE s.quota_type WHEN 'produce' THEN 'client_produce_bytes'
    WHEN 'fetch' THEN 'client_fetch_bytes' WHEN 'request' THEN 'client_request_time'
    ELSE 'client_mutations' END,
  s.cluster, s.broker,
  {client_entity("s")},
  s.bound, s.rate_avg, s.rate_max, s.throttled > 0, s.window_start_ms, s.window_ms
FROM (
  SELECT q.cluster, q.broker, q.quota_type, q.user AS user, q.client, q.bound, q.rate_avg,
    q.rate_max, q.throttled, q.window_start_ms, q.window_ms, row_number() OVER (
      PARTITION BY q.cluster, q.broker, q.quota_type, q.user, q.client, q.window_start_ms,
        q.window_ms
      ORDER BY q.basis DESC
    ) AS place
  FROM client_quota_stats AS q WHERE q.bound IS NOT NULL
) AS s WHERE s.place = 1
""".strip()

QUOTAS = JobQuotas(
    (
        Quota("client_produce_bytes"),
        Quota("client_fetch_bytes"),
        Quota("client_request_time"),
        Quota("client_mutations"),
    ),
    _USAGE,
    "client_quota_stats",
)
