"""The kernel's rows as output tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.engine.emitted import Emitted, integers, words
from state.engine.names import Names
from state.engine.structs import joined, picked
from state.rate_limits import layout as L
from state.rate_limits import outputs as T
from state.rate_limits.broker import Broker
from state.rate_limits.layout import NULL, Array

_NUMBERS = pa.array([n if n >= 0 else None for n in L.REASON_NUMBERS], pa.int32())
_LIMITERS = pa.array(T.LIMITER_NAMES)
_PARTITION = r"-partition-(?P<number>\d+)$"
_MS_PER_S = 1000
MOST_DIGITS = 9
"""Of a partition number: a longer one is part of a name."""
_ENDED = np.dtype(
    [(name, "<i8") for name in ("ts_mono_ns", "ts_wall_ms", "feed", "start_ms", "row_no")]
)


def _long(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.int64), mask=null)


class Rows:
    """Makes tables of what the last call to a broker has written."""

    def __init__(self, b: Broker, names: Names) -> None:
        w = b.world
        self._b = b
        self._of = Emitted(
            names,
            cnx=w.cnxs,
            producer=w.producers,
            topic=w.topics,
            trigger=w.topics,
            limiter=w.limiters,
        )

    def tables(self) -> dict[str, pa.Table]:
        """All rows by table."""
        k = self._b.key
        found: dict[str, pa.Table | None] = {
            T.EVENTS.name: self.throttle_events() if k["rows"] else None,
            T.STATS.name: self.topic_throttle_stats(),
            T.LIMITERS.name: self.limiter_stats(),
            T.COMMANDS.name: self.producer_throttle() if k["command_rows"] else None,
            T.VERDICTS.name: self.publish_verdicts() if k["verdict_rows"] else None,
        }
        return {name: table for name, table in found.items() if table is not None}

    def _broker(self, n: int) -> dict[str, pa.Array]:
        whose = self._of.texts(np.array([self._b.key["cluster"], self._b.key["broker"]]))
        return {
            name: pa.repeat(text, n)
            for name, text in zip(("cluster", "broker"), whose, strict=True)
        }

    def throttle_events(self) -> pa.Table:
        """Marks and unmarks that the last call has written."""
        w, rows = self._b.world, self._b.out.rows[: int(self._b.key["rows"])]
        kind, has, wall = rows["type"], rows["has"], rows["ts_wall_ms"]
        rated = np.isin(kind, (L.TOPIC, L.RESOURCE_GROUP))
        pip = np.where(rated, _MS_PER_S - np.mod(wall, _MS_PER_S), 0)
        trigger = _names_of(w.topics["name"], rows["trigger"])
        unpaused = (has & 4) == 0
        return self._of.table(
            T.EVENTS,
            rows,
            **self._broker(len(rows)),
            reason_number=words(_NUMBERS, kind),
            culprit_topic=self._of.texts(np.where(kind == L.TOPIC, trigger, -1)),
            limiter_name=self._limiter_names(rows),
            collateral_topics=self._collateral(rows),
            balance_msgs=_long(rows["balance_msgs"], (has & 1) == 0),
            balance_bytes=_long(rows["balance_bytes"], (has & 2) == 0),
            pause_pip_ms=_long(pip, (rows["action"] != L.MARK) | (wall == NULL)),
            pause_model_ns=_long(rows["pause_ns"], unpaused),
            waiting=pa.array(rows["waiting"].astype(np.int32), mask=unpaused),
        )

    def _limiter_names(self, rows: Array) -> pa.Array:
        """Per row, the limiter's name as in `limiter_stats`."""
        b = self._b
        w, kind, owner = b.world, rows["type"], rows["owner"]
        of_thread = kind == L.IO_THREAD
        rated = np.isin(kind, (L.TOPIC, L.RESOURCE_GROUP))
        ids = np.where(kind == L.BROKER, b.key["broker"], _names_of(w.cnxs["name"], rows["cnx"]))
        ids = np.where(rated, _names_of(w.limiters["name"], np.where(rated, owner, -1)), ids)
        texts = self._of.texts(np.where(of_thread | (kind == L.UNKNOWN), -1, ids))
        if not of_thread.any():
            return texts
        numbers = _names_of(w.threads["name"], np.where(of_thread, owner, -1))
        return pc.if_else(pa.array(of_thread), pa.array(numbers).cast(pa.string()), texts)

    def _collateral(self, rows: Array) -> pa.Array:
        """Per row the other topics of the paused connection, sorted by name."""
        b = self._b
        ends = b.out.snapshots[: int(b.key["snapshots"])]
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        topic_names = b.world.topics["name"]
        used = np.unique(b.out.snapshot_topics[: int(b.key["snapshot_topics"])])
        texts = self._of.texts(topic_names[used]).to_pylist()
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
        return pa.ListArray.from_arrays(
            pa.array(offsets), self._of.texts(_names_of(topic_names, flat))
        )

    def topic_throttle_stats(self) -> pa.Table | None:
        """Topics of the windows that have ended in the last call; None if there is no row."""
        windows = self._b.windows
        window = _of_windows([w.topics for w in windows])
        if not len(window):
            return None
        topics = joined([w.topics for w in windows])
        order = np.lexsort((_ranks(self._of.texts(topics["name"])), window))
        topics = picked(topics, order)
        limits = {
            "limit_msgs": np.concatenate([w.limit_msgs for w in windows])[order],
            "limit_bytes": np.concatenate([w.limit_bytes for w in windows])[order],
        }
        groups = pa.array([group for w in windows for group in w.groups], pa.string())
        return self._of.table(
            T.STATS,
            topics,
            **self._of_ended(window[order]),
            **{
                name: pa.array(limit.astype(np.float64), mask=limit <= 0)
                for name, limit in limits.items()
            },
            limited_times=_long(topics["limited"].sum(axis=1)),
            by_reason=_counts(topics["by_reason"], T.REASONS),
            limited_by_limiter=_counts(topics["limited"], T.LIMITER_NAMES),
            resource_group=groups.take(pa.array(order)),
        )

    def _of_ended(self, window: Array) -> dict[str, pa.Array]:
        """What rows of ended windows have in common, in the order of their windows."""
        b = self._b
        ended = np.array([(w.end_ns, w.wall_ms, w.feed, w.start_ms, 0) for w in b.windows], _ENDED)
        rows = picked(ended, window)
        return self._broker(len(rows)) | {
            "ts_mono_ns": _long(rows["ts_mono_ns"]),
            "ts_wall_ms": integers(rows["ts_wall_ms"]),
            "source_feed": self._of.texts(rows["feed"]),
            "row_no": pa.array(
                (np.arange(len(rows)) - np.searchsorted(window, window)).astype(np.int32)
            ),
            "window_start_ms": _long(rows["start_ms"]),
            "window_ms": _long(np.full(len(rows), int(b.key["window_ms"]))),
        }

    def producer_throttle(self) -> pa.Table:
        """Commands of the last call and sends that timed out."""
        rows = self._b.out.commands[: int(self._b.key["command_rows"])]
        unknown = (rows["type"] < 0) | (rows["timed"] == 0)
        return self._of.table(
            T.COMMANDS,
            rows,
            **self._broker(len(rows)),
            **{name: _long(rows[name], unknown) for name in ("start_ms", "pause_ms", "end_ms")},
            partition=_partitions(self._of.texts(rows["topic"])),
        )

    def limiter_stats(self) -> pa.Table | None:
        """How near every limiter came to its limit in the ended windows; None without any."""
        b = self._b
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
        texts, numbers = self._of.texts(ids), pa.array(threads["name"])
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
                *(
                    np.full(len(p), w.max_in_flight)
                    for w, p in zip(b.windows, of_cnxs, strict=True)
                ),
                *(
                    np.full(len(p), w.buffer_share)
                    for w, p in zip(b.windows, of_threads, strict=True)
                ),
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
            "limiter": words(_LIMITERS, kind),
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
        ordered = pa.array(order)
        given = {name: own.take(ordered) for name, own in columns.items()}
        return self._of.table(T.LIMITERS, window, **self._of_ended(window[order]), **given)

    def publish_verdicts(self) -> pa.Table:
        """Every charge of the last call."""
        rows = self._b.out.verdicts[: int(self._b.key["verdict_rows"])]
        has, ok = rows["has"], (rows["messages_ok"] != 0) & (rows["bytes_ok"] != 0)
        return self._of.table(
            T.VERDICTS,
            rows,
            **self._broker(len(rows)),
            rule=pa.array(np.where(ok, "passed", "bucket_empty")),
            balance_msgs=_long(rows["balance_msgs"], (has & 1) == 0),
            balance_bytes=_long(rows["balance_bytes"], (has & 2) == 0),
        )


