"""The state of one broker as arrays of records, and the rows that the kernel emits.

Positions in these arrays are the identities inside a key: `cnxs[3]` is one connection for as long
as its key lives in memory. They are renumbered when state is written.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from state.engine.clocks import CLOCK
from state.engine.kernel import NULL as NEVER
from state.engine.kernel import Array, Int, Record, codes, compiled, inlined
from state.engine.structs import layout
from state.engine.tables import (
    NOBODY,
    Children,
    Code,
    Count,
    Field,
    Indexed,
    Key,
    Ms,
    Name,
    Place,
    Rows,
    StateRow,
)

__all__ = ["NEVER", "NOBODY", "Array", "Int", "Record", "compiled", "inlined"]

NULL = NEVER
"""A bucket that was never read, and the null of 64-bit columns that cannot have it as a value."""
UNSEEN = np.int64(-2)
"""Place of a connection that a record names and that was never opened."""
BROKER_LIMITER = np.int64(0)
"""Place of the broker's own limiter."""


# ThrottleType of Pulsar 4.2.4 in its order, and what an observed pause has without a known limit
CONNECTION, IO_THREAD, TOPIC, RESOURCE_GROUP, BROKER, UNKNOWN, OUTBOUND_BUFFER, COOLDOWN = codes(8)
TYPES = 8
CAUSES = 6
"""Types up to UNKNOWN: those that a mark of Weir can have."""
FLAGS = (CONNECTION, IO_THREAD, UNKNOWN)
"""Types whose marks stand in no FIFO."""
REASON_NUMBERS = (2, 3, 0, 1, 4, -1, -1, -1)
"""Numbers of PIP-385; -1 = the proposal has none."""

STATE_CHANGED, TYPE_CHANGED, DROPPED = codes(3)
MARK, UNMARK, RECEIPT, PAUSE = codes(4)
(
    BUCKET_EMPTY,
    RELEASED,
    LIMIT_REMOVED,
    IN_FLIGHT_LIMIT,
    IN_FLIGHT_HALF,
    BUFFER_LIMIT,
    BUFFER_HALF,
    CONNECTION_CLOSED,
    RECEIPT_IN_TIME,
    RECEIPT_TIMEOUT,
    INFORMED_ONLY,
    SEND_TIMEOUT,
    CLIENT_UNSUPPORTED,
    LOST_SIGHT,
    MARK_OBSERVED,
    OBSERVED_PAUSE,
    OBSERVED_RESUME,
    NOT_OBSERVED,
) = codes(18)

# What PIP-385 makes of a mark
NO_EXCHANGE, NOT_SUPPORTED, RECEIVED, TIMED_OUT, NOT_WAITED, WAITING_FOR = codes(6)

# Values of the version parameters, by position
TRACKERS = ("per_type", "shared_counter")
RELEASE_CONDITIONS = ("target", "positive")
LIMIT_CHANGES = ("immediate", "scheduled")
PROTOCOLS = ("none", "pip385")
RECEIPT_MODELS = ("none", "supported", "observed", "all")
MODEL_NONE, MODEL_SUPPORTED, MODEL_OBSERVED, MODEL_ALL = codes(4)
BROKER_REASONS = ("inform", "wait")
PAUSE_RULES = ("pip", "model")
REPEAT_THROTTLES = ("replace", "max")
TIMEOUT_RULES = ("active", "seen")
OBSERVED_PAUSES = ("correct", "ignore")
THROTTLED_EXCEPTION, TIMEOUT_EXCEPTION = np.int64(1), np.int64(2)

# One width for all integers: another type of an argument is another copy of the function.
BUCKET = layout(
    "rate",
    "capacity",
    "target",
    "tokens",
    "last_ns",
    "remainder_ns",
    "pending",
    "tick",
)
"""Rate 0 = no bucket. Buckets 2*i and 2*i + 1 are the message and byte bucket of limiter i."""

ByCause = Annotated[Any, Field(f"({CAUSES},)<i8")]
"""Of each type up to UNKNOWN."""
ByType = Annotated[Any, Field(f"({TYPES},)<i8")]


class LimiterState(StateRow):
    """A topic, resource-group or broker limiter."""

    kind: Key[Code]
    name: Key[Name]
    limit_msgs: Count
    limit_bytes: Count
    waiting: Count
    """How many places its FIFO has."""
    tasks: Count
    """Release tasks that are scheduled."""
    built: Count
    throttled_before: Count
    used_ns: Count = NEVER
    charged: Count
    """Whether it was charged in the open window, of which are all counts below."""
    messages: Count
    bytes: Count
    has_least: Count
    """Bit 0: the least balance of messages, bit 1: that of bytes."""
    least_msgs: Count
    least_bytes: Count
    throttles: Count
    most_waiting: Count
    observed_pauses: Count
    predicted_pauses: Count
    stamp: Count = NOBODY
    """The last pause that has a row of the limiter."""


