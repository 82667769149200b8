"""State bytes as plain dictionaries by name, so that two states can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from state.engine.blobs import TEXTS
from state.engine.names import Names
from state.engine.records import FLAGS, NULL
from state.engine.tables import in_order, in_use
from state.rate_limits import shard
from state.rate_limits.broker import Broker
from state.rate_limits.shard import COLUMNS
from tests.reference.words import words
from tests.unit.state.shipping import params_of

_NOT_COMPARED = frozenset(
    {*words("flight_no timer_order rows verdict_rows snapshots snapshot_topics command_rows")}
)
"""Where things lie in the arrays, and counters that only order other things."""


def _plain(record: Any, fields: tuple[str, ...] | None = None) -> dict[str, Any]:
    names = fields or record.dtype.names
    return {f: record[f].tolist() if record[f].shape else record[f].item() for f in names}


def _ranks(values: list[int]) -> dict[int, int]:
    return {value: rank for rank, value in enumerate(sorted(set(values)))}


def canonical(data: bytes, config: tuple[str, ...] = ()) -> dict[str, Any]:
    """Everything that a later call could notice."""
    wait = params_of("rate_limits")["throttleProducerReceiptWaitTimeMillis"]
    s = shard.Brokers(config, wait, data=data)

    def text(name: int) -> str | None:
        return s.names.get(int(name)) if name >= 0 else None

    stars = {
        star.id: (
            text(star.cluster),
            star.policy.wall_ms,
            text(star.policy.text),
            star.seq,
            text(star.feed),
        )
        for star in s.stars
    }
    brokers = {
        (text(cluster), text(name)): {
            **_broker(b, s.names),
            "applied": sorted(map(str, (stars[i] for i in b.applied))),
        }
        for (cluster, name), b in s.brokers.items()
    }
    return {
        "brokers": dict(sorted(brokers.items())),
        "stars": sorted(map(str, stars.values())),
        "config": [text(n) for n in s._config],
        "waiting": _waiting(s),
    }


def _waiting(s: shard.Shard) -> list[str]:
    records = []
    columns = [*COLUMNS, "source_partition", *FLAGS]
    for i in range(len(s.waiting["cluster"])):
        record: dict[str, Any] = {}
        for column in columns:
            value = int(s.waiting[column][i])
            if column in TEXTS:
                record[column] = s.names.get(value) if value >= 0 else None
            else:
                record[column] = None if value == NULL else value
        records.append(str(sorted(record.items())))
    return sorted(records)


def _broker(b: Broker, names: Names) -> dict[str, Any]:
    w = b.world

    def text(name: Any) -> str | None:
        return names.get(int(name)) if name >= 0 else None

    def limiter(i: int) -> tuple[Any, ...]:
        return int(w.limiters["kind"][i]), text(w.limiters["name"][i]) or ""

    def topic(i: int) -> str | None:
        return text(w.topics["name"][i]) if i >= 0 else None

    def cnx(i: int) -> str | None:
        return text(w.cnxs["name"][i])

    def producer(i: int) -> tuple[Any, ...] | None:
        if i < 0:
            return None
        p = w.producers[i]
        return cnx(p["cnx"]), topic(p["topic"]), int(p["producer_id"])

    orders = _ranks(
        [
            *[int(w.timers[i]["order"]) for i in range(len(w.timers))],
            *in_use(w.waiting)["order"].tolist(),
            *w.cnxs["opened"].tolist(),
        ]
    )
    key = _plain(w.key[0], tuple(f for f in w.key.dtype.names if f not in _NOT_COMPARED))
    key |= {f: text(key[f]) for f in ("cluster", "broker", "last_feed")}
    limiters = {}
    for i, e in enumerate(w.limiters):
        queue = [
            (
                producer(place["producer"]),
                topic(place["trigger"]),
                limiter(int(place["limiter"])),
                orders[int(place["order"])],
                _plain(place, ("type", "request", "receipt", "marked_ns", "ended")),
            )
            for place in w.waiting.rows[in_order(w.fifos, np.array([i]))]
        ]
        limiters[limiter(i)] = {
            **_plain(
                e,
                words(
                    "limit_msgs limit_bytes built used_ns charged messages bytes has_least"
                    " least_msgs least_bytes throttles most_waiting observed_pauses"
                    " predicted_pauses tasks"
                ),
            ),
            "throttled_before": bool(e["throttled_before"]) and bool(e["built"] or e["waiting"]),
            "buckets": [_plain(x) for x in w.buckets[2 * i : 2 * i + 2]],
            "queue": queue,
        }
    topics = {}
    for t, e in enumerate(w.topics):
        flights = []
        for run in w.flights.rows[in_order(w.runs, np.array([t]))]:
            flights += [cnx(run["cnx"])] * int(run["requests"])
        fields = [f for f in e.dtype.names if f not in ("name", "limiter", "group")]
        topics[topic(t)] = {**_plain(e, tuple(fields)), "flights": flights}
    cnxs = {}
    for c, e in enumerate(w.cnxs):
        fields = [
            f
            for f in e.dtype.names
            if f
            not in words(
                "name first_link snapshot thread mark_producer mark_topic mark_thread opened"
                " flag_mark look"
            )
        ]
        cnxs[cnx(c)] = {
            **_plain(e, tuple(fields)),
            "opened": orders[int(e["opened"])],
            "thread": int(w.threads["name"][e["thread"]]) if e["thread"] >= 0 else None,
            "mark_producer": [producer(p) for p in e["mark_producer"]],
            "mark_topic": [topic(t) for t in e["mark_topic"]],
            "mark_thread": int(w.threads["name"][e["mark_thread"]])
            if e["mark_thread"] >= 0
            else None,
        }
        if not e["paused"]:
            del cnxs[cnx(c)]["paused_at_ns"]
    links = {}
    for e in w.links:
        paused = bool(w.cnxs["paused"][e["cnx"]])
        links[cnx(e["cnx"]), topic(e["topic"])] = (
            int(e["producers"]),
            int(e["culprit"]) if paused else None,
            int(e["held"]),
            int(e["since_ns"]) if paused else None,
            e["throttled_ms"].tolist(),
            producer(int(e["charged_by"])),
            int(e["charged_no"]) if e["charged_by"] >= 0 else 0,
        )
    producers = {
        producer(i): (
            text(e["name"]),
            int(e["open"]),
            int(e["queued"]),
            _plain(e, ("heard_ms", "kept_end_ms")) if e["open"] else None,
        )
        for i, e in enumerate(w.producers)
    }
    timers = sorted(
        (
            int(t["due_ns"]),
            orders[int(t["order"])],
            limiter(int(t["limiter"])) if t["limiter"] >= 0 else (cnx(t["cnx"]), int(t["request"])),
        )
        for t in w.timers[: int(w.key[0]["timers"])]
    )
    documents = {source: (p.limits, p.wall_ms) for source, p in sorted(b.documents.items())}
    threads = {int(t["name"]): (int(t["pending"]), int(t["limited"])) for t in w.threads}
    found = {
        "key": key,
        "limiters": limiters,
        "topics": topics,
        "cnxs": cnxs,
        "links": links,
        "producers": producers,
        "documents": documents,
    }
    found = {
        part: dict(sorted(content.items(), key=lambda x: str(x[0]))) if part != "key" else content
        for part, content in found.items()
    }
    return {**found, "timers": timers, "threads": dict(sorted(threads.items()))}


def differences(a: Any, b: Any, at: str = "") -> list[str]:
    """Where two canonical states differ, as paths with both values."""
    if isinstance(a, dict) and isinstance(b, dict):
        found = []
        for key in sorted({*a, *b}, key=str):
            if key not in a or key not in b:
                found.append(f"{at}/{key}: only {'second' if key not in a else 'first'}")
            else:
                found += differences(a[key], b[key], f"{at}/{key}")
        return found
    return [] if a == b else [f"{at}: {a} / {b}"]
