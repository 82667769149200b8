"""Whole traces through the reference: keys apart, records in order, policies at their time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.reference.broker import Broker, Row
from tests.reference.order import Record, in_order


def judge(
    records: Sequence[Record],
    params: Mapping[str, Any],
    configured: Sequence[str] = (),
    until_ms: int | None = None,
    until_ns: int | None = None,
) -> dict[str, list[Row]]:
    """Rows by table after all records, with every key moved on to a wall time of the stream, or
    to a monotonic time where there is no other."""
    rows: dict[str, list[Row]] = {}
    keys = sorted({(r["cluster"], r["broker"]) for r in records if r["broker"] != "*"})
    for cluster, broker in keys:
        mine = [r for r in records if r["cluster"] == cluster and r["broker"] == broker]
        everywhere = [r for r in records if r["cluster"] == cluster and r["broker"] == "*"]
        b = Broker(cluster, broker, params)
        for text in configured:
            b.policies.put(json.loads(text), None)
        _play(b, mine, everywhere, until_ms)
        if until_ns is not None:
            b.advance(until_ns, None)
        for table, found in b.rows.items():
            rows.setdefault(table, []).extend(found)
    return rows


def _play(
    b: Broker, records: Sequence[Record], everywhere: Sequence[Record], until_ms: int | None
) -> None:
    timed = [r for r in records if r["ts_mono_ns"] is not None]
    floating = sorted(
        [*everywhere, *[r for r in records if r["ts_mono_ns"] is None]],
        key=lambda r: r["ts_wall_ms"],
    )
    for record in in_order(timed):
        wall = record["ts_wall_ms"]
        while floating and wall is not None and floating[0]["ts_wall_ms"] <= wall:
            _apply(b, floating.pop(0), record)
        b.take(record)
    if until_ms is None or b.last is None:
        return
    end = b.ns_at(until_ms)
    for policy in floating:
        if b.ns_at(policy["ts_wall_ms"]) < end:
            _apply(b, policy, None)
    b.advance(end, None)


def _apply(b: Broker, policy: Record, following: Record | None) -> None:
    """A policy that has only a wall time; after the first record it has one on both clocks."""
    wall = policy["ts_wall_ms"]
    ns = None
    if b.last is not None:
        ns = b.ns_at(wall)
        if following is not None and following["event_type"] == "broker_started":
            # its time belongs to another run
            following = {**following, "ts_mono_ns": ns}
        elif following is not None:
            # behind a record without a wall time it stands at the first that is not before it
            known = b.last["ts_wall_ms"] is not None
            ns = min(ns, following["ts_mono_ns"]) if known else following["ts_mono_ns"]
        ns = max(ns, b.last["ts_mono_ns"])
        b.advance(ns, following)
    b.apply(json.loads(policy["policy_json"]), ns, wall)
