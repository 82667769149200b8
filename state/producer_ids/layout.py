"""The state of one shard of `producer_ids` as arrays, and the rows that the kernel emits.

Positions in these arrays are the identities inside a shard; they are renumbered when state is
written. What differs in length from user to user (filters, samples) lies in flat arrays as blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.engine.kernel import NULL, Array, Int, Record, codes, compiled
from state.engine.structs import layout
from state.engine.tables import (
    NOBODY,
    Children,
    Code,
    Count,
    Indexed,
    Key,
    Ms,
    Name,
    Place,
    Real,
    Rows,
    StateRow,
)
from state.engine.wall import Clocked

__all__ = ["NOBODY", "NULL", "Array", "Int", "Record", "compiled"]

MODES = ("A", "B", "C", "L")
MODE_A, MODE_B, MODE_C, MODE_L = codes(4)
WITHIN, OVER, REJECTED_OVER, RECOUNTED, AFTER_GAP, ASSIGNED = codes(6)

LISTED_MOST = np.int64(8)
"""A filter of at most this many ids is stored as a list of them, if that is shorter."""
CLASSES = 64
BITS_CLASS = np.int64(63)
"""Class of the blocks that hold the bits of one filter; class c below it: 2**c words."""

SETTINGS = layout(
    "mode",
    "refresh",
    "exact",
    "bits",
    "hashes",
    "bits_words",
    "listed_most",
    "most_items",
    "enforcement",
    "insert_rejected",
    "math",
    "unit",
    "stat",
    "wraps",
    ("unlimited", "<f8"),
    "window_ms",
    "idle_ms",
    "words",
    "samples",
    "next_serial",
    "decisions",
    "owners",
    "stats",
    "row_key",
    "row_ms",
    "decision_no",
    "owner_no",
)
"""One element: the parameters, how much of each array is in use, and the rows of this call."""


class User(Clocked):
    """A user on a broker, with its clock."""

    cluster: Key[Name]
    broker: Key[Name]
    user: Key[Name]
    open: Count
    """Whether it has an open statistics window, which begins at `window_ms`."""
    window_ms: Ms
    began_live: Count
    """Whether it had a live filter then."""
    new_ids: Count
    seen: Count
    rejected: Count
    throttled: Count
    throttle_ms: Ms
    last_ms: Ms = NULL
    """Its last record, as the next two."""
    last_ns: Count = NULL
    feed: Name
    tokens: Real
    """Of its quota sensor, as the next four."""
    refilled_ms: Ms
    recorded_ms: Ms = NULL
    """NULL: it is as new."""
    used: Count
    """How many samples it has, from `sample_at` of the user's link on."""
    current: Count
    span_ms: Ms
    """The W in force when it was last looked at."""
    expiration_ms: Ms
    lost_ms: Ms = NULL
    """Ids that were counted then or before are forgotten."""


LINK = layout(
    "place",
    "turn",
    "sample_at",
    "sample_room",
    "live",
    "serial",
    "blind_ms",
)
"""Data of a user while a batch is judged: its broker (`place`) and next turn, the block of its
samples, how many live filters it has, and the serial of its memory of counted ids. The turn before
the next one has the settings in force. Before `blind_ms` an unseen id may have come in a gap (NULL:
there was none).
"""


class IdFilter(StateRow):
    """A live filter of a user."""

    serial: Key[Code]
    key: Place
    created_ms: Ms
    items: Count
    """How many ids went in."""
    set: Count
    """How many bits they set."""
    dense: Count
    """Whether its bits are at word `at`; else its ids are, or, if exact, known ids have its serial."""
    at: Place
    room: Count


DERIVED_FILTER = ("serial", "at", "room")


class KnownId(StateRow):
    """An id in a filter, or one that was counted for a user at `at_ms`."""

    owner: Key[Code]
    """The serial of the filter or of the user."""
    pid: Key[Code]
    at_ms: Ms


TURN = layout(
    "rank",
    "at_ms",
    "start",
    "fresh",
    "samples",
    "span_ms",
    "layers",
    "expiration_ms",
)
"""A change for every key of a broker: it starts anew or was out of sight (`start`: see
`state.engine.wall_policies`), or has other settings. `rank`:
place among all shared records; `fresh`: it came with this call."""


class World(NamedTuple):
    """All arrays of a shard; `settings` has one element."""

    settings: Array
    keys: Rows
    links: Rows
    own: Array
    """(keys, 3): groups of documents that set a user's own bound, -1 without."""
    filters: Indexed
    live: Children
    """The live filters of each user, the oldest first."""
    words: Array
    free: Array
    """(2, CLASSES): the first free block of each class of words and of samples, -1 without."""
    sample_start: Array
    sample_last: Array
    sample_total: Array
    ids: Indexed
    counted: Indexed
    turns: Rows
    turn_start: Array
    """Where the turns of each broker begin and, at the next, end; the first holds from ever."""
    defaults: Array
    """(brokers, 3): groups of documents that set the default user's bound, -1 without."""
    groups: Array
    """Where the documents of each group begin and, at the next, end."""
    document_rank: Array
    """Places of documents among all shared records, ascending in each group."""
    document_bound: Array
    """Bounds that documents set; NaN removes one."""
    shared_ms: Array
    """Times of all shared records, ascending."""


class Out(NamedTuple):
    """Rows of this call; `stats` grows."""

    decisions: Array
    owners: Array
    stats: Array


class UserRecord(StateRow):
    """A record of a user to be judged."""

    record: Place
    """Its place among those of this call."""
    key: Place
    """Its user."""
    rank: Count
    """How many shared records come before it."""
    event_type: Code
    ts_wall_ms: Ms
    ts_mono_ns: Count
    source_feed: Name
    producer_id: Code
