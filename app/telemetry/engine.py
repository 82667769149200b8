"""Metrics of chunked messages, caches, policies, quarantine, alerts and audits: few labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb

from app.alerts.episodes import FIRING
from app.ingest.rules import CODES
from app.telemetry.part import Labels, Part, Sample, Sums, labels, rows
from state.engine.refused import DUPLICATE, TOO_LATE
from state.jobs import JOBS

MS_PER_S = 1000.0
LOST = ("GIVEN_UP_OVERFLOW", "GIVEN_UP_COUNT", "EVICTED", "EXPIRED", "SHARED_ORPHAN")
"""Outcomes by which a message in chunks is lost or does not arrive."""


class Chunks(Part):
    """Chunked messages."""

    reads = (
        "chunk_messages",
        "chunk_events",
        "chunk_state",
        "chunk_topic_stats",
        "incomplete_messages",
    )

    def __init__(self) -> None:
        self._whole = Sums("weir_chunk_messages_total")
        self._events = Sums("weir_chunk_events_total")
        self._newest: dict[Labels, tuple[Any, ...]] = {}
        self._rates: dict[Labels, tuple[Any, ...]] = {}
        self._stalled: dict[Labels, tuple[Any, ...]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._whole.add(
            rows(fresh, "SELECT cluster, integrity, count(*) FROM chunk_messages GROUP BY ALL")
        )
        self._events.add(
            rows(fresh, "SELECT cluster, outcome, count(*) FROM chunk_events GROUP BY ALL")
        )
        # A counter that first shows with 1 has no increase: what is lost is there with 0 before.
        self._events.add(
            (cluster, outcome, 0)
            for (cluster,) in rows(fresh, "SELECT DISTINCT cluster FROM chunk_state")
            for outcome in LOST
        )
        for cluster, topic, subscription, consumer, *values in rows(
            fresh,
            """
            SELECT cluster, topic, subscription, consumer, window_start_ms, window_ms, contexts,
              leaked, buffered_bytes, oldest_age_ms
            FROM chunk_state ORDER BY window_start_ms, row_no
        """,
        ):
            self._newest[labels((cluster, topic, subscription, consumer))] = tuple(values)
        for found, sql in (
            (
                self._rates,
                "SELECT cluster, topic, window_start_ms, window_ms, chunked_message_rate"
                " FROM chunk_topic_stats ORDER BY window_start_ms",
            ),
            (
                self._stalled,
                "SELECT cluster, topic, window_start_ms, window_ms, count(*)"
                " FROM incomplete_messages WHERE state = 'stalled'"
                " GROUP BY ALL ORDER BY window_start_ms",
            ),
        ):
            for cluster, topic, *values in rows(fresh, sql):
                found[labels((cluster, topic))] = tuple(values)
        # Shards end a window at different commits: a row counts until it is two behind.
        front: dict[str, int] = {}
        parts = self._newest, self._rates, self._stalled
        for key, value in (item for part in parts for item in part.items()):
            front[key[0]] = max(front.get(key[0], 0), value[0])
        self._newest, self._rates, self._stalled = (
            {k: v for k, v in part.items() if v[0] >= front[k[0]] - v[1]} for part in parts
        )

    def samples(self) -> Iterator[Sample]:
        yield from self._whole.samples()
        yield from self._events.samples()
        totals: dict[str, list[float]] = {}
        for key, (_, _, contexts, leaked, size, age_ms) in self._newest.items():
            total = totals.setdefault(key[0], [0.0, 0.0, 0.0, 0.0])
            for index, value in enumerate((contexts, leaked, size)):
                total[index] += value or 0
            total[3] = max(total[3], (age_ms or 0) / MS_PER_S)
        for cluster in sorted({key[0] for key in (*self._rates, *self._stalled)}):
            for name, part in (
                ("weir_chunked_message_rate", self._rates),
                ("weir_chunk_stalled_messages", self._stalled),
            ):
                yield name, (cluster,), sum(v[2] for k, v in part.items() if k[0] == cluster)
        for cluster, (contexts, leaked, size, age_s) in totals.items():
            yield "weir_chunk_contexts", (cluster,), contexts
            yield "weir_chunk_leaked", (cluster,), leaked
            yield "weir_chunk_buffered_bytes", (cluster,), size
            yield "weir_chunk_oldest_age_seconds", (cluster,), age_s


class Caches(Part):
    """Entry caches, each whole."""

    reads = ("cache_stats",)

    def __init__(self) -> None:
        self._sums = Sums(
            "pulsar_ml_cache_evictions",
            "pulsar_ml_cache_inserted_entries_total",
            "pulsar_ml_cache_evicted_entries_total",
            "weir_cache_evicted_wanted_total",
        )
        self._reads = Sums("weir_cache_reads_total")
        self._newest: dict[Labels, tuple[int, list[Any]]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        which = "cluster, broker, policy, max_bytes"
        self._sums.add(
            rows(
                fresh,
                f"""
            SELECT {which}, sum(passes_size), sum(inserted), sum(evicted_time + evicted_size),
              sum(evicted_wanted)
            FROM cache_stats WHERE topic IS NULL GROUP BY {which}
        """,
            )
        )
        self._reads.add(
            rows(
                fresh,
                f"""
            SELECT {which}, result, sum(CASE result WHEN 'hit' THEN hits ELSE misses END)
            FROM cache_stats CROSS JOIN (VALUES ('hit'), ('miss')) AS r(result)
            WHERE topic IS NULL GROUP BY {which}, result
        """,
            )
        )
        for *names, at_ms, window_ms, entries, used, hits, misses, hit_bytes, miss_bytes in rows(
            fresh,
            f"""
            SELECT {which}, window_start_ms, window_ms, entries, used_bytes, hits, misses,
              hit_bytes, miss_bytes
            FROM cache_stats WHERE topic IS NULL
            QUALIFY row_number() OVER (PARTITION BY {which} ORDER BY window_start_ms DESC) = 1
        """,
        ):
            per_s = [n * MS_PER_S / window_ms for n in (hits, misses, hit_bytes, miss_bytes)]
            key = labels(names)
            if at_ms >= self._newest.get(key, (at_ms,))[0]:
                self._newest[key] = (at_ms, [entries, used, *per_s])

    def samples(self) -> Iterator[Sample]:
        yield from self._sums.samples()
        yield from self._reads.samples()
        ends = (
            "entries",
            "used_size",
            "hits_rate",
            "misses_rate",
            "hits_throughput",
            "misses_throughput",
        )
        for key, (_, values) in self._newest.items():
            for end, value in zip(ends, values, strict=True):
                yield f"pulsar_ml_cache_{end}", key, value


class PolicyVersions(Part):
    """Policies of the configuration that queries have taken or refused."""

    reads = ("policies",)

    def __init__(self) -> None:
        self._newest: dict[Labels, tuple[int, int]] = {}
        self._edited: dict[Labels, tuple[int, bool]] = {}

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        for query, version, read_ms, error in rows(
            fresh,
            "SELECT query, version, read_ms, error FROM policies WHERE read_ms IS NOT NULL"
            " ORDER BY read_ms",
        ):
            key = labels((query,))
            if read_ms >= self._edited.get(key, (read_ms,))[0]:
                self._edited[key] = (read_ms, error is not None)
            if version is not None and version >= self._newest.get(key, (version,))[0]:
                self._newest[key] = (version, read_ms)

    def samples(self) -> Iterator[Sample]:
        for key, (version, read_ms) in self._newest.items():
            yield "weir_policy_version", key, version
            yield "weir_policy_read_timestamp_seconds", key, read_ms / MS_PER_S
        for key, (_, refused) in self._edited.items():
            yield "weir_policy_edit_refused", key, int(refused)


class Checks(Part):
    """What was not applied, and what alerts and audits found."""

    reads = ("quarantine", "alerts", "quality_results")

    def __init__(self) -> None:
        self._quarantined = Sums("weir_quarantine_rows_total")
        # A counter that first shows with 1 has no increase.
        self._quarantined.add((code, None, 0) for code in CODES)
        self._quarantined.add((code, job, 0) for code in (TOO_LATE, DUPLICATE) for job in JOBS)
        self._firing: set[tuple[Labels, Any]] = set()
        self._alerts: set[Labels] = set()
        self._audit: tuple[int, str, dict[Labels, int]] = (0, "", {})

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._quarantined.add(
            rows(fresh, "SELECT reason_code, job, count(*) FROM quarantine GROUP BY ALL")
        )
        for alert, about, state, severity in rows(
            fresh,
            "SELECT alert, labels, state, severity FROM alerts"
            " ORDER BY number NULLS FIRST, at_ms, state",
        ):
            rule = labels((alert, severity))
            who = tuple(sorted(about.items())) if about else ()
            self._alerts.add(rule)
            (self._firing.add if state == FIRING else self._firing.discard)((rule, who))
        for run_id, checked_ms, table, success, count in rows(
            fresh,
            """
            SELECT run_id, max(checked_ms) AS checked_ms, "table", success, count(*)
            FROM quality_results GROUP BY run_id, "table", success ORDER BY checked_ms
        """,
        ):
            if run_id != self._audit[1] and checked_ms >= self._audit[0]:
                self._audit = (checked_ms, run_id, {})
            if run_id == self._audit[1]:
                counts = self._audit[2]
                key = labels((table, "held" if success else "failed"))
                counts[key] = counts.get(key, 0) + count

    def samples(self) -> Iterator[Sample]:
        yield from self._quarantined.samples()
        firing = Counter(rule for rule, _ in self._firing)
        for rule in self._alerts:
            yield "weir_alerts_firing", rule, firing[rule]
        checked_ms, run_id, counts = self._audit
        if run_id:
            yield "weir_quality_checked_timestamp_seconds", (), checked_ms / MS_PER_S
        for key, count in counts.items():
            yield "weir_quality_expectations", key, count