def _names_of(column: Array, places: Array) -> Array:
    """Names (integers) of entities by their place, -1 for no entity."""
    return np.append(column, -1)[places] if len(places) else np.zeros(0, np.int64)


def _of_windows(parts: Sequence[Array]) -> Array:
    """The window of each row, from the rows of each."""
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def _ranks(texts: pa.Array) -> Array:
    return pc.rank(texts, tiebreaker="dense").to_numpy().astype(np.int64)


def _counts(counts: Array, labels: tuple[str, ...]) -> pa.Array:
    """A map per row with the counts that are not zero, keys sorted."""
    width = counts.shape[1]
    by_name = sorted(range(width), key=lambda i: labels[i])
    counts = counts[:, by_name]
    row, column = np.nonzero(counts)
    offsets = np.concatenate([[0], np.cumsum((counts != 0).sum(axis=1))]).astype(np.int32)
    keys = pa.array([labels[i] for i in by_name]).take(pa.array(column))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, _long(counts[row, column]))


def _partitions(topics: pa.StringArray) -> pa.Array:
    """Number of the partition that a topic's name ends with, null without one."""
    encoded = topics.dictionary_encode()
    (numbers,) = pc.extract_regex(encoded.dictionary, _PARTITION).flatten()
    small = pc.if_else(pc.less_equal(pc.utf8_length(numbers), MOST_DIGITS), numbers, None)
    return small.cast(pa.int32()).take(encoded.indices)


def of(b: Broker, names: Names) -> dict[str, pa.Table]:
    """All rows of a broker since it was read, by table."""
    k = b.key
    if not (b.windows or k["rows"] or k["command_rows"] or k["verdict_rows"]):
        return {}
    return Rows(b, names).tables()
