"""The state of one shard of `chunks` as arrays of records, and the rows that the kernel emits.

Positions in these arrays are the identities inside a shard; they are renumbered when state is
written. Lists are linked by position, -1 ends them; a free element is linked by `next`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from state.engine.kernel import NULL, Array, Int, Record, codes, compiled

__all__ = ["NULL", "Array", "Int", "Record", "compiled"]

NOBODY = np.int64(-1)
FREE = np.int64(-2)
"""A place of a hash table whose element was removed."""

"""DECOMPRESS_FAILED of the specification cannot be seen: content stays compressed."""
(
    BUFFERED,
    COMPLETE,
    DUP_ACKED,
    DUP_SAME_ID,
    GAP,
    NO_FIRST_CHUNK,
    OVERFLOW_EXCEPTION,
    COUNT_EXCEPTION,
    GIVEN_UP_OVERFLOW,
    GIVEN_UP_COUNT,
    RESTART_REDELIVERY,
    RESTART_CORRUPTED,
    EVICTED,
    EXPIRED,
    ORPHANED,
    ALREADY_ACKED,
    SHARED_ORPHAN,
    LOST_TO_SIGHT,
    FIRST_UNSEEN,
) = codes(19)
DEFECTS = ("B1", "B2", "B3", "B4", "B7", "B8")
NO_DEFECT, B1, B2, B3, B4, B7, B8 = codes(7)

FIRST_DUPS = ("restart", "lose")
SHARED_MODES = ("pin", "hash", "marker")
PIN, HASH, MARKER = codes(3)
SHARED_ORPHANS = ("ack_skip", "stall", "dispatch")
ACK_SKIP, STALL, DISPATCH_ANY = codes(3)

_i8, _u1 = "<i8", "|u1"


def _layout(*fields: tuple[Any, ...]) -> np.dtype:
    return np.dtype(list(fields), align=True)


SETTINGS = _layout(
    ("auto_ack", _i8),
    ("expiry_ms", _i8),
    ("lose", _i8),
    ("mode", _i8),
    ("orphan", _i8),
    ("window_ms", _i8),
    ("idle_ms", _i8),
    ("blind_ms", _i8),
    ("max_payload", _i8),
    ("b1", _i8),
    ("b2", _i8),
    ("b3", _i8),
    ("b4", _i8),
    ("b7", _i8),
    ("b8", _i8),
    ("free_context", _i8),
    ("free_node", _i8),
    ("free_entry", _i8),
    ("free_binding", _i8),
    ("free_held", _i8),
    ("contexts", _i8),
    ("nodes", _i8),
    ("held", _i8),
    ("bindings", _i8),
    ("subs", _i8),
    ("consumers", _i8),
    ("producers", _i8),
    ("next_order", _i8),
    ("acks", _i8),
    ("rows", _i8),
    ("positions", _i8),
    ("messages", _i8),
    ("parts", _i8),
    ("levels", _i8),
    ("missing", _i8),
    ("windows", _i8),
    ("gone", _i8),
    ("free_stored", _i8),
    ("free_piece", _i8),
    ("stalls", _i8),
    ("wait_ms", _i8),
    ("listing", _i8),
    ("listing_gone", _i8),
)
"""One element: the parameters, the used length of each array, and the rows of this call. `stalls`:
a chunk without a consumer stops a shared subscription, which counts after `wait_ms`. `listing` is
the number of stalled messages that the next window may have."""

KEY = _layout(
    ("cluster", _i8),
    ("topic", _i8),
    ("has_clock", _u1),
    ("clock_ms", _i8),
    ("latest_ms", _i8),
    ("plan_ms", _i8),
    ("any", _u1),
    ("last_ms", _i8),
    ("last_ns", _i8),
    ("broker", _i8),
    ("feed", _i8),
    ("first_consumer", _i8),
    ("held", _i8),
    ("open", _u1),
    ("touched", _u1),
    ("window_ms", _i8),
    ("due_ms", _i8),
    ("chunks", _i8),
    ("bytes", _i8),
    ("firsts", _i8),
    ("producers", _i8),
    ("most", _i8),
    ("row_ms", _i8),
    ("row_no", _i8),
    ("message_ms", _i8),
    ("message_no", _i8),
    ("first_sub", _i8),
    ("first_stored", _i8),
    ("last_stored", _i8),
    ("stored", _i8),
    ("pieces", _i8),
    ("behind", _i8),
    ("chunked", _u1),
    ("added_ledger", _i8),
    ("added_entry", _i8),
)
"""A cluster and topic with its clock. `window_ms`: start of the open window; from `chunks` to
`most` what it counts. `due_ms`: earliest timer of its consumers, NULL = none. `behind`: stalled
messages at the end of the last window. The newest entry is at `added_ledger`, NULL = none."""

LINK = _layout(("place", _i8), ("turn", _i8), ("blind_ms", _i8), ("late_ms", _i8))
"""Data of a key while a batch is judged: its broker (`place`) and the next gap of it. Before
`blind_ms` a message may have begun in a gap (NULL: there was none). `late_ms`: the clock at which a
gap came that is behind it (NULL: none did).
"""

TURN = _layout(("rank", _i8), ("at_ms", _i8), ("start", _u1), ("fresh", _u1))
"""A gap of a broker; see `state.engine.wall_policies`."""

SUB = _layout(
    ("key", _i8),
    ("name", _i8),
    ("shared", _u1),
    ("stalled", _u1),
    ("has_cumulative", _u1),
    ("ledger", _i8),
    ("entry", _i8),
    ("last_chunk_ms", _i8),
    ("epoch", _i8),
    ("next", _i8),
    ("number", _i8),
    ("typed", _u1),
    ("counted", _u1),
    ("acks_seen", _u1),
    ("consumers", _i8),
    ("mark_ledger", _i8),
    ("mark_entry", _i8),
    ("told_ledger", _i8),
    ("told_entry", _i8),
    ("told_ms", _i8),
    ("sent_ledger", _i8),
    ("sent_entry", _i8),
    ("sent_ms", _i8),
    ("stall_ledger", _i8),
    ("stall_entry", _i8),
)
"""A subscription: greatest cumulative acknowledgement since its acknowledgements were forgotten
last (`epoch`); mark-delete (`mark_ledger`, NULL = unknown) and as a cursor said it last (`told`);
the last delivery; open consumers, if any was seen to come or go (`counted`); the chunk at which it
stopped (`stalled`). `number` is its bit in `sent` of a stored chunk."""

CONSUMER = _layout(
    ("sub", _i8),
    ("name", _i8),
    ("key", _i8),
    ("next", _i8),
    ("known", _u1),
    ("open", _u1),
    ("touched", _u1),
    ("opened_ms", _i8),
    ("opened_order", _i8),
    ("counter", _i8),
    ("contexts", _i8),
    ("first", _i8),
    ("last", _i8),
    ("head", _i8),
    ("tail", _i8),
    ("entries", _i8),
    ("buffered", _i8),
    ("lost", _i8),
    ("start_ms", _i8),
    ("start_order", _i8),
    ("passed_ms", _i8),
    ("closed_ms", _i8),
    ("closed_order", _i8),
    ("used_ms", _i8),
)
"""A consumer of a subscription: contexts in order of creation (`first`, `last`), `fifo` as a list
of entries (`head`, `tail`), the counter of pending chunked messages, and its timers: expiry passes
since `start_ms`, the last of them at `passed_ms`; vanishing if still closed an expiry after
`closed_ms`."""

CONTEXT = _layout(
    ("consumer", _i8),
    ("uuid", _i8),
    ("hash", _i8),
    ("next", _i8),
    ("previous", _i8),
    ("num_chunks", _i8),
    ("last", _i8),
    ("first_ms", _i8),
    ("last_ms", _i8),
    ("declared", _i8),
    ("bytes", _i8),
    ("unknown", _u1),
    ("crc", _i8),
    ("has_crc", _u1),
    ("publish_ms", _i8),
    ("sequence_id", _i8),
    ("producer", _i8),
    ("first", _i8),
    ("newest", _i8),
    ("nodes", _i8),
    ("more", _u1),
    ("more_ledger", _i8),
    ("more_entry", _i8),
    ("marker_ledger", _i8),
    ("marker_entry", _i8),
)
"""A chunked message that is being assembled; `more`: the id of a chunk that did not fit is at
the next place. The marker that brought its newest chunk belongs to it; NULL without."""

NODE = _layout(
    ("next", _i8),
    ("ledger", _i8),
    ("entry", _i8),
    ("size", _i8),
    ("payload", _i8),
    ("file", _i8),
    ("row", _i8),
)
"""A stored chunk: position, and where its payload is: in this shard (`payload`), in a row of a
staged file, or nowhere."""

ENTRY = _layout(("hash", _i8), ("next", _i8), ("previous", _i8))
"""A uuid in a consumer's fifo, by its hash."""

