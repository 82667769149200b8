"""The state of one shard of `client_quotas` as arrays, and the rows that the kernel emits.

Positions in these arrays are the identities inside a shard; they are renumbered when state is
written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.engine.kernel import NULL, Array, Int, Record, codes, compiled, inlined
from state.engine.structs import layout
from state.engine.tables import NOBODY, Code, Count, Indexed, Key, Ms, Name, Place, Real, StateRow
from state.engine.wall import Clocked
from state.events import QUOTA_TYPES

__all__ = ["NOBODY", "NULL", "Array", "Int", "Record", "compiled", "inlined"]

DEFAULT = np.int64(-1)
"""User or client of the limits of all that have none of their own."""
TYPES = len(QUOTA_TYPES)
PRODUCE, FETCH, REQUEST, MUTATION = codes(TYPES)
OTHER_API, PRODUCES, FETCHES, MUTATES = codes(API_COUNT := 4)
"""What a request is charged for beside its time."""
STRICT_SINCE = {"CREATE_TOPICS": 6, "CREATE_PARTITIONS": 3, "DELETE_TOPICS": 5}
"""The versions from which a controller enforces its quota strictly (Kafka's `ControllerApis`)."""
APIS = {
    "PRODUCE": PRODUCES,
    "FETCH": FETCHES,
    "SHARE_FETCH": FETCHES,
    **dict.fromkeys(STRICT_SINCE, MUTATES),
}
OF_USER, OF_CLIENT, OF_BOTH = codes(3)
"""Kinds of entities that a document can be about."""
(
    USER_CLIENT,
    USER_DEFAULT_CLIENT,
    USER,
    DEFAULT_USER_CLIENT,
    DEFAULT_USER_DEFAULT_CLIENT,
    DEFAULT_USER,
    CLIENT,
    DEFAULT_CLIENT,
    NO_LEVEL,
) = codes(9)
OF_REQUESTS, OF_METRICS = codes(2)
THROTTLED, REFUSED, ALLOWED = codes(3)
WITHIN, RATE_OVER, TIME_OVER, TOKENS_BELOW, REFUSED_OVER, UNBOUND, EXEMPT = codes(7)

SETTINGS = layout(
    "samples",
    "window_ms",
    "mutation_samples",
    "mutation_window_ms",
    "stat",
    "wraps",
    "reports",
    "forgets",
    "idle_ms",
    "period_ms",
    "verdicts_too",
    "stride",
    "empty",
    "everywhere",
    "decisions",
    "verdicts",
    "row_key",
    "row_ms",
    "decision_no",
    "verdict_no",
)
"""One element: the parameters, the names of no tag and `*`, and the numbers of
rows. A sensor has room for `stride` samples."""


class QuotaBroker(Clocked):
    """A broker with its clock."""

    cluster: Key[Name]
    broker: Key[Name]
    began: Count
    kinds: Count
    """Which kinds of entities ever had a quota since its first record or start, with `forgets` those
    that have one, three bits (`OF_USER` …) for each type."""
    rested_ms: Ms
    """When its entities last went to rest."""
    called: Count
    """Whether one of them was needed since."""


LINK = layout("next", "version")
"""Data of a broker while a batch is judged: its next shared record, and how often its limits have
changed."""


class QuotaSensor(StateRow):
    """A sensor of Kafka: what an entity has used of a type."""

    key: Key[Place]
    type: Key[Code]
    user: Key[Name]
    client: Key[Name]
    tokens: Real
    refilled_ms: Ms
    recorded_ms: Ms = NULL
    """NULL: it is as new."""
    used: Count
    current: Count
    network: Real
    """Time of network threads for each unit of handler time, as throttle times have told."""
    held: Count
    """How many of its samples are stored, none if all of them have expired."""


class OpenStats(StateRow):
    """What an entity did in an open window, which begins at `window`, up to `last_ms`."""

    key: Key[Place]
    window: Key[Ms]
    type: Key[Code]
    user: Key[Name]
    client: Key[Name]
    basis: Key[Code]
    requests: Count
    charged: Real
    rate_max: Real = float("nan")
    rate_sum: Real
    bound: Real = float("nan")
    level: Code = NO_LEVEL
    throttled: Count
    throttle_ms: Ms
    observed: Count
    observed_ms: Ms
    observed_throttled: Count
    feed: Name
    last_ms: Ms


class OpenUsage(StateRow):
    """What a client did with a topic in an open window."""

    key: Key[Place]
    window: Key[Ms]
    api: Key[Name]
    principal: Key[Name]
    client: Key[Name]
    topic: Key[Name]
    requests: Count
    bytes: Count
    handler_ns: Count
    throttle_ms: Ms
    feed: Name
    last_ms: Ms


class QuotaEntity(StateRow):
    """Who shares a limit, by its kind (`OF_USER` …)."""

    kind: Key[Code]
    user: Key[Name]
    client: Key[Name]


class World(NamedTuple):
    """All arrays of a shard; `settings` has one element."""

    settings: Array
    keys: Array
    links: Array
    sensors: Indexed
    sample_start: Array
    sample_last: Array
    sample_total: Array
    stats: Indexed
    usage: Indexed
    documents: Array
    """Shared records, in order; see `shared.MEANING`."""
    cluster: Array
    """Of each shared record, as the next two."""
    broker: Array
    shared_ms: Array
    entity: Array
    """The position of each document's entity, -1 without."""
    entities: Indexed
    from_stream: Array
    """(keys, entities): whether a document of the stream holds (uint8)."""
    stream: Array
    """(keys, entities, types): bounds that documents of the stream set, NaN for none."""
    configured: Array
    """The same of the configuration; it holds where the stream sets nothing."""
    topic: Array
    """Topics of the requests of this call, one after the other, as names."""
    topic_bytes: Array
    pair_names: Array
    """(pairs, 3): broker, user and client of the requests of this call."""
    pair_version: Array
    """Limits that the next four are of; -1 for none yet."""
    pair_tags: Array
    """(pairs, types, 2): the entity, by its user and client."""
    pair_bound: Array
    """(pairs, types): NaN for none."""
    pair_level: Array
    pair_sensor: Array
    """Its sensor, -1 if it is not looked up yet."""
    pair_stats: Array
    """The window of its entity that was looked up last, -1 for none."""
    pair_use: Array
    """(pairs, kinds of requests): the use that was looked up last, -1 for none."""


class Out(NamedTuple):
    """Rows of this call."""

    decisions: Array
    verdicts: Array
    given: Array
    """One element: the verdict that is being worked out."""


class QuotaRecord(StateRow):
    """A record of a broker to be judged: a request, or a rate that the broker measured."""

    record: Place
    """Its place among those of this call."""
    key: Place
    """Its broker."""
    rank: Count
    """How many shared records come before it."""
    is_rate: Count
    ts_wall_ms: Ms
    source_feed: Name
    pair: Place
    principal: Name
    client_id: Name
    api: Name
    api_kind: Code
    charged_bytes: Count
    handler_time_ns: Count
    mutations: Count
    strict: Count
    """Whether mutations over the limit are refused."""
    throttle_ms: Ms
    exempt: Count
    quota_type: Code
    value_milli: Count
    bound_milli: Count
    throttle_avg_milli: Count
    topics_begin: Place
    topics_end: Place
