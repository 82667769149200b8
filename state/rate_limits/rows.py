"""The kernel's rows as output tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.engine.names import Names
from state.engine.structs import joined, picked
from state.rate_limits import layout as L
from state.rate_limits.broker import Broker
from state.rate_limits.layout import NULL, Array

_ACTIONS = pa.array(L.ACTIONS)
_TYPES = pa.array(L.TYPE_NAMES)
_REASONS = pa.array(L.REASONS)
_NUMBERS = pa.array([n if n >= 0 else None for n in L.REASON_NUMBERS], pa.int32())
_LIMITERS = pa.array(L.LIMITER_NAMES)
_TRANSITIONS = pa.array(L.TRANSITIONS)
_RULES = pa.array(L.RULES)
_RECEIPTS = pa.array(L.RECEIPT_STATES, pa.string())
_EXCEPTIONS = pa.array(L.EXCEPTIONS, pa.string())
_PARTITION = r"-partition-(?P<number>\d+)$"
_MS_PER_S = 1000
MOST_DIGITS = 9
"""Of a partition number: a longer one is part of a name."""
WINDOW_RULE = "window"
_ENDED = np.dtype(
    [(name, "<i8") for name in ("ts_mono_ns", "ts_wall_ms", "feed", "start_ms", "row_no")]
)


def _long(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.int64), mask=null)


def _pick(choices: pa.Array, codes: Array) -> pa.Array:
    return choices.take(pa.array(codes.astype(np.int64)))


def _common(b: Broker, names: pa.LargeStringArray, rows: Array) -> dict[str, pa.Array]:
    n = len(rows)
    wall = rows["ts_wall_ms"]
    return {
        "cluster": pa.repeat(names[int(b.key["cluster"])], n).cast(pa.string()),
        "broker": pa.repeat(names[int(b.key["broker"])], n).cast(pa.string()),
        "ts_mono_ns": _long(rows["ts_mono_ns"]),
        "ts_wall_ms": _long(wall, wall == NULL),
        "source_feed": _text(names, rows["feed"]),
        "row_no": pa.array(rows["row_no"].astype(np.int32)),
    }


def _text(names: pa.LargeStringArray, ids: Array) -> pa.Array:
    ids = np.ascontiguousarray(ids, np.int64)
    return names.take(pa.array(ids, mask=ids < 0)).cast(pa.string())


def _names_of(column: Array, places: Array) -> Array:
    """Names (integers) of entities by their place, -1 for no entity."""
    return np.append(column, -1)[places] if len(places) else np.zeros(0, np.int64)


def throttle_events(b: Broker, names: pa.LargeStringArray) -> pa.Table:
    """Marks and unmarks that the last call has written."""
    w = b.world
    rows = b.out.rows[: int(b.key["rows"])]
    kind, has = rows["type"], rows["has"]
    timed = rows["action"] == L.MARK
    wall = rows["ts_wall_ms"]
    rated = np.isin(kind, (L.TOPIC, L.RESOURCE_GROUP))
    pip = np.where(rated, _MS_PER_S - np.mod(wall, _MS_PER_S), 0)
    producer, trigger = rows["producer"], _names_of(w.topics["name"], rows["trigger"])
    columns = _common(b, names, rows)
    columns |= {
        "rule": _pick(_RULES, rows["rule"]),
        "cnx_id": _text(names, _names_of(w.cnxs["name"], rows["cnx"])),
        "producer_id": _long(_names_of(w.producers["producer_id"], producer), producer < 0),
        "producer_name": _text(names, rows["producer_name"]),
        "topic": _text(names, _names_of(w.topics["name"], rows["topic"])),
        "action": _pick(_ACTIONS, rows["action"]),
        "throttle_type": _pick(_TYPES, kind),
        "reason": _pick(_REASONS, kind),
        "reason_number": _pick(_NUMBERS, kind),
        "limiter": _pick(_LIMITERS, np.minimum(kind, L.UNKNOWN)),
        "transition": _pick(_TRANSITIONS, rows["transition"]),
        "reads_paused": pa.array(rows["reads_paused"] != 0),
        "culprit_topic": _text(names, np.where(kind == L.TOPIC, trigger, -1)),
        "trigger_topic": _text(names, trigger),
        "limiter_name": _limiter_names(b, names, rows),
        "collateral_topics": _collateral(b, names, rows),
        "balance_msgs": _long(rows["balance_msgs"], (has & 1) == 0),
        "balance_bytes": _long(rows["balance_bytes"], (has & 2) == 0),
        "pause_pip_ms": _long(pip, ~timed | (wall == NULL)),
        "pause_model_ns": _long(rows["pause_ns"], (has & 4) == 0),
        "waiting": pa.array(rows["waiting"].astype(np.int32), mask=(has & 4) == 0),
        "pause_observed_ns": _long(rows["observed_ns"], rows["observed_ns"] == NULL),
        "seen_until_ns": _long(rows["seen_ns"], rows["seen_ns"] == NULL),
        "request_id": _long(rows["request"], rows["request"] == NULL),
        "receipt_state": _pick(_RECEIPTS, rows["receipt"]),
    }
    return pa.table(columns)


def _limiter_names(b: Broker, names: pa.LargeStringArray, rows: Array) -> pa.Array:
    """Per row, the limiter's name as in `limiter_stats`."""
    w, kind, owner = b.world, rows["type"], rows["owner"]
    of_thread = kind == L.IO_THREAD
    rated = np.isin(kind, (L.TOPIC, L.RESOURCE_GROUP))
    ids = np.where(kind == L.BROKER, b.key["broker"], _names_of(w.cnxs["name"], rows["cnx"]))
    ids = np.where(rated, _names_of(w.limiters["name"], np.where(rated, owner, -1)), ids)
    texts = _text(names, np.where(of_thread | (kind == L.UNKNOWN), -1, ids))
    if not of_thread.any():
        return texts
    numbers = _names_of(w.threads["name"], np.where(of_thread, owner, -1))
    return pc.if_else(pa.array(of_thread), pa.array(numbers).cast(pa.string()), texts)


