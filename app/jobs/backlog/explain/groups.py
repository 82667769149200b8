"""Sentences about Kafka groups: what they lost, their states, and their lag."""

from __future__ import annotations

from app.show.explain.ask import IN_WINDOW, NEAREST, Ask, ConfiguredPolicies
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Quoted, Sentence, tell

# A row stands until the next one, so the newest may lie before the window.
_LATEST = (
    'QUALIFY row_number() OVER (PARTITION BY t.cluster, t."group", t.topic, t.partition'
    " ORDER BY t.pass_ms DESC, t.row_no DESC) = 1 ORDER BY t.lag DESC NULLS LAST LIMIT $rows"
)
_HELD = (
    'QUALIFY row_number() OVER (PARTITION BY t.cluster, t."group", t.topic, t.partition'
    " ORDER BY t.pass_ms DESC, t.row_no DESC) = 1 AND t.state IN ('open_transaction', 'pending_offsets')"
    " LIMIT $rows"
)
_REBALANCED = (
    "t.topic IS NULL AND t.state = 'rebalancing' AND t.pass_ms BETWEEN $at - 3600000 AND $at"
)
_REBALANCES = "count(*) AS times, min(t.pass_ms) AS first_ms, max(t.pass_ms) AS last_ms"
_STATES = {
    "committed": "has an offset: it reads offset {state.committed:n} next",
    "ahead": "is ahead of the log: it reads offset {state.committed:n} next, and the log ends at"
    " {state.log_end:n}; what arrives below its offset is not read",
    "open_transaction": "has read up to the last stable offset, {state.committed:n}: readers of committed"
    " data get nothing more before",
    "pending_offsets": "has its next offset in a transaction: {state.committed:n} stays the last one before",
    "no_offset": "has no offset; {state.unread:n record} stand there",
    "offsets_expired": "has no offset any more; {state.unread:n record} were unread",
    "unknown_group": "is named in the configuration and does not exist",
    "share_group": "is a share group, whose offsets were not polled",
    "empty_id": "has committed under the empty group id, which no client can ask for",
    "gone": "is gone",
    "stable": "has consumers, and each has its partitions",
    "rebalancing": "is rebalancing: its consumers are about to get their partitions",
    "empty": "has no consumer",
    "dead": "is about to be removed by its coordinator",
    "known": "is in the state before no longer, or is not looked for any more",
}
_AGES = {
    "known": "; the oldest unread record is {lag.age_s:s} old",
    "first_seen": "; the oldest unread record was first seen {lag.age_s:s} ago",
    "nothing_unread": "; none of it is a record: transaction markers, aborted, compacted or deleted"
    " ones",
    "other_unit": "; the time of the oldest unread record is not one in ms, so its producers write"
    " another unit",
    "unknown": "",
}


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Losses and changes around the moment, and the newest lag of each partition."""
    found = []
    for table, name, describe, place, when, order in (
        ("lost_messages", "lost", _lost, 2, IN_WINDOW, NEAREST),
        ("group_states", "state", _state, 3, IN_WINDOW, NEAREST),
        ("group_states", "state", _state, 3, "t.ts_wall_ms < $lo", _HELD),
    ):
        rows = reader.rows(table, f"{ask.where(table)} AND {when}", ask.params, order)
        found += [tell(describe, name, row, place) for row in rows]
    until = f"{ask.where('group_lag')} AND t.ts_wall_ms <= $at"
    found += [
        tell(_lag, "lag", row, 1)
        for row in reader.rows("group_lag", until, ask.params, _LATEST)
        if row["lag"] is not None
    ]
    return found + (_rebalances(reader, ask) if reader.has("group_states") else [])


def _rebalances(reader: SnapshotReader, ask: Ask) -> list[Sentence]:
    """How often polls of the last hour found the group in a new rebalance, if more than once."""
    draft, where = Draft(), f"{ask.where('group_states')} AND {_REBALANCED}"
    seen = draft.quote("seen", reader.summary("group_states", _REBALANCES, where, ask.params))
    if seen["times"] < 2:
        return []
    text = f"Polls found group {ask.name} in {seen.times:n new rebalance} from {seen.first_ms:clock} on"
    return [
        draft.sentence(f"{text}: its members come and go", (4,), seen["last_ms"], "rebalancing")
    ]


def _whose(row: Quoted, group: str = "Group") -> str:
    if row["topic"] is None:
        return f"{group} {row.group}"
    if row["partition"] is None:
        return f"{group} {row.group} of topic {row.topic}"
    return f"{group} {row.group} of topic {row.topic}, partition {row.partition},"


def _kind(row: Quoted) -> str:
    return "Share group" if row["group_type"] == "share" else "Group"


def _lost(row: Quoted) -> str:
    when = "before a poll first saw the group" if row["first_sight"] else "before it read them"
    last = row.derived("last_offset", row["to_offset"] - 1)
    return (
        f"{_whose(row)} has lost {row.offsets:n offset}, from {row.from_offset:n} to {last:n}:"
        f" they were deleted {when}"
    )


def _state(row: Quoted) -> str:
    if row["state"] == "no_offset" and row["unread"] is None:
        return f"{_whose(row)} has no offset in any topic"
    text = f"{_whose(row, _kind(row))} {_STATES[row['state']].format(state=row)}"
    if row["state"] == "rebalancing" and row["group_epoch"] is not None:
        text += (
            f"; the group is in epoch {row.group_epoch:n}, its target assignment of epoch"
            f" {row.assignment_epoch:n}"
        )
    held = row["state"] in ("open_transaction", "pending_offsets")
    return f"{text} {_transaction(row)}" if held else text


def _transaction(row: Quoted) -> str:
    """The end that a group waits for."""
    if row["producer_id"] is None:
        return "a transaction ends, whose producer is not known"
    if row["transactional_id"] is None:
        return f"a transaction of producer id {row.producer_id:n} ends, whose id is not known"
    since = row["transaction_start_ms"]
    opened = "" if since is None else f", which has been open since {row.transaction_start_ms:day}"
    return f"transaction {row.transactional_id} of producer id {row.producer_id:n} ends{opened}"


def _lag(row: Quoted) -> str:
    if row["group_type"] == "share":
        reads = f"its start offset is {row.committed:n} and the log ends at {row.log_end:n}"
    else:
        reads = f"it reads offset {row.committed:n} next and the log ends at {row.log_end:n}"
    if row["group_type"] == "share" and row["lag_records"] is not None:
        text = f"{_whose(row, _kind(row))} has not acknowledged {row.lag_records:n record}: {reads}"
        text += _AGES.get(row["age_state"], "").format(lag=row) if row["lag_records"] else ""
    elif row["lag"] < 0:
        ahead = row.derived("ahead", -row["lag"])
        text = f"{_whose(row, _kind(row))} is ahead of the log by {ahead:n offset}: {reads}"
    else:
        text = f"{_whose(row, _kind(row))} has a lag of {row.lag:n offset}: {reads}"
        if row["state"] == "open_transaction":
            text += "; a transaction is open from its offset on, behind which readers of committed"
            text += " records get nothing"
        elif row["state"] == "pending_offsets":
            text += "; its next offset is in a transaction that is open"
        if row["lag"] > 0:
            text += _AGES.get(row["age_state"], "").format(lag=row)
        if row["lag"] > 0 and row["lag_growth"] is not None and row["lag_records"] != 0:
            text += (
                f". It commits {row.commit_rate:n offset} per s and its lag grows by"
                f" {row.lag_growth:n} per s"
            )
    if row["client_host"] == "":
        text += ". No member of the group has the partition"
    elif row["client_id"] is not None:
        text += f". The partition is assigned to {row.client_id} on {row.client_host}"
    if row["time_to_loss_s"] == 0:
        text += ". Retention may delete its unread records now"
    elif row["time_to_loss_s"] is not None:
        text += f". Retention may delete its unread records in {row.time_to_loss_s:s}"
    return text
