"""The jobs as the tests of their common contract see them.

A `Job` here is a core with its reference, random traces of its records, and small records made by
hand. What a property needs to know of one job stands here; the property itself stands in a test of
its own, once for all jobs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from state.events import MONO
from state.jobs import DECLARED
from tests.reference import backlog as reference_backlog
from tests.reference import chunks as reference_chunks
from tests.reference import client_quotas as reference_client_quotas
from tests.reference import entry_cache as reference_entry_cache
from tests.reference import job as reference_rate_limits
from tests.reference import producer_ids as reference_producer_ids
from tests.reference.words import words
from tests.support import records as by_hand
from tests.support.effort import SLOW
from tests.unit.state import (
    backlog_trace,
    backlog_traces,
    cache_trace,
    cache_traces,
    chunk_trace,
    chunk_traces,
    client_quota_trace,
    client_quota_traces,
    producer_id_trace,
    producer_id_traces,
    shipping,
    trace,
    traces,
)
from tests.unit.state.contract import known
from tests.unit.state.shipping import Row, called, params_of
from tests.unit.state.trace import START_MS, START_NS

Rows = dict[str, list[Row]]
MS = 1_000_000


@dataclass(frozen=True)
class Sample:
    """Records with all that their rows depend on."""

    records: Sequence[Row]
    params: Mapping[str, Any] = field(default_factory=dict)
    policies: Sequence[str] = ()
    until_ms: int | None = None


@dataclass(frozen=True)
class Job:
    """A job, what judges its records, and what its records look like."""

    name: str
    blob: Callable[..., bytes]
    judge: Callable[[Sample], Rows]
    """The reference."""
    tables: tuple[str, ...]
    key: tuple[str, ...]
    """Columns of a row that name its key."""
    key_of: Callable[[Row], Any]
    """The key of a record; None if it holds for many."""
    traces: Mapping[str, st.SearchStrategy[Any]]
    known: Callable[..., Any]
    """What a state knows, free of where it lies; of its bytes, parameters and policies."""
    plain: Callable[..., list[Row]]
    event: Callable[..., Row]
    """A record of a key at a time (ms since the start) that rows come of; `number` makes it another
    one of its key."""
    shared: Callable[..., Row] | None = None
    """A record that goes to every shard; None if the job reads none."""
    ends: Callable[..., list[Row]] = lambda keys, at_ms: []
    """Records that end what `lives` began, at a time."""
    lives: Callable[[str, int], Row] | None = None
    """A record of one of the things that a state keeps; without it `event` of one of its keys."""
    before: Sample = Sample(())
    after: Sample = Sample(())
    """Two configurations that judge `event` differently."""
    params: Mapping[str, Any] = field(default_factory=dict)
    exempt: Mapping[str, str] = field(default_factory=dict)
    """Tests of properties that it cannot have, by name of the test or its module, and why."""
    compared: Callable[[Any], Sample] | None = None
    """What core and reference are compared on, where it is not the trace to its end."""

    def passing(self, count: int) -> list[list[Row]]:
        """Batches of records of as many things, all of which end."""
        names = [f"k{i}" for i in range(count)]
        begin = self.lives or (lambda name, at_ms: self.event(at_ms, key=name))
        return [[begin(name, i) for i, name in enumerate(names)], self.ends(names, 20_000), []]

    @property
    def decides_by_mono(self) -> bool:
        """Whether its clock is the monotonic one of a broker."""
        return DECLARED[self.name].clock == MONO

    def core(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> Any:
        """The core with these parameters beside the usual ones."""
        return DECLARED[self.name].core(params_of(self.name, **{**self.params, **params}), policies)

    def play(
        self,
        batches: Sequence[Sequence[Row]],
        by: Sample | None = None,
        states: list[bytes] | None = None,
    ) -> Rows:
        """Rows of batches by table, in order; parameters and policies are those of a sample."""
        by = by or Sample(())
        core = self.core(by.params, by.policies)
        advance = params_of(self.name, **by.params)["idle_advance_ms"]
        found = called(core, batches, self.blob, advance, by.until_ms, states, self.plain)
        return self.in_order(found)

    def in_order(self, rows: Mapping[str, Sequence[Row]]) -> Rows:
        """Rows of every table by key, time and number; the payload of a chunk is left out."""

        def place(row: Row) -> tuple[Any, ...]:
            return (
                *(row.get(name) or "" for name in self.key),
                row["ts_wall_ms"] or 0,
                row.get("ts_mono_ns") or 0,
                row.get("row_no", row.get("seq")) or 0,
            )

        return {
            table: [
                {k: v for k, v in row.items() if k != "payload"} if "payload" in row else row
                for row in sorted(rows.get(table, ()), key=place)
            ]
            for table in (*self.tables, "quarantine")
        }

    def assert_same(self, got: Mapping[str, Sequence[Row]], expected: Mapping[str, Any]) -> None:
        """Whole rows of all tables, in whatever order they are."""
        assert_same(self.in_order(got), self.in_order(expected))

    def read(self, records: Sequence[Row]) -> list[Row]:
        """The records that the job reads, with an identity each."""
        return shipping.read_by(self.name, records)

    def sample(self, drawn: Any, until_ms: int | None = None) -> Sample:
        """A drawn trace up to a time; without one, as core and reference are compared on it."""
        if self.compared is not None and until_ms is None:
            return self.compared(drawn)
        policies = getattr(drawn, "configured", ())
        end_ms = drawn.end_ms + 1 if until_ms is None else until_ms
        return Sample(self.read(drawn.records), drawn.params, policies, end_ms)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the contract that its blobs carry."""
        return DECLARED[self.name].columns

    def knows(self, state: bytes, by: Sample) -> Any:
        """What a state knows; see `known`."""
        return self.known(state, {**self.params, **by.params}, by.policies)


