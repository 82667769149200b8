"""Sentences about Kafka groups: what they lost, their states, and their lag."""

from __future__ import annotations

from app.explain.ask import IN_WINDOW, NEAREST, Ask, Configured
from app.explain.reader import Reader
from app.explain.sentence import Row, Sentence, compose

# A row stands until the next one, so the newest may lie before the window.
_LATEST = (
    'QUALIFY row_number() OVER (PARTITION BY t.cluster, t."group", t.topic, t.partition'
    " ORDER BY t.pass_ms DESC, t.row_no DESC) = 1 ORDER BY t.lag DESC NULLS LAST LIMIT $rows"
)
_STATES = {
    "committed": "has an offset: it reads offset {state.committed:n} next",
    "ahead": "is ahead of the log: it reads offset {state.committed:n} next, and the log ends at"
    " {state.log_end:n}; what arrives below its offset is not read",
    "no_offset": "has no offset; {state.unread:n record} stand there",
    "offsets_expired": "has no offset any more; {state.unread:n record} were unread",
    "unknown_group": "is named in the configuration and does not exist",
    "share_group": "is a share group, which commits no offsets",
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


def sentences(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    """Losses and changes around the moment, and the newest lag of each partition."""
    found = []
    for table, describe in (("lost_messages", _lost), ("group_states", _state)):
        where = f"{ask.where(table)} AND {IN_WINDOW}"
        found += [describe(row) for row in reader.rows(table, where, ask.params, NEAREST)]
    until = f"{ask.where('group_lag')} AND t.ts_wall_ms <= $at"
    found += [
        _lag(row)
        for row in reader.rows("group_lag", until, ask.params, _LATEST)
        if row["lag"] is not None
    ]
    return found


def _whose(name: str, row: Row) -> str:
    if row["topic"] is None:
        return f"Group {{{name}.group}}"
    if row["partition"] is None:
        return f"Group {{{name}.group}} of topic {{{name}.topic}}"
    return f"Group {{{name}.group}} of topic {{{name}.topic}}, partition {{{name}.partition}},"


def _lost(row: Row) -> Sentence:
    when = "before a poll first saw the group" if row["first_sight"] else "before it read them"
    text = (
        f"{_whose('lost', row)} has lost {{lost.offsets:n offset}}, from {{lost.from_offset:n}} to"
        f" {{lost.to_offset - 1:n}}: they were deleted {when}."
    )
    return compose(row["ts_wall_ms"], row["rule"], text, (2, row["row_no"]), lost=row)


def _state(row: Row) -> Sentence:
    told = _STATES[row["state"]]
    if row["state"] == "no_offset" and row["unread"] is None:
        told = "has no offset in any topic"
    text = f"{_whose('state', row)} {told}."
    return compose(row["ts_wall_ms"], row["rule"], text, (3, row["row_no"]), state=row)


def _lag(row: Row) -> Sentence:
    text = _whose("lag", row)
    reads = "it reads offset {lag.committed:n} next and the log ends at {lag.log_end:n}"
    if row["lag"] < 0:
        text += f" is ahead of the log by {{0 - lag.lag:n offset}}: {reads}."
    else:
        text += f" has a lag of {{lag.lag:n offset}}: {reads}"
        text += (_AGES.get(row["age_state"], "") if row["lag"] > 0 else "") + "."
        if row["lag_growth"] is not None and row["lag"] > 0 and row["lag_records"] != 0:
            text += (
                " It commits {lag.commit_rate:n offset} per s and its lag grows by"
                " {lag.lag_growth:n} per s."
            )
    if row["time_to_loss_s"] == 0:
        text += " Retention may delete its unread records now."
    elif row["time_to_loss_s"] is not None:
        text += " Retention may delete its unread records in {lag.time_to_loss_s:s}."
    return compose(row["ts_wall_ms"], row["rule"], text, (1, row["row_no"]), lag=row)
