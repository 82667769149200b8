"""Records of a trace, who its incidents are about, and a plain token bucket over them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.generator.scenario import IncidentSpec
from benchmarks.generator.trace import ArrivalSlice, Trace


def parsed_lines(slices: Iterable[ArrivalSlice], having: bytes = b"") -> list[dict[str, Any]]:
    """The records that were not planted as malformed and have a text, in order of arrival."""
    return [
        json.loads(line)
        for part in slices
        for line, malformed in zip(part.lines(), part.malformed.tolist(), strict=True)
        if not malformed and having in line
    ]


def applied_records(arrived: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records in order of time, each once."""
    once = {(r["source_feed"], r["broker"], r["seq"]): r for r in arrived}
    return sorted(once.values(), key=lambda r: (r["ts_wall_ms"], r.get("ts_mono_ns", -1), r["seq"]))


def normal_name(topic: str, partition: int | None) -> str:
    """The name of a topic as outputs give it."""
    name = topic if "://" in topic else f"persistent://{topic}"
    ending = "" if partition is None else f"-partition-{partition}"
    return name if name.endswith(ending) else name + ending


def incidents(trace: Trace, *names: str) -> list[IncidentSpec]:
    """Incidents of the fleet by name."""
    return [spec for spec in trace.scenario.incidents if spec.name in names]


def topic_of(trace: Trace, spec: IncidentSpec) -> str:
    """The topic of an incident, as outputs name it."""
    return trace.fleet.topics.names[trace.fleet.topic_on(spec.broker, spec.topic)]


def connections_of(trace: Trace, spec: IncidentSpec) -> list[str]:
    """The connections that publish to the topic of an incident."""
    fleet = trace.fleet
    own = fleet.producers.topic == fleet.topic_on(spec.broker, spec.topic)
    return [fleet.connections.names[c][0] for c in fleet.producers.connection[own]]


def crowded_connection(trace: Trace) -> str:
    """The connection that reaches its limit of requests in flight."""
    (spec,) = incidents(trace, "connection-limit")
    return trace.fleet.connections.names[trace.fleet.connection_on(spec.broker, spec.connection)][0]


class Bucket:
    """Tokens that come back at a rate (per s), up to one second's worth."""

    def __init__(self, rate: float) -> None:
        self.rate, self.tokens = rate, rate
        self.last: float | None = None

    def dry(self, at_s: float, cost: int) -> bool:
        """Takes `cost` tokens; whether none is left."""
        if self.last is not None:
            self.tokens = min(self.rate, self.tokens + (at_s - self.last) * self.rate)
        self.last = at_s
        self.tokens -= cost
        return self.tokens <= 0


def dry_times(
    trace: Trace, records: Iterable[dict[str, Any]]
) -> dict[tuple[str, str], list[float]]:
    """By limiter and name: the times (s since the start) at which its bucket ran dry."""
    policies = {(p["scope"], p["name"]): p["limits"] for p in trace.policies}
    spaces = dict(zip(trace.fleet.topics.names, trace.fleet.topics.namespaces, strict=True))
    buckets: dict[tuple[Any, ...], Bucket] = {}
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    start = trace.scenario.start_ms

    def charge(
        kind: str,
        name: str,
        key: Any,
        limits: dict[str, Any],
        record: dict[str, Any],
        messages: str,
        size: str,
        at: float,
    ) -> None:
        for column, limit, cost in (
            ("m", limits.get(messages, 0), record["num_messages"]),
            ("b", limits.get(size, 0), record["entry_bytes"]),
        ):
            if limit > 0:
                bucket = buckets.setdefault((kind, key, column), Bucket(limit))
                if bucket.rate != limit:
                    bucket = buckets[kind, key, column] = Bucket(limit)
                if bucket.dry(at, cost):
                    found[kind, name].append(at)

    for r in records:
        if r["event_type"] == "policy":
            document = json.loads(r["policy_json"])
            if document["scope"] in ("topic", "namespace"):
                policies[document["scope"], document["name"]] = document["limits"]
            continue
        if r["event_type"] != "publish":
            continue
        at = (r["ts_wall_ms"] - start) / 1000
        name = normal_name(r["topic"], r.get("partition"))
        space = policies["namespace", spaces[name]] if name in spaces else {}
        bare = name.removeprefix("persistent://").split("-partition-")[0]
        own = policies.get(("topic", bare)) or space
        rates = ("publishRateInMsgs", "publishRateInBytes")
        charge("topic", name, name, own, r, *rates, at)
        group = space.get("resource_group")
        if group:
            charge(
                "resource_group",
                group,
                (group, r["broker"]),
                policies["resource_group", group],
                r,
                *rates,
                at,
            )
        limits = policies.get(("broker", r["broker"]), {})
        charge(
            "broker",
            r["broker"],
            r["broker"],
            limits,
            r,
            "brokerPublisherThrottlingMaxMessageRate",
            "brokerPublisherThrottlingMaxByteRate",
            at,
        )
    return dict(found)


def most_in_flight(records: Iterable[dict[str, Any]]) -> dict[str, int]:
    """By connection: the most publish requests that were under way at one time."""
    now: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    for r in records:
        if r["event_type"] == "publish":
            now[r["cnx_id"]] += 1
            most[r["cnx_id"]] = max(most[r["cnx_id"]], now[r["cnx_id"]])
        elif r["event_type"] == "entry_added" and "cnx_id" in r:
            now[r["cnx_id"]] -= 1
    return dict(most)