def assert_same(got: Rows, expected: Rows) -> None:
    """Whole rows of all tables; the first difference is shown, not all of them."""
    for table in expected:
        if got[table] == expected[table]:
            continue
        for i, (mine, wanted) in enumerate(zip(got[table], expected[table], strict=False)):
            differing = {k: (mine.get(k), v) for k, v in wanted.items() if mine.get(k) != v}
            assert mine == wanted, (table, i, differing)
        shorter, longer = sorted((got[table], expected[table]), key=len)
        assert longer[len(shorter) :] == [], table


MOST_CUTS = 12


def cut(records: Sequence[Row], order: random.Random) -> list[list[Row]]:
    """Batches of random lengths, empty ones among them.

    A batch costs more than its records do: without --slow a trace is cut at a few places, either
    anywhere or all in a row, so that single records, and nothing at all, are still batches.
    """
    often = order.choice((0.05, 0.3, 1.0))
    places: list[int] = []
    for place in range(len(records)):
        places += [place] * ((order.random() < often) + (order.random() < 0.1))
    if not SLOW and len(places) > MOST_CUTS:
        first = order.randrange(len(places) - MOST_CUTS + 1)
        in_a_row = places[first : first + MOST_CUTS]
        places = order.choice((in_a_row, sorted(order.sample(places, MOST_CUTS))))
    ends = [0, *places, len(records)]
    return [list(records[begin:end]) for begin, end in pairwise(ends)]


def with_walls(records: Sequence[Row]) -> list[Row]:
    """The records of a trace, each with a wall time: else they do not say which are late."""
    found: list[Row] = []
    apart: dict[str, int] = {}
    wall = START_MS
    for r in records:
        if r["ts_wall_ms"] is not None:
            wall = r["ts_wall_ms"]
        elif r["broker"] in apart:
            wall = r["ts_mono_ns"] // MS + apart[r["broker"]]
        if r["ts_mono_ns"] is not None:
            apart[r["broker"]] = wall - r["ts_mono_ns"] // MS
        found.append({**r, "ts_wall_ms": wall})
    return found


