"""The kernel's rows as output tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.backlog import layout as L
from state.backlog.layout import NULL, Array, Out, World
from state.engine.names import Names
from state.engine.records import Records

ERRORS = {
    "producer_request_hold": "ProducerBlockedQuotaExceededError",
    "producer_exception": "ProducerBlockedQuotaExceededException",
}
_REFUSAL_RULES = pa.array(["size_exceeded", "time_exceeded"])
_RULES, _ENDS, _TYPES = pa.array(L.RULES), pa.array(L.ENDS), pa.array(L.QUOTA_TYPES)
_LEVELS, _STATES, _SOURCES = pa.array(L.LEVELS), pa.array(L.AGE_STATES), pa.array(L.SOURCES)
_KINDS = pa.array(L.KINDS)
_ACTIONS, _POLICIES = pa.array(L.ACTIONS), pa.array(L.POLICIES)
_ERRORS = pa.array([ERRORS.get(policy) for policy in L.POLICIES])
_GROUP_AGES = pa.array(L.GROUP_AGES)
_PARTITION = r"^(?P<topic>.*)-partition-(?P<number>[0-9]{1,9})$"
"""A longer number is part of a name."""


def _long(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.int64), mask=null)


def _known(values: Array) -> pa.Array:
    return _long(values, values == NULL)


def _limit(values: Array) -> pa.Array:
    return _long(values, values < 0)


def _double(values: Array) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.float64), mask=np.isnan(values))


def _int(values: Array) -> pa.Array:
    return pa.array(values.astype(np.int32))


def _flag(values: Array) -> pa.Array:
    return pa.array(values != 0)


def _ratio(part: Array, whole: Array, known: Array) -> pa.Array:
    return pa.array(part / np.where(known, whole, 1), mask=~known)


def _named(values: pa.Array, places: Array) -> pa.Array:
    places = np.ascontiguousarray(places, np.int64)
    return values.take(pa.array(places, mask=places < 0))


def _position(ledger: Array, entry: Array) -> pa.Array:
    parts = (_known(ledger).cast(pa.string()), _long(entry).cast(pa.string()))
    return pc.binary_join_element_wise(*parts, ":")


class Rows:
    """Makes tables from the contents of `Out` after a call; `records` are the judged ones."""

    def __init__(self, w: World, o: Out, records: Records, names: Names) -> None:
        self._w, self._o, self._p, self._r = w, o, w.store.settings[0], records
        self._strings = names.strings()

    def tables(self) -> dict[str, pa.Table]:
        """The tables that have rows."""
        p, o = self._p, self._o
        makers = {
            "backlog_checks": (self.checks, o.checks[: p["checks"]]),
            "backlog_evictions": (self.evictions, o.evictions[: p["evictions"]]),
            "backlog_subscriptions": (self.subscriptions, o.subscriptions[: p["subscriptions"]]),
            "producer_refusals": (self.refusals, o.refusals[: p["refusals"]]),
            "group_lag": (self.lags, o.lags[: p["lags"]]),
            "group_states": (self.states, o.states[: p["states"]]),
            "lost_messages": (self.lost, o.lost[: p["lost"]]),
        }
        return {name: make(rows) for name, (make, rows) in makers.items() if len(rows)}

    def _text(self, ids: Array) -> pa.Array:
        ids = np.ascontiguousarray(ids, np.int64)
        return self._strings.take(pa.array(ids, mask=ids < 0)).cast(pa.string())

    def _of_pass(self, rows: Array, numbers: Array, rule: pa.Array) -> dict[str, pa.Array]:
        """Common columns of rows that a pass has made."""
        keys = self._w.store.keys
        return {
            "cluster": self._text(keys["cluster"][rows["key"]]),
            "broker": self._text(rows["broker"]),
            "ts_mono_ns": _known(rows["mono_ns"]),
            "ts_wall_ms": _long(rows["at_ms"]),
            "source_feed": self._text(rows["feed"]),
            "row_no": _int(numbers),
            "rule": rule,
            "topic": self._text(keys["topic"][rows["key"]]),
        }

    def checks(self, rows: Array) -> pa.Table:
        """One row per topic and pass."""
        aged = (rows["limit_s"] > 0) & (rows["oldest_ms"] != NULL)
        return pa.table(
            {
                **self._of_pass(rows, np.zeros(len(rows)), _named(_RULES, rows["rule"])),
                "pass_ms": _long(rows["at_ms"]),
                "backlog_bytes": _long(rows["bytes"]),
                "limit_bytes": _limit(rows["limit_bytes"]),
                "size_usage": _ratio(rows["bytes"], rows["limit_bytes"], rows["limit_bytes"] > 0),
                "age_s": _long(rows["age_s"]),
                "limit_s": _limit(rows["limit_s"]),
                "age_state": _named(_STATES, rows["state"]),
                "time_usage": _ratio(rows["age_s"], rows["limit_s"], aged),
                "oldest_subscription": self._text(rows["name"]),
                "oldest_position": _position(rows["ledger"], rows["entry"]),
                "oldest_timestamp_ms": _known(rows["oldest_ms"]),
                "timestamp_source": _named(_SOURCES, rows["source"]),
                "exceeded_size": _flag(rows["over_size"]),
                "exceeded_time": _flag(rows["over_time"]),
                "limit_source_size": _named(_LEVELS, rows["size_by"]),
                "limit_source_time": _named(_LEVELS, rows["time_by"]),
                "action": _named(_ACTIONS, rows["action"]),
                "retention_policy": _named(_POLICIES, rows["policy"]),
                "producers_disconnected": _int(rows["producers"]),
                "ttl_s": _long(rows["ttl_s"], rows["ttl_s"] <= 0),
            }
        )

    def evictions(self, rows: Array) -> pa.Table:
        """One row per eviction call and subscription that it moved."""
        return pa.table(
            {
                **self._of_pass(rows, rows["row_no"], _named(_ENDS, rows["rule"])),
                "quota_type": _named(_TYPES, rows["type"]),
                "subscription": self._text(rows["name"]),
                "from_position": _position(rows["from_ledger"], rows["from_entry"]),
                "to_position": _position(rows["to_ledger"], rows["to_entry"]),
                "entries_skipped": _long(rows["skipped"]),
                "rounds": _known(rows["rounds"]),
                "factor": _double(rows["factor"]),
                "target_bytes": _known(rows["target"]),
                "expire_older_than_s": _known(rows["older_s"]),
                "backlog_before": _long(rows["before"]),
                "backlog_after": _long(rows["after"]),
                "phantom": _flag(rows["phantom"]),
                "count_delta": _int(rows["count"]),
            }
        )

    def subscriptions(self, rows: Array) -> pa.Table:
        """One row per check and subscription."""
        return pa.table(
            {
                **self._of_pass(rows, rows["row_no"], _named(_RULES, rows["rule"])),
                "pass_ms": _long(rows["at_ms"]),
                "subscription": self._text(rows["name"]),
                "durable": _flag(rows["durable"]),
                "mark_delete": _position(rows["ledger"], rows["entry"]),
                "backlog_entries": _long(rows["entries"]),
                "backlog_bytes": _long(rows["bytes"]),
                "age_s": _known(rows["age_s"]),
                "growth_rate": _double(rows["growth"]),
                "drain_rate": _double(rows["drain"]),
                "time_to_drain_s": _double(rows["to_drain"]),
                "time_to_quota_s": _double(rows["to_quota"]),
                "kind": _named(_KINDS, rows["kind"]),
                "unacked_ranges": _long(rows["ranges"]),
                "first_hole": _position(rows["hole_ledger"], rows["hole_entry"]),
                "set_back": _flag(rows["from_ledger"] != NULL),
                "set_back_from": _position(rows["from_ledger"], rows["from_entry"]),
                "set_back_to": _position(
                    np.where(rows["from_ledger"] != NULL, rows["to_ledger"], NULL), rows["to_entry"]
                ),
                "time_to_expiry_s": _double(rows["to_expiry"]),
                "expired_unread": _known(rows["expired"]),
                "remarks": self._text(rows["remarks"]),
            }
        )

    def refusals(self, rows: Array) -> pa.Table:
        """One row per producer that a quota refuses."""
        r, at = self._r, rows["record"]
        return pa.table(
            {
                "cluster": self._text(r["cluster"][at]),
                "broker": self._text(r["broker"][at]),
                "ts_mono_ns": _known(r["ts_mono_ns"][at]),
                "ts_wall_ms": _long(r["ts_wall_ms"][at]),
                "source_feed": self._text(r["source_feed"][at]),
                "row_no": _int(rows["row_no"]),
                "rule": _named(_REFUSAL_RULES, rows["type"]),
                "topic": self._text(self._w.store.keys["topic"][rows["key"]]),
                "producer_id": _long(r["producer_id"][at]),
                "error": _named(_ERRORS, rows["policy"]),
                "quota_type": _named(_TYPES, rows["type"]),
            }
        )

    # -- Kafka ---------------------------------------------------------------------------------

    def _place(self, rows: Array) -> dict[str, pa.Array]:
        """Group, topic and partition of rows."""
        topics = self._text(self._w.store.keys["topic"][rows["key"]])
        found = pc.extract_regex(topics, _PARTITION)
        return {
            "group": self._text(rows["name"]),
            "topic": pc.coalesce(pc.struct_field(found, "topic"), topics),
            "partition": pc.struct_field(found, "number").cast(pa.int32()),
        }

    def lags(self, rows: Array) -> pa.Table:
        """One row per check, group and partition."""
        aged, sized = rows["age_s"] != NULL, rows["bytes"] != NULL
        return pa.table(
            {
                **self._of_pass(rows, rows["row_no"], self._text(rows["state"])),
                **self._place(rows),
                "pass_ms": _long(rows["at_ms"]),
                "answered_ms": _long(rows["answered_ms"]),
                "state": self._text(rows["state"]),
                "committed": _known(rows["committed"]),
                "log_start": _known(rows["start"]),
                "log_end": _known(rows["end"]),
                "lag": _known(rows["lag"]),
                "lag_records": _known(rows["records"]),
                "lag_bytes": _known(rows["bytes"]),
                "age_s": _known(rows["age_s"]),
                "age_state": _named(_GROUP_AGES, rows["age_state"]),
                "oldest_timestamp_ms": _known(rows["oldest_ms"]),
                "limit_s": _limit(rows["limit_s"]),
                "limit_bytes": _limit(rows["limit_bytes"]),
                "time_usage": _ratio(rows["age_s"], rows["limit_s"], aged & (rows["limit_s"] > 0)),
                "size_usage": _ratio(
                    rows["bytes"], rows["limit_bytes"], sized & (rows["limit_bytes"] > 0)
                ),
                "lag_growth": _double(rows["growth"]),
                "commit_rate": _double(rows["commits"]),
                "time_to_drain_s": _double(rows["to_drain"]),
                "time_to_loss_s": _double(rows["to_loss"]),
                "client_id": self._text(rows["client"]),
                "client_host": self._text(rows["host"]),
                "group_type": self._text(rows["type"]),
            }
        )

    def states(self, rows: Array) -> pa.Table:
        """One row per change of a group's state."""
        return pa.table(
            {
                **self._of_pass(rows, rows["row_no"], self._text(rows["state"])),
                **self._place(rows),
                "pass_ms": _long(rows["at_ms"]),
                "state": self._text(rows["state"]),
                "before": self._text(rows["before"]),
                "committed": _known(rows["committed"]),
                "log_start": _known(rows["start"]),
                "log_end": _known(rows["end"]),
                "unread": _known(rows["unread"]),
                "transactional_id": self._text(rows["transaction"]),
                "producer_id": _known(rows["producer"]),
                "transaction_start_ms": _known(rows["begun_ms"]),
                "group_type": self._text(rows["type"]),
                "group_epoch": _known(rows["group_epoch"]),
                "assignment_epoch": _known(rows["assignment_epoch"]),
            }
        )

    def lost(self, rows: Array) -> pa.Table:
        """One row per deletion of records that a group had not read."""
        r, at = self._r, rows["record"]
        rules = pa.array(["retention", "first_sight"])
        return pa.table(
            {
                "cluster": self._text(r["cluster"][at]),
                "broker": self._text(r["broker"][at]),
                "ts_mono_ns": _known(r["ts_mono_ns"][at]),
                "ts_wall_ms": _long(r["ts_wall_ms"][at]),
                "source_feed": self._text(r["source_feed"][at]),
                "row_no": _int(rows["row_no"]),
                "rule": _named(rules, rows["first_sight"]),
                **self._place(rows),
                "committed": _long(rows["committed"]),
                "from_offset": _long(rows["begin"]),
                "to_offset": _long(rows["end"]),
                "offsets": _long(rows["end"] - rows["begin"]),
                "first_sight": _flag(rows["first_sight"]),
            }
        )
