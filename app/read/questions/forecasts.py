"""Questions about the use of limits: utilisation, what is reached next, and errors of forecasts."""

from __future__ import annotations

from app.read.question import Question
from app.tables.quota_usage import GROWING, GROWING_READS

_UTILISATION = """
SELECT cluster, broker, kind, entity, approx_quantile(ratio, 0.5) AS p50,
  approx_quantile(ratio, 0.95) AS p95, max(ratio) AS highest,
  arg_max("limit", window_start_ms) AS newest_limit, count(*) AS windows,
  epoch_ms(min(window_start_ms)) AS first_window, epoch_ms(max(window_start_ms)) AS last_window
FROM quota_usage
WHERE ratio IS NOT NULL AND window_start_ms >= $since AND window_start_ms < $until
GROUP BY cluster, broker, kind, entity
ORDER BY highest DESC, p95 DESC, cluster, broker, kind, entity
LIMIT $rows
""".strip()

# Of a limit that is reached already nothing is predicted: one row, of a reader where it has one.
_FORECASTS = f"""
WITH growing(
  kind, cluster, entity, partition, reader, "limit", used, left_s, known_ms
) AS (
{GROWING}
), expected AS (
  SELECT kind, cluster, CAST(NULL AS VARCHAR) AS broker, entity, partition, reader, "limit",
    used / nullif("limit", 0) AS highest, left_s = 0 AS breached,
    known_ms + CAST(left_s * 1000 AS BIGINT) AS breach_ms,
    CAST(NULL AS DOUBLE) AS predicted, CAST(NULL AS DOUBLE) AS mean_error, known_ms
  FROM growing
  UNION ALL
  SELECT kind, cluster, broker, entity, NULL, NULL, "limit", highest, breached,
    CASE WHEN breached THEN known_ms ELSE breach_ms END, predicted, mean_error, known_ms
  FROM forecasts
  WHERE (breached OR breach_ms IS NOT NULL) AND known_ms = (
    SELECT max(known_ms) FROM forecasts WHERE known_ms >= $since AND known_ms < $until
  )
)
SELECT epoch_ms(breach_ms) AS breach, breached, kind, entity, partition,
  reader AS group_or_subscription, "limit", highest,
  CASE WHEN NOT breached THEN predicted END AS predicted,
  CASE WHEN NOT breached THEN mean_error END AS mean_error, cluster, broker,
  epoch_ms(known_ms) AS known
FROM expected
QUALIFY NOT breached OR reader IS NOT NULL OR row_number() OVER (
  PARTITION BY breached, kind, cluster, broker, entity ORDER BY reader NULLS LAST, mean_error NULLS FIRST
) = 1
ORDER BY breached DESC, breach_ms, mean_error, cluster, broker, kind, entity, partition, reader
LIMIT $rows
""".strip()

# A later forecast knows the highest use of the day before it, in the unit of the limit.
_OUTCOMES = """
SELECT f.cluster, f.broker, f.kind, f.entity, count(*) AS forecasts,
  arg_max(f.predicted, f.known_ms) AS predicted,
  arg_max(c.used / f."limit", f.known_ms) AS came,
  epoch_ms(max(f.for_ms)) AS by, avg(abs(f.predicted - c.used / f."limit")) AS off,
  avg(f.mean_error) AS mean_error
FROM forecasts AS f JOIN forecasts AS c ON c.known_ms = f.for_ms AND c.kind = f.kind
  AND c.entity = f.entity AND c.cluster IS NOT DISTINCT FROM f.cluster
  AND c.broker IS NOT DISTINCT FROM f.broker
WHERE f.known_ms >= $since AND f.known_ms < $until AND f.predicted IS NOT NULL
GROUP BY f.cluster, f.broker, f.kind, f.entity
ORDER BY off DESC NULLS LAST, f.cluster, f.broker, f.kind, f.entity
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
        units={**dict.fromkeys(("p50", "p95", "highest"), "share"), "newest_limit": "kind"},
    ),
    Question(
        "forecasts",
        "What is reached next: limits that are breached, then those that will be, and Kafka groups"
        " whose unread records retention will delete, the soonest first; a trend over"
        " days with the error of past ones.",
        ("forecasts", *GROWING_READS),
        _FORECASTS,
        needs="no limit is breached or expected to be reached; at the present growth a limit of age"
        " is from the first check of a Kafka group and the third of a subscription on, one of size"
        " from the third check on; other limits need two and a quarter days of rows, and the"
        " command forecast",
        place=2,
        usual=True,
        units={"limit": "kind", "highest": "share", "predicted": "share"},
        first=("breach", "breached", "kind", "entity", "limit", "highest", "predicted", "cluster"),
    ),
    Question(
        "forecast-outcomes",
        "Forecasts whose day has come: the newest one and what came, the mean"
        " difference of all, and the error that was stated with them.",
        ("forecasts",),
        _OUTCOMES,
        needs="a row needs a forecast, and another round of forecast at the time that it was for",
        place=2,
        units=dict.fromkeys(("predicted", "came", "off"), "share"),
    ),
)
