"""Random small traces of one or more brokers, drawn so that every rule is met often."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.reference.words import words
from tests.unit.state.drawn_trace import Trace
from tests.unit.state.trace import START_MS, START_NS

MS = 1_000_000
STEPS_NS = (
    0,
    0,
    0,
    1,
    1000,
    MS,
    5 * MS,
    10 * MS,
    16 * MS,
    16 * MS + 1,
    50 * MS,
    100 * MS + 1,
    300 * MS,
    900 * MS,
    1_700 * MS,
    5_000 * MS,
)
TOPICS = words(
    "persistent://t/ns/a persistent://t/ns/b-partition-0 persistent://t/ns/b-partition-1"
    " persistent://t/other/c persistent://t/ns/__change_events"
)
CNXS = ("c1", "c2", "c3")
THREADS = {"c1": 0, "c2": 0, "c3": None}
GROUPS = ("g", "g2")
RATES = ((-1, -1), (0, 0), (2, 0), (7, -1), (0, 64), (20, 200), (100, 10_240), (1, 3))
KINDS = (
    *("publish",) * 20,
    *("publish_digest",) * 4,
    *("entry_added",) * 6,
    "connection_opened",
    "connection_closed",
    "producer_created",
    "producer_created",
    "producer_closed",
    *("policy",) * 3,
    *("reads_paused",) * 3,
    *("reads_resumed",) * 3,
    "broker_started",
    "gap",
)
EXCHANGE = (*KINDS, *("throttle_receipt",) * 6, *("send_timeout",) * 2)
SWITCHES = {
    "tokenbucket": ("saturating", "saturating", "wrapping", "per_tick"),
    "release_condition": ("target", "positive"),
    "throttle_tracker": ("per_type", "shared_counter"),
    "limit_change": ("immediate", "scheduled"),
    "protocol": ("pip385", "pip385", "none"),
    "receipt_model": ("observed", "observed", "supported", "all", "none"),
    "broker_reason": ("inform", "wait"),
    "pause_rule": ("pip", "model"),
    "repeat_throttle": ("replace", "max"),
    "timeout_rule": ("active", "seen"),
    "observed_pauses": ("correct", "ignore"),
}
"""Values of the version parameters, those that lead furthest more often."""


def document(scope: str, name: str, **limits: Any) -> str:
    """A policy document, as a configuration has it."""
    return json.dumps({"scope": scope, "name": name, "limits": limits})


def of_a_broker(scope: str, name: str, **limits: Any) -> str:
    """A policy document as it comes in `policy_json`: with a limit that nobody here knows."""
    return document(scope, name, aKeyOfTheNextRelease=1, **limits)


def _rates(pick: int) -> dict[str, int]:
    msgs, size = RATES[pick % len(RATES)]
    return {"publishRateInMsgs": msgs, "publishRateInBytes": size}


def _document(scope: int, pick: int, broker: str) -> str:
    rates = _rates(pick)
    if scope <= 2:
        name = ("t/ns/a", "persistent://t/ns/b", "persistent://t/ns/a", "t/other/c")[pick % 4]
        return of_a_broker("topic", name, **_rates(pick // 4))
    if scope <= 4:
        group = {} if pick % 3 == 0 else {"resource_group": GROUPS[pick // 3 % 2]}
        limits = {**group, **(_rates(pick // 2) if pick % 2 else {})}
        return of_a_broker("namespace", ("t/ns", "t/other")[pick % 2], **limits)
    if scope <= 6:
        return of_a_broker("resource_group", GROUPS[pick // 8 % 2], **rates)
    limits = {}
    if pick & 1:
        limits["brokerPublisherThrottlingMaxMessageRate"] = rates["publishRateInMsgs"]
        limits["brokerPublisherThrottlingMaxByteRate"] = rates["publishRateInBytes"]
    if pick & 2:
        limits["maxPublishRatePerTopicInMessages"] = rates["publishRateInMsgs"]
    if pick & 4:
        limits["maxPublishRatePerTopicInBytes"] = rates["publishRateInBytes"]
    if pick & 8:
        limits["maxPendingPublishRequestsPerConnection"] = (3, 4, 0, -1, 1)[pick % 5]
    if pick & 16:
        limits["maxMessagePublishBufferSizeInMB"] = (1, 1, 0, 2)[pick % 4]
        limits["numIOThreads"] = (1024 * 16, 1024 * 8)[pick % 2]
    if pick & 32:
        limits["throttleProducerReceiptWaitTimeMillis"] = (0, 10, 16, 50)[pick % 4]
    return of_a_broker("broker", (broker, "*")[pick % 3 == 0], **limits)


def _ops(kinds: tuple[str, ...]) -> st.SearchStrategy[tuple[str, int, int, int, int]]:
    return st.tuples(
        st.sampled_from(kinds),
        st.sampled_from(STEPS_NS),
        st.integers(0, 5),
        st.integers(0, 63),
        st.integers(0, 9),
    )


OPS = _ops(KINDS)
EXCHANGE_OPS = _ops(EXCHANGE)


def _record(
    kind: str, ns: int, seq: int, broker: str, a: int, b: int, c: int, walled: bool
) -> dict[str, Any]:
    cnx = CNXS[min(a % 4, 2) if a % 4 < 3 else 0]
    topic = TOPICS[4 if b % 16 == 15 else (0, 0, 1, 0, 3, 0, 2, 1)[b % 8]]
    producer = 1 + b // 8 % 2
    name = f"p{producer}" if b % 5 else None
    r: dict[str, Any] = {
        "event_type": kind,
        "source_feed": "contract",
        "cluster": "c",
        "broker": broker,
        "seq": seq,
        "ts_mono_ns": START_NS + ns,
        "ts_wall_ms": START_MS + ns // MS if walled else None,
    }
    if kind in ("publish", "publish_digest"):
        messages = (1, 1, 1, 2, 5, None, 0, 1, 3, 30)[c]
        size = (1, 10, 20, 50, 7, 0, 1, 100, 64, 3000)[c]
        if kind == "publish_digest":
            messages, r["publishes"] = 7 * (messages or 0), 7
        r |= {
            "cnx_id": cnx,
            "topic": topic,
            "producer_id": producer,
            "producer_name": name,
            "num_messages": messages,
            "entry_bytes": size,
        }
    elif kind == "entry_added":
        r |= {
            "cnx_id": cnx if c % 2 else None,
            "topic": topic,
            "ledger_id": 1,
            "entry_id": seq,
            "entry_bytes": (1, 10, 20, 50, 7, 0, 1, 100, 64, 3000)[c],
        }
    elif kind in ("producer_created", "producer_closed"):
        r |= {"cnx_id": cnx, "topic": topic, "producer_id": producer, "producer_name": name}
    elif kind == "connection_opened":
        r |= {
            "cnx_id": cnx,
            "io_thread": THREADS[cnx],
            "supports_throttle": c % 4 != 3,
            "reports_pauses": (None, True, False)[b % 3],
        }
    elif kind == "throttle_receipt":
        r |= {"cnx_id": cnx, "request_id": 1 + b % 4}
    elif kind == "send_timeout":
        sent = START_MS + ns // MS - (None, 0, 5, 100, 1000)[c // 2] if c > 1 else None
        r |= {
            "cnx_id": cnx if c % 2 else None,
            "topic": topic,
            "producer_id": producer,
            "sequence_id": b,
            "publish_time_ms": sent,
        }
    elif kind == "policy":
        r["policy_json"] = _document(c, b, broker)
        if a % 3 == 0 and walled:
            r["ts_mono_ns"] = None
        elif a % 3 == 1 and walled:
            r["broker"], r["ts_mono_ns"] = "*", None
    elif kind == "gap":
        began = (None, 0, MS, 300 * MS, 5_000 * MS)[c % 5]
        r["gap_from_mono_ns"] = None if began is None else START_NS + ns - began
    elif kind != "broker_started":
        r["cnx_id"] = cnx
    return r


@st.composite
def _configured(draw: st.DrawFn) -> list[str]:
    """Documents under which a few publishes are enough to be throttled, by every limiter."""
    of_topic, of_namespace, of_group, of_broker = (draw(st.integers(2, 7)) for _ in range(4))
    flags = draw(st.integers(0, 15))
    found = []
    if flags & 1 or flags == 0:
        found.append(document("topic", "t/ns/a", **_rates(of_topic)))
    if flags & 2:
        rates = _rates(of_namespace) if flags & 1 else {}
        found.append(document("namespace", "t/ns", resource_group=GROUPS[0], **rates))
        found.append(document("resource_group", GROUPS[0], **_rates(of_group)))
        if flags & 8:
            found.append(document("namespace", "t/other", resource_group=GROUPS[1]))
            found.append(document("resource_group", GROUPS[1], **_rates(of_namespace)))
    limits = {}
    if flags & 4:
        limits["maxPendingPublishRequestsPerConnection"] = draw(st.sampled_from((1, 3, 4)))
        limits |= {"maxMessagePublishBufferSizeInMB": 1, "numIOThreads": 1024 * 16}
    if flags & 8:
        limits["brokerPublisherThrottlingMaxMessageRate"] = RATES[of_broker][0]
        limits["maxPublishRatePerTopicInBytes"] = RATES[of_group][1]
    return [*found, document("broker", "*", **limits)]


@st.composite
def traces(
    draw: st.DrawFn,
    brokers: tuple[str, ...] = ("b1",),
    most: int = 60,
    least: int = 20,
    starts: bool = True,
    walls: bool = True,
    switches: bool = False,
) -> Trace:
    """A trace with policies of all scopes, both kinds of limiters and several windows."""
    ops = draw(st.lists(EXCHANGE_OPS if switches else OPS, min_size=least, max_size=most))
    with_walls = walls or draw(st.booleans())
    configured = draw(_configured())
    params = {
        "idle_state_ms": draw(st.sampled_from((400, 3_000, 3_600_000))),
        "stats_window_ms": draw(st.sampled_from((1_000, 7_000))),
        "observed_wait_ms": draw(st.sampled_from((1_000, 100, 10, 0))),
    }
    if switches:
        params |= {name: draw(st.sampled_from(values)) for name, values in SWITCHES.items()}
    ns, records = 0, []
    runs = dict.fromkeys(brokers, (0, 0))
    if draw(st.integers(0, 3)):
        records += [
            _record("connection_opened", 0, -1 - i, broker, i, 0, 0, with_walls)
            for i in range(2)
            for broker in brokers
        ]
    for i, (kind, step, a, b, c) in enumerate(ops):
        ns += step
        broker = brokers[(a + b + c) % len(brokers)]
        if kind == "broker_started" and (not starts or not with_walls):
            continue
        if kind == "policy" and not with_walls:
            continue
        if kind == "broker_started":
            # a run of its own: apart on the wall clock, anywhere on the monotonic one
            ns += 2 * MS
            runs[broker] = ns, (0, 7 * MS, 10**12)[a % 3] - (5 * 10**15 if b % 2 else 0)
        r = _record(kind, ns, i, broker, a, b, c, with_walls)
        if kind == "policy" and r["ts_mono_ns"] is None:
            # two documents of one name at one wall time have no order of their own
            ns += MS
            r["ts_wall_ms"] = START_MS + ns // MS
        began, run_ns = runs[broker]
        if r["ts_mono_ns"] is not None and began:
            later = run_ns - began
            r["ts_mono_ns"] += later
            if r.get("gap_from_mono_ns") is not None:
                r["gap_from_mono_ns"] += later
        records.append(r)
        if kind == "broker_started":
            ns += 2 * MS
    last = START_MS + ns // MS
    return Trace(records, params, configured, last + 60_000)


__all__ = ["Trace", "traces"]
