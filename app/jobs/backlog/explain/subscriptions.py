"""Sentences about backlogs: size and age, the action of the broker, and the forecast."""

from __future__ import annotations

from app.explain.ask import IN_WINDOW, NEAREST, Ask, Configured, newest_rows
from app.explain.reader import Reader
from app.explain.sentence import Row, Sentence, compose

_ACTIONS = {
    "none": "no action",
    "deduplication_snapshot": "the deduplication cursor is the slowest, so its snapshot is taken",
    "disconnect_producers": "its policy {check.retention_policy} disconnects"
    " {check.producers_disconnected:n producer}",
    "evict_size": "its policy {check.retention_policy} skips the oldest messages, by size",
    "evict_time": "its policy {check.retention_policy} skips the oldest messages, by age",
}
_NO_AGE = {
    "no_backlog": "no_backlog: no subscription has any",
    "no_estimate": "no_estimate: messages wait, their age is not known",
}
_KINDS = {
    "replicator": "Replicator",
    "deduplication": "The deduplication cursor",
    "compaction": "The compaction cursor",
}
_EVICTIONS = {
    "target_reached": "the target is reached",
    "same_cursor": "the same subscription was the slowest twice in a row",
    "skip_zero": "there was less than one entry to skip",
    "expired": "all older messages are skipped",
    "ledger_jump": "the cursor jumps to the next ledger",
    "no_closed_ledger": "no ledger was closed long enough ago",
}
"""Why an eviction ended where it did, by rule."""