class TopicState(StateRow):
    """A topic, with its counts of the open window."""

    name: Key[Name]
    exempt: Count
    """Whether no publish rate holds for it."""
    limiter: Place = NOBODY
    group: Place = NOBODY
    """The limiter of its resource group."""
    used_ns: Count = NEVER
    touched: Count
    messages: Count
    bytes: Count
    limited: ByCause
    """Pauses by the type that began them, of which the next three are parts."""
    culprit_times: Count
    shared_times: Count
    collateral_times: Count
    culprit_ns: Count
    shared_ns: Count
    collateral_ns: Count
    by_reason: ByCause


class ConnectionState(StateRow):
    """A connection, open or closed."""

    name: Key[Name]
    open: Count
    opened: Count
    """When, as a number that orders all that happens."""
    supports_throttle: Count
    thread: Place = NOBODY
    first_link: Place = NOBODY
    states: ByType
    """What the tracker has of each type."""
    in_flight: Count
    resume_at: Count
    buffered: Count
    """Bytes in flight."""
    paused: Count
    paused_at_ns: Count
    seen_paused_ns: Count = NEVER
    seen_resumed_ns: Count = NEVER
    mark_producer: ByCause = NOBODY
    """Of the mark that has set a flag (a type that does not count), as the next two."""
    mark_topic: ByCause = NOBODY
    mark_thread: Place = NOBODY
    snapshot: Place = NOBODY
    queued: Count
    blocking: ByCause
    """Active marks that hold its reads."""
    requests: Count
    """Commands sent."""
    flag_request: ByCause = NULL
    """Of a flag: its exchange, number and time."""
    flag_receipt: ByCause
    flag_mark: ByCause = NULL
    flag_ns: ByCause
    observed: Count
    """Whether the feed reports its pauses."""
    stopped: Count
    """Whether it has reported one that lasts."""
    look: Count = NULL
    """The timer that looks for marks without a pause, NULL without one."""
    publishes: Count
    most_in_flight: Count
    """Of the open window, as the next three."""
    throttles: Count
    observed_pauses: Count
    predicted_pauses: Count


class ProducerState(StateRow):
    """A producer, open or closed; from `heard_ms` on the client's side, with the arrival of the last
    command and the throttle in force."""

    cnx: Key[Place]
    topic: Key[Place]
    producer_id: Key[Code]
    link: Place
    name: Name
    open: Count
    opened: Count
    queued: Count
    attached: Count
    """Whether it is in the list of its link, before `next`."""
    next: Place = NOBODY
    heard_ms: Ms = NEVER
    kept_start_ms: Ms
    kept_end_ms: Ms = NEVER
    kept_pause_ms: Ms
    kept_request: Code
    kept_type: Code = NOBODY
    kept_timed: Count


class LinkState(StateRow):
    """A topic on a connection."""

    cnx: Key[Place]
    topic: Key[Place]
    attached: Count
    """Whether it is in the list of its connection, before `next`."""
    next: Place = NOBODY
    first_producer: Place = NOBODY
    producers: Count
    culprit: Count
    """Whether the topic is a culprit of the pause."""
    held: Count
    """Marks of its resource group that hold the reads."""
    since_ns: Count
    """Since when its pause counts."""
    throttled_ms: ByCause
    """The pauses announced to it."""
    charged_by: Place = NOBODY
    """The producer of its last publish since the connection's reads were resumed."""
    charged_no: Count
    """The number of that publish on the connection."""


class WaitingState(StateRow):
    """A producer in the FIFO of a limiter, with topic, type and exchange of its mark."""

    order: Key[Count]
    """The number of the mark."""
    producer: Place
    trigger: Place
    """The topic of the publish at which the limit acted."""
    limiter: Place
    type: Code
    request: Code = NULL
    receipt: Code = NO_EXCHANGE
    marked_ns: Count
    ended: Count
    """Whether a release task would have released it, but the feed reports the connection's pauses."""


class FlightState(StateRow):
    """A run of requests in flight of one connection for one topic."""

    number: Key[Count]
    topic: Place
    cnx: Place
    requests: Count


