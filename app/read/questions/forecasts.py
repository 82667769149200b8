"""Questions about the use of limits: utilisation, forecasts and their errors."""

from __future__ import annotations

from app.read.question import Question

_UTILISATION = """
SELECT cluster, broker, kind, entity, round(approx_quantile(ratio, 0.5), 4) AS p50,
  round(approx_quantile(ratio, 0.95), 4) AS p95, round(max(ratio), 4) AS highest,
  arg_max("limit", window_start_ms) AS newest_limit, count(*) AS windows,
  epoch_ms(min(window_start_ms)) AS first_window, epoch_ms(max(window_start_ms)) AS last_window
FROM quota_usage
WHERE ratio IS NOT NULL AND window_start_ms >= $since AND window_start_ms < $until
GROUP BY cluster, broker, kind, entity
ORDER BY highest DESC, p95 DESC, cluster, broker, kind, entity
LIMIT $rows
""".strip()

# Those of the newest hour: breached limits, then the soonest breaches, each with its error.
_FORECASTS = """
SELECT cluster, broker, kind, entity, method, breached, epoch_ms(breach_ms) AS breach,
  round(predicted, 4) AS predicted, epoch_ms(for_ms) AS by, round(mean_error, 4) AS mean_error,
  round(worst_error, 4) AS worst_error, tests, round(p50, 4) AS p50, round(p95, 4) AS p95,
  round(highest, 4) AS highest, "limit", reason, epoch_ms(known_ms) AS known
FROM forecasts
WHERE known_ms = (
  SELECT max(known_ms) FROM forecasts WHERE known_ms >= $since AND known_ms < $until
)
ORDER BY breached DESC, breach_ms NULLS LAST, predicted DESC NULLS LAST, mean_error, cluster,
  broker, kind, entity, method
LIMIT $rows
""".strip()

# A later forecast knows the highest use of the day before it, in the unit of the limit.
_OUTCOMES = """
SELECT f.cluster, f.broker, f.kind, f.entity, f.method, count(*) AS forecasts,
  round(arg_max(f.predicted, f.known_ms), 4) AS predicted,
  round(arg_max(c.used / f."limit", f.known_ms), 4) AS came,
  epoch_ms(max(f.for_ms)) AS by, round(avg(abs(f.predicted - c.used / f."limit")), 4) AS off,
  round(avg(f.mean_error), 4) AS mean_error
FROM forecasts AS f JOIN forecasts AS c ON c.known_ms = f.for_ms AND c.kind = f.kind
  AND c.entity = f.entity AND c.method = f.method AND c.cluster IS NOT DISTINCT FROM f.cluster
  AND c.broker IS NOT DISTINCT FROM f.broker
WHERE f.known_ms >= $since AND f.known_ms < $until AND f.predicted IS NOT NULL
GROUP BY f.cluster, f.broker, f.kind, f.entity, f.method
ORDER BY off DESC NULLS LAST, f.cluster, f.broker, f.kind, f.entity, f.method
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "utilisation",
        "Use of every limit as a share of it: median, 95th percentile and maximum"
        " of its windows or checks.",
        ("quota_usage",),
        _UTILISATION,
        place=2,
    ),
    Question(
        "forecasts",
        "The newest forecasts: limits that are breached, then those that are reached"
        " soonest, each with the error of past forecasts of its method.",
        ("forecasts",),
        _FORECASTS,
        needs="the command forecast writes them, for limits with two and a quarter days of rows",
        place=2,
    ),
    Question(
        "forecast-outcomes",
        "Forecasts whose day has come: the newest one and what came, the mean"
        " difference of all, and the error that was stated with them.",
        ("forecasts",),
        _OUTCOMES,
        needs="a row needs a forecast, and another round of forecast at the time that it was for",
        place=2,
    ),
)
