"""Whole traces through the reference: keys apart, records in order, policies at their time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.reference.broker import Broker, Row
from tests.reference.order import Record, in_order
from tests.reference.two_clocks import play


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
        timed = in_order([r for r in mine if r["ts_mono_ns"] is not None])
        play(b, timed, [*everywhere, *[r for r in mine if r["ts_mono_ns"] is None]], until_ms)
        if until_ns is not None:
            b.advance(until_ns, None)
        for table, found in b.rows.items():
            rows.setdefault(table, []).extend(found)
    return rows
