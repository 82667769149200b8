"""The tables that `backlog` writes: their columns and what these mean."""

from __future__ import annotations

from state.engine.table import FLAG, LONG, RATE, SHORT, TEXT, Output, TableColumn


def _outputs() -> tuple[Output, ...]:
    topic = TableColumn("topic", TEXT, "topic, a partition being one of its own")
    passed = TableColumn("pass_ms", LONG, "time of the check pass (ms since the epoch)")
    checks = (
        topic,
        passed,
        TableColumn("backlog_bytes", LONG, "size of the backlog by ledger sizes (bytes)"),
        TableColumn("limit_bytes", LONG, "limit of that size (bytes); null = none"),
        TableColumn("size_usage", RATE, "size / limit; null without a limit above 0"),
        TableColumn(
            "age_s",
            LONG,
            "age of the oldest unacknowledged message (s); -1 = none, or unknown: where age_state"
            " is no_estimate, preciseTimeBasedBacklogQuotaCheck in broker.conf gives it",
        ),
        TableColumn("limit_s", LONG, "limit of that age (s); null = none"),
        TableColumn("age_state", TEXT, "known, no_backlog, no_durable_cursor or no_estimate"),
        TableColumn("time_usage", RATE, "age / limit; null without a limit above 0 or an age"),
        TableColumn("oldest_subscription", TEXT, "subscription with the oldest message"),
        TableColumn("oldest_position", TEXT, "mark-delete position of that age"),
        TableColumn("oldest_timestamp_ms", LONG, "time that the age counts from (ms epoch)"),
        TableColumn(
            "timestamp_source", TEXT, "broker_time, publish_time, ledger_close, kept or none"
        ),
        TableColumn("exceeded_size", FLAG, "whether the size is at its limit or above"),
        TableColumn("exceeded_time", FLAG, "whether the age is above its limit"),
        TableColumn(
            "limit_source_size",
            TEXT,
            "level that set the size limit: topic, namespace, broker; system = no quota"
            " holds for a system topic",
        ),
        TableColumn(
            "limit_source_time",
            TEXT,
            "level that set the age limit: topic, namespace, broker; system = no quota"
            " holds for a system topic",
        ),
        TableColumn(
            "action",
            TEXT,
            "none, deduplication_snapshot, disconnect_producers, evict_size or evict_time",
        ),
        TableColumn("retention_policy", TEXT, "policy of the quota that acted; null with none"),
        TableColumn(
            "producers_disconnected", SHORT, "producers of the topic that were disconnected"
        ),
        TableColumn("ttl_s", LONG, "age at which messages expire unread (s); null = never"),
    )
    evictions = (
        topic,
        TableColumn("quota_type", TEXT, "size or time"),
        TableColumn("subscription", TEXT, "subscription whose messages were skipped"),
        TableColumn("from_position", TEXT, "mark-delete position before"),
        TableColumn("to_position", TEXT, "predicted mark-delete position after"),
        TableColumn("entries_skipped", LONG, "entries between the two"),
        TableColumn("rounds", LONG, "rounds of the eviction; null by time, precise"),
        TableColumn("factor", RATE, "share of the backlog that its first round skipped"),
        TableColumn("target_bytes", LONG, "target size (bytes); null by time"),
        TableColumn(
            "expire_older_than_s", LONG, "age above which messages are skipped (s); null by size"
        ),
        TableColumn(
            "backlog_before", LONG, "size of the topic's backlog before the eviction (bytes)"
        ),
        TableColumn(
            "backlog_after", LONG, "size of the topic's backlog after the eviction (bytes)"
        ),
        TableColumn("phantom", FLAG, "whether the call skipped nothing"),
        TableColumn("count_delta", SHORT, "increment of the counter of evictions"),
    )
    subscriptions = (
        topic,
        passed,
        TableColumn("subscription", TEXT, "subscription"),
        TableColumn("durable", FLAG, "whether it outlives its consumers"),
        TableColumn("mark_delete", TEXT, "its mark-delete position"),
        TableColumn("backlog_entries", LONG, "entries after it that are not acknowledged"),
        TableColumn("backlog_bytes", LONG, "their size by ledger sizes (bytes)"),
        TableColumn("age_s", LONG, "age of the first of them (s); null if unknown or none"),
        TableColumn("growth_rate", RATE, "median growth over the last checks (bytes per s)"),
        TableColumn("drain_rate", RATE, "entries per s that were acknowledged"),
        TableColumn(
            "time_to_drain_s", RATE, "time until the backlog is empty (s); null if it does not fall"
        ),
        TableColumn(
            "time_to_quota_s",
            RATE,
            "time until the nearer quota is reached (s); 0 = exceeded, null = none",
        ),
        TableColumn("kind", TEXT, "subscription, replicator, deduplication or compaction"),
        TableColumn(
            "unacked_ranges",
            LONG,
            "ranges acknowledged one by one beyond the mark-delete, as brokers count them"
            " (totalNonContiguousDeletedMessagesRange)",
        ),
        TableColumn("first_hole", TEXT, "first unacknowledged entry; null without such ranges"),
        TableColumn(
            "set_back",
            FLAG,
            "whether the cursor was set back since the check before; rates begin anew",
        ),
        TableColumn("set_back_from", TEXT, "mark-delete position before; null = was not set back"),
        TableColumn("set_back_to", TEXT, "mark-delete position after; null = was not set back"),
        TableColumn(
            "time_to_expiry_s",
            RATE,
            "time until the oldest message expires unread (s); 0 = it may expire now,"
            " null = it does not, or the cursor moves",
        ),
        TableColumn(
            "expired_unread",
            LONG,
            "messages that expired unread since the check before; null = not known",
        ),
        TableColumn(
            "remarks",
            TEXT,
            "what the broker shows of the subscription that keeps its backlog: open transactions,"
            " delayed messages, acknowledgements that it does not persist; null = nothing",
        ),
    )
    refusals = (
        topic,
        TableColumn("producer_id", LONG, "producer that was refused"),
        TableColumn("error", TEXT, "error that its client receives"),
        TableColumn("quota_type", TEXT, "quota that is exceeded: size or time"),
    )
    group = (
        TableColumn("group", TEXT, "group"),
        TableColumn("topic", TEXT, "topic, by Kafka's own name; null = the whole group"),
        TableColumn("partition", SHORT, "partition of the topic"),
    )
    offsets = (
        TableColumn(
            "committed",
            LONG,
            "offset that the group reads next, of a share group its start offset; null = none",
        ),
        TableColumn("log_start", LONG, "first offset that the log has; null if unknown"),
        TableColumn("log_end", LONG, "offset that the next record gets"),
    )
    group_type = TableColumn(
        "group_type",
        TEXT,
        "type of the group: classic, consumer, share or streams; null if unknown",
    )
    lag = (
        *group,
        passed,
        TableColumn(
            "answered_ms",
            LONG,
            "time of the last answer about the group here, on which the row rests (ms epoch)",
        ),
        TableColumn(
            "state",
            TEXT,
            "committed, ahead, open_transaction = committed at the last stable offset, so that"
            " nothing more can be read, pending_offsets = its next offset is in an open transaction,"
            " no_offset, offsets_expired or gone; the last two end a group's rows",
        ),
        *offsets,
        TableColumn("lag", LONG, "log_end - committed, as Kafka counts; below 0 if ahead"),
        TableColumn(
            "lag_records",
            LONG,
            "records that the group has not read, of a share group those that it has not"
            " acknowledged; behind an open transaction those of a reader of uncommitted records;"
            " null if not counted to the end",
        ),
        TableColumn("lag_bytes", LONG, "their size, estimated (bytes); null if unknown"),
        TableColumn("age_s", LONG, "age of the oldest of them (s); null if unknown or none"),
        TableColumn(
            "age_state",
            TEXT,
            "known = by its timestamp, first_seen = since a poll saw it, nothing_unread,"
            " other_unit = not a time in ms, or unknown",
        ),
        TableColumn("oldest_timestamp_ms", LONG, "time that the age counts from (ms epoch)"),
        TableColumn("limit_s", LONG, "retention by age (s); null = none"),
        TableColumn("limit_bytes", LONG, "retention by size (bytes); null = none"),
        TableColumn("time_usage", RATE, "age_s / limit_s; null without one of them"),
        TableColumn("size_usage", RATE, "lag_bytes / limit_bytes; null without one of them"),
        TableColumn("lag_growth", RATE, "median growth of lag over the last checks (per s)"),
        TableColumn("commit_rate", RATE, "offsets per s that the group advanced by"),
        TableColumn("time_to_drain_s", RATE, "time until lag is 0 (s); null if it does not fall"),
        TableColumn(
            "time_to_loss_s",
            RATE,
            "time until Kafka may delete unread records (s); 0 = now, null = not expected",
        ),
        TableColumn(
            "client_id",
            TEXT,
            "client id of the consumer that has the partition, where records wait for longer than"
            " a poll; null if none has it, or unknown",
        ),
        TableColumn(
            "client_host", TEXT, "host of that consumer; empty: no member has the partition"
        ),
        group_type,
    )
    states = (
        *group,
        passed,
        TableColumn(
            "state",
            TEXT,
            "committed, ahead, open_transaction, pending_offsets, no_offset, offsets_expired,"
            " unknown_group, share_group, empty_id, gone, or known = it is over; of its consumers"
            " stable, rebalancing, empty = there are none, or dead",
        ),
        TableColumn("before", TEXT, "state before; null = first sight, or committed since then"),
        *offsets,
        TableColumn(
            "unread",
            LONG,
            "records without an offset of the group, unread when its offset expired, or behind"
            " an open transaction, or while one has its next offset; null for other states",
        ),
        TableColumn(
            "transactional_id",
            TEXT,
            "of open_transaction: the transaction that ends at no later offset than the group's; of"
            " pending_offsets: the one that has its next offset; null if the coordinator does not"
            " know it, or was not asked",
        ),
        TableColumn("producer_id", LONG, "its producer; null if unknown"),
        TableColumn(
            "transaction_start_ms", LONG, "when it began (ms since the epoch); null if unknown"
        ),
        group_type,
        TableColumn(
            "group_epoch",
            LONG,
            "epoch of the group's members and subscriptions; null if not asked, or of type classic",
        ),
        TableColumn(
            "assignment_epoch",
            LONG,
            "epoch of its target assignment; below group_epoch = a new assignment is due",
        ),
    )
    lost = (
        *group,
        TableColumn("committed", LONG, "offset that the group reads next"),
        TableColumn("from_offset", LONG, "first offset that was deleted unread"),
        TableColumn("to_offset", LONG, "offset after the last one: the start of the log"),
        TableColumn("offsets", LONG, "number of offsets between the two"),
        TableColumn("first_sight", FLAG, "whether they were gone when a poll first saw the group"),
    )
    of_group = ("cluster", "group", "topic", "partition")
    place = ("cluster", "topic")
    return (
        Output(
            "backlog_checks",
            "Per topic and check pass: size and age against their quotas.",
            checks,
            sort_by=(*place, "pass_ms"),
            shadowed=True,
        ),
        Output(
            "backlog_evictions",
            "Every eviction, one row per subscription that it moved.",
            evictions,
            sort_by=(*place, "ts_wall_ms"),
            commit_interval_ms=0,
            shadowed=True,
        ),
        Output(
            "backlog_subscriptions",
            "Per subscription and check pass: backlog, age and forecasts.",
            subscriptions,
            sort_by=(*place, "subscription", "pass_ms"),
        ),
        Output(
            "producer_refusals",
            "Producers that connected while a quota was exceeded.",
            refusals,
            sort_by=(*place, "ts_wall_ms"),
            commit_interval_ms=0,
            shadowed=True,
        ),
        Output(
            "group_lag",
            "Kafka: per check, group and partition its lag, the age of the oldest"
            " unread record and forecasts.",
            lag,
            sort_by=(*of_group, "pass_ms"),
            more_key=("partition",),
        ),
        Output(
            "group_states",
            "Kafka: every change of a group's state, in a partition or as a whole.",
            states,
            sort_by=(*of_group, "pass_ms"),
            more_key=("partition",),
        ),
        Output(
            "lost_messages",
            "Kafka: records that were deleted before a group read them, each counted once.",
            lost,
            sort_by=(*of_group, "ts_wall_ms"),
            commit_interval_ms=0,
            more_key=("partition",),
        ),
    )


OUTPUTS: tuple[Output, ...] = _outputs()
