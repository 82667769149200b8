"""The state of one shard of `backlog` as arrays, and the rows that the kernel emits.

Positions in these arrays are the identities inside a shard; they are renumbered when state is
written. What differs in length from topic to topic lies in pools: rows of integers, of which each
topic or cursor has one block (`span`), sorted by the first two columns.
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

__all__ = ["NOBODY", "NULL", "Array", "Int", "Record", "Rows", "compiled"]

LARGEST = np.int64(2**63 - 1)
MOST_RANGES = np.int64(10_000)
"""Most acknowledged ranges of a cursor."""
SAMPLE_MS = np.int64(1000)
SAMPLES_PER_SECOND = np.int64(4)

CURSORS, SIZES = np.int64(1), np.int64(2)
SUBSCRIPTION_KIND, REPLICATOR, DEDUPLICATION, COMPACTION = codes(4)
"""What a cursor is for. Those of replicators and of deduplication are no subscriptions."""
HOLD, EXCEPTION, EVICTION = codes(3)
BY_TOPIC, BY_NAMESPACE, BY_BROKER, BY_SYSTEM = codes(4)
"""Which document set a limit; `system`: no quota holds for a system topic."""
SIZE, TIME = codes(2)
KNOWN, NO_BACKLOG, NO_DURABLE_CURSOR, NO_ESTIMATE = codes(4)
BROKER_TIME, PUBLISH_TIME, LEDGER_CLOSE, KEPT, NO_SOURCE, SEEN = codes(6)
"""`SEEN`, of samples alone: when a Kafka poll first had the record within the log."""
READ, FIRST_SEEN, NOTHING_UNREAD, OTHER_UNIT, UNKNOWN = codes(5)
GROUP_STATES = (
    "committed",
    "ahead",
    "gone",
    "offsets_expired",
    "known",
    "open_transaction",
    "pending_offsets",
)
STATE_FIELDS = ("committed", "ahead", "gone", "expired", "known", "open", "pending")
"""States of a group that the job finds out, the one that ends a state from outside, and the one that a
record states beside an offset; and the settings with their names."""
NO_ACTION, SNAPSHOT, DISCONNECT, EVICT_SIZE, EVICT_TIME = codes(5)
WITHIN, OVER_SIZE, OVER_TIME, MASKED, DEDUPLICATES = codes(5)
"""Why an eviction ended; `no_cursor` of the specification cannot be seen."""
REACHED, SAME_CURSOR, SKIP_ZERO, EXPIRED, JUMPED, NOT_CLOSED = codes(6)

SETTINGS = layout(
    "ledger_sum",
    "quota_only",
    "keep",
    "zero",
    "every_call",
    "apply",
    "all_rows",
    "most_checks",
    "checks",
    "evictions",
    "subscriptions",
    "refusals",
    "lags",
    "states",
    "lost",
    *STATE_FIELDS,
)
"""One element: the parameters, the used length of each array, the rows of this call. The last seven
are the names of GROUP_STATES.
"""


class BacklogTopic(Clocked):
    """A cluster and topic, with its clock."""

    cluster: Key[Name]
    topic: Key[Name]
    policy_topic: Name
    """The topic's name in policies, -1 for a topic that is never judged."""
    namespace: Name
    last_ms: Ms = NULL
    """Its last record, as the next three."""
    last_ns: Count = NULL
    broker: Name
    feed: Name
    was: Count
    """It had a backlog at the pass before."""
    has_state: Count
    deleted: Count
    behind: Count
    """Entries of the newest ledger that a later one came before."""
    version: Count
    cached: Count
    """The cached oldest message, as the next five."""
    cached_ledger: Count
    cached_entry: Count
    cached_ms: Ms
    cached_name: Name
    cached_version: Count
    seen_ledger: Count = NULL
    """The highest position that a record has shown (NULL: none)."""
    seen_entry: Count
    second: Count
    kept: Count
    """Samples that came in `second`."""
    woken_ms: Ms = NULL
    """When its page was read for a record (NULL: never)."""
    unseen: Code
    """State that a gap has left unknown until it is stated again, CURSORS and SIZES; the topic is not
    judged before."""
    system: Code
    """A topic of the broker's own, for which neither quotas nor a TTL hold."""
    kafka: Code
    """A partition of Kafka, as the next two."""
    log_start: Count = NULL
    """NULL: not known."""
    log_gone: Code