BINDING = _layout(
    ("next", _i8), ("sub", _i8), ("uuid", _i8), ("hash", _i8), ("consumer", _i8), ("used_ms", _i8)
)
HELD = _layout(
    ("next", _i8),
    ("key", _i8),
    ("sub", _i8),
    ("at_ms", _i8),
    ("order", _i8),
    ("uuid", _i8),
    ("hash", _i8),
    ("chunk_id", _i8),
    ("num_chunks", _i8),
    ("declared", _i8),
    ("size", _i8),
    ("crc", _i8),
    ("has_crc", _u1),
    ("payload", _i8),
    ("file", _i8),
    ("row", _i8),
    ("ledger", _i8),
    ("entry", _i8),
    ("publish_ms", _i8),
    ("sequence_id", _i8),
    ("producer", _i8),
    ("used_ms", _i8),
    ("marker_ledger", _i8),
    ("marker_entry", _i8),
)
"""A chunk that the broker reads again whenever its marker is delivered: since `at_ms`, last read at
`used_ms`, for the marker at the position (NULL: for none yet).
"""

STORED = _layout(
    ("key", _i8),
    ("next", _i8),
    ("previous", _i8),
    ("order", _i8),
    ("uuid", _i8),
    ("hash", _i8),
    ("num_chunks", _i8),
    ("declared", _i8),
    ("sequence_id", _i8),
    ("producer", _i8),
    ("first", _i8),
    ("newest", _i8),
    ("pieces", _i8),
)
"""A large message of which chunks are stored that a shared subscription may still have to get."""

