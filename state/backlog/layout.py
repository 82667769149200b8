"""The state of one shard of `backlog` as arrays, and the rows that the kernel emits.

Positions in these arrays are the identities inside a shard; they are renumbered when state is
written. What differs in length from topic to topic lies in pools: rows of integers, of which each
topic or cursor has one block (`span`), sorted by the first two columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.engine.kernel import NULL, Array, Int, Record, codes, compiled

__all__ = ["NULL", "Array", "Int", "Record", "compiled"]

NOBODY = np.int64(-1)
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
"""States of a group that the job finds out, the one that ends a state from outside, and the one that a
record states beside an offset."""
NO_ACTION, SNAPSHOT, DISCONNECT, EVICT_SIZE, EVICT_TIME = codes(5)
WITHIN, OVER_SIZE, OVER_TIME, MASKED, DEDUPLICATES = codes(5)
"""Why an eviction ended; `no_cursor` of the specification cannot be seen."""
REACHED, SAME_CURSOR, SKIP_ZERO, EXPIRED, JUMPED, NOT_CLOSED = codes(6)

_i8, _f8 = "<i8", "<f8"


def _layout(*fields: str) -> np.dtype:
    """A structure of 8-byte fields: doubles are marked by a star."""
    kinds = [(f.rstrip("*"), _f8 if f.endswith("*") else _i8) for f in fields]
    return np.dtype(kinds, align=True)


SETTINGS = _layout(
    "ledger_sum",
    "quota_only",
    "keep",
    "zero",
    "every_call",
    "apply",
    "all_rows",
    "most_checks",
    "cursors",
    "checks",
    "evictions",
    "subscriptions",
    "refusals",
    "refusal_no",
    "refusal_key",
    "refusal_ms",
    "rank_ms",
    "rank",
    "lags",
    "states",
    "lost",
    "lost_no",
    "lost_key",
    "lost_ms",
    "committed",
    "ahead",
    "gone",
    "expired",
    "known",
    "open",
    "pending",
)
"""One element: the parameters, the used length of each array, the rows of this call. `rank`: number
of shared records that are not later than `rank_ms`. The last seven are the names of GROUP_STATES.
"""

KEY = _layout(
    "cluster",
    "topic",
    "base",
    "namespace",
    "has_clock",
    "clock_ms",
    "latest_ms",
    "plan_ms",
    "last_ms",
    "last_ns",
    "broker",
    "feed",
    "was",
    "has_state",
    "deleted",
    "behind",
    "version",
    "cached",
    "cached_ledger",
    "cached_entry",
    "cached_ms",
    "cached_name",
    "cached_version",
    "seen_ledger",
    "seen_entry",
    "second",
    "kept",
    "woken_ms",
    "unseen",
    "system",
    "kafka",
    "log_start",
    "log_gone",
)
"""A cluster and topic, with its clock. `base`: the name in its policies, -1 for a topic that is
never judged. `behind`: entries of the newest ledger that a later one came before. `last_ms` to
`feed`: its last record. `was`: it had a backlog at the pass before.
`cached` to `cached_version`: the cached oldest message. `seen_ledger`, `seen_entry`: the highest
position that a record has shown (NULL: none). `kept`: samples that came in `second`. `woken_ms`:
when its page was read for a record (NULL: never). `unseen`: state that a gap has left unknown until
it is stated again, CURSORS and SIZES; the topic is not judged before. `system`: a topic of the
broker's own, for which neither quotas nor a TTL hold. `kafka`: a partition of Kafka, whose log
begins at `log_start` (NULL: not known) and was deleted if `log_gone`.
"""

LINK = _layout("place", "turn", "due_ms", "summed")
"""Data of a key while a batch is judged: its broker, its next turn (the one before has the settings
in force), the next pass, whether sums of its ledgers are up to date.
"""

CURSOR = _layout(
    "key",
    "name",
    "durable",
    "ledger",
    "entry",
    "first_ms",
    "first_source",
    "floor_ledger",
    "floor_entry",
    "was",
    "checks",
    "before_ledger",
    "before_entry",
    "kind",
    "beyond",
    "back_ledger",
    "back_entry",
    "back_to_ledger",
    "back_to_entry",
    "expired",
    "expired_before",
    "expired_total",
    "state",
    "stated",
    "ended",
    "safe",
    "unread",
    "unread_end",
    "left_unread",
    "answered_ms",
    "waits",
    "transaction",
    "producer",
    "begun_ms",
    "told",
    "client",
    "host",
    "type",
    "after",
    "bytes",
    "to_ledger",
    "to_entry",
    "moves",
    "factor*",
)
"""A cursor and its mark-delete. `first_ms`: time of the first entry after it, if a record has it
(else NULL). `floor_ledger`: where an applied eviction has moved it (NULL: nowhere). `checks`:
number of checks that it has seen since it was last set back; `before_ledger`: mark-delete at the
last of them. `beyond`: acknowledged entries in ranges that are not kept. `back_ledger` to
`back_to_entry`: from where to where it was set back since the last check (NULL: it was not).
`expired`: messages that expired since the last check (NULL: not known), `expired_before`: up to it,
`expired_total`: the broker's own count (NULL: none). `state` to `answered_ms` are of Kafka groups:
the state of the last row and the one that a record states (names, -1: none), whether the group has
ended (see `groups.KNOWN`), the offset below which nothing more can be lost,
the records after its offset while the log ends at `unread_end` (NULL: not counted), the unread
records of an offset that has expired since the last check, and the time of its last state.
`waits`: whether an open transaction holds the group (see `groups.WAITS`; 0: the next three mean
nothing); its id (a name, -1: not known), producer and begin (NULL: not known); `told`: the last row has
them. `client`, `host`: the consumer that the partition is assigned to (names, -1: not known), `client`
of a cursor of Pulsar what its broker shows of it; `type` of the group likewise. A group with a stated
state has no offset, and in place of `unread` and `unread_end` the epochs of the group and of its
assignment (NULL: not known).
The other fields are of one pass: entries and bytes after its mark-delete, and the effects of an
eviction.
"""
DERIVED_CURSOR = ("after", "bytes", "to_ledger", "to_entry", "moves", "factor")

ID, ENTRIES, BYTES, CLOSE, REST_ENTRIES, REST_BYTES = codes(6)
"""Columns of a ledger; `CLOSE` is NULL where none is known; the last two, of all later ledgers,
are derived."""
LEDGER_COLUMNS, STORED_LEDGER = 6, 4
ENTRY, MS, SOURCE = codes(4)[1:]
"""Columns of a sample (position, time, source): entries from it on have about this time."""
SAMPLE_COLUMNS = 4
FIRST, LAST = codes(3)[1:]
"""Columns of a range of acknowledged entries, after the ledger."""
RANGE_COLUMNS = 3
PRODUCER_COLUMNS = 2
"""Connection and producer id."""
AT, USED, ROOM = codes(3)
"""Columns of a span: start, used length and length of a block."""
LEDGERS, SAMPLES, PRODUCERS, SLOTS, RANGES = codes(5)
"""Pools, as `World.tops` counts them; the first four have spans by key."""
KEY_POOLS = 4

TURN = _layout(
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

QUOTA = _layout(
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

DOCUMENT = _layout(
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


class Store(NamedTuple):
    """The topics of a shard; `settings` has one element."""

    settings: Array
    keys: Array
    links: Array
    cursors: Array
    ledgers: Array
    samples: Array
    slots: Array
    """Cursors of a key, by name."""
    ranges: Array
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
    producers: Array
    passes: Array
    """(keys, checks): times of the last checks of a key, the newest last."""
    seen_bytes: Array
    """(cursors, checks): backlog of a cursor at these checks; the last ones, if it is newer."""
    seen_consumed: Array
    """(cursors, checks): entries that had been consumed."""
    slopes: Array
    """Room for the pairs of checks of one cursor."""
    quota: Array
    turns: Array
    turn_start: Array
    """Start of the turns of each broker and, at the next one, their end; the first turn holds from
    the beginning.
    """
    own: Array
    """(keys, 4): groups of documents of a topic and of its namespace, -1 without."""
    groups: Array
    """Start of the documents of each group and, at the next one, their end."""
    documents: Array
    shared_ms: Array
    """Times of all shared records, ascending."""


class Out(NamedTuple):
    """Rows of this call, with room for more."""

    checks: Array
    evictions: Array
    subscriptions: Array
    refusals: Array
    lags: Array
    states: Array
    lost: Array


class Feed(NamedTuple):
    """Records of keys to be judged, in order; NULL and -1 mean null."""

    key: Array
    kind: Array
    at_ms: Array
    mono_ns: Array
    broker: Array
    place: Array
    feed: Array
    rank: Array
    """Number of shared records that precede each record."""
    ledger: Array
    entry: Array
    """Position of the entry, or the mark-delete of a `cursor_state` (NULL: none)."""
    size: Array
    entries: Array
    close_ms: Array
    publish_ms: Array
    broker_ms: Array
    name: Array
    """The subscription or group, or the connection of a producer."""
    flag: Array
    """1: cumulative, or durable."""
    pid: Array
    acked: Array
    """Text of the acknowledged ranges of a `cursor_state`; -1: not known."""
    expired: Array
    """Messages that have expired on a cursor, counted by the broker; NULL: not known."""
    remarks: Array
    """Of a cursor, a text; -1: none."""
    log_start: Array
    unread: Array
    state: Array
    transaction: Array
    """The transactional id of a `group_state`."""
    client: Array
    host: Array
    """Of the consumer of a `cursor_state`."""
    group_type: Array
    group_epoch: Array
    assignment_epoch: Array