LINK = layout("place", "turn", "due_ms", "summed", "cursors", "producers", "unsorted")
"""Data of a key while a batch is judged: its broker, its next turn (the one before has the settings
in force), the next pass, whether sums of its ledgers are up to date, how many cursors and producers
it has, whether its cursors are in another order than that of their names (see `first_cursor`).
"""


class Cursor(StateRow):
    """A cursor of a topic and its mark-delete, or a group of a partition: one before the offset that
    it reads next. NULL: not known, or none."""

    key: Key[Place]
    name: Key[Name]
    kind: Code
    """What it is for, by its name."""
    durable: Count
    ledger: Count
    entry: Count
    first_ms: Ms = NULL
    """Time of the first entry after it, if a record has it."""
    first_source: Code
    beyond: Count
    """Acknowledged entries in ranges that are not kept."""
    floor_ledger: Count = NULL
    """Where an applied eviction has moved it."""
    floor_entry: Count
    was: Count
    """Whether it had a backlog, or lag, at the check before."""
    checks: Count
    """How many checks it has seen since it was last set back."""
    before_ledger: Count = NULL
    """The mark-delete at the last of them."""
    before_entry: Count
    back_ledger: Count = NULL
    """From where to where it was set back since the last check."""
    back_entry: Count
    back_to_ledger: Count
    back_to_entry: Count
    expired: Count = NULL
    """Messages that expired since the last check."""
    expired_before: Count
    """Up to the last check."""
    expired_total: Count = NULL
    """The broker's own count."""
    client: Name
    """The consumer that the partition is assigned to; of a cursor of Pulsar what its broker shows."""
    host: Name
    type: Name
    """Of a group, as its answer has it."""
    state: Name
    """Of a group: that of its last row."""
    stated: Name
    """The state that a record states. Such a group has no offset, and in place of `unread` and
    `unread_end` the epochs of the group and of its assignment."""
    ended: Code
    """Whether and how it has ended; see `groups.KNOWN`."""
    safe: Count = NULL
    """Offset below which nothing more can be lost."""
    unread: Count = NULL
    """Records after its offset, while the log ends at `unread_end`."""
    unread_end: Count = NULL
    left_unread: Count = NULL
    """Unread records of an offset that has expired since the last check."""
    answered_ms: Ms = NULL
    """Time of the last record about it."""
    waits: Code
    """Whether an open transaction holds it (see `groups.WAITS`; 0: the next three mean nothing)."""
    transaction: Name
    """The transaction's id."""
    producer: Count = NULL
    begun_ms: Ms = NULL
    told: Count
    """Whether the last row has them."""
    after: Count
    """Of one check, as what follows: entries and bytes after its mark-delete."""
    bytes: Count
    to_ledger: Count
    """Of an eviction: the mark-delete that it leads to."""
    to_entry: Count
    moves: Count
    factor: Real


DERIVED_CURSOR = ("after", "bytes", "to_ledger", "to_entry", "moves", "factor")


class TopicProducer(StateRow):
    """A producer that is connected to a topic."""

    key: Key[Place]
    connection: Key[Name]
    producer: Key[Count]


ID, ENTRIES, BYTES, CLOSE, REST_ENTRIES, REST_BYTES = codes(6)
"""Columns of a ledger; `CLOSE` is NULL where none is known; the last two, of all later ledgers,
are derived."""
LEDGER_COLUMNS = 6
ENTRY, MS, SOURCE = codes(4)[1:]
"""Columns of a sample (position, time, source): entries from it on have about this time."""
FIRST, LAST = codes(3)[1:]
"""Columns of a range of acknowledged entries, after the ledger."""
AT, USED, ROOM = codes(3)
"""Columns of a span: start, used length and length of a block."""
LEDGERS, SAMPLES, RANGES = codes(3)
"""Pools, as `World.tops` counts them; the first two have spans by key."""
KEY_POOLS = 2

TURN = layout(
    "rank",
    "at_ms",
    "start",
    "fresh",
    "enabled",
    "interval_ms",
    "limit_bytes",
    "limit_s",
    "policy",
    "precise",
    "ttl_s",
    "expiry_s",
)
"""A change for every key of a broker: it starts or was out of sight (`start`: see
`state.engine.wall_policies`), or has other settings. `rank`: place
among all shared records; `fresh`: it came with this call."""

