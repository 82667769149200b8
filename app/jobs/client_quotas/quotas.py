"""The quotas of the job: bytes, request time and mutations of each entity with a limit."""

from __future__ import annotations

from app.jobs.client_quotas.bases import WINDOWS
from app.tables.client_entity import client_entity
from app.tables.view import JobQuotas, Quota

_USAGE = f"""
SELECT CASE s.quota_type WHEN 'produce' THEN 'client_produce_bytes'
    WHEN 'fetch' THEN 'client_fetch_bytes' WHEN 'request' THEN 'client_request_time'
    ELSE 'client_mutations' END,
  s.cluster, s.broker,
  {client_entity("s")},
  s.bound, s.rate_avg, s.rate_max, s.throttled > 0, s.window_start_ms, s.window_ms
FROM ({WINDOWS}) AS s WHERE s.bound IS NOT NULL
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
