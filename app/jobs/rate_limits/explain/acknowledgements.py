"""Sentences about pauses that held up acknowledgements, so that a backlog grew."""

from __future__ import annotations

from app.jobs.rate_limits.explain.causes import cause
from app.jobs.rate_limits.explain.pauses import pauses_of
from app.show.explain.ask import Ask, ConfiguredPolicies, newest_rows
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Row, Sentence

HOUR_MS = 3_600_000
# A consumer's records name its connection where the feed has it.
_OF_CONSUMERS = (
    "t.cluster = $cluster AND t.topic = $topic AND t.subscription = $subscription"
    " AND t.ts_wall_ms >= $since AND t.ts_wall_ms <= $until"
    " AND t.consumer IS NOT NULL"
)


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Of each subscription at its last check."""
    return [
        sentence
        for row in newest_rows(reader, ask, "backlog_subscriptions")
        for sentence in _pauses(reader, row)
    ]


def _pauses(reader: SnapshotReader, sub: Row) -> list[Sentence]:
    """Pauses for limits of other topics in which a consumer's acknowledgements were not read,
    since the check before one that found more entries."""
    earlier = reader.rows(
        "backlog_subscriptions",
        "t.cluster = $cluster AND t.topic = $topic"
        " AND t.subscription = $subscription AND t.pass_ms < $pass_ms",
        sub.values,
        "ORDER BY t.pass_ms DESC LIMIT 1",
    )
    grown = earlier and (sub["backlog_entries"] or 0) > (earlier[0]["backlog_entries"] or 0)
    if not grown:
        return []
    before, result = earlier[0], []
    connections = _consumers_on(reader, sub, before["pass_ms"], sub["pass_ms"])
    if not connections:
        return []
    asked = Ask(
        "connection",
        tuple(connections),
        sub["pass_ms"],
        before["pass_ms"],
        sub["pass_ms"],
        cluster=sub["cluster"],
    )
    for number, pause in enumerate(pauses_of(reader, asked)):
        first, consumer = pause.first, connections[pause.first["cnx_id"]]
        other = first["limiter"] == "topic" and first["culprit_topic"] != sub["topic"]
        if not other or first["broker"] != consumer["broker"]:
            continue
        draft = Draft()
        checked, earlier_check = draft.quote("sub", sub), draft.quote("before", before)
        start, seen = draft.quote("start", first), draft.quote("seen", consumer)
        growth = checked.derived("growth", sub["backlog_entries"] - before["backlog_entries"])
        text = (
            f"Its backlog has grown by {growth:n entry} since the check at"
            f" {earlier_check.pass_ms:clock}. In that time connection {start.cnx_id}"
            f" of its consumer {seen.consumer} was paused"
        )
        if pause.last is not None:
            text += f" for {pause.lasted(draft.quote('end', pause.last))}"
        text += f", since {cause(start)}: its acknowledgements were not read"
        order = (3, sub["row_no"], number)
        result.append(draft.sentence(text, order, rule=first["rule"]))
    return result


def _consumers_on(reader: SnapshotReader, sub: Row, since_ms: int, until_ms: int) -> dict[str, Row]:
    """By connection: the consumer of a subscription whose records are all of it, those of an hour
    before `since_ms` included, and none of which closes it."""
    if not reader.has("events"):
        return {}
    params = {
        **{name: sub[name] for name in ("cluster", "topic", "subscription")},
        "since": since_ms - HOUR_MS,
        "until": until_ms,
    }
    known = reader.dicts(
        f"""
        SELECT t.consumer, min(t.cnx_id) AS cnx_id FROM events AS t WHERE {_OF_CONSUMERS}
        GROUP BY t.consumer HAVING count(DISTINCT (t.broker, t.cnx_id)) = 1
          AND min(t.cnx_id) IS NOT NULL AND bool_and(t.event_type <> 'consumer_closed')
        ORDER BY t.consumer""",
        params,
    )
    what = "any_value(t.broker) AS broker, any_value(t.consumer) AS consumer"
    return {
        row["cnx_id"]: reader.summary(
            "events", what, f"{_OF_CONSUMERS} AND t.consumer = $consumer", {**params, **row}
        )
        for row in known
    }
