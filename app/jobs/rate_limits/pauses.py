"""What a pause of a connection is, as SQL over `throttle_events`."""

from __future__ import annotations

# A pause begins at the row after which reads are paused and were not before, be it a mark or, with
# the exchange of PIP-385, a receipt that did not come; it ends at the row after which they are not.
# Pauses are numbered by counting their first rows in time order. Wall time leads the order, since
# the monotonic clock starts anew with the broker; where it is null two engines would disagree about
# nulls, so their place is written out.
_IN_TIME = """
PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
""".strip()
WERE_PAUSED = f"""
coalesce(lag(reads_paused) OVER (
      {_IN_TIME}
    ), false) AS were_paused
""".strip()
PAUSE_NO = f"""
sum(CASE WHEN reads_paused AND NOT were_paused THEN 1 ELSE 0 END) OVER (
      {_IN_TIME}
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS pause_no
""".strip()
"""The number of a row's pause in its connection; 0 before the first. Reads `were_paused`."""

# As in the view throttle_intervals, but each mark keeps its number, and the table is read once.
NUMBERED = f"""
WITH flagged AS (
  SELECT cluster, broker, cnx_id, ts_wall_ms, ts_mono_ns, row_no, action, transition, limiter,
    limiter_name, topic, trigger_topic AS publisher, collateral_topics,
    balance_msgs, waiting, reason, reads_paused,
    {WERE_PAUSED}
  FROM throttle_events
), numbered AS MATERIALIZED (
  SELECT *, {PAUSE_NO}
  FROM flagged
), pauses AS (
  SELECT cluster, broker, cnx_id, pause_no,
    min(ts_wall_ms) FILTER (WHERE reads_paused AND NOT were_paused) AS start_ms,
    min(ts_mono_ns) FILTER (WHERE reads_paused AND NOT were_paused) AS start_ns,
    min(ts_mono_ns) FILTER (WHERE were_paused AND NOT reads_paused) AS end_ns
  FROM numbered WHERE pause_no > 0
  GROUP BY cluster, broker, cnx_id, pause_no
)
""".strip()
"""Common table expressions of a question: `numbered` has the rows with their `pause_no`, `pauses`
begin and end of each."""