RELEASE_TASK, RECEIPT_WAIT, LOOK = codes(3)
TIMER = layout(
    "kind",
    "due_ns",
    "order",
    "limiter",
    "cnx",
    "place",
    "mark",
    "request",
)
"""A release task of a limiter; the end of the wait for the receipt of `request` on a connection:
for the mark of a place in a FIFO, or of a flag (`place_of_flag`); or a look at an observed
connection for marks without a pause."""


@register_jitable
def place_of_flag(kind: Int) -> Int:
    """What a timer has as place for the mark of a flag, which stands in no FIFO: below 0."""
    return -1 - kind


@register_jitable
def flag_at(place: Int) -> Int:
    """The flag (type) of such a place; also of an array of them."""
    return -1 - place


class ThreadState(StateRow):
    """An IO thread; from `most_pending` on counts of the open window."""

    name: Key[Code]
    pending: Count
    """Bytes in flight on its connections."""
    limited: Count
    most_pending: Count
    throttles: Count
    observed_pauses: Count
    predicted_pauses: Count


KEY = layout(
    "cluster",
    "broker",
    *CLOCK,
    "last_ns",
    "last_wall_ms",
    "last_feed",
    ("any", "|u1"),
    "window_start_ms",
    "window_ms",
    "idle_ns",
    "max_in_flight",
    "buffer_share",
    ("verdicts", "|u1"),
    "paused_cnxs",
    "touched",
    "timers",
    "timer_order",
    "flight_no",
    "row_ns",
    "row_no",
    "verdict_ns",
    "verdict_no",
    "rows",
    "verdict_rows",
    "snapshots",
    "snapshot_topics",
    "command_rows",
    "command_ns",
    "command_no",
    "tokenbucket",
    "positive",
    "shared",
    "scheduled",
    "protocol",
    "receipt_model",
    "broker_waits",
    "sends_model",
    "keeps_later",
    "seen_counts",
    "ignores_pauses",
    "observed_wait_ns",
    "receipt_wait_ns",
    "acted",
    "acted_ns",
    "stamp",
)
"""Scalars of one key. From `rows` to `command_rows`: what the current call has written. From
`tokenbucket` on: the version parameters, as indices in their lists of values. `acted`: after the
last record a timer has fired or a policy was applied, last at `acted_ns`. `stamp`: observed pauses
that were joined with marks.
"""


class World(NamedTuple):
    """The state of one broker's limiters."""

    key: Array
    buckets: Array
    limiters: Rows
    topics: Rows
    cnxs: Rows
    producers: Rows
    links: Rows
    waiting: Indexed
    fifos: Children
    """The places of each limiter, in their order."""
    marks: Children
    """The places of each connection, in the order of their marks."""
    flights: Indexed
    runs: Children
    """The requests in flight of each topic, the oldest first."""
    timers: Array
    threads: Rows
    touched: Array
    scratch: Array


class Out(NamedTuple):
    """Room for what one call emits; `World.key` counts what is used."""

    rows: Array
    verdicts: Array
    snapshots: Array
    snapshot_topics: Array
    commands: Array


class Instant(NamedTuple):
    """A moment of a broker with the feed that its rows are attributed to."""

    mono_ns: Int
    wall_ms: Int
    """NULL if it is not known."""
    feed: Int


class Amount(NamedTuple):
    """Messages and bytes: of a publish, or the balances of a limiter's two buckets."""

    messages: Int
    bytes: Int


class Mark(NamedTuple):
    """A mark of a connection, which throttles it for a limit."""

    cnx: Int
    producer: Int
    topic: Int
    """Of the producer."""
    kind: Int
    """Throttle type."""
    rule: Int
    """Why it is set or ends."""
    owner: Int
    """Place of the limiter, connection or IO thread whose limit it is."""
    trigger: Int
    """Topic of the publish at which the limit acted."""


class RateRecord(StateRow):
    """A record of a broker to be judged; the places are NOBODY without one."""

    ts_mono_ns: Count
    ts_wall_ms: Ms
    source_feed: Name
    event_type: Code
    cnx_id: Name
    cnx_place: Place
    """UNSEEN: a connection that was never opened."""
    topic: Name
    topic_place: Place
    producer_id: Code
    producer_place: Place
    """Its producer: the topic and the producer id on the connection."""
    producer_name: Name
    io_thread_place: Place
    supports_throttle: Count
    reports_pauses: Count
    num_messages: Count
    """One where it does not say."""
    entry_bytes: Count
    sequence_id: Code
    publish_time_ms: Ms
    request_id: Code
