"""Resting topics: stored apart as pages of bytes, which a batch passes on unread unless it needs
them.

A topic rests when no record has come for it for a time and no shared record is ahead of its clock.
Its page is read again when a record of one of its topics comes, when a pass of one is due, and when
policies, broker starts or parameters change. In between nothing can happen to it, so postponing a
page has no more effect than another cut of the trace into batches.
"""

from __future__ import annotations

import numpy as np

from state.backlog import shard as shards
from state.backlog.layout import NULL, Array
from state.backlog.shard import OWNED, Shard
from state.engine.codec import DENSE
from state.engine.owned import cut, join, key_hashes
from state.engine.reach import Reach
from state.engine.records import Records, length
from state.engine.resting import Rest

REST = Rest(10_000)
"""A topic is idle since its last record, or since its page was read for one."""


def wake(s: Shard, own: Records, reach: Reach, idle_advance_ms: int, everything: bool) -> None:
    """Read the topics that this batch may need."""
    resting = s.resting
    if not len(resting.pages):
        return
    called = np.zeros(len(resting.pages), bool)
    if everything:
        called[:] = True
    elif length(own):
        pairs = np.unique(np.stack([own["cluster"], own["topic"]]), axis=1)
        called[resting.pages_of(key_hashes(pairs, s.names))] = True
    due_ms, due_plan_ms = resting.about["due_ms"], resting.about["due_plan_ms"]
    due = (due_ms != NULL) & (due_ms <= reach.stream_ms)
    if reach.reached_ms:
        due |= (due_ms != NULL) & (due_plan_ms <= reach.reached_ms - idle_advance_ms)
    chosen = np.flatnonzero(called | due)
    if not len(chosen):
        return
    pages = [shards.read(resting.pages[i], s.parts["passes"].shape[1], s.names) for i in chosen]
    now = max(
        [
            reach.stream_ms,
            *(int(p.parts["keys"]["clock_ms"].max()) for p in (s, *pages) if len(p.parts["keys"])),
        ]
    )
    for page, i in zip(pages, chosen, strict=True):
        if called[i] and not everything:
            page.parts["keys"]["woken_ms"] = now
    s.parts = join([s.parts, *(page.parts for page in pages)], "keys", OWNED)
    s.resting = resting.without(chosen)


def rest(s: Shard, due_ms: Array, reach: Reach) -> Array:
    """Move resting topics out of a shard; returns the due times (one per topic, NULL: none) of the
    others.
    """
    keys = s.parts["keys"]
    if not len(keys):
        return due_ms
    has = keys["has_clock"] != 0
    now = max(reach.stream_ms, int(keys["clock_ms"][has].max(initial=NULL)))
    newest = int(s.shared["ts_wall_ms"].max(initial=NULL))
    active = np.maximum(keys["last_ms"], keys["woken_ms"])
    idle = has & (keys["clock_ms"] > newest) & (active < now - REST.after_ms)
    least = REST.least(len(keys))
    if np.count_nonzero(idle) < least:
        return due_ms
    idle &= ~_waits(keys, s.waiting)
    chosen = np.flatnonzero(idle)
    if len(chosen) < least:
        return due_ms
    pages = [chosen[i : i + REST.page] for i in range(0, len(chosen), REST.page)]
    own = np.where(keys["latest_ms"] == NULL, keys["plan_ms"], keys["latest_ms"])
    due_plan_ms = np.where(due_ms == NULL, NULL, due_ms - own + keys["plan_ms"])
    key = key_hashes((keys["cluster"][chosen], keys["topic"][chosen]), s.names)
    s.resting = s.resting.joined_by(
        key,
        np.arange(len(chosen)) // REST.page,
        {
            "due_ms": np.array([_first(due_ms[rows]) for rows in pages]),
            "due_plan_ms": np.array([_first(due_plan_ms[rows]) for rows in pages]),
        },
        [shards.write(_part(s, _mask(keys, rows)), DENSE) for rows in pages],
    )
    s.parts = _part(s, ~idle).parts
    return due_ms[~idle]


def _mask(keys: Array, rows: Array) -> Array:
    found = np.zeros(len(keys), bool)
    found[rows] = True
    return found


def _first(due_ms: Array) -> int:
    found = due_ms[due_ms != NULL]
    return int(found.min()) if len(found) else int(NULL)


def _waits(keys: Array, waiting: Records) -> Array:
    if not length(waiting):
        return np.zeros(len(keys), bool)
    shift = np.int64(1) << np.int64(32)
    return np.isin(
        keys["cluster"] * shift + keys["topic"], waiting["cluster"] * shift + waiting["topic"]
    )


def _part(s: Shard, chosen: Array) -> Shard:
    """Some topics of a shard (bool), in its order, and what belongs to them."""
    return Shard(s.names, cut(s, "keys", OWNED, chosen))
