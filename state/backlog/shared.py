"""Records that hold for many keys: policies and broker starts, kept once per shard.

They stay in their order as long as they can matter. A key has taken those before its clock, so what
holds for it follows from its clock alone. Every policy holds for all of its cluster, whichever
broker it came from. A document of the configuration is one for every cluster, earlier than all
times; one that was changed is as of the restart's stream time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from state.backlog import layout as L
from state.backlog.sequence import SEQUENCE
from state.engine import standing, wall
from state.engine.names import NONE, Names
from state.engine.records import NULL, Array, Records, length
from state.engine.refused import Refused
from state.engine.sequence import POLICY
from state.engine.standing import START
from state.events import KIND_INDEX
from state.policies import QUOTA_TYPES

STARTED = KIND_INDEX["broker_started"]
EVERYWHERE = "*"
BROKER, NAMESPACE, TOPIC = range(1, 4)
MOST_SECONDS = 2**42
"""A longer interval is cut to this many seconds, which no clock reaches twice."""
_LIMITS = ("limitSize", "limitTime")
_SETTINGS = ("enabled", "interval_s", "bytes", "gigabytes", "seconds", "policy", "precise")
KEYS = (
    "backlogQuotaCheckEnabled", "backlogQuotaCheckIntervalInSeconds",
    "backlogQuotaDefaultLimitBytes", "backlogQuotaDefaultLimitGB",
    "backlogQuotaDefaultLimitSecond", "backlogQuotaDefaultRetentionPolicy",
    "preciseTimeBasedBacklogQuotaCheck",
)
_QUOTAS = ("has_size", "limit_bytes", "size_policy", "has_time", "limit_s", "time_policy")
Settings = tuple[float, ...]

MEANING = np.dtype(
    [("what", "<i8"), ("name", "<i8"), *[(field, "<i8") for field in _QUOTAS],
     *[(field, "<f8" if field == "gigabytes" else "<i8") for field in _SETTINGS],
     ("fresh", "|u1")], align=True,
)
"""The content of a shared record: a broker start, quotas as in `layout.DOCUMENT`, settings of a
broker (-1: not set)."""


class Timeline(NamedTuple):
    """Shared records of a shard as the kernel takes them; see `layout.World`."""

    turns: Array
    turn_start: Array
    own: Array
    groups: Array
    documents: Array
    shared_ms: Array


def full_name(topic: str) -> str:
    """The name of a topic as policies are compared by it: no scheme = persistent."""
    return topic if "://" in topic or topic.count("/") < 2 else f"persistent://{topic}"


def _whole(value: Any) -> int:
    """A limit as an integer of 64 bits; -1 for one that is missing or negative."""
    return -1 if value is None or value < 0 else min(math.floor(value), int(L.LARGEST))


def settings_of(limits: Mapping[str, Any]) -> Settings:
    """Broker settings of a document or of the parameters, -1 where one is missing."""
    enabled, interval, size, gigabytes, seconds, policy, precise = (limits.get(k) for k in KEYS)
    return (
        -1 if enabled is None else int(bool(enabled)),
        -1 if interval is None or interval < 1 else min(math.floor(interval), MOST_SECONDS),
        _whole(size), -1.0 if gigabytes is None or gigabytes < 0 else float(gigabytes),
        _whole(seconds), -1 if policy is None else L.POLICIES.index(policy),
        -1 if precise is None else int(bool(precise)),
    )


def _quotas_of(limits: Mapping[str, Any]) -> tuple[int, ...]:
    quotas = limits.get("backlog_quota") or {}
    found: list[int] = []
    for quota_type, limit in zip(QUOTA_TYPES, _LIMITS, strict=True):
        quota = quotas.get(quota_type)
        policy = (quota or {}).get("policy")
        found += [
            int(quota is not None), _whole((quota or {}).get(limit)),
            -1 if policy is None else L.POLICIES.index(policy),
        ]
    return tuple(found)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[int, str, tuple[int, ...], Settings] | None:
    """The content of a document; None for one that this job does not use."""
    document = json.loads(text)
    scope, name, limits = document["scope"], document["name"], document.get("limits") or {}
    if scope == "broker":
        return BROKER, name, _quotas_of({}), settings_of(limits)
    if scope == "namespace":
        return NAMESPACE, name, _quotas_of(limits), settings_of({})
    if scope == "topic":
        return TOPIC, full_name(name), _quotas_of(limits), settings_of({})
    return None


def source_of(text: str) -> tuple[str, str]:
    """Scope and name of a document."""
    document = json.loads(text)
    scope, name = document["scope"], document["name"]
    return scope, full_name(name) if scope == "topic" else name


def meanings(records: Records, names: Names) -> Array:
    """The content of each shared record; `what` is -1 where this job has no use for it."""
    found = np.zeros(length(records), MEANING)
    found["what"], found["name"], found["fresh"] = START, NONE, 1
    policies = np.flatnonzero(records["event_type"] == POLICY)
    texts, which = np.unique(records["policy_json"][policies], return_inverse=True)
    said = np.zeros(len(texts), MEANING)
    said["fresh"] = 1
    for row, text in zip(said, texts.tolist(), strict=True):
        document = _parsed(names.get(text))
        if document is None:
            row["what"] = -1
            continue
        row["what"], name, quotas, settings = document
        row["name"] = names.intern_one(name)
        for field, value in zip((*_QUOTAS, *_SETTINGS), (*quotas, *settings), strict=True):
            row[field] = value
    found[policies] = said[which]
    return found


def merged(
    records: Records, meaning: Array, new: Records, names: Names, refused: Refused
) -> tuple[Records, Array]:
    """Shared records with new ones among them, in order; see `standing.merged`."""
    meaning["fresh"] = 0
    if not length(new):
        return records, meaning
    said = meanings(new, names)
    return standing.merged(records, meaning, new, said, SEQUENCE, names, refused)


def needed(records: Records, meaning: Array, stream_ms: int) -> Array:
    """Which shared records can still matter; a policy is replaced whichever broker it came from."""
    origin = np.where(meaning["what"] == START, records["broker"], NONE)
    sets = (meaning["has_size"] != 0) | (meaning["has_time"] != 0)
    for field in _SETTINGS:
        sets |= (meaning["what"] == BROKER) & (meaning[field] >= 0)
    return standing.needed(records, meaning, origin, sets, stream_ms)


# -- what the kernel takes -------------------------------------------------------------------


def timeline(
    records: Records, meaning: Array, keys: Array, places: Array, names: Names, base: Settings
) -> Timeline:
    """The turns of brokers (`places`: cluster and broker) and the documents of a shard's keys;
    `base` are the settings of the parameters."""
    turns, start = _turns(records, meaning, places, names, base)
    rows = np.flatnonzero((meaning["what"] == TOPIC) | (meaning["what"] == NAMESPACE))
    n, zero = len(rows), np.zeros(len(keys), np.int64)
    known, member = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(
        known, 0, records["cluster"][rows], np.ascontiguousarray(meaning["what"][rows]),
        np.ascontiguousarray(meaning["name"][rows]), np.ones(n, bool), member,
    )
    order = np.argsort(member, kind="stable")
    groups = np.searchsorted(member[order], np.arange(count + 1)).astype(np.int64)
    documents = np.zeros(n, L.DOCUMENT)
    documents["rank"] = rows[order]
    for field in _QUOTAS:
        documents[field] = meaning[field][documents["rank"]]
    own = np.full((len(keys), 4), -1, np.int64)
    for i, (what, field) in enumerate(
        ((TOPIC, "base"), (TOPIC, "base"), (NAMESPACE, "namespace"), (NAMESPACE, "namespace"))
    ):
        cluster = keys["cluster"] if i % 2 == 0 else zero + NONE
        if not (meaning["what"] == what).any():
            continue
        column = np.empty(len(keys), np.int64)
        wall.intern_tuples(
            known[:count], count, np.ascontiguousarray(cluster), zero + what,
            np.ascontiguousarray(keys[field]), np.zeros(len(keys), bool), column,
        )
        own[:, i] = column
    return Timeline(
        turns, start, own, groups, documents, np.ascontiguousarray(records["ts_wall_ms"])
    )


def _turns(
    records: Records, meaning: Array, places: Array, names: Names, base: Settings
) -> tuple[Array, Array]:
    """Turns of every broker, in order; the first holds from ever."""
    everywhere = names.intern_one(EVERYWHERE)
    by_name: dict[tuple[int, int, int], list[int]] = {}
    for i in np.flatnonzero((meaning["what"] == BROKER) | (meaning["what"] == START)).tolist():
        is_start = meaning["what"][i] == START
        name = records["broker"][i] if is_start else meaning["name"][i]
        by_name.setdefault((int(records["cluster"][i]), int(name), int(is_start)), []).append(i)
    found: list[tuple[Any, ...]] = []
    start = np.zeros(len(places) + 1, np.int64)
    for j, (cluster, broker) in enumerate(places[:, :2].tolist()):
        levels = {(c, b, 0) for c in (cluster, NONE) for b in (broker, everywhere)}
        levels.add((cluster, broker, 1))
        rows = sorted(i for level in levels for i in by_name.get(level, ()))
        found += _turns_of(records, meaning, rows, broker, everywhere, base)
        start[j + 1] = len(found)
    return np.array(found, L.TURN), start


def _turns_of(
    records: Records, meaning: Array, rows: Sequence[int], broker: int, everywhere: int,
    base: Settings,
) -> list[tuple[Any, ...]]:
    def turn(rank: int, at_ms: int, start: int, fresh: int) -> tuple[Any, ...]:
        enabled, interval_s, size, gigabytes, seconds, policy, precise = now
        if gigabytes > 0:
            size = min(int(gigabytes * 1024**3), int(L.LARGEST))
        return (
            rank, at_ms, start, fresh, enabled, interval_s * 1000, size, seconds, policy, precise
        )

    unsaid = settings_of({})
    said = {broker: unsaid, everywhere: unsaid}
    now = base
    found = [turn(-1, int(NULL), 0, 0)]
    for i in rows:
        m = meaning[i]
        is_start = int(m["what"] == START)
        if not is_start:
            said[int(m["name"])] = tuple(m[field].item() for field in _SETTINGS)
            before, now = now, tuple(
                own if own >= 0 else every if every >= 0 else otherwise
                for own, every, otherwise in zip(said[broker], said[everywhere], base, strict=True)
            )
            if now == before:
                continue
        found.append(turn(i, int(records["ts_wall_ms"][i]), is_start, int(m["fresh"])))
    return found
