"""The tables that `backlog` writes: their columns, what these mean, and the kernel's rows."""

from __future__ import annotations

from state.engine.table import (
    FROM_PASS,
    FROM_RECORD,
    GIVEN,
    KEY,
    RECORD,
    Output,
    flag,
    long,
    rate,
    short,
    text,
)

ACTIONS = (
    "none",
    "deduplication_snapshot",
    "disconnect_producers",
    "evict_size",
    "evict_time",
)
AGE_STATES = ("known", "no_backlog", "no_durable_cursor", "no_estimate")
ENDS = (
    "target_reached",
    "same_cursor",
    "skip_zero",
    "expired",
    "ledger_jump",
    "no_closed_ledger",
)
GROUP_AGES = ("known", "first_seen", "nothing_unread", "other_unit", "unknown")
KINDS = ("subscription", "replicator", "deduplication", "compaction")
LEVELS = ("topic", "namespace", "broker", "system")
POLICIES = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
QUOTA_TYPES = ("size", "time")
RULES = (
    "within_limits",
    "size_exceeded",
    "time_exceeded",
    "size_masks_time",
    "deduplication_cursor",
)
SOURCES = ("broker_time", "publish_time", "ledger_close", "kept", "none")

REFUSED = ("size_exceeded", "time_exceeded")
"""By the quota type that is exceeded."""
_ERRORS = {
    "producer_request_hold": "ProducerBlockedQuotaExceededError",
    "producer_exception": "ProducerBlockedQuotaExceededException",
}
ERRORS = tuple(_ERRORS.get(policy) for policy in POLICIES)