def _collateral(b: Broker, names: pa.LargeStringArray, rows: Array) -> pa.Array:
    """Per row the other topics of the paused connection, sorted by name."""
    ends = b.out.snapshots[: int(b.key["snapshots"])]
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    topic_names = b.world.topics["name"]
    used = np.unique(b.out.snapshot_topics[: int(b.key["snapshot_topics"])])
    texts = _text(names, topic_names[used]).to_pylist()
    rank = np.zeros(len(topic_names), np.int64)
    rank[used[np.argsort(np.array([t.encode() for t in texts], object), kind="stable")]] = (
        np.arange(len(used))
    )
    members = [
        part[np.argsort(rank[part])]
        for part in (b.out.snapshot_topics[s:e] for s, e in zip(starts, ends, strict=True))
    ]
    lists: list[Array] = []
    nothing = np.zeros(0, np.int64)
    known: dict[tuple[int, int], Array] = {}
    for snapshot, topic in zip(rows["snapshot"].tolist(), rows["topic"].tolist(), strict=True):
        if snapshot < 0:
            lists.append(nothing)
            continue
        others = known.get((snapshot, topic))
        if others is None:
            others = members[snapshot][members[snapshot] != topic]
            known[snapshot, topic] = others
        lists.append(others)
    lengths = np.fromiter((len(part) for part in lists), np.int64, len(lists))
    flat = np.concatenate([nothing, *lists])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), _text(names, _names_of(topic_names, flat)))


def topic_throttle_stats(b: Broker, names: pa.LargeStringArray) -> pa.Table | None:
    """Topics of the windows that have ended in the last call; None if there is no row."""
    window = _of_windows([w.topics for w in b.windows])
    if not len(window):
        return None
    topics = joined([w.topics for w in b.windows])
    texts = _text(names, topics["name"])
    order = np.lexsort((_ranks(texts), window))
    topics = picked(topics, order)
    limit_msgs, limit_bytes = (
        np.concatenate(limits)[order].astype(np.float64)
        for limits in ([w.limit_msgs for w in b.windows], [w.limit_bytes for w in b.windows])
    )
    columns = _of_ended(b, names, window[order])
    columns |= {
        "topic": texts.take(pa.array(order)),
        "limited_times": _long(topics["limited"].sum(axis=1)),
        "culprit_times": _long(topics["culprit_times"]),
        "shared_times": _long(topics["shared_times"]),
        "collateral_times": _long(topics["collateral_times"]),
        "culprit_ns": _long(topics["culprit_ns"]),
        "shared_ns": _long(topics["shared_ns"]),
        "collateral_ns": _long(topics["collateral_ns"]),
        "by_reason": _counts(topics["by_reason"], L.REASONS),
        "messages": _long(topics["messages"]),
        "bytes": _long(topics["bytes"]),
        "limit_msgs": pa.array(limit_msgs, mask=limit_msgs <= 0),
        "limit_bytes": pa.array(limit_bytes, mask=limit_bytes <= 0),
        "limited_by_limiter": _counts(topics["limited"], L.LIMITER_NAMES),
        "resource_group": pa.array(
            [group for w in b.windows for group in w.groups], pa.string()
        ).take(pa.array(order)),
    }
    return pa.table(columns)


