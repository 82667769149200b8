"""What the summary of a report says of client quotas: who is throttled, by which limit and because of
whom, and who is among the largest of a broker without a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.jobs.client_quotas.throttled import throttled
from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.show.report.phrases import NAMED, Row, clock, number_of, percent, was
from app.terminal.amounts import duration, number_text
from app.terminal.counts import all_of
from app.terminal.sizes import size_text

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

NS_PER_MS = 10**6
CHARGED = {
    "produce": ("bytes", "bytes per s"),
    "fetch": ("bytes", "bytes per s"),
    "request": ("request time", "% of a thread"),
    "controller_mutation": ("partitions", "partitions per s"),
}
"""What a quota charges, and the unit of its limit."""
_RUNBOOKS = "app/jobs/client_quotas/runbooks"
_THROTTLED = f"""
SELECT t.* FROM ({throttled()}) AS t
ORDER BY t.requests DESC NULLS LAST, t.measured_windows DESC, t.cluster, t.quota_type, t.user, t.client,
  t.bound_level
"""
_UNLIMITED = """
SELECT u.cluster, u.broker, u.principal, u.client_id, max(u.share) AS share,
  max(u.threads) AS threads, max(u.byte_rate) AS byte_rate,
  round(max(u.of_time), 2) >= round(max(u.of_bytes), 2) AS is_time,
  min(u.window_start_ms) AS begin_ms, max(u.window_start_ms + u.window_ms) AS end_ms
FROM clients_without_limit AS u
GROUP BY u.cluster, u.broker, u.principal, u.client_id
ORDER BY share DESC, u.cluster, u.broker, u.principal, u.client_id
"""
_JUDGED = (
    "SELECT count(DISTINCT (s.cluster, s.user, s.client)) AS entities FROM client_quota_stats AS s"
)


def entity(row: Row) -> str:
    """Who shares a limit, in words."""
    who = [f"user {row['user']}"] if row["user"] else []
    return " with ".join([*who, *([f"client {row['client']}"] if row["client"] else [])])


def _findings(reader: ReportReader) -> list[Finding]:
    rows, unlimited = reader.rows(_THROTTLED), reader.rows(_UNLIMITED)
    found = []
    if rows:
        texts = [_throttled(row) for row in rows[:NAMED]]
        more = len(rows) - NAMED
        if more > 0:
            texts.append(f"{number_of(more, 'other limit')} {was(more)} also exceeded.")
        found.append(Finding(" ".join(texts), [_action(row) for row in rows[:NAMED]]))
    if unlimited:
        texts = [_large(row) for row in unlimited[:NAMED]]
        more = len(unlimited) - NAMED
        if more > 0:
            verb = "are" if more > 1 else "is"
            texts.append(f"{number_of(more, 'other client')} {verb} as large without a limit.")
        found.append(Finding(" ".join(texts), [_limit_it(row) for row in unlimited[:NAMED]]))
    if not found and (entities := reader.row(_JUDGED)["entities"]):
        return [Finding(f"{number_of(entities, 'client')} with a quota, none throttled.")]
    return found


def _throttled(row: Row) -> str:
    verb = "was refused" if row["refused"] else "was throttled"
    text = entity(row)
    text = (
        f"{text[:1].upper()}{text[1:]} {verb} {_times(row)} on {_brokers(row)} by its"
        f" {row['quota_type']} quota of {_bound(row)} ({row['bound_level']})"
    )
    if row["requests"] is None:
        return f"{text}, as their metrics show."
    text += f", for {duration(row['longest_ms'] * NS_PER_MS)} at most"
    return (
        f"{text}; {_blame(row, 'it', f'those of {_sharer(row)}')}." if _starves(row) else f"{text}."
    )


def _times(row: Row) -> str:
    if row["requests"] is None:
        return f"in {number_of(row['measured_windows'], 'window')}"
    return number_of(row["requests"], "time")


def _brokers(row: Row) -> str:
    names = row["brokers"]
    if len(names) > NAMED:
        return number_of(len(names), "broker")
    return f"broker{'s' * (len(names) > 1)} {all_of(names)}"


def _bound(row: Row) -> str:
    # Whoever may not read limits sees that brokers throttle.
    return (
        "unknown size"
        if row["bound"] is None
        else f"{number_text(row['bound'])} {CHARGED[row['quota_type']][1]}"
    )


def _starves(row: Row) -> bool:
    """Whether one of those who share a limit has used most of it."""
    return bool(row["others_ms"] and row["largest_share"] >= 0.5)


def _sharer(row: Row) -> str:
    """The largest of those who share a limit, and whose limit that is."""
    if row["user"]:
        return f"client {row['largest_sharer']} of user {row['user']}"
    return f"{row['largest_sharer']} with client {row['client']}"


def _blame(row: Row, over: str, whose: str) -> str:
    what = CHARGED[row["quota_type"]][0]
    return (
        f"{percent(row['largest_share'])} of the {what} over {over} were {whose}, and"
        f" {number_of(row['sharers'] - 1, 'other')} with the same quota waited"
        f" {duration(row['others_ms'] * NS_PER_MS)}"
    )


def _action(row: Row) -> Action:
    remedy = f"Give {entity(row)} another {row['quota_type']} quota, or find out why it exceeds it"
    over = "window" if row["requests"] is None else "request"
    reason = f"{number_of(row['requests'] or row['measured_windows'], over)} over {_bound(row)}"
    reason += f" ({row['bound_level']})"
    urgency = Urgency.OWN
    if _starves(row):
        remedy = f"Give {_sharer(row)} a {row['quota_type']} quota of its own"
        reason = _blame(row, _bound(row), "its own")
        urgency = Urgency.OTHERS
    return Action(
        remedy,
        reason,
        Urgency.LOSS if row["refused"] else urgency,
        cluster=row["cluster"],
        user=row["user"] or None,
        runbook=f"{_RUNBOOKS}/client-throttled.md",
    )


def _client(row: Row) -> str:
    if row["client_id"] and row["principal"]:
        return f"client {row['client_id']} of user {_user(row)}"
    return entity({"user": _user(row), "client": row["client_id"]})


def _user(row: Row) -> str | None:
    """The user of a principal; None of clients that a broker measures whatever their users."""
    return row["principal"].partition(":")[2] or row["principal"] or None


def _took(row: Row) -> str:
    what = (
        f"{row['threads']:.1f} request handler threads"
        if row["is_time"]
        else f"{size_text(row['byte_rate'])} per s"
    )
    return (
        f"took up to {what} of {row['broker']}, {percent(row['share'])} of what all clients took,"
        f" from {clock(row['begin_ms'])} to {clock(row['end_ms'])}"
    )


def _large(row: Row) -> str:
    text = _client(row)
    return f"{text[:1].upper()}{text[1:]}, which has no limit, {_took(row)}."


def _limit_it(row: Row) -> Action:
    return Action(
        f"Set a {'request_percentage' if row['is_time'] else 'byte rate'} for {_client(row)}",
        f"it has no limit and {_took(row)}",
        Urgency.OTHERS,
        cluster=row["cluster"],
        user=_user(row),
        runbook=f"{_RUNBOOKS}/client-without-limit.md",
    )


FINDINGS = (JobFindings(5, _findings),)
