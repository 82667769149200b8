"""The state of one shard of `producer_ids` as arrays, and the rows that the kernel emits.

Positions in these arrays are the identities inside a shard; they are renumbered when state is
written. What differs in length from user to user (filters, samples) lies in flat arrays as blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from state.engine.kernel import NULL, Array, Int, Record, codes, compiled
from state.engine.tables import NOBODY, Code, Indexed, Key, Ms, StateRow

__all__ = ["NOBODY", "NULL", "Array", "Int", "Record", "compiled"]

MODES = ("A", "B", "C", "L")
MODE_A, MODE_B, MODE_C, MODE_L = codes(4)
WITHIN, OVER, REJECTED_OVER, RECOUNTED, AFTER_GAP, ASSIGNED = codes(6)
NOT_A_BATCH, SEEN, UNSEEN = codes(3)
"""Outcomes of a record."""

LISTED_MOST = np.int64(8)
"""A filter of at most this many ids is stored as a list of them, if that is shorter."""
CLASSES = 64
BITS_CLASS = np.int64(63)
"""Class of the blocks that hold the bits of one filter; class c below it: 2**c words."""

_i8, _u1, _f8 = "<i8", "|u1", "<f8"


def _layout(*fields: tuple[Any, ...]) -> np.dtype:
    return np.dtype(list(fields), align=True)


SETTINGS = _layout(
    ("mode", _i8),
    ("refresh", _i8),
    ("exact", _i8),
    ("bits", _i8),
    ("hashes", _i8),
    ("bits_words", _i8),
    ("listed_most", _i8),
    ("most_items", _i8),
    ("enforcement", _i8),
    ("insert_rejected", _i8),
    ("math", _i8),
    ("unit", _i8),
    ("stat", _i8),
    ("wraps", _i8),
    ("unlimited", _f8),
    ("window_ms", _i8),
    ("idle_ms", _i8),
    ("words", _i8),
    ("samples", _i8),
    ("free_filter", _i8),
    ("next_serial", _i8),
    ("decisions", _i8),
    ("owners", _i8),
    ("stats", _i8),
    ("row_key", _i8),
    ("row_ms", _i8),
    ("decision_no", _i8),
    ("owner_no", _i8),
)
"""One element: the parameters, how much of each array is in use, and the rows of this call."""

KEY = _layout(
    ("cluster", _i8),
    ("broker", _i8),
    ("user", _i8),
    ("has_clock", _i8),
    ("open", _i8),
    ("began_live", _i8),
    ("clock_ms", _i8),
    ("latest_ms", _i8),
    ("plan_ms", _i8),
    ("last_ms", _i8),
    ("last_ns", _i8),
    ("feed", _i8),
    ("window_ms", _i8),
    ("new_ids", _i8),
    ("seen", _i8),
    ("rejected", _i8),
    ("throttled", _i8),
    ("throttle_ms", _i8),
    ("tokens", _f8),
    ("refilled_ms", _i8),
    ("recorded_ms", _i8),
    ("used", _i8),
    ("current", _i8),
    ("span_ms", _i8),
    ("expiration_ms", _i8),
    ("lost_ms", _i8),
)
"""A user on a broker, with its clock. `window_ms`: start of the open statistics window; from
`new_ids` to `throttle_ms` what it counts. From `tokens` to `current` its quota sensor
(`recorded_ms` NULL: as new), whose samples are `used` elements from `sample_at` on. `span_ms` and
`expiration_ms`: the W and the expiration in force when it was last looked at; ids counted at
`lost_ms` or before are forgotten."""

LINK = _layout(
    ("place", _i8),
    ("turn", _i8),
    ("sample_at", _i8),
    ("sample_room", _i8),
    ("first", _i8),
    ("last", _i8),
    ("live", _i8),
    ("serial", _i8),
    ("blind_ms", _i8),
)
"""Data of a key while a batch is judged: its broker (`place`) and next turn, the block of its
samples, its oldest and newest filter, and the serial of its memory of counted ids. The turn before
the next one has the settings in force. Before `blind_ms` an unseen id may have come in a gap (NULL:
there was none).
"""

FILTER = _layout(
    ("key", _i8),
    ("created_ms", _i8),
    ("items", _i8),
    ("set", _i8),
    ("dense", _i8),
    ("at", _i8),
    ("room", _i8),
    ("next", _i8),
    ("previous", _i8),
    ("serial", _i8),
)
"""A live filter: how many ids went in, how many bits they set. `dense`: its bits are at word `at`;
else its ids are (bloom), or it is a set of ids by its `serial` (exact)."""
DERIVED_FILTER = ("at", "room", "next", "previous", "serial")


class KnownId(StateRow):
    """An id in a filter, or one that was counted for a user at `at_ms`."""

    owner: Key[Code]
    """The serial of the filter or of the user."""
    pid: Key[Code]
    at_ms: Ms


TURN = _layout(
    ("rank", _i8),
    ("at_ms", _i8),
    ("start", _u1),
    ("fresh", _u1),
    ("samples", _i8),
    ("span_ms", _i8),
    ("layers", _i8),
    ("expiration_ms", _i8),
)
"""A change for every key of a broker: it starts anew or was out of sight (`start`: see
`state.engine.wall_policies`), or has other settings. `rank`:
place among all shared records; `fresh`: it came with this call."""


class World(NamedTuple):
    """All arrays of a shard; `settings` has one element."""

    settings: Array
    keys: Array
    links: Array
    own: Array
    """(keys, 3): groups of documents that set a user's own bound, -1 without."""
    filters: Array
    words: Array
    free: Array
    """(2, CLASSES): the first free block of each class of words and of samples, -1 without."""
    sample_start: Array
    sample_last: Array
    sample_total: Array
    ids: Indexed
    counted: Indexed
    turns: Array
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


class Feed(NamedTuple):
    """Records of keys to be judged, in order; NULL and -1 mean null."""

    key: Array
    kind: Array
    at_ms: Array
    mono_ns: Array
    feed: Array
    pid: Array
    rank: Array
    """How many shared records come before each."""