PIECE = _layout(
    ("stored", _i8),
    ("next", _i8),
    ("order", _i8),
    ("ledger", _i8),
    ("entry", _i8),
    ("chunk_id", _i8),
    ("num_chunks", _i8),
    ("at_ms", _i8),
    ("size", _i8),
    ("before_ledger", _i8),
    ("before_entry", _i8),
    ("sent", _i8),
)
"""A stored chunk, the entry before it (NULL: unknown), and the subscriptions that it was sent to
(`sent`, a bit each)."""

CHUNK = _layout(
    ("key", _i8),
    ("sub", _i8),
    ("consumer", _i8),
    ("at_ms", _i8),
    ("mono_ns", _i8),
    ("broker", _i8),
    ("feed", _i8),
    ("uuid", _i8),
    ("hash", _i8),
    ("chunk_id", _i8),
    ("num_chunks", _i8),
    ("declared", _i8),
    ("size", _i8),
    ("crc", _i8),
    ("has_crc", _u1),
    ("payload", _i8),
    ("file", _i8),
    ("row", _i8),
    ("ledger", _i8),
    ("entry", _i8),
    ("publish_ms", _i8),
    ("sequence_id", _i8),
    ("producer", _i8),
    ("marker_ledger", _i8),
    ("marker_entry", _i8),
)
"""One element: the chunk, or the timer, that is being judged; with the marker that brings it."""

PRODUCER = _layout(("key", _i8), ("name", _i8), ("window_ms", _i8))
"""A producer name of a topic and the window in which it last sent a chunk."""

RANGE = _layout(("sub", _i8), ("epoch", _i8), ("ledger", _i8), ("first", _i8), ("last", _i8))
"""Entries of a ledger that were acknowledged one by one, first and last included."""


class World(NamedTuple):
    """All arrays of a shard; `settings` and `chunk` have one element each."""

    settings: Array
    chunk: Array
    keys: Array
    subs: Array
    consumers: Array
    contexts: Array
    nodes: Array
    entries: Array
    bindings: Array
    held: Array
    producers: Array
    stored: Array
    pieces: Array
    acked: Array
    """Ranges acknowledged before this call, sorted by sub, ledger and first entry."""
    acks: Array
    """Acknowledgements of this call, as ranges of one entry."""
    context_table: Array
    binding_table: Array
    held_table: Array
    stored_table: Array
    piece_table: Array
    ack_table: Array
    links: Array
    turns: Array
    turn_start: Array
    """Where the turns of each broker begin and, at the next, end; the first holds from ever."""
    shared_ms: Array
    """Times of all gaps, ascending."""
    most_pending: Array
    """Chunked messages that each consumer assembles at once; 0 or less: any number."""


class Out(NamedTuple):
    """Rows of this call, with room for more."""

    rows: Array
    positions: Array
    """(ledger, entry) pairs, by `start` of rows."""
    messages: Array
    parts: Array
    """Nodes of completed messages, by `start` of messages."""
    levels: Array
    missing: Array
    windows: Array
    gone: Array
    """(first, last) ids of missing chunks, by `gone_start` of missing."""


class Feed(NamedTuple):
    """Records to be judged, in order; NULL and -1 mean null."""

    key: Array
    kind: Array
    at_ms: Array
    mono_ns: Array
    broker: Array
    place: Array
    feed: Array
    rank: Array
    """How many gaps come before each."""
    sub: Array
    consumer: Array
    shared: Array
    """1 = shared, 0 = another type, -1 = unknown."""
    uuid: Array
    hash: Array
    chunk_id: Array
    num_chunks: Array
    declared: Array
    size: Array
    crc: Array
    has_crc: Array
    payload: Array
    file: Array
    row: Array
    ledger: Array
    entry: Array
    publish_ms: Array
    sequence_id: Array
    producer: Array
    entry_bytes: Array
    cumulative: Array
    mark_ledger: Array
    mark_entry: Array
    """Mark-delete of a cursor."""
    marker_start: Array
    """Where the positions of a marker begin and, at the next row, end."""
    marker_ledger: Array
    marker_entry: Array
    pick: Array
    """With shared_mode=hash: a stable hash of the uuid, 0 to 2**32 - 1."""
