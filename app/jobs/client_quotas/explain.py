"""Sentences about the client quotas of a principal: throttled requests, and windows near a limit."""

from __future__ import annotations

from app.show.explain.ask import IN_WINDOW, Ask, ConfiguredPolicies, Explained, Subject
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Quoted, Row, Sentence
from app.show.explain.windows import window_sentences

_UNITS = {
    "produce": "byte",
    "fetch": "byte",
    "request": "%",
    "controller_mutation": "partition",
}
_LEVELS = {
    "user_client": "set for this user with this client",
    "user_default_client": "set for this user with any client",
    "user": "set for the user, and shared by its clients",
    "default_user_client": "set for any user with this client",
    "default_user_default_client": "set for any user with any client",
    "default_user": "the default of users, shared by the clients of the user",
    "client": "set for the client, and shared by its users",
    "default_client": "the default of clients, shared by the users of the client",
}
_TIME = "ORDER BY abs(CAST(t.ts_wall_ms AS HUGEINT) - $at), t.broker, t.row_no LIMIT $rows"


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
    text += f" for {d.throttle_ms:ms}: {_limit(d)}, {_LEVELS[row['bound_level']]}"
    if row["quota_type"] == "controller_mutation":
        text += f"; {d.tokens:n token} are left"
    if row["observed_throttle_ms"] is not None:
        text += f". The broker answered {d.observed_throttle_ms:ms}"
    if row["top_topic"]:
        text += f". Most of its bytes were of {d.top_topic}"
    return draft.sentence(text, (0, row["row_no"]))


def _limit(row: Quoted) -> str:
    unit = _UNITS[row["quota_type"]]
    if unit == "%":
        return (
            f"{row.rate:n} % of a thread over {row.window_ms:ms}, with a limit of {row.bound:n} %"
        )
    if row["rate"] is None:
        return f"the limit is {row.bound:n partition} per s"
    return f"{row.rate:n} {unit}s per s over {row.window_ms:ms}, with a limit of {row.bound:n}"


def _windows(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    return window_sentences(reader, ask, "client_quota_stats", "t.utilisation >= 0.8", _window)


def _window(row: Quoted) -> str:
    who = f"user {row.user}" if row["user"] else "every user"
    text = f"{who} with client {row.client}" if row["client"] else who
    text += f" used its {row.quota_type} quota on {row.broker}"
    if row["bound"] is None:
        return f"{text}: there is no limit"
    if row["utilisation"] is not None:
        text += f" up to {row.utilisation:pct}"
    text += f" ({_LEVELS[row['bound_level']]})"
    if row["throttled"]:
        text += f"; {row.throttled:n request} over it"
    return text


_USER = "regexp_replace(t.principal, '^[^:]*:', '')"
_OF_REQUEST = f"list_contains($names, {_USER})"
EXPLAINED = Explained(
    place=55,
    subjects=(Subject(85, ("principal",), sentences), Subject(86, ("principal",), _windows)),
    decisions={"principal": {"client_quota_decisions": _OF_REQUEST}},
    levels={
        "principal": {
            "client_quota_stats": "list_contains($names, t.user)",
            "client_usage": _OF_REQUEST,
        }
    },
    named_by={"client_usage": (_USER, "true")},
)
