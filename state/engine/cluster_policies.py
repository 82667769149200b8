"""Policies for every broker of a cluster (stars): kept once for all keys of a shard."""

from __future__ import annotations

from typing import Any

import numpy as np

from state.engine.documents import ClusterPolicy, policy_of
from state.engine.kernel import Array
from state.engine.key import Closed, Key
from state.engine.mono_shard import EVERY_CLUSTER, Shard
from state.engine.records import HOME, Records
from state.engine.refused import Refused
from state.engine.sequence import POLICY
from state.events import DUPLICATE, EVERY_BROKER


def taken(s: Shard[Any], records: Records, read: Array, refused: Refused) -> Array:
    """Keep the stars among the records that are read; returns which records they are (bool)."""
    star: Array = read & (records["event_type"] == POLICY)
    if not star.any():
        return star
    star &= records["broker"] == s.names.intern_one(EVERY_BROKER)
    if not star.any():
        return star
    known = {(x.cluster, x.feed, x.seq, x.policy.wall_ms) for x in s.stars}
    at = np.flatnonzero(star)
    for i in at[np.lexsort((records["source_offset"][at], records["policy_json"][at]))]:
        wall = int(records["ts_wall_ms"][i])
        seq = int(records["seq"][i]) if records["has_seq"][i] else None
        feed, cluster = int(records["source_feed"][i]), int(records["cluster"][i])
        if seq is not None and (cluster, feed, seq, wall) in known:
            if records["home"][i] & HOME:
                refused.add(records, np.array([i]), DUPLICATE, [""])
            continue
        known.add((cluster, feed, seq, wall))
        found = policy_of(s.names, int(records["policy_json"][i]), wall)
        s.stars.append(ClusterPolicy(s.next_star, cluster, found, feed, seq))
        s.next_star += 1
    return star


def pending(s: Shard[Any], b: Key | Closed) -> list[ClusterPolicy]:
    """The stars that a key has not taken yet."""
    if not s.stars:
        return []
    cluster = int(b.key["cluster"])
    stars = [x for x in s.stars if x.cluster in (cluster, EVERY_CLUSTER) and x.id not in b.applied]
    return sorted(stars, key=lambda x: (x.policy.wall_ms, x.seq is not None, x.seq or 0))


def forget(s: Shard[Any], past_ms: int) -> None:
    """A replaced document may go once every key has it behind it and no new key can need it."""
    if not s.stars:
        return
    keep = []
    for star in s.stars:
        replaced = any(
            other.cluster == star.cluster
            and other.policy.source == star.policy.source
            and star.policy.wall_ms < other.policy.wall_ms <= past_ms
            for other in s.stars
        )
        if not replaced or any(
            star.id not in b.applied
            for (cluster, _), b in s.keys.items()
            if star.cluster in (cluster, EVERY_CLUSTER)
        ):
            keep.append(star)
    s.stars = keep
    ids = {star.id for star in keep}
    for b in s.keys.values():
        b.applied &= ids
