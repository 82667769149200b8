"""Shared records of topics: gaps in the records of their broker. See `state.engine.wall_policies`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from state.chunks import layout as L
from state.chunks.sequence import SEQUENCE
from state.engine import wall_policies
from state.engine.broker_changes import places
from state.engine.names import Names
from state.engine.records import Array, Records
from state.engine.wall_policies import Document, Settings

MEANING = np.dtype([("what", "<i8"), ("name", "<i8"), ("fresh", "|u1")], align=True)


class Timeline(NamedTuple):
    """Gaps as the kernel takes them; see `layout.World`."""

    turns: Array
    turn_start: Array
    shared_ms: Array


NO_GAPS = Timeline(
    np.array([(-1, int(L.NULL), 0, 0)], L.Turn.dtype),
    np.array([0, 1], np.int64),
    np.zeros(0, np.int64),
)
"""Timeline of one broker without gaps for all keys."""


class Gaps(wall_policies.SharedRecords):
    """Gaps as this job reads them; it has no policies."""

    sequence = SEQUENCE
    meaning = MEANING
    broker = -1
    settings = ()
    unset = -1
    by_origin = False
    turn = L.Turn.dtype

    def parsed(self, text: str) -> Document | None:
        """No document is of use here."""
        return None

    def sets(self, meaning: Array) -> Array:
        """No document sets anything."""
        return np.zeros(len(meaning), bool)

    def in_force(self, settings: Settings) -> tuple[Any, ...]:
        """A turn has no settings."""
        return ()


GAPS = Gaps()


def timeline(
    shared: Records, meaning: Array, cluster: Array, broker: Array, names: Names
) -> tuple[Timeline, Array]:
    """The gaps of the brokers of keys and records, and which of these brokers each is of."""
    if not len(meaning):
        return NO_GAPS, np.zeros(len(cluster), np.int64)
    found, place = places(cluster, broker)
    turns, start = GAPS.turns(shared, meaning, found, names, ())
    return Timeline(turns, start, np.ascontiguousarray(shared["ts_wall_ms"])), place
