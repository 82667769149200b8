"""The state of one broker as arrays of records, and the rows that the kernel emits.

Positions in these arrays are the identities inside a key: `cnxs[3]` is one connection for as long
as its key lives in memory. They are renumbered when state is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from state.engine.kernel import NULL as NEVER
from state.engine.kernel import Array, Int, Record, codes, compiled

__all__ = ["NEVER", "Array", "Int", "Record", "compiled"]

NULL = NEVER
"""A bucket that was never read, and the null of 64-bit columns that cannot have it as a value."""
NOBODY = np.int64(-1)
"""Place of a missing entity."""
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

_i8, _u1 = "<i8", "|u1"


# One width for all integers: another type of an argument is another copy of the function.


def _layout(*fields: tuple[Any, ...]) -> np.dtype:
    return np.dtype(list(fields), align=True)


BUCKET = _layout(
    ("rate", _i8),
    ("capacity", _i8),
    ("target", _i8),
    ("tokens", _i8),
    ("last_ns", _i8),
    ("remainder_ns", _i8),
    ("pending", _i8),
    ("tick", _i8),
)
"""Rate 0 = no bucket. Buckets 2*i and 2*i + 1 are the message and byte bucket of limiter i."""

LIMITER = _layout(
    ("kind", _i8),
    ("name", _i8),
    ("limit_msgs", _i8),
    ("limit_bytes", _i8),
    ("waiting", _i8),
    ("head", _i8),
    ("tail", _i8),
    ("tasks", _i8),
    ("built", _u1),
    ("throttled_before", _u1),
    ("used_ns", _i8),
    ("charged", _u1),
    ("messages", _i8),
    ("bytes", _i8),
    ("has_least", _i8),
    ("least_msgs", _i8),
    ("least_bytes", _i8),
    ("throttles", _i8),
    ("most_waiting", _i8),
    ("observed_pauses", _i8),
    ("predicted_pauses", _i8),
    ("stamp", _i8),
)
"""A topic, resource-group or broker limiter with its FIFO of waiting producers; `tasks`: release
tasks that are scheduled. From `charged` on: counts of the open window. `has_least`: bit 0 message
balance, 1 byte balance. `stamp`: the last pause that has a row of the limiter.
"""

TOPIC_STATE = _layout(
    ("name", _i8),
    ("exempt", _u1),
    ("limiter", _i8),
    ("group", _i8),
    ("flight_head", _i8),
    ("flight_tail", _i8),
    ("used_ns", _i8),
    ("touched", _u1),
    ("messages", _i8),
    ("bytes", _i8),
    ("limited", _i8, (CAUSES,)),
    ("culprit_times", _i8),
    ("shared_times", _i8),
    ("collateral_times", _i8),
    ("culprit_ns", _i8),
    ("shared_ns", _i8),
    ("collateral_ns", _i8),
    ("by_reason", _i8, (CAUSES,)),
)
"""`exempt`: no publish rate holds for it. `limited`: pauses by the type that began them, of which
the three counts below are parts."""

CNX = _layout(
    ("name", _i8),
    ("open", _u1),
    ("supports_throttle", _u1),
    ("thread", _i8),
    ("first_link", _i8),
    ("states", _i8, (TYPES,)),
    ("in_flight", _i8),
    ("resume_at", _i8),
    ("buffered", _i8),
    ("paused", _u1),
    ("paused_at_ns", _i8),
    ("seen_paused_ns", _i8),
    ("seen_resumed_ns", _i8),
    ("mark_producer", _i8, (CAUSES,)),
    ("mark_topic", _i8, (CAUSES,)),
    ("mark_thread", _i8),
    ("snapshot", _i8),
    ("queued", _i8),
    ("opened", _i8),
    ("blocking", _i8, (CAUSES,)),
    ("requests", _i8),
    ("flag_request", _i8, (CAUSES,)),
    ("flag_receipt", _i8, (CAUSES,)),
    ("flag_mark", _i8, (CAUSES,)),
    ("flag_ns", _i8, (CAUSES,)),
    ("observed", _u1),
    ("stopped", _u1),
    ("look", _i8),
    ("publishes", _i8),
    ("first_mark", _i8),
    ("last_mark", _i8),
    ("most_in_flight", _i8),
    ("throttles", _i8),
    ("observed_pauses", _i8),
    ("predicted_pauses", _i8),
)
"""`blocking`: active marks that hold reads, by type. `mark_…`: producer, topic and IO thread of the
mark that set a flag (a type that does not count). `flag_…`: its exchange, order and time.
`requests`: commands sent. `observed`: the feed reports its pauses; `stopped`: it has reported one
that lasts. `look`: the timer that looks for marks without a pause, NULL without one. `first_mark`,
`last_mark`: its places in FIFOs. From `most_in_flight` on: counts of the open window.
"""

PRODUCER = _layout(
    ("cnx", _i8),
    ("topic", _i8),
    ("link", _i8),
    ("producer_id", _i8),
    ("name", _i8),
    ("open", _u1),
    ("queued", _i8),
    ("attached", _u1),
    ("next", _i8),
    ("opened", _i8),
    ("heard_ms", _i8),
    ("kept_start_ms", _i8),
    ("kept_end_ms", _i8),
    ("kept_pause_ms", _i8),
    ("kept_request", _i8),
    ("kept_type", _i8),
    ("kept_timed", _u1),
)
"""From `heard_ms` on: the client's side, with the arrival of the last command and the throttle in
force.
"""

LINK = _layout(
    ("cnx", _i8),
    ("topic", _i8),
    ("next", _i8),
    ("attached", _u1),
    ("first_producer", _i8),
    ("producers", _i8),
    ("culprit", _u1),
    ("held", _i8),
    ("since_ns", _i8),
    ("throttled_ms", _i8, (CAUSES,)),
    ("charged_by", _i8),
    ("charged_no", _i8),
)
"""A topic on a connection: how many producers it has there, whether it is a culprit of the pause,
how many marks of its resource group hold the reads (`held`), since when its pause counts, and the
pauses announced to it by type. `charged_by`: producer of its last publish since the connection's
reads were resumed, -1 without one; `charged_no`: that publish's number on the connection."""

