"""Sentences about the client quotas of a principal: throttled requests, and windows near a limit."""

from __future__ import annotations

from app.jobs.client_quotas.explain.levels import LEVELS, UNITS
from app.show.explain.ask import IN_WINDOW, Ask, ConfiguredPolicies
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Quoted, Row, Sentence
from app.show.explain.windows import window_sentences

_TIME = "ORDER BY abs(CAST(t.ts_wall_ms AS HUGEINT) - $at), t.broker, t.row_no LIMIT $rows"
# Of what a broker measures, and of its requests, the requests are told.
_JUDGED = """
SELECT 1 FROM client_quota_stats AS s
WHERE t.basis = 'metrics' AND s.basis = 'requests' AND s.cluster = t.cluster
  AND s.broker = t.broker AND s.quota_type = t.quota_type AND s.user = t.user
  AND s.client = t.client AND s.window_start_ms = t.window_start_ms AND s.window_ms = t.window_ms
"""


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Requests of the principal that were throttled or refused around the moment."""
    table = "client_quota_decisions"
    if table not in ask.entity or not reader.has(table):
        return []
    where = f"{ask.where(table)} AND {IN_WINDOW}"
    return [_decision(row) for row in reader.rows(table, where, ask.params, _TIME)]


def _decision(row: Row) -> Sentence:
    draft = Draft()
    d = draft.quote("decision", row)
    what = "was refused" if row["verdict"] == "refused" else "was throttled"
    text = f"{d.api} of {d.principal} (client {d.client_id}) {what} on {d.broker}"
    text += f" for {d.throttle_ms:ms}: {_limit(d)}, {LEVELS[row['bound_level']]}"
    if row["quota_type"] == "controller_mutation":
        text += f"; {d.tokens:n token} are left"
    if row["observed_throttle_ms"] is not None:
        text += f". The broker answered {d.observed_throttle_ms:ms}"
    if row["top_topic"]:
        text += f". Most of its bytes were of {d.top_topic}"
    return draft.sentence(text, (0, row["row_no"]))


def _limit(row: Quoted) -> str:
    unit = UNITS[row["quota_type"]]
    if unit == "%":
        return (
            f"{row.rate:n} % of a thread over {row.window_ms:ms}, with a limit of {row.bound:n} %"
        )
    if row["rate"] is None:
        return f"the limit is {row.bound:n partition} per s"
    return f"{row.rate:n} {unit}s per s over {row.window_ms:ms}, with a limit of {row.bound:n}"


def windows(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    return window_sentences(
        reader,
        ask,
        "client_quota_stats",
        "t.utilisation >= 0.8",
        _window,
        f"NOT EXISTS ({_JUDGED})",
    )


def _window(row: Quoted) -> str:
    who = f"user {row.user}" if row["user"] else "every user"
    text = f"{who} with client {row.client}" if row["client"] else who
    text += f" used its {row.quota_type} quota on {row.broker}"
    if row["bound"] is None:
        return f"{text}: there is no limit"
    if row["utilisation"] is not None:
        text += f" up to {row.utilisation:pct}"
    text += f" ({LEVELS[row['bound_level']]})"
    if row["throttled"]:
        if row["basis"] == "requests":
            text += f"; {row.throttled:n request} over it"
        else:
            text += f"; it throttled in {row.throttled:n measurement}"
    return text
