"""The state of one shard of `chunks` as tables, and what the kernel reads and emits.

Positions in these tables are the identities inside a shard; they are renumbered when state is
written. A ledger of NULL is that of no position, and before every other one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from state.engine.kernel import NULL, Array, Int, Record, codes, compiled, inlined
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
    StateRow,
)
from state.engine.wall import Clocked

__all__ = ["NOBODY", "NULL", "Array", "Int", "Record", "compiled", "inlined"]

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


Rows = Any
"""Records, whose fields are attributes in a kernel."""


class ChunkSettings(StateRow):
    """The parameters."""

    auto_ack: Count
    expiry_ms: Ms
    lose: Count
    mode: Code
    orphan: Code
    window_ms: Ms
    idle_ms: Ms
    blind_ms: Ms
    max_payload: Count
    b1: Count
    b2: Count
    b3: Count
    b4: Count
    b7: Count
    b8: Count
    stalls: Count
    """Whether a chunk without a consumer stops a shared subscription."""
    wait_ms: Ms
    """Time after which it counts as stopped."""
    next_order: Count
    """Number of the next thing of which the order matters."""


class ChunkTopic(Clocked):
    """A cluster and topic with its clock; from `chunks` to `most` what the open window counts."""

    cluster: Key[Name]
    topic: Key[Name]
    last_ms: Ms = NULL
    """Of its last record; NULL: there was none."""
    last_ns: Count = NULL
    broker: Name
    source_feed: Name
    open: Count
    touched: Count
    window: Ms
    """Start of the open window."""
    due_ms: Ms = NULL
    """Earliest timer of its consumers; NULL: none."""
    chunks: Count
    bytes: Count
    firsts: Count
    producers: Count
    most: Count
    row_ms: Ms = NULL
    row_no: Count
    message_ms: Ms = NULL
    message_no: Count
    pieces: Count
    """Stored chunks."""
    behind: Count
    """Stalled messages at the end of the last window."""
    chunked: Count
    added_ledger: Count = NULL
    """The newest entry."""
    added_entry: Count


class TopicLink(StateRow):
    """Data of a topic while a batch is judged."""

    place: Place
    """Its broker, and the next gap of it."""
    turn: Place
    blind_ms: Ms
    """Before it a message may have begun in a gap; NULL: there was none."""
    late_ms: Ms
    """The clock at which a gap came that is behind it; NULL: none did."""
    next_ns: Count
    """The next record: its monotonic time (NULL: none) and its broker."""
    next_broker: Name


class Turn(StateRow):
    """A gap of a broker; see `state.engine.wall_policies`."""

    rank: Count
    at_ms: Ms
    start: Code
    fresh: Count


class Subscription(StateRow):
    """A subscription of a topic."""

    key: Key[Place]
    name: Key[Name]
    shared: Count
    typed: Count
    """Whether its type is known."""
    last_chunk_ms: Ms = NULL
    epoch: Count
    """How often its acknowledgements were forgotten."""
    cumulative_ledger: Count = NULL
    """Greatest cumulative acknowledgement of the epoch."""
    cumulative_entry: Count
    acks_seen: Count
    mark_ledger: Count = NULL
    """Mark-delete."""
    mark_entry: Count
    told_ledger: Count = NULL
    """Mark-delete as a cursor said it last."""
    told_entry: Count
    told_ms: Ms = NULL
    sent_ledger: Count = NULL
    """The last delivery."""
    sent_entry: Count
    sent_ms: Ms = NULL
    number: Code = NOBODY
    """Its bit in `sent` of a stored chunk."""
    counted: Count
    """Whether any consumer was seen to come or go, and how many are open."""
    consumers: Count
    stalled: Count
    """Whether it has stopped, and at which chunk."""
    stall_ledger: Count
    stall_entry: Count


class Consumer(StateRow):
    """A consumer of a subscription, the counter of its pending chunked messages, and its timers:
    expiry passes since `start_ms`, the last of them at `passed_ms`; vanishing if still closed an
    expiry after `closed_ms`."""

    sub: Key[Place]
    name: Key[Name]
    key: Place
    known: Count
    open: Count
    touched: Count
    opened_order: Count
    counter: Count
    contexts: Count
    entries: Count
    """Elements of its fifo."""
    buffered: Count
    lost: Count
    start_ms: Ms = NULL
    start_order: Count
    passed_ms: Ms = NULL
    closed_ms: Ms = NULL
    closed_order: Count
    used_ms: Ms = NULL


class Context(StateRow):
    """A chunked message that is being assembled."""

    consumer: Key[Place]
    uuid: Key[Name]
    hash: Count
    num_chunks: Count
    last: Count = -1
    """Its newest chunk; it has all up to this one."""
    first_ms: Ms
    last_ms: Ms
    total_chunk_bytes: Count
    buffered: Count
    unknown: Count
    """Whether the size of a chunk is not known."""
    crc: Count
    has_crc: Count = 1
    publish_time_ms: Ms
    sequence_id: Count
    producer_name: Name
    more_ledger: Count = NULL
    """A chunk that did not fit, of which the id is at the next place."""
    more_entry: Count
    marker_ledger: Count = NULL
    """The marker that brought its newest chunk."""
    marker_entry: Count


class BufferedChunk(StateRow):
    """A chunk of a context: position, and where its payload is: in this shard (`payload`), in a row
    of a staged file, or nowhere."""

    context: Key[Place]
    chunk_id: Key[Count]
    ledger_id: Count
    entry_id: Count
    size: Count
    payload: Place
    payload_file: Name
    payload_row: Count


class FifoEntry(StateRow):
    """A uuid in the fifo of a consumer, by its hash."""

    order: Key[Count]
    consumer: Place
    hash: Count


class Binding(StateRow):
    """The consumer that gets the chunks of a message on a shared subscription."""

    sub: Key[Place] = NOBODY
    uuid: Key[Name]
    consumer: Place
    used_ms: Ms


class HeldChunk(StateRow):
    """A chunk that the broker reads again whenever its marker is delivered: since `since_ms`, last
    read at `used_ms`, for the marker at the position."""

    sub: Key[Place]
    ledger_id: Key[Count]
    entry_id: Key[Count]
    key: Place
    since_ms: Ms
    used_ms: Ms
    uuid: Name
    hash: Count
    chunk_id: Count
    num_chunks: Count
    total_chunk_bytes: Count
    entry_bytes: Count
    payload_bytes: Count
    payload_crc32: Count
    payload: Place
    payload_file: Name
    payload_row: Count
    publish_time_ms: Ms
    sequence_id: Count
    producer_name: Name
    marker_ledger: Count = NULL
    marker_entry: Count


class StoredMessage(StateRow):
    """A large message of which chunks are stored that a shared subscription may still have to get,
    by the chunk that was stored first."""

    key: Key[Place]
    ledger_id: Key[Count]
    entry_id: Key[Count]
    uuid: Name
    num_chunks: Count
    total_chunk_bytes: Count
    sequence_id: Count
    producer_name: Name


class StoredUuid(StateRow):
    """The newest stored message of a uuid."""

    key: Key[Place]
    uuid: Key[Name]
    message: Place = NOBODY


class StoredChunk(StateRow):
    """A stored chunk, the entry before it, and the subscriptions that it was sent to (`sent`, a bit
    each)."""

    key: Key[Place]
    ledger_id: Key[Count]
    entry_id: Key[Count]
    message: Place
    chunk_id: Count
    num_chunks: Count
    ts_wall_ms: Ms
    size: Count
    before_ledger: Count = NULL
    before_entry: Count
    sent: Count


class Sender(StateRow):
    """A producer name of a topic and the window in which it last sent a chunk."""

    key: Key[Place]
    name: Key[Name]
    window: Ms = NULL


class AckedRange(StateRow):
    """Entries of a ledger that were acknowledged one by one, first and last included."""

    sub: Key[Place]
    epoch: Key[Count]
    ledger: Key[Count]
    first: Key[Count]
    last: Count


class ChunkRecord(StateRow):
    """A record to be judged, in order; or a timer, or a chunk as a marker brings it."""

    key: Place
    """Its topic."""
    place: Place
    """Its broker."""
    rank: Count
    """How many gaps come before it."""
    event_type: Code
    ts_wall_ms: Ms
    ts_mono_ns: Count
    broker: Name
    source_feed: Name
    sub: Place
    consumer: Place
    """The consumer of the record, then the one that gets the chunk."""
    shared: Code
    """1 = shared, 0 = another type, -1 = unknown."""
    uuid: Name
    hash: Count
    """Of its uuid."""
    pick: Count
    """With shared_mode=hash: a stable hash of the uuid, 0 to 2**32 - 1."""
    chunk_id: Count
    num_chunks: Count
    total_chunk_bytes: Count
    entry_bytes: Count
    payload_bytes: Count
    payload_crc32: Count
    payload: Place
    payload_file: Name
    payload_row: Count
    ledger_id: Count
    entry_id: Count
    publish_time_ms: Ms
    sequence_id: Count
    producer_name: Name
    sender: Place
    """Its producer, of a chunk that is stored."""
    ack_cumulative: Code
    mark_ledger: Count
    """Mark-delete of a cursor."""
    mark_entry: Count
    marker_ledger: Count
    """The marker that brings a chunk."""
    marker_entry: Count
    ids_begin: Place
    """Positions that a marker lists."""
    ids_end: Place


class World(NamedTuple):
    """All tables of a shard; `settings` has one element."""

    settings: Rows
    timer: Rows
    """One record: the timer that fires, or the chunk that a marker brings."""
    ids: Array
    """(ledger, entry) pairs that markers list."""
    keys: Rows
    links: Rows
    turns: Rows
    turn_start: Array
    """Where the turns of each broker begin and, at the next, end; the first holds from ever."""
    shared_ms: Array
    """Times of all gaps, ascending."""
    subs: Rows
    subs_of: Children
    """Of each topic, the newest first."""
    consumers: Rows
    consumers_of: Children
    """Of each topic, the newest first."""
    most_pending: Array
    """Chunked messages that each consumer assembles at once; 0 or less: any number."""
    producers: Rows
    contexts: Indexed
    contexts_of: Children
    """Of each consumer, in order of creation."""
    buffered: Indexed
    fifo: Indexed
    fifo_of: Children
    """Of each consumer, head first."""
    bindings: Indexed
    held: Indexed
    held_of: Children
    """Of each topic, the one that waits longest first."""
    stored: Indexed
    stored_of: Children
    """Of each topic, in the order in which they came."""
    newest: Indexed
    pieces: Indexed
    pieces_of: Children
    """Of each stored message, in the order in which they came."""
    acked: Rows
    """Ranges acknowledged before this call, sorted by sub, ledger and first entry."""
    acks: Indexed
    """Acknowledgements of this call, as ranges of one entry."""


class Lengths(StateRow):
    """Rows of each array of `Out`."""

    rows: Count
    positions: Count
    messages: Count
    parts: Count
    levels: Count
    missing: Count
    windows: Count
    gone: Count


class Out(NamedTuple):
    """Rows of this call, with room for more."""

    used: Rows
    """One element: how many there are."""
    need: Rows
    """One element: how many there may be after the step that was looked at last."""
    rows: Rows
    positions: Array
    """(ledger, entry) pairs, by `start` of rows."""
    messages: Rows
    parts: Rows
    """Chunks of completed messages, by `start` of messages."""
    levels: Rows
    missing: Rows
    windows: Rows
    gone: Array
    """(first, last) ids of missing chunks, by `gone_start` of missing."""


@inlined
def before(ledger: Int, entry: Int, other_ledger: Int, other_entry: Int) -> bool:
    """Whether one position is before another."""
    return bool(ledger < other_ledger or (ledger == other_ledger and entry < other_entry))
