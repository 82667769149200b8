"""The quota of the job: new producer ids of each user."""

from __future__ import annotations

from app.tables.view import JobQuotas, Quota

# The statistics give rate and rate / bound, so the bound per second is their quotient; at a rate of
# 0 it is not known. A bound of 0 has no utilisation. Whether there is a bound at all is in the
# user's newest decision.
_USAGE = """
SELECT 'producer_ids', s.cluster, s.broker, s.user,
  CASE WHEN s.utilisation IS NULL THEN CAST(0 AS DOUBLE)
    WHEN s.utilisation > 0 THEN s.rate / s.utilisation END,
  s.rate, s.rate, s.rejected > 0 OR coalesce(s.throttle_time_avg_ms > 0, false),
  s.window_start_ms, s.window_ms
FROM producer_id_stats AS s
JOIN (
  SELECT d.cluster, d.broker, d.user AS user, d.bound_source, row_number() OVER (
      PARTITION BY d.cluster, d.broker, d.user ORDER BY d.ts_wall_ms DESC, d.row_no DESC
    ) AS place
  FROM producer_id_decisions AS d
) AS b ON b.cluster = s.cluster AND b.broker = s.broker AND b.user = s.user
  AND b.place = 1 AND b.bound_source <> 'none'
""".strip()

QUOTAS = JobQuotas(
    (Quota("producer_ids"),), _USAGE, "producer_id_stats", ("producer_id_decisions",)
)
