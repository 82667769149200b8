"""Shared records of topics: limits of brokers, namespaces and topics, and broker starts.

Every policy holds for its whole cluster, whichever broker it came from. See
`state.engine.wall_policies`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from state.backlog import layout as L
from state.backlog import outputs
from state.backlog.layout import Timeline
from state.backlog.sequence import SEQUENCE
from state.engine import globs, wall, wall_policies
from state.engine.documents import parsed
from state.engine.names import NONE, Names
from state.engine.records import Array, Records
from state.engine.wall_policies import Document, Settings
from state.policies import QUOTA_TYPES

BROKER, NAMESPACE, TOPIC = range(1, 4)
_PATTERNS = {4: globs.TOPICS, 5: globs.NAMESPACES, 6: globs.TENANTS}
_SCOPES = {"namespace": NAMESPACE, "topic": TOPIC, **{s: what for what, s in _PATTERNS.items()}}
MOST_SECONDS = 2**42
"""Longest interval (s); no clock reaches it twice."""
_LIMITS = ("limitSize", "limitTime")
_SETTINGS = (
    "enabled",
    "interval_s",
    "bytes",
    "gigabytes",
    "seconds",
    "policy",
    "precise",
    "ttl_seconds",
    "expiry_minutes",
)
TTL = "message_ttl_in_seconds"
KEYS = (
    "backlogQuotaCheckEnabled",
    "backlogQuotaCheckIntervalInSeconds",
    "backlogQuotaDefaultLimitBytes",
    "backlogQuotaDefaultLimitGB",
    "backlogQuotaDefaultLimitSecond",
    "backlogQuotaDefaultRetentionPolicy",
    "preciseTimeBasedBacklogQuotaCheck",
    "ttlDurationDefaultInSeconds",
    "messageExpiryCheckIntervalInMinutes",
)
_QUOTAS = (
    "has_size",
    "limit_bytes",
    "size_policy",
    "has_time",
    "limit_s",
    "time_policy",
    "has_ttl",
    "ttl_s",
)

MEANING = np.dtype(
    [
        ("what", "<i8"),
        ("name", "<i8"),
        *[(field, "<i8") for field in _QUOTAS],
        *[(field, "<f8" if field == "gigabytes" else "<i8") for field in _SETTINGS],
        ("fresh", "|u1"),
    ],
    align=True,
)
"""The content of a shared record: a broker start, quotas as in `layout.DOCUMENT`, settings of a
broker (-1: not set)."""


def _whole(value: Any) -> int:
    """A limit as an integer of 64 bits; -1 for one that is missing or negative."""
    return -1 if value is None or value < 0 else min(math.floor(value), int(L.LARGEST))


def settings_of(limits: Mapping[str, Any]) -> Settings:
    """Broker settings of a document or of the parameters, -1 where one is missing."""
    enabled, interval, size, gigabytes, seconds, policy, precise, ttl, expiry = (
        limits.get(k) for k in KEYS
    )
    return (
        -1 if enabled is None else int(bool(enabled)),
        -1 if interval is None or interval < 1 else min(math.floor(interval), MOST_SECONDS),
        _whole(size),
        -1.0 if gigabytes is None or gigabytes < 0 else float(gigabytes),
        _whole(seconds),
        -1 if policy is None else outputs.POLICIES.index(policy),
        -1 if precise is None else int(bool(precise)),
        min(_whole(ttl), MOST_SECONDS),
        -1 if expiry is None or expiry < 1 else min(math.floor(expiry), MOST_SECONDS),
    )


def _quotas_of(limits: Mapping[str, Any]) -> tuple[int, ...]:
    quotas = limits.get("backlog_quota") or {}
    found: list[int] = []
    for quota_type, limit in zip(QUOTA_TYPES, _LIMITS, strict=True):
        quota = quotas.get(quota_type)
        policy = (quota or {}).get("policy")
        found += [
            int(quota is not None),
            _whole((quota or {}).get(limit)),
            -1 if policy is None else outputs.POLICIES.index(policy),
        ]
    ttl_s = min(_whole(limits.get(TTL)), MOST_SECONDS)
    return (*found, int(ttl_s >= 0), ttl_s)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Document | None:
    """The content of a document; None for one that this job does not use."""
    scope, name, limits = parsed(text)
    if scope == "broker":
        return BROKER, name, (*_quotas_of({}), *settings_of(limits))
    if scope in _SCOPES:
        return _SCOPES[scope], name, (*_quotas_of(limits), *settings_of({}))
    return None


class Policies(wall_policies.SharedRecords):
    """Policies and broker starts as this job reads them."""

    sequence = SEQUENCE
    meaning = MEANING
    broker = BROKER
    settings = _SETTINGS
    unset = -1
    patterns = _PATTERNS
    by_origin = False
    turn = L.TURN

    def parsed(self, text: str) -> Document | None:
        """The content of a document; None for one that this job does not use."""
        return _parsed(text)

    def sets(self, meaning: Array) -> Array:
        """Which documents set something."""
        found = (meaning["has_size"] != 0) | (meaning["has_time"] != 0) | (meaning["has_ttl"] != 0)
        for field in _SETTINGS:
            found |= (meaning["what"] == BROKER) & (meaning[field] >= 0)
        return found

    def in_force(self, settings: Settings) -> tuple[Any, ...]:
        """The rest of a `layout.TURN`."""
        enabled, interval_s, size, gigabytes, seconds, policy, precise, ttl_s, minutes = settings
        if gigabytes > 0:
            size = min(int(gigabytes * 1024**3), int(L.LARGEST))
        return (
            enabled,
            interval_s * 1000,
            size,
            seconds,
            policy,
            precise,
            max(ttl_s, 0),
            minutes * 60,
        )


POLICIES = Policies()


# -- what the kernel takes -------------------------------------------------------------------


def timeline(
    records: Records, meaning: Array, keys: Array, places: Array, names: Names, base: Settings
) -> Timeline:
    """The turns of brokers (`places`: cluster and broker) and the documents of a shard's keys;
    `base` are the settings of the parameters."""
    turns, start = POLICIES.turns(records, meaning, places, names, base)
    rows = np.flatnonzero((meaning["what"] == TOPIC) | (meaning["what"] == NAMESPACE))
    n, zero = len(rows), np.zeros(len(keys), np.int64)
    known, member = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(
        known,
        0,
        records["cluster"][rows],
        np.ascontiguousarray(meaning["what"][rows]),
        np.ascontiguousarray(meaning["name"][rows]),
        np.ones(n, bool),
        member,
    )
    order = np.argsort(member, kind="stable")
    groups = np.searchsorted(member[order], np.arange(count + 1)).astype(np.int64)
    documents = np.zeros(n, L.DOCUMENT)
    documents["rank"] = rows[order]
    for field in _QUOTAS:
        documents[field] = meaning[field][documents["rank"]]
    own = np.full((len(keys), 4), -1, np.int64)
    for i, (what, field) in enumerate(
        (
            (TOPIC, "policy_topic"),
            (TOPIC, "policy_topic"),
            (NAMESPACE, "namespace"),
            (NAMESPACE, "namespace"),
        )
    ):
        cluster = keys["cluster"] if i % 2 == 0 else zero + NONE
        if not (meaning["what"] == what).any():
            continue
        column = np.empty(len(keys), np.int64)
        wall.intern_tuples(
            known[:count],
            count,
            np.ascontiguousarray(cluster),
            zero + what,
            np.ascontiguousarray(keys[field]),
            np.zeros(len(keys), bool),
            column,
        )
        own[:, i] = column
    many = wall_policies.Many(POLICIES, meaning, names, groups, documents["rank"])
    if many:
        many.extend(own[:, :2], "topic", keys["policy_topic"])
        many.extend(own[:, 2:], "namespace", keys["namespace"])
        groups, added = many.together()
        documents = np.concatenate([documents, _overlaid(added, meaning)])
    return Timeline(
        turns, start, own, groups, documents, np.ascontiguousarray(records["ts_wall_ms"])
    )


def _overlaid(added: Sequence[tuple[int, tuple[int, ...]]], meaning: Array) -> Array:
    """Merged documents, each of which sets some types of quota."""
    found = np.zeros(len(added), L.DOCUMENT)
    for row, (rank, members) in zip(found, added, strict=True):
        row["rank"] = rank
        for at in members:
            for part in (_QUOTAS[:3], _QUOTAS[3:6], _QUOTAS[6:]):
                if meaning[at][part[0]] != 0:
                    for field in part:
                        row[field] = meaning[at][field]
    return found