def sentences(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    """Checks, evictions, refusals and forecasts around the moment, of a topic or subscription."""
    result = [_check(row, ask) for row in _checks(reader, ask)]
    for table, describe in (
        ("backlog_evictions", _eviction),
        ("producer_refusals", _refusal),
    ):
        if table in ask.entity:
            where = f"{ask.where(table)} AND {IN_WINDOW}"
            result += [describe(row) for row in reader.rows(table, where, ask.params, NEAREST)]
    result += [_forecast(row) for row in newest_rows(reader, ask, "backlog_subscriptions")]
    return result


def _checks(reader: Reader, ask: Ask) -> list[Row]:
    """The newest checks of the topic and those that found something; for a subscription the check
    that its forecast belongs to."""
    if ask.kind == "topic":
        table = "backlog_checks"
        notable = reader.rows(
            table,
            f"{ask.where(table)} AND {IN_WINDOW}"
            " AND (t.rule <> 'within_limits' OR t.action <> 'none')",
            ask.params,
            NEAREST,
        )
        known = {tuple(row.key.values()) for row in notable}
        newest = newest_rows(reader, ask, table)
        return notable + [row for row in newest if tuple(row.key.values()) not in known]
    found = []
    for row in newest_rows(reader, ask, "backlog_subscriptions"):
        found += reader.rows(
            "backlog_checks",
            "t.cluster = $cluster AND t.topic = $topic"
            " AND t.pass_ms = $pass_ms AND t.ts_wall_ms >= $pass_ms",
            row.values,
        )
    return found


def _check(check: Row, ask: Ask) -> Sentence:
    text = "The backlog of {check.topic} is {check.backlog_bytes:n byte}"
    if check["limit_source_size"] == "system":
        text += "; it is a system topic, for which no quota holds"
    elif check["limit_bytes"] is not None:
        usage = "{check.size_usage:pct} of its" if check["size_usage"] is not None else "with a"
        text += (
            f", {usage} size quota of {{check.limit_bytes:n byte}}"
            " (set at level {check.limit_source_size})"
        )
    else:
        text += ", without a size quota"
    if check["oldest_timestamp_ms"] is not None:
        text += (
            "; its oldest message, of {check.oldest_timestamp_ms:day}"
            " ({check.timestamp_source}), has waited {check.age_s:s} for subscription"
            " {check.oldest_subscription}"
        )
    else:
        text += f"; no age ({_NO_AGE.get(check['age_state'], check['age_state'])})"
    if check["limit_source_time"] == "system":
        pass
    elif check["limit_s"] is not None:
        usage = "{check.time_usage:pct} of its" if check["time_usage"] is not None else "with a"
        text += (
            f", {usage} time quota of {{check.limit_s:s}}"
            " (set at level {check.limit_source_time})"
        )
    else:
        text += ", without a time quota"
    if ask.kind == "subscription" and check["oldest_subscription"] is not None:
        is_it = check["oldest_subscription"] == ask.subscription
        text += (
            "; this subscription determines the age"
            if is_it
            else "; another subscription determines the age"
        )
    over = check["exceeded_size"] or check["exceeded_time"]
    if over or check["action"] != "none":
        which = (
            "both quotas are"
            if check["exceeded_size"] and check["exceeded_time"]
            else "the size quota is"
            if check["exceeded_size"]
            else "the time quota is"
        )
        text += f". {which[0].upper()}{which[1:]} exceeded: {_ACTIONS[check['action']]}"
        if check["rule"] == "size_masks_time":
            text += "; while the size quota is exceeded, the time quota has no effect"
    return compose(
        check["ts_wall_ms"], check["rule"], text + ".", (0, check["row_no"]), check=check
    )


def _eviction(row: Row) -> Sentence:
    if row["phantom"]:
        text = "An eviction by {evicted.quota_type} on {evicted.topic} would skip nothing"
    else:
        text = (
            "An eviction by {evicted.quota_type} would move subscription"
            " {evicted.subscription} of {evicted.topic} from {evicted.from_position} to"
            " {evicted.to_position}: {evicted.entries_skipped:n entry} skipped"
        )
    if row["target_bytes"] is not None:
        text += ", aiming at {evicted.target_bytes:n byte}"
    if row["factor"] is not None:
        text += " by a share of {evicted.factor:pct} in the first round"
    if row["expire_older_than_s"] is not None:
        text += ", of messages older than {evicted.expire_older_than_s:s}"
    text += (
        "; the backlog goes from {evicted.backlog_before:n byte} to {evicted.backlog_after:n byte}"
    )
    if row["rule"] in _EVICTIONS:
        text += f" and {_EVICTIONS[row['rule']]}"
    return compose(row["ts_wall_ms"], row["rule"], text + ".", (1, row["row_no"]), evicted=row)


def _refusal(row: Row) -> Sentence:
    text = (
        "Producer {refused.producer_id:n} of {refused.topic} is refused with {refused.error}:"
        " the {refused.quota_type} quota is exceeded."
    )
    return compose(row["ts_wall_ms"], row["rule"], text, (2, row["row_no"]), refused=row)


def _forecast(row: Row) -> Sentence:
    """The backlog of a subscription and its forecast."""
    kind = _KINDS.get(row["kind"], "Subscription") if row["durable"] else "Reader"
    text = (
        kind + " {sub.subscription} of {sub.topic} is at {sub.mark_delete} with"
        " {sub.backlog_entries:n entry} ({sub.backlog_bytes:n byte}) in its backlog"
    )
    if row["age_s"] is not None:
        text += ", the first of which has waited {sub.age_s:s}"
    if row["unacked_ranges"]:
        text += (
            "; {sub.unacked_ranges:n range} beyond {sub.mark_delete} are acknowledged one by"
            " one, and the first entry that is not is {sub.first_hole}"
        )
    if row["set_back"]:
        text += (
            "; it was set back from {sub.set_back_from} to {sub.set_back_to}, so its rates"
            " begin anew"
        )
    if row["growth_rate"] is not None:
        if row["growth_rate"] > 0:
            text += "; it grows by {sub.growth_rate:n byte} per s"
        elif row["growth_rate"] < 0:
            text += "; it shrinks by {0 - sub.growth_rate:n byte} per s"
        else:
            text += "; it does not grow"
    if row["drain_rate"] is not None:
        text += " and {sub.drain_rate:n entry} per s are acknowledged"
    if row["time_to_drain_s"] is not None and row["backlog_entries"]:
        text += (
            "; at this rate the backlog is drained in {sub.time_to_drain_s:s}, at"
            " {sub.pass_ms + sub.time_to_drain_s * 1000:day}"
        )
    if row["time_to_quota_s"] == 0:
        text += "; its quota is reached"
    elif row["time_to_quota_s"] is not None:
        text += (
            "; at this rate a quota is reached in {sub.time_to_quota_s:s}, at"
            " {sub.pass_ms + sub.time_to_quota_s * 1000:day}"
        )
    elif row["growth_rate"] is not None:
        text += "; no quota will be reached"
    if row["time_to_expiry_s"] == 0:
        text += "; its oldest messages have reached the TTL and expire unread"
    elif row["time_to_expiry_s"] is not None:
        text += (
            "; its messages expire unread from {sub.pass_ms + sub.time_to_expiry_s * 1000:day} on"
        )
    if row["expired_unread"]:
        text += "; {sub.expired_unread:n message} expired unread since the check before"
    return compose(row["ts_wall_ms"], row["rule"], text + ".", (3, row["row_no"]), sub=row)