WAITING = _layout(
    ("producer", _i8),
    ("trigger", _i8),
    ("limiter", _i8),
    ("next", _i8),
    ("order", _i8),
    ("type", _i8),
    ("request", _i8),
    ("receipt", _i8),
    ("before", _i8),
    ("after", _i8),
    ("marked_ns", _i8),
    ("ended", _u1),
)
"""One place in the FIFO of a limiter with topic, type and exchange of its mark, or in the free
list. `before`, `after`: the places of its connection, in the order of their marks. `ended`: a
release task would have released it, but the feed reports the connection's pauses."""

FLIGHT = _layout(("cnx", _i8), ("count", _i8), ("next", _i8))
"""A run of requests in flight of one connection for one topic, oldest first."""

RELEASE_TASK, RECEIPT_WAIT, LOOK = codes(3)
TIMER = _layout(
    ("kind", _i8),
    ("due_ns", _i8),
    ("order", _i8),
    ("limiter", _i8),
    ("cnx", _i8),
    ("place", _i8),
    ("mark", _i8),
    ("request", _i8),
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


THREAD = _layout(
    ("name", _i8),
    ("pending", _i8),
    ("limited", _u1),
    ("most_pending", _i8),
    ("throttles", _i8),
    ("observed_pauses", _i8),
    ("predicted_pauses", _i8),
)

KEY = _layout(
    ("cluster", _i8),
    ("broker", _i8),
    ("has_clock", _u1),
    ("clock_ns", _i8),
    ("clock_wall_ms", _i8),
    ("latest_ns", _i8),
    ("latest_wall_ms", _i8),
    ("plan_ms", _i8),
    ("apart_ms", _i8),
    ("other_ms", _i8),
    ("others", _u1),
    ("vouched", _u1),
    ("has_run", _u1),
    ("run_wall_ms", _i8),
    ("run_has_seq", _u1),
    ("run_seq", _i8),
    ("last_ns", _i8),
    ("last_wall_ms", _i8),
    ("last_feed", _i8),
    ("any", _u1),
    ("window_start_ms", _i8),
    ("window_ms", _i8),
    ("idle_ns", _i8),
    ("max_in_flight", _i8),
    ("buffer_share", _i8),
    ("verdicts", _u1),
    ("paused_cnxs", _i8),
    ("touched", _i8),
    ("timers", _i8),
    ("timer_order", _i8),
    ("free_waiting", _i8),
    ("waiting_used", _i8),
    ("waiting", _i8),
    ("free_flight", _i8),
    ("flight_used", _i8),
    ("row_ns", _i8),
    ("row_no", _i8),
    ("verdict_ns", _i8),
    ("verdict_no", _i8),
    ("rows", _i8),
    ("verdict_rows", _i8),
    ("snapshots", _i8),
    ("snapshot_topics", _i8),
    ("command_rows", _i8),
    ("command_ns", _i8),
    ("command_no", _i8),
    ("tokenbucket", _i8),
    ("positive", _i8),
    ("shared", _i8),
    ("scheduled", _i8),
    ("protocol", _i8),
    ("receipt_model", _i8),
    ("broker_waits", _i8),
    ("sends_model", _i8),
    ("keeps_later", _i8),
    ("seen_counts", _i8),
    ("ignores_pauses", _i8),
    ("observed_wait_ns", _i8),
    ("receipt_wait_ns", _i8),
    ("acted", _i8),
    ("acted_ns", _i8),
    ("stamp", _i8),
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
    limiters: Array
    topics: Array
    cnxs: Array
    producers: Array
    links: Array
    waiting: Array
    flights: Array
    timers: Array
    threads: Array
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


class Send(NamedTuple):
    """A send of a client, by what its record names."""

    cnx_name: Int
    topic_name: Int
    producer_id: Int
    sequence_id: Int
    publish_ms: Int


class Feed(NamedTuple):
    """Judged records of one key in order: times, kinds and positions in the world."""

    mono: Array
    wall: Array
    feed: Array
    kind: Array
    cnx: Array
    topic: Array
    producer: Array
    thread: Array
    supports: Array
    reports: Array
    producer_name: Array
    messages: Array
    size: Array
    producer_id: Array
    cnx_name: Array
    topic_name: Array
    sequence_id: Array
    publish_ms: Array
    request: Array