def _of_windows(parts: Sequence[Array]) -> Array:
    """The window of each row, from the rows of each."""
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def _ranks(texts: pa.Array) -> Array:
    return pc.rank(texts, tiebreaker="dense").to_numpy().astype(np.int64)


def _of_ended(b: Broker, names: pa.LargeStringArray, window: Array) -> dict[str, pa.Array]:
    """What rows of ended windows have in common, in the order of their windows."""
    ended = np.array([(w.end_ns, w.wall_ms, w.feed, w.start_ms, 0) for w in b.windows], _ENDED)
    rows = picked(ended, window)
    rows["row_no"] = np.arange(len(rows)) - np.searchsorted(window, window)
    return _common(b, names, rows) | {
        "rule": pa.repeat(pa.scalar(WINDOW_RULE), len(rows)),
        "window_start_ms": _long(rows["start_ms"]),
        "window_ms": _long(np.full(len(rows), int(b.key["window_ms"]))),
    }


def _counts(counts: Array, labels: tuple[str, ...]) -> pa.Array:
    """A map per row with the counts that are not zero, keys sorted."""
    width = counts.shape[1]
    by_name = sorted(range(width), key=lambda i: labels[i])
    counts = counts[:, by_name]
    row, column = np.nonzero(counts)
    offsets = np.concatenate([[0], np.cumsum((counts != 0).sum(axis=1))]).astype(np.int32)
    keys = pa.array([labels[i] for i in by_name]).take(pa.array(column))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, _long(counts[row, column]))


def producer_throttle(b: Broker, names: pa.LargeStringArray) -> pa.Table | None:
    """Commands of the last call and sends that timed out; None without any."""
    rows = b.out.commands[: int(b.key["command_rows"])]
    if not len(rows):
        return None
    none = rows["type"] < 0
    unknown = none | (rows["timed"] == 0)
    topics = _text(names, rows["topic"])
    columns = _common(b, names, rows)
    columns |= {
        "rule": _pick(_RULES, rows["rule"]),
        "cnx_id": _text(names, rows["cnx"]),
        "producer_id": _long(rows["producer_id"]),
        "producer_name": _text(names, rows["producer_name"]),
        "topic": topics,
        "partition": _partitions(topics),
        "reason": _REASONS.take(pa.array(rows["type"], mask=none)),
        "start_ms": _long(rows["start_ms"], unknown),
        "pause_ms": _long(rows["pause_ms"], unknown),
        "end_ms": _long(rows["end_ms"], unknown),
        "request_id": _long(rows["request"], rows["request"] == NULL),
        "throttled_ms_total": _long(rows["total_ms"], rows["total_ms"] == NULL),
        "sequence_id": _long(rows["sequence_id"], rows["sequence_id"] == NULL),
        "exception": _pick(_EXCEPTIONS, rows["exception"]),
    }
    return pa.table(columns)


def _partitions(topics: pa.StringArray) -> pa.Array:
    """Number of the partition that a topic's name ends with, null without one."""
    encoded = topics.dictionary_encode()
    (numbers,) = pc.extract_regex(encoded.dictionary, _PARTITION).flatten()
    small = pc.if_else(pc.less_equal(pc.utf8_length(numbers), MOST_DIGITS), numbers, None)
    return small.cast(pa.int32()).take(encoded.indices)


