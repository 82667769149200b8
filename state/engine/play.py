"""A batch of one key on the monotonic clock: records, documents and passing time, in turn.

A policy with a wall time alone holds from the key's monotonic time that belongs to it, which is
counted from the key's last record before it.

Worked example. Two records, in ms of the monotonic and the wall clock, and the key's clock at 200:

    record  monotonic  wall
    a       100        1000
    b       160        1060

    policy of   takes force
    1030        at 130, 30 after a: a, the policy, b
    1060        at 160, just before b, which is not before it
    1080        at 180, 20 after b
    1110        not yet: at 210 the key's clock is not there, so it waits
    990         at 100, just before a; in a later batch at 200, where the clock has been

If the wall time of a is not known, the policy of 1030 holds from 160 on, just before b.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from state.engine import cluster_policies
from state.engine.clocks import Moment
from state.engine.documents import ClusterPolicy, Policy, policy_of
from state.engine.kernel import NULL, Array
from state.engine.key import Key
from state.engine.mono_shard import EVERY_CLUSTER, Shard
from state.engine.order import BROKER_STARTED
from state.engine.records import Records, take
from state.engine.sequence import POLICY


class _Timed(NamedTuple):
    """A policy that holds from a wall time on: a star, or a waiting record of the key."""

    due_ms: int
    policy: Policy
    star: ClusterPolicy | None = None
    place: int | None = None
    """Of a record: its place in `floating`."""


def play(
    s: Shard[Any],
    b: Key,
    r: Records,
    picked: Array,
    clock: Moment,
    next_ns: int | None,
    next_wall: int,
    floating: Array,
) -> Array:
    """Judge records of a key and move it to its clock; returns the policies that wait for
    their time."""
    k, judged = b.key, len(picked)
    was_ns, was_wall = int(k["clock_ns"]), int(k["clock_wall_ms"])
    records = take(r, picked)
    wall = records["ts_wall_ms"]
    if judged and not k["any"]:
        b.before_first(int(wall[0]), cluster_policies.pending(s, b))
    policies = {
        int(i): policy_of(s.names, int(records["policy_json"][i]), int(wall[i]))
        for i in np.flatnonzero(records["event_type"] == POLICY)
    }
    feed = b.feed(records)
    timed = [
        _Timed(star.policy.wall_ms, star.policy, star=star)
        for star in cluster_policies.pending(s, b)
    ]
    for n, i in enumerate(floating):
        due = int(r["ts_wall_ms"][i])
        timed.append(_Timed(due, policy_of(s.names, int(r["policy_json"][i]), due), place=n))
    timed.sort(key=lambda one: (one.due_ms, one.policy.scope, one.policy.name))
    at = 0
    waiting = set(range(len(floating)))
    for due, policy, star, place in timed:
        done = False
        if not k["any"] and not judged:
            continue
        later = np.flatnonzero((wall[at:] != NULL) & (wall[at:] >= due))
        last_wall = int(k["last_wall_ms"]) if k["any"] else int(NULL)
        if k["any"] and at == 0 and last_wall != NULL and last_wall >= due:
            b.apply(policy, max(was_ns, int(k["last_ns"])), max(was_wall, last_wall))
            done = True
        elif len(later):
            stop = at + int(later[0])
            b.judge(feed, at, stop, records, policies)
            at = stop
            ns = int(records["ts_mono_ns"][stop])
            if k["any"] and records["event_type"][stop] != BROKER_STARTED:
                # Of a record without a wall time it is unknown how far before the policy it is.
                due_ns = ns if k["last_wall_ms"] == NULL else b.mono_at(due)
                ns = max(min(due_ns, ns), int(k["last_ns"]))
                b.advance(ns, int(records["ts_mono_ns"][stop]), int(wall[stop]))
            elif k["any"]:
                ns = max(b.mono_at(due), int(k["last_ns"]))
                b.advance(ns, None, int(wall[stop]))
            b.apply(policy, ns, due)
            done = True
        else:
            b.judge(feed, at, judged, records, policies)
            at = judged
            ns = b.mono_at(due)
            if next_ns is not None:
                ns = min(ns, next_ns)
            if k["last_wall_ms"] != NULL and ns < clock.ns:
                ns = max(ns, int(k["last_ns"]))
                b.advance(ns, next_ns, next_wall)
                b.apply(policy, ns, due)
                done = True
        if done and star is not None:
            b.applied.add(star.id)
            if star.cluster == EVERY_CLUSTER:
                b.reconfigured(policy.source)
        elif done and place is not None:
            waiting.discard(place)
    b.judge(feed, at, judged, records, policies)
    k["has_clock"], k["clock_ns"] = 1, clock.ns
    if k["any"]:
        # a clock just behind a broker start is no time of its run
        ns = max(clock.ns, int(k["last_ns"]))
        b.advance(ns, next_ns, next_wall)
        k["clock_wall_ms"] = max(int(k["clock_wall_ms"]), b.wall_at(ns, next_wall))
    return floating[sorted(waiting)]