# -- records made by hand --------------------------------------------------------------------


def record(kind: str, at_ms: int, seq: int | None = None, **columns: Any) -> Row:
    """A record of broker b1, `at_ms` after the start on both clocks."""
    at = START_MS + at_ms, START_NS + at_ms * MS
    return by_hand.record(kind, *at, seq=seq, **{"source_offset": 0, **columns})


def document(scope: str, name: str, **limits: Any) -> str:
    """A policy document."""
    return json.dumps({"scope": scope, "name": name, "limits": limits})


def everywhere(scope: str, name: str, **limits: Any) -> Callable[..., Row]:
    """A maker of policies for every broker."""
    text = document(scope, name, **limits)

    def make(at_ms: int, seq: int | None = None, **columns: Any) -> Row:
        shared = {"broker": "*", "ts_mono_ns": None, "policy_json": text}
        return record("policy", at_ms, seq, **{**shared, **columns})

    return make


def topic(key: str) -> str:
    return f"persistent://t/ns/{key}"


def gap(at_ms: int, seq: int | None = None, **columns: Any) -> Row:
    """A gap of broker b1."""
    return record("gap", at_ms, seq, **columns)


def events(kind: str, columns: Callable[[str, int], Row]) -> Callable[..., Row]:
    """A maker of records of one kind: of a key, and with a number that tells them apart."""

    def make(
        at_ms: int, seq: int | None = None, key: str = "a", number: int = 1, **changes: Any
    ) -> Row:
        return record(kind, at_ms, seq, **{**columns(key, number), **changes})

    return make


publish = events(
    "publish",
    lambda key, number: {
        "broker": key,
        "cnx_id": "c1",
        "topic": topic("x"),
        "producer_id": number,
        "producer_name": f"p{number}",
        "num_messages": 1,
        "entry_bytes": 10,
    },
)
entry_read = events(
    "entry_read",
    lambda key, number: {
        "broker": key,
        "topic": topic("x"),
        "subscription": "s",
        "ledger_id": 1,
        "entry_id": number,
        "entry_bytes": 100,
    },
)
chunk = events(
    "dispatch",
    lambda key, number: {
        "topic": topic(key),
        "subscription": "s",
        "consumer": "c1",
        "ledger_id": 1,
        "entry_id": number,
        "uuid": f"u{number}",
        "chunk_id": 0,
        "num_chunks": 2,
        "total_chunk_bytes": 20,
        "entry_bytes": 10,
        "publish_time_ms": START_MS,
    },
)
"""The first chunk of a message, which waits for the other until it expires."""
batch = events(
    "produce_batch",
    lambda key, number: {
        "principal": f"User:{key}",
        "client_id": "k",
        "topic": "t",
        "partition": 0,
        "producer_id": number,
    },
)
client_request = events(
    "client_request",
    lambda key, number: {
        "broker": key,
        "principal": "User:u",
        "client_id": f"k{number}",
        "api": "PRODUCE",
        "charged_bytes": 100,
    },
)
ledger = events(
    "ledger_state",
    lambda key, number: {
        "topic": topic(key),
        "ledger_id": number,
        "ledger_entries": 5,
        "ledger_bytes": 500,
    },
)


# -- the jobs --------------------------------------------------------------------------------


def _to_its_end(drawn: Any) -> Sample:
    return Sample(drawn.records, drawn.params, drawn.configured, drawn.end_ms)


def _closed(drawn: Any) -> Sample:
    """A trace of caches with a record without effect just behind all others of each broker: the
    clock reaches it."""
    records = shipping.read_by("entry_cache", [*drawn.records, *closing(drawn.records)])
    until_ms = drawn.end_ms + 2 * drawn.params["stats_window_ms"]
    return Sample(records, {**drawn.params, "allowed_lateness_ms": 0}, drawn.configured, until_ms)