def limiter_stats(b: Broker, names: pa.LargeStringArray) -> pa.Table | None:
    """How near every limiter came to its limit in the ended windows; None without any."""
    of_rates = [w.limiters for w in b.windows]
    of_cnxs = [w.cnxs if w.max_in_flight > 0 else w.cnxs[:0] for w in b.windows]
    of_threads = [w.threads if w.buffer_share > 0 else w.threads[:0] for w in b.windows]
    window = np.concatenate([_of_windows(parts) for parts in (of_rates, of_cnxs, of_threads)])
    n = len(window)
    if not n:
        return None
    e, cnxs, threads = joined(of_rates), joined(of_cnxs), joined(of_threads)
    kind = np.concatenate(
        [e["kind"], np.full(len(cnxs), L.CONNECTION), np.full(len(threads), L.IO_THREAD)]
    )
    ids = np.concatenate(
        [np.where(e["kind"] == L.BROKER, b.key["broker"], e["name"]), cnxs["name"]]
    )
    texts, numbers = _text(names, ids), pa.array(threads["name"])
    order = np.lexsort((np.concatenate([_ranks(texts), threads["name"]]), kind, window))

    def column(values: Array, absent: Array | None = None) -> pa.Array:
        """A column of the rate limiters; null for the others."""
        mask = np.ones(n, bool)
        mask[: len(e)] = False if absent is None else absent
        filled = np.concatenate([values, np.zeros(n - len(e), values.dtype)])
        return pa.array(filled, mask=mask)

    seconds = int(b.key["window_ms"]) / _MS_PER_S
    levels = np.concatenate(
        [np.zeros(len(e), np.int64), cnxs["most_in_flight"], threads["most_pending"]]
    )
    limits = np.concatenate(
        [
            np.ones(len(e), np.int64),
            *(np.full(len(p), w.max_in_flight) for w, p in zip(b.windows, of_cnxs, strict=True)),
            *(np.full(len(p), w.buffer_share) for w, p in zip(b.windows, of_threads, strict=True)),
        ]
    )
    used = levels / limits
    for counted, limit in (("messages", "limit_msgs"), ("bytes", "limit_bytes")):
        on = e[limit] > 0
        share = e[counted] / seconds / np.where(on, e[limit], 1)
        used[: len(e)] = np.maximum(used[: len(e)], np.where(on, share, 0.0))
    leveled = np.arange(n) < len(e)
    marks, observed, predicted = (
        np.concatenate([part[name] for part in (e, cnxs, threads)])
        for name in ("throttles", "observed_pauses", "predicted_pauses")
    )
    columns = {
        "limiter": _pick(_LIMITERS, kind),
        "limiter_name": pa.concat_arrays([texts, numbers.cast(pa.string())]),
        "messages": column(e["messages"]),
        "bytes": column(e["bytes"]),
        "limit_msgs": column(e["limit_msgs"].astype(np.float64), e["limit_msgs"] <= 0),
        "limit_bytes": column(e["limit_bytes"].astype(np.float64), e["limit_bytes"] <= 0),
        "max_level": _long(levels, leveled),
        "limit_level": _long(limits, leveled),
        "min_balance_msgs": column(e["least_msgs"], (e["has_least"] & 1) == 0),
        "min_balance_bytes": column(e["least_bytes"], (e["has_least"] & 2) == 0),
        "throttles": _long(marks),
        "observed_pauses": _long(observed),
        "predicted_pauses": _long(predicted),
        "max_waiting": column(e["most_waiting"].astype(np.int32)),
        "utilisation": pa.array(used),
    }
    common, ordered = _of_ended(b, names, window[order]), pa.array(order)
    return pa.table(common | {name: own.take(ordered) for name, own in columns.items()})


def publish_verdicts(b: Broker, names: pa.LargeStringArray) -> pa.Table | None:
    """Every charge of the last call, if they are asked for."""
    rows = b.out.verdicts[: int(b.key["verdict_rows"])]
    if not len(rows):
        return None
    has = rows["has"]
    ok = (rows["messages_ok"] != 0) & (rows["bytes_ok"] != 0)
    columns = _common(b, names, rows)
    columns |= {
        "rule": pa.array(np.where(ok, "passed", "bucket_empty"), pa.string()),
        "limiter": _pick(_LIMITERS, b.world.limiters["kind"][rows["limiter"]]),
        "topic": _text(names, _names_of(b.world.topics["name"], rows["topic"])),
        "messages": _long(rows["messages"]),
        "bytes": _long(rows["bytes"]),
        "messages_ok": pa.array(rows["messages_ok"] != 0),
        "bytes_ok": pa.array(rows["bytes_ok"] != 0),
        "balance_msgs": _long(rows["balance_msgs"], (has & 1) == 0),
        "balance_bytes": _long(rows["balance_bytes"], (has & 2) == 0),
        "pause_model_ns": _long(rows["pause_ns"]),
    }
    return pa.table(columns)


def of(b: Broker, names: Names) -> dict[str, pa.Table]:
    """All rows of a broker since it was read, by table."""
    k = b.key
    if not (b.windows or k["rows"] or k["command_rows"] or k["verdict_rows"]):
        return {}
    strings = names.strings()
    tables: dict[str, pa.Table | None] = {
        "throttle_events": throttle_events(b, strings) if k["rows"] else None,
        "topic_throttle_stats": topic_throttle_stats(b, strings),
        "limiter_stats": limiter_stats(b, strings),
        "producer_throttle": producer_throttle(b, strings),
        "publish_verdicts": publish_verdicts(b, strings),
    }
    return {name: table for name, table in tables.items() if table is not None}