QUOTA = layout(
    "limit_bytes",
    "limit_s",
    "size_policy",
    "time_policy",
    "size_by",
    "time_by",
    "ttl_s",
    "expiry_s",
)
"""One element: the quotas in force for a key, the TTL of its messages (0: none) and the interval at
which they expire; a limit below 0 is none."""

DOCUMENT = layout(
    "rank",
    "has_size",
    "limit_bytes",
    "size_policy",
    "has_time",
    "limit_s",
    "time_policy",
    "has_ttl",
    "ttl_s",
)
"""The quotas and TTL of a document of a topic or namespace; a policy of -1 is the broker's."""


class Timeline(NamedTuple):
    """Shared records of a shard: changes of brokers, and documents of topics and namespaces."""

    turns: Rows
    turn_start: Array
    """Start of the turns of each broker and, at the next one, their end; the first turn holds from
    the beginning.
    """
    own: Array
    """(keys, 4): groups of documents of a topic and of its namespace, -1 without."""
    groups: Array
    """Start of the documents of each group and, at the next one, their end."""
    documents: Rows
    shared_ms: Array
    """Times of all shared records, ascending."""


class Store(NamedTuple):
    """The topics of a shard; `settings` has one element."""

    settings: Rows
    keys: Rows
    links: Rows
    cursors: Indexed
    cursors_of: Children
    """The cursors of each key, in the order of their names from `cursors.first_cursor` on."""
    ledgers: Array
    samples: Array
    ranges: Array
    acked: Array
    """(ranges, 3): ledger, first and last entry of the ranges that the records of this call state."""
    spans: Array
    """(pools, keys, 3)."""
    range_spans: Array
    """(cursors, 3)."""
    tops: Array
    """Used length of each pool."""
    text: Array
    """Names as UTF-8, one after the other."""
    text_start: Array
    order: Array
    """Room for the cursors of one key."""


class World(NamedTuple):
    """All arrays of a shard. Arrays that most rules need are in `store`, because functions with
    fewer arrays compile faster. `quota` has one element.
    """

    store: Store
    producers: Indexed
    producers_of: Children
    """The producers of each key."""
    passes: Array
    """(keys, checks): times of the last checks of a key, the newest last."""
    seen_bytes: Array
    """(cursors, checks): backlog of a cursor at these checks; the last ones, if it is newer."""
    seen_consumed: Array
    """(cursors, checks): entries that had been consumed."""
    slopes: Array
    """Room for the pairs of checks of one cursor."""
    quota: Rows
    timeline: Timeline


class Out(NamedTuple):
    """Rows of this call, with room for more."""

    checks: Rows
    evictions: Rows
    subscriptions: Rows
    refusals: Rows
    lags: Rows
    states: Rows
    lost: Rows


class BacklogRecord(StateRow):
    """A record of a key to be judged; NULL and -1 mean null."""

    record: Place
    """Its place among those of this call."""
    key: Place
    place: Place
    """Its broker, as `turn_start` has them."""
    rank: Count
    """How many shared records precede it."""
    event_type: Code
    source_feed: Name
    broker: Name
    ts_mono_ns: Count
    ts_wall_ms: Ms
    ledger_id: Count
    entry_id: Count
    """Position of the entry, or the mark-delete of a `cursor_state` (ledger NULL: none)."""
    entry_bytes: Count
    publish_time_ms: Ms
    broker_time_ms: Ms
    ledger_entries: Count
    ledger_bytes: Count
    ledger_close_ms: Ms
    subscription: Name
    """The subscription or group."""
    kind: Code
    """What a cursor of that name is for."""
    durable: Code
    ack_cumulative: Code
    ranges_begin: Place
    ranges_end: Place
    """Its acknowledged ranges in `Store.acked`; -1: it states none."""
    expired_messages: Count
    remarks: Name
    cnx_id: Name
    producer_id: Count
    producer_name: Name
    """The transactional id of a `group_state`."""
    log_start: Count
    unread: Count
    group_state: Name
    group_type: Name
    group_epoch: Count
    assignment_epoch: Count
    client_id: Name
    client_host: Name


@compiled
def begin_row(row: Record, of: Record, number: Int) -> None:
    """A further row of a pass begins like one that it has: its key, times, broker and feed."""
    row.key, row.at_ms, row.mono_ns = of.key, of.at_ms, of.mono_ns
    row.broker, row.feed, row.row_no = of.broker, of.feed, number