def closing(records: Sequence[Row]) -> list[Row]:
    """A record without effect just behind all others of each broker."""
    found = []
    for broker in sorted({r["broker"] for r in records} - {"*"}):
        mine = [r for r in records if r["broker"] == broker and r["ts_mono_ns"] is not None]
        starts = [i for i, r in enumerate(mine) if r["event_type"] == "broker_started"]
        run = mine[starts[-1] if starts else 0 :]
        if run:
            end_ns = max(r["ts_mono_ns"] for r in run) + 1
            walls = [
                r["ts_wall_ms"] + (end_ns - r["ts_mono_ns"]) // MS
                for r in run
                if r["ts_wall_ms"] is not None
            ]
            found.append(
                {
                    **run[-1],
                    "event_type": "cursor_deleted",
                    "seq": 10**6,
                    "topic": "nothing",
                    "ts_mono_ns": end_ns,
                    "ts_wall_ms": max(walls, default=None),
                    "subscription": "nobody",
                }
            )
    return found


def _judge(job: str, module: Any, **usual: Any) -> Callable[[Sample], Rows]:
    def judge(by: Sample) -> Rows:
        params = params_of(job, **{**usual, **by.params})
        found: Rows = module.judge(by.records, params, by.policies, by.until_ms)
        return found

    return judge


def _judge_chunks(by: Sample) -> Rows:
    return reference_chunks.judge(by.records, by.params, by.until_ms)


def _size(limit: int) -> Row:
    return {
        "backlog_quota": {
            "destination_storage": {"limitSize": limit, "policy": "producer_exception"}
        }
    }


def _broker(r: Row) -> Any:
    return None if r["broker"] == "*" else (r["cluster"], r["broker"])


def _of_own(module: Any, key_of: Callable[[Row], Any]) -> Callable[[Row], Any]:
    return lambda r: key_of(r) if r["event_type"] in module.OWN else None


VERDICTS = {"extra_outputs": ("publish_verdicts",)}
READS = {"extra_outputs": ("cache_evictions", "cache_reads"), "release_event": "entry_released"}
CHECKS = {"backlogQuotaCheckIntervalInSeconds": 1, "check_rows": "all"}
USER = everywhere("user", "a", producer_ids_rate=5)
_BROKER = {"key": ("cluster", "broker"), "key_of": _broker}

