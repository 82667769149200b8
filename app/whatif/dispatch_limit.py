"""The command `policy suggest dispatch`: replays the archived dispatches under a dispatch limit."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from app.errors import UserError
from app.terminal.rows import write_json, write_table
from app.warehouse.relations import Warehouse, connect
from state.rate_limits.dispatch import DISPATCH, PUBLISH, Quota, permits

if TYPE_CHECKING:
    from app.config.settings import Settings

Scope = Literal["topic", "subscription"]
NS_PER_MS = 1_000_000
SHOWN = 20
COLUMNS = [
    "cluster",
    "broker",
    "topic",
    "subscription",
    "dispatches",
    "messages",
    "bytes",
    "held",
    "held_messages",
    "held_share",
]
TRACE = """
SELECT DISTINCT cluster, broker, topic || CASE WHEN partition IS NOT NULL
         AND NOT regexp_matches(topic, '-partition-[0-9]+$')
         THEN '-partition-' || partition ELSE '' END AS topic,
       CASE WHEN event_type = 'dispatch' THEN coalesce(subscription, '') END AS subscription,
       event_type, ts_wall_ms, ts_mono_ns, seq, source_feed, ledger_id, entry_id, consumer,
       coalesce(num_messages, 1) AS messages, coalesce(entry_bytes, 0) AS bytes
FROM events
WHERE event_type IN ('dispatch', 'publish') AND ts_mono_ns IS NOT NULL
ORDER BY cluster, broker, topic, ts_wall_ms, ts_mono_ns, seq, ledger_id, entry_id
"""


def what_if(
    settings: Settings,
    quota: Quota,
    scope: Scope = "topic",
    every: bool = False,
    as_json: bool = False,
) -> int:
    """Print, per topic or subscription, how many dispatches would have waited under `quota`;
    returns 0.

    `held` counts dispatches that found no permit; in the trace they were sent. The most held come
    first; without `every` the table has the first twenty rows.
    """
    if quota.msgs <= 0 and quota.size <= 0:
        raise UserError("policy suggest dispatch: give a limit: --msgs N, --bytes N, or both")
    connection = connect(Warehouse.of(settings), TRACE)
    trace = connection.sql(TRACE).to_arrow_table()
    rows = sorted(_replay(trace, quota, scope), key=lambda r: (-r[7], r[:4]))
    if as_json:
        write_json(COLUMNS, rows, sys.stdout)
    else:
        write_table(COLUMNS, rows, sys.stdout, None if every else SHOWN, "--all shows every row")
    return 0


def _replay(trace: pa.Table, quota: Quota, scope: Scope) -> list[list[object]]:
    if not trace.num_rows:
        return []
    keys = [trace.column(name).combine_chunks().dictionary_encode() for name in COLUMNS[:3]]
    codes = np.stack([k.indices.to_numpy(zero_copy_only=False) for k in keys])
    cuts = np.flatnonzero((np.diff(codes, axis=1) != 0).any(axis=0)) + 1
    bounds = [0, *cuts.tolist(), trace.num_rows]
    found: list[list[object]] = []
    for begin, end in pairwise(bounds):
        part = trace.slice(begin, end - begin)
        name: list[object] = [part.column(c)[0].as_py() for c in COLUMNS[:3]]
        kind = np.where(
            np.array(part.column("event_type").to_pylist()) == "dispatch", DISPATCH, PUBLISH
        )
        mono, messages, size = (
            part.column(c).cast(pa.int64()).to_numpy() for c in ("ts_mono_ns", "messages", "bytes")
        )
        of = np.array([s if s is not None else "" for s in part.column("subscription").to_pylist()])
        places = [None] if scope == "topic" else sorted(set(of[kind == DISPATCH].tolist()))
        for place in places:
            mine = np.ones(len(kind), bool)
            if place is not None:
                mine = (kind == PUBLISH) | (of == place)
            sent = mine & (kind == DISPATCH)
            if not sent.any():
                continue
            held = permits(kind[mine], mono[mine], messages[mine], size[mine], quota).held
            found.append(
                [
                    *name,
                    place,
                    int(sent.sum()),
                    int(messages[sent].sum()),
                    int(size[sent].sum()),
                    int(held.sum()),
                    int(messages[sent][held].sum()),
                    round(float(held.mean()), 4),
                ]
            )
    return found