_TOPIC = text("topic", "topic, a partition being one of its own", of=KEY, needed=True)
_PASS_MS = long("pass_ms", "time of the check pass (ms since the epoch)", "at_ms", needed=True)
_OLDEST_TIMESTAMP_MS = long(
    "oldest_timestamp_ms", "time that the age counts from (ms epoch)", "oldest_ms"
)
_GROUP = text("group", "group", "name", needed=True)
_OF_TOPIC = text(
    "topic", "topic, by Kafka's own name; null = the whole group", of=GIVEN, needed=True
)
_PARTITION = short("partition", "partition of the topic", of=GIVEN)
_GROUP_TYPE = text(
    "group_type", "type of the group: classic, consumer, share or streams; null if unknown", "type"
)
CHECKS = Output(
    "backlog_checks",
    "Per topic and check pass: size and age against their quotas.",
    (
        _TOPIC,
        _PASS_MS,
        long(
            "backlog_bytes",
            "size of the backlog by ledger sizes (bytes)",
            "bytes",
            least=0,
            needed=True,
        ),
        long("limit_bytes", "limit of that size (bytes); null = none", null=-1, least=0),
        rate("size_usage", "size / limit; null without a limit above 0", "bytes", "limit_bytes"),
        long(
            "age_s",
            "age of the oldest unacknowledged message (s); -1 = none, or unknown: where age_state"
            " is no_estimate, preciseTimeBasedBacklogQuotaCheck in broker.conf gives it",
            needed=True,
        ),
        long("limit_s", "limit of that age (s); null = none", null=-1, least=0),
        text(
            "age_state",
            "known, no_backlog, no_durable_cursor or no_estimate",
            "state",
            words=AGE_STATES,
            needed=True,
        ),
        rate("time_usage", "age / limit; null without a limit above 0 or an age", of=GIVEN),
        text("oldest_subscription", "subscription with the oldest message", "name"),
        text("oldest_position", "mark-delete position of that age", "ledger", "entry"),
        _OLDEST_TIMESTAMP_MS,
        text(
            "timestamp_source",
            "broker_time, publish_time, ledger_close, kept or none",
            "source",
            words=SOURCES,
            needed=True,
        ),
        flag(
            "exceeded_size", "whether the size is at its limit or above", "over_size", needed=True
        ),
        flag("exceeded_time", "whether the age is above its limit", "over_time", needed=True),
        text(
            "limit_source_size",
            "level that set the size limit: topic, namespace, broker; system = no quota holds for"
            " a system topic",
            "size_by",
            words=LEVELS,
            needed=True,
        ),
        text(
            "limit_source_time",
            "level that set the age limit: topic, namespace, broker; system = no quota holds for a"
            " system topic",
            "time_by",
            words=LEVELS,
            needed=True,
        ),
        text(
            "action",
            "none, deduplication_snapshot, disconnect_producers, evict_size or evict_time",
            words=ACTIONS,
            needed=True,
        ),
        text(
            "retention_policy",
            "policy of the quota that acted; null with none",
            "policy",
            words=POLICIES,
        ),
        short(
            "producers_disconnected",
            "producers of the topic that were disconnected",
            "producers",
            least=0,
            needed=True,
        ),
        long("ttl_s", "age at which messages expire unread (s); null = never", of=GIVEN),
    ),
    sort_by=("cluster", "topic", "pass_ms"),
    shadowed=True,
    begins=FROM_PASS,
    rules=RULES,
)
EVICTIONS = Output(
    "backlog_evictions",
    "Every eviction, one row per subscription that it moved.",
    (
        _TOPIC,
        text("quota_type", "size or time", "type", words=QUOTA_TYPES, needed=True),
        text("subscription", "subscription whose messages were skipped", "name"),
        text("from_position", "mark-delete position before", "from_ledger", "from_entry"),
        text("to_position", "predicted mark-delete position after", "to_ledger", "to_entry"),
        long("entries_skipped", "entries between the two", "skipped", least=0, needed=True),
        long("rounds", "rounds of the eviction; null by time, precise", least=0),
        rate("factor", "share of the backlog that its first round skipped", least=0, most=1),
        long("target_bytes", "target size (bytes); null by time", "target", least=0),
        long(
            "expire_older_than_s",
            "age above which messages are skipped (s); null by size",
            "older_s",
            least=0,
        ),
        long(
            "backlog_before",
            "size of the topic's backlog before the eviction (bytes)",
            "before",
            least=0,
            needed=True,
        ),
        long(
            "backlog_after",
            "size of the topic's backlog after the eviction (bytes)",
            "after",
            least=0,
            needed=True,
        ),
        flag("phantom", "whether the call skipped nothing", needed=True),
        short("count_delta", "increment of the counter of evictions", "count", needed=True),
    ),
    sort_by=("cluster", "topic", "ts_wall_ms"),
    commit_interval_ms=0,
    shadowed=True,
    begins=FROM_PASS,
    rules=ENDS,
)
SUBSCRIPTIONS = Output(
    "backlog_subscriptions",
    "Per subscription and check pass: backlog, age and forecasts.",
    (
        _TOPIC,
        _PASS_MS,
        text("subscription", "subscription", "name", needed=True),
        flag("durable", "whether it outlives its consumers", needed=True),
        text("mark_delete", "its mark-delete position", "ledger", "entry", needed=True),
        long(
            "backlog_entries",
            "entries after it that are not acknowledged",
            "entries",
            least=0,
            needed=True,
        ),
        long("backlog_bytes", "their size by ledger sizes (bytes)", "bytes", least=0, needed=True),
        long("age_s", "age of the first of them (s); null if unknown or none"),
        rate("growth_rate", "median growth over the last checks (bytes per s)", "growth"),
        rate("drain_rate", "entries per s that were acknowledged", "drain"),
        rate(
            "time_to_drain_s",
            "time until the backlog is empty (s); null if it does not fall",
            "to_drain",
            least=0,
        ),
        rate(
            "time_to_quota_s",
            "time until the nearer quota is reached (s); 0 = exceeded, null = none",
            "to_quota",
            least=0,
        ),
        text("kind", "subscription, replicator, deduplication or compaction", words=KINDS),
        long(
            "unacked_ranges",
            "ranges acknowledged one by one beyond the mark-delete, as brokers count them"
            " (totalNonContiguousDeletedMessagesRange)",
            "ranges",
            least=0,
        ),
        text(
            "first_hole",
            "first unacknowledged entry; null without such ranges",
            "hole_ledger",
            "hole_entry",
        ),
        flag(
            "set_back",
            "whether the cursor was set back since the check before; rates begin anew",
            of=GIVEN,
        ),
        text(
            "set_back_from",
            "mark-delete position before; null = was not set back",
            "from_ledger",
            "from_entry",
        ),
        text("set_back_to", "mark-delete position after; null = was not set back", of=GIVEN),
        rate(
            "time_to_expiry_s",
            "time until the oldest message expires unread (s); 0 = it may expire now, null = it"
            " does not, or the cursor moves",
            "to_expiry",
            least=0,
        ),
        long(
            "expired_unread",
            "messages that expired unread since the check before; null = not known",
            "expired",
            least=0,
        ),
        text(
            "remarks",
            "what the broker shows of the subscription that keeps its backlog: open transactions,"
            " delayed messages, acknowledgements that it does not persist; null = nothing",
        ),
    ),
    sort_by=("cluster", "topic", "subscription", "pass_ms"),
    begins=FROM_PASS,
    rules=RULES,
)
REFUSALS = Output(
    "producer_refusals",
    "Producers that connected while a quota was exceeded.",
    (
        _TOPIC,
        long("producer_id", "producer that was refused", of=RECORD, least=0, needed=True),
        text("error", "error that its client receives", "policy", words=ERRORS, needed=True),
        text(
            "quota_type",
            "quota that is exceeded: size or time",
            "rule",
            words=QUOTA_TYPES,
            needed=True,
        ),
    ),
    sort_by=("cluster", "topic", "ts_wall_ms"),
    commit_interval_ms=0,
    shadowed=True,
    begins=FROM_RECORD,
    rules=REFUSED,
)
LAGS = Output(
    "group_lag",
    "Kafka: per check, group and partition its lag, the age of the oldest unread record and forecasts.",
    (
        _GROUP,
        _OF_TOPIC,
        _PARTITION,
        _PASS_MS,
        long(
            "answered_ms",
            "time of the last answer about the group here, on which the row rests (ms epoch)",
        ),
        text(
            "state",
            "committed, ahead, open_transaction = committed at the last stable offset, so that"
            " nothing more can be read, pending_offsets = its next offset is in an open"
            " transaction, no_offset, offsets_expired or gone; the last two end a group's rows",
            needed=True,
        ),
        long(
            "committed",
            "offset that the group reads next, of a share group its start offset; null = none",
            least=0,
        ),
        long("log_start", "first offset that the log has; null if unknown", "start", least=0),
        long("log_end", "offset that the next record gets", "end", least=0),
        long("lag", "log_end - committed, as Kafka counts; below 0 if ahead"),
        long(
            "lag_records",
            "records that the group has not read, of a share group those that it has not"
            " acknowledged; behind an open transaction those of a reader of uncommitted records;"
            " null if not counted to the end",
            "records",
            least=0,
        ),
        long("lag_bytes", "their size, estimated (bytes); null if unknown", "bytes", least=0),
        long("age_s", "age of the oldest of them (s); null if unknown or none"),
        text(
            "age_state",
            "known = by its timestamp, first_seen = since a poll saw it, nothing_unread,"
            " other_unit = not a time in ms, or unknown",
            words=GROUP_AGES,
        ),
        _OLDEST_TIMESTAMP_MS,
        long("limit_s", "retention by age (s); null = none", null=-1, least=0),
        long("limit_bytes", "retention by size (bytes); null = none", null=-1, least=0),
        rate("time_usage", "age_s / limit_s; null without one of them", "age_s", "limit_s"),
        rate(
            "size_usage",
            "lag_bytes / limit_bytes; null without one of them",
            "bytes",
            "limit_bytes",
        ),
        rate("lag_growth", "median growth of lag over the last checks (per s)", "growth"),
        rate("commit_rate", "offsets per s that the group advanced by", "commits"),
        rate(
            "time_to_drain_s",
            "time until lag is 0 (s); null if it does not fall",
            "to_drain",
            least=0,
        ),
        rate(
            "time_to_loss_s",
            "time until Kafka may delete unread records (s); 0 = now, null = not expected",
            "to_loss",
            least=0,
        ),
        text(
            "client_id",
            "client id of the consumer that has the partition, where records wait for longer than"
            " a poll; null if none has it, or unknown",
            "client",
        ),
        text("client_host", "host of that consumer; empty: no member has the partition", "host"),
        _GROUP_TYPE,
    ),
    sort_by=("cluster", "group", "topic", "partition", "pass_ms"),
    more_key=("partition",),
    begins=FROM_PASS,
)
STATES = Output(
    "group_states",
    "Kafka: every change of a group's state, in a partition or as a whole.",
    (
        _GROUP,
        text("topic", "topic, by Kafka's own name; null = the whole group", of=GIVEN),
        _PARTITION,
        _PASS_MS,
        text(
            "state",
            "committed, ahead, open_transaction, pending_offsets, no_offset, offsets_expired,"
            " unknown_group, share_group, empty_id, gone, or known = it is over; of its consumers"
            " stable, rebalancing, empty = there are none, or dead",
            needed=True,
        ),
        text("before", "state before; null = first sight, or committed since then"),
        long(
            "committed",
            "offset that the group reads next, of a share group its start offset; null = none",
        ),
        long("log_start", "first offset that the log has; null if unknown", "start"),
        long("log_end", "offset that the next record gets", "end"),
        long(
            "unread",
            "records without an offset of the group, unread when its offset expired, or behind an"
            " open transaction, or while one has its next offset; null for other states",
            least=0,
        ),
        text(
            "transactional_id",
            "of open_transaction: the transaction that ends at no later offset than the group's;"
            " of pending_offsets: the one that has its next offset; null if the coordinator does"
            " not know it, or was not asked",
            "transaction",
        ),
        long("producer_id", "its producer; null if unknown", "producer"),
        long(
            "transaction_start_ms",
            "when it began (ms since the epoch); null if unknown",
            "begun_ms",
        ),
        _GROUP_TYPE,
        long(
            "group_epoch",
            "epoch of the group's members and subscriptions; null if not asked, or of type classic",
        ),
        long(
            "assignment_epoch",
            "epoch of its target assignment; below group_epoch = a new assignment is due",
        ),
    ),
    sort_by=("cluster", "group", "topic", "partition", "pass_ms"),
    more_key=("partition",),
    begins=FROM_PASS,
)
LOST = Output(
    "lost_messages",
    "Kafka: records that were deleted before a group read them, each counted once.",
    (
        _GROUP,
        _OF_TOPIC,
        _PARTITION,
        long("committed", "offset that the group reads next", needed=True),
        long("from_offset", "first offset that was deleted unread", "begin", needed=True),
        long("to_offset", "offset after the last one: the start of the log", "end", needed=True),
        long("offsets", "number of offsets between the two", of=GIVEN, least=1, needed=True),
        flag(
            "first_sight",
            "whether they were gone when a poll first saw the group",
            "rule",
            needed=True,
        ),
    ),
    sort_by=("cluster", "group", "topic", "partition", "ts_wall_ms"),
    commit_interval_ms=0,
    more_key=("partition",),
    begins=FROM_RECORD,
    rules=("retention", "first_sight"),
)
OUTPUTS = (
    CHECKS,
    EVICTIONS,
    SUBSCRIPTIONS,
    REFUSALS,
    LAGS,
    STATES,
    LOST,
)
CHECK = CHECKS.row("ttl_s")
SUBSCRIPTION = SUBSCRIPTIONS.row("to_ledger", "to_entry")
EVICTED, REFUSAL, GROUP_LAG, GROUP_STATE = (
    each.row() for each in (EVICTIONS, REFUSALS, LAGS, STATES)
)
LOSS = LOST.row("key")