JOBS = {
    job.name: job
    for job in (
        Job(
            "rate_limits",
            trace.blob,
            _judge("rate_limits", reference_rate_limits, **VERDICTS),
            words(
                "throttle_events topic_throttle_stats limiter_stats producer_throttle"
                " publish_verdicts"
            ),
            traces={
                "one broker": traces.traces(),
                "two brokers": traces.traces(brokers=("b1", "b2"), most=80),
                "every version parameter": traces.traces(switches=True),
                "two brokers, every version parameter": traces.traces(
                    brokers=("b1", "b2"), switches=True, most=120
                ),
            },
            known=known.rate_limits,
            plain=pa.Table.to_pylist,
            event=publish,
            params=VERDICTS,
            lives=lambda name, at_ms: publish(at_ms, topic=topic(name), cnx_id=name),
            ends=lambda names, at_ms: [
                record("connection_closed", at_ms, broker="a", cnx_id=name) for name in names
            ],
            before=Sample((), policies=[document("topic", "t/ns/x", publishRateInMsgs=7)]),
            after=Sample((), policies=[document("topic", "t/ns/x", publishRateInMsgs=3)]),
            shared=everywhere("topic", "t/ns/x", publishRateInMsgs=2),
            compared=_to_its_end,
            **_BROKER,
        ),
        Job(
            "chunks",
            chunk_trace.blob,
            _judge_chunks,
            reference_chunks.TABLES,
            ("cluster", "topic"),
            lambda r: None if r["event_type"] == "gap" else (r["cluster"], r["topic"]),
            traces={"any": chunk_traces.traces()},
            known=known.chunks,
            plain=chunk_trace.plain,
            event=chunk,
            before=Sample((), {"expireTimeOfIncompleteChunkedMessageMillis": 60_000}),
            after=Sample((), {"expireTimeOfIncompleteChunkedMessageMillis": 30_000}),
            shared=lambda at_ms, seq=None: gap(at_ms + 1500, seq),
        ),
        Job(
            "producer_ids",
            producer_id_trace.blob,
            _judge("producer_ids", reference_producer_ids),
            reference_producer_ids.TABLES,
            ("cluster", "broker", "user"),
            _of_own(
                reference_producer_ids,
                lambda r: (r["cluster"], r["broker"], r["principal"].split(":", 1)[-1]),
            ),
            traces={
                "any": producer_id_traces.traces(),
                "settings of brokers": producer_id_traces.traces(broker_keys=True, most=90),
            },
            known=known.producer_ids,
            plain=pa.Table.to_pylist,
            event=batch,
            shared=USER,
            before=Sample((), policies=[document("user", "<default>", producer_ids_rate=7)]),
            after=Sample((), policies=[document("user", "<default>", producer_ids_rate=3)]),
            exempt={
                "test_rows_long_after_the_change_are_those_of_the_configuration_after": (
                    "its quota remembers what was counted before the change for hours"
                )
            },
        ),
        Job(
            "backlog",
            backlog_trace.blob,
            _judge("backlog", reference_backlog),
            reference_backlog.TABLES,
            ("cluster", "topic"),
            _of_own(reference_backlog, reference_backlog.key_of),
            traces={
                "any": backlog_traces.traces(),
                "long": backlog_traces.traces(most=200, least=100),
            },
            known=known.backlog,
            plain=pa.Table.to_pylist,
            event=ledger,
            params=CHECKS,
            ends=lambda names, at_ms: [
                record("ledger_deleted", at_ms, topic=topic(name), ledger_id=1) for name in names
            ],
            before=Sample((), policies=[document("namespace", "t/ns", **_size(7))]),
            after=Sample((), policies=[document("namespace", "t/ns", **_size(3))]),
            shared=everywhere("topic", "t/ns/a", **_size(100)),
        ),
        Job(
            "entry_cache",
            cache_trace.blob,
            _judge("entry_cache", reference_entry_cache),
            reference_entry_cache.TABLES,
            traces={"any": cache_traces.traces()},
            known=known.entry_cache,
            plain=pa.Table.to_pylist,
            event=entry_read,
            params=READS,
            lives=lambda name, at_ms: entry_read(at_ms, topic=topic(name)),
            before=Sample((), policies=[document("broker", "*", managedLedgerCacheSizeMB=7)]),
            after=Sample((), policies=[document("broker", "*", managedLedgerCacheSizeMB=3)]),
            shared=everywhere("broker", "*", managedLedgerCacheSizeMB=0),
            compared=_closed,
            **_BROKER,
        ),
        Job(
            "client_quotas",
            client_quota_trace.blob,
            _judge("client_quotas", reference_client_quotas, **client_quota_trace.VERDICTS),
            reference_client_quotas.TABLES,
            ("cluster", "broker"),
            _of_own(reference_client_quotas, reference_client_quotas.key_of),
            traces={
                "any": client_quota_traces.traces(),
                "long": client_quota_traces.traces(most=200, least=100),
            },
            known=known.client_quotas,
            plain=pa.Table.to_pylist,
            event=client_request,
            params=client_quota_trace.VERDICTS,
            lives=lambda name, at_ms: client_request(at_ms, client_id=name, principal=name),
            before=Sample((), policies=[document("user", "<default>", producer_byte_rate=7)]),
            after=Sample((), policies=[document("user", "<default>", producer_byte_rate=3)]),
            shared=everywhere("user", "u", producer_byte_rate=2),
        ),
    )
}
