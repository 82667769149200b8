"""Sentences about backlogs: size and age, the action of the broker, and the forecast."""

from __future__ import annotations

from functools import partial

from app.show.explain.ask import IN_WINDOW, NEAREST, Ask, ConfiguredPolicies, newest_rows
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Quoted, Row, Sentence, Value, tell

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
    "no_estimate": "no_estimate: messages wait, their age is not known;"
    " preciseTimeBasedBacklogQuotaCheck in broker.conf gives it",
}
_KINDS = {
    "replicator": "Replicator",
    "deduplication": "The deduplication cursor",
    "compaction": "The compaction cursor",
}
_EVICTIONS = {
    "target_reached": "the target is reached",
    "same_cursor": "the same subscription was the slowest twice in a row",
    "skip_zero": "there was less than one entry to skip: the share is one of entries that are not"
    " acknowledged, however many bytes lie behind the first of them",
    "expired": "all older messages are skipped",
    "ledger_jump": "the cursor jumps to the next ledger",
    "no_closed_ledger": "no ledger was closed long enough ago",
}
"""Why an eviction ended where it did, by rule."""


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Checks, evictions, refusals and forecasts around the moment, of a topic or subscription."""
    check = partial(_check, ask=ask)
    result = [tell(check, "check", row, 0) for row in _checks(reader, ask)]
    for table, name, describe, place in (
        ("backlog_evictions", "evicted", _eviction, 1),
        ("producer_refusals", "refused", _refusal, 2),
    ):
        if table in ask.entity:
            where = f"{ask.where(table)} AND {IN_WINDOW}"
            rows = reader.rows(table, where, ask.params, NEAREST)
            result += [tell(describe, name, row, place) for row in rows]
    newest = newest_rows(reader, ask, "backlog_subscriptions")
    return result + [tell(_forecast, "sub", row, 3) for row in newest]


def _checks(reader: SnapshotReader, ask: Ask) -> list[Row]:
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


def _check(check: Quoted, ask: Ask) -> str:
    text = f"The backlog of {check.topic} is {check.backlog_bytes:n byte}"
    if check["limit_source_size"] == "system":
        text += "; it is a system topic, for which no quota holds"
    elif check["limit_bytes"] is not None:
        usage = "with a" if check["size_usage"] is None else f"{check.size_usage:pct} of its"
        text += (
            f", {usage} size quota of {check.limit_bytes:n byte}"
            f" (set at level {check.limit_source_size})"
        )
    else:
        text += ", without a size quota"
    if check["oldest_timestamp_ms"] is not None:
        text += (
            f"; its oldest message, of {check.oldest_timestamp_ms:day}"
            f" ({check.timestamp_source}), has waited {check.age_s:s} for subscription"
            f" {check.oldest_subscription}"
        )
    else:
        text += f"; no age ({_NO_AGE.get(check['age_state'], check['age_state'])})"
    if check["limit_source_time"] == "system":
        pass
    elif check["limit_s"] is not None:
        usage = "with a" if check["time_usage"] is None else f"{check.time_usage:pct} of its"
        text += (
            f", {usage} time quota of {check.limit_s:s} (set at level {check.limit_source_time})"
        )
    else:
        text += ", without a time quota"
    if ask.kind == "subscription" and check["oldest_subscription"] is not None:
        which = "this" if check["oldest_subscription"] == ask.subscription else "another"
        text += f"; {which} subscription determines the age"
    if check["exceeded_size"] or check["exceeded_time"] or check["action"] != "none":
        which = (
            "Both quotas are"
            if check["exceeded_size"] and check["exceeded_time"]
            else "The size quota is"
            if check["exceeded_size"]
            else "The time quota is"
        )
        text += f". {which} exceeded: {_ACTIONS[check['action']].format(check=check)}"
        if check["rule"] == "size_masks_time":
            text += "; while the size quota is exceeded, the time quota has no effect"
    return text


def _eviction(row: Quoted) -> str:
    if row["phantom"]:
        text = f"An eviction by {row.quota_type} on {row.topic} would skip nothing"
    else:
        text = (
            f"An eviction by {row.quota_type} would move subscription {row.subscription} of"
            f" {row.topic} from {row.from_position} to {row.to_position}:"
            f" {row.entries_skipped:n entry} skipped"
        )
    if row["target_bytes"] is not None:
        text += f", aiming at {row.target_bytes:n byte}"
    if row["factor"] is not None:
        text += f" by a share of {row.factor:pct} in the first round"
    if row["expire_older_than_s"] is not None:
        text += f", of messages older than {row.expire_older_than_s:s}"
    text += f"; the backlog goes from {row.backlog_before:n byte} to {row.backlog_after:n byte}"
    if row["rule"] in _EVICTIONS:
        text += f" and {_EVICTIONS[row['rule']]}"
    return text


def _refusal(row: Quoted) -> str:
    return (
        f"Producer {row.producer_id:n} of {row.topic} is refused with {row.error}:"
        f" the {row.quota_type} quota is exceeded"
    )


def _forecast(row: Quoted) -> str:
    """The backlog of a subscription and its forecast."""
    kind = _KINDS.get(row["kind"], "Subscription") if row["durable"] else "Reader"
    text = (
        f"{kind} {row.subscription} of {row.topic} is at {row.mark_delete} with"
        f" {row.backlog_entries:n entry} ({row.backlog_bytes:n byte}) in its backlog"
    )
    if row["age_s"] is not None:
        text += f", the first of which has waited {row.age_s:s}"
    if row["unacked_ranges"]:
        text += (
            f"; {row.unacked_ranges:n range} beyond {row.mark_delete} are acknowledged one by"
            f" one, and the first entry that is not is {row.first_hole}"
        )
    if row["remarks"] is not None:
        text += f"; the broker shows: {row.remarks}"
    if row["set_back"]:
        text += (
            f"; it was set back from {row.set_back_from} to {row.set_back_to}, so its rates"
            " begin anew"
        )
    if row["growth_rate"] is not None:
        if row["growth_rate"] > 0:
            text += f"; it grows by {row.growth_rate:n byte} per s"
        elif row["growth_rate"] < 0:
            text += (
                f"; it shrinks by {row.derived('shrink_rate', -row['growth_rate']):n byte} per s"
            )
        else:
            text += "; it does not grow"
    if row["drain_rate"] is not None:
        text += f" and {row.drain_rate:n entry} per s are acknowledged"
    if row["time_to_drain_s"] is not None and row["backlog_entries"]:
        text += (
            f"; at this rate the backlog is drained in {row.time_to_drain_s:s}, at"
            f" {_after(row, 'drained_ms', 'time_to_drain_s'):day}"
        )
    if row["time_to_quota_s"] == 0:
        text += "; its quota is reached"
    elif row["time_to_quota_s"] is not None:
        text += (
            f"; at this rate a quota is reached in {row.time_to_quota_s:s}, at"
            f" {_after(row, 'quota_ms', 'time_to_quota_s'):day}"
        )
    elif row["growth_rate"] is not None:
        text += "; no quota will be reached"
    if row["time_to_expiry_s"] == 0:
        text += "; its oldest messages have reached the TTL and expire unread"
    elif row["time_to_expiry_s"] is not None:
        expiry = _after(row, "expiry_ms", "time_to_expiry_s")
        text += f"; its messages expire unread from {expiry:day} on"
    if row["expired_unread"]:
        text += f"; {row.expired_unread:n message} expired unread since the check before"
    return text


def _after(row: Quoted, name: str, column: str) -> Value:
    """The time that lies a forecast's seconds after its check."""
    return row.derived(name, row["pass_ms"] + row[column] * 1000)
