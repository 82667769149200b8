"""The settings in force in a cache: its own, policies of the broker, parameters, defaults."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from state.engine.documents import parsed
from state.entry_cache import layout as L
from state.entry_cache.outputs import POLICIES

MIB = 1_048_576
NS_PER_MS = 1_000_000
TRIGGER = 0.98
MOST_EXTENSIONS = 1000
MOST = 2**62
"""Largest sizes and durations (ns), so that sums stay within 64 bits."""

_EVICTION = "managedLedgerCacheEviction"
SIZE_MB = "managedLedgerCacheSizeMB"
WATERMARK = f"{_EVICTION}Watermark"
INTERVAL_MS = f"{_EVICTION}IntervalMs"
TTL_MS = f"{_EVICTION}TimeThresholdMillis"
TTL_MAX_MS = f"{_EVICTION}TimeThresholdMillisMax"
MAX_TIMES = f"{_EVICTION}ExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes"
RECENT = f"{_EVICTION}ExtendTTLOfRecentlyAccessed"
BY_COUNT = "cacheEvictionByExpectedReadCount"
BY_MARK_DELETE = "cacheEvictionByMarkDeletedPosition"
BACKLOG_CURSORS = "managedLedgerMinimumBacklogCursorsForCaching"
BACKLOG_ENTRIES = "managedLedgerMinimumBacklogEntriesForCaching"
BACKLOG_BETWEEN = "managedLedgerMaxBacklogBetweenCursorsForCaching"
BROKER_KEYS: dict[str, Any] = {
    SIZE_MB: None,
    WATERMARK: 0.9,
    INTERVAL_MS: 10,
    TTL_MS: 1000,
    TTL_MAX_MS: 5000,
    MAX_TIMES: 5,
    RECENT: True,
    BY_COUNT: True,
    BY_MARK_DELETE: False,
    BACKLOG_CURSORS: 0,
    BACKLOG_ENTRIES: 1000,
    BACKLOG_BETWEEN: 1000,
}
"""Settings that policy documents of the scope `broker` change, with the value for a broker that
does not apply its configuration at its start (`settings_applied_at_start`).
"""
OTHER_NAMES = {"cacheEvictionWatermark": WATERMARK}
"""Names in the proposal for keys of brokers. In a document the broker's own name takes precedence.
"""
_ALIASES = {key: other for other, key in OTHER_NAMES.items()}
_OWN_NAMES = {RECENT: "extend_recently_accessed"}
"""Keys with another spelling in parameters and caches."""
OWN = (
    "policy",
    "duplicate_insert",
    "time_pass_pending",
    "decrement_on_mark_delete",
    "settings_applied_at_start",
    "grace_ms",
    "storage_reads",
)
"""Settings that no document changes."""
SWITCHES = (*OWN, "extend_recently_accessed", "release_event")
"""Version parameters: every row carries them, besides the cache's own settings."""
DUPLICATES = ("discard", "merge")
ONLINE = POLICIES[:-1]
"""All policies but `belady`, which needs the whole trace."""
Limits = Mapping[str, Any]


def _is_set(key: str, value: Any) -> bool:
    """Whether a value counts: not null, not negative, an interval of at least 1."""
    if value is None or isinstance(value, bool):
        return value is not None
    return bool(value >= (1 if key == INTERVAL_MS else 0))


def _first(key: str, values: Iterable[Any]) -> Any:
    return next((value for value in values if _is_set(key, value)), None)


def _cut(value: float, most: int = MOST) -> int:
    return most if value >= most else int(value)


class Documents:
    """Limits of the broker's own document and that for all brokers; and only of those of the two
    that came on the stream since the broker started."""

    def __init__(self, own: tuple[Limits, bool], every: tuple[Limits, bool]) -> None:
        """Each with whether it is such a one."""
        self._all = (own[0], every[0])
        self._fresh = tuple(limits for limits, fresh in (own, every) if fresh)

    def of(self, key: str, fresh: bool = False) -> list[Any]:
        """The limits of the documents, those that take precedence first."""
        names = (key, _ALIASES[key]) if key in _ALIASES else (key,)
        found = self._fresh if fresh else self._all
        return [limits.get(name) for limits in found for name in names]


class Variant:
    """Policy, size and settings of one of the caches that are judged side by side."""

    def __init__(self, given: Limits, params: Mapping[str, Any], allowed: Sequence[str]) -> None:
        """`given` is what the cache fixes; `params` are the job's, without those that are None."""
        self._given, self._params = given, params
        self._own = {name: given.get(name, params.get(name)) for name in OWN}
        for name, values in (
            ("policy", allowed),
            ("duplicate_insert", (None, *DUPLICATES)),
            ("time_pass_pending", L.PENDING),
        ):
            if self._own[name] not in values:
                listed = ", ".join(v for v in values if v is not None)
                raise ValueError(f"{name} is {self._own[name]!r} (allowed: {listed})")
        self.text = json.dumps({"policy": self._own["policy"], **given}, sort_keys=True)
        """What the cache is, for the state: another one begins empty."""
        said = {name: params.get(name, "") for name in SWITCHES}
        own = {name: value for name, value in given.items() if name != "max_bytes"}
        self.switches = sorted((name, str(value)) for name, value in {**said, **own}.items())
        """Parameters of the rows of this cache; its size is a column."""

    def policy_at_start(self, documents: Documents) -> int:
        """The policy of a cache that begins."""
        policy = self._own["policy"]
        if (
            policy in POLICIES[:2]
            and "policy" not in self._given
            and not self._setting(BY_COUNT, documents)
        ):
            policy = "fifo"
        return POLICIES.index(policy)

    def _setting(self, key: str, documents: Documents, stream_only: bool = False) -> Any:
        name = _OWN_NAMES.get(key, key)
        if stream_only:
            return _first(key, [*documents.of(key, fresh=True), BROKER_KEYS[key]])
        return _first(key, [self._given.get(name), *documents.of(key), self._params[name]])

    def _size(self, documents: Documents) -> int | None:
        if "max_bytes" in self._given:
            size = self._given["max_bytes"]
            return None if size is None else _cut(size)
        found = _first(SIZE_MB, [self._given.get(SIZE_MB), *documents.of(SIZE_MB)])
        if found is None and _is_set(SIZE_MB, self._params.get("max_bytes")):
            return _cut(self._params["max_bytes"])
        if found is None:
            found = _first(SIZE_MB, [self._params.get(SIZE_MB)])
        return None if found is None else _cut(found * MIB)

    def settings(self, policy: int, documents: Documents) -> dict[str, int]:
        """What is in force, as the kernel takes it; `policy` is that of the running cache."""
        own, size = self._own, self._size(documents)
        stream_only = not own["settings_applied_at_start"]

        def span(key: str) -> int:
            return _cut(int(self._setting(key, documents)) * NS_PER_MS)

        def count(key: str) -> int:
            return _cut(int(self._setting(key, documents)))

        merges = own["duplicate_insert"] or ("merge" if policy == L.STASHING else "discard")
        bytes_ = 0 if size is None else size
        return {
            "policy": policy,
            "max_bytes": int(L.NULL) if size is None else size,
            "trigger": _cut(bytes_ * TRIGGER),
            "goal": _cut(bytes_ * float(self._setting(WATERMARK, documents))),
            "interval_ns": span(INTERVAL_MS),
            "ttl_ns": span(TTL_MS),
            "ttl_max_ns": span(TTL_MAX_MS),
            "max_requeue": _cut(self._setting(MAX_TIMES, documents, stream_only), MOST_EXTENSIONS),
            "extend_recent": int(bool(self._setting(RECENT, documents, stream_only))),
            "merge": DUPLICATES.index(merges),
            "pending": L.PENDING.index(own["time_pass_pending"]),
            "by_mark_delete": int(bool(self._setting(BY_MARK_DELETE, documents))),
            "decrement": int(bool(own["decrement_on_mark_delete"])),
            "grace_ns": _cut(own["grace_ms"] * NS_PER_MS),
            # the others are policies of no broker
            "as_broker": int(
                own["storage_reads"] == "as_broker" and policy not in (L.LRU, L.BELADY)
            ),
            # a broker ignores them while it counts expected reads; others are no broker's
            "backlog_cursors": count(BACKLOG_CURSORS) if policy in (L.FIFO, L.PROPORTIONAL) else 0,
            "backlog_entries": count(BACKLOG_ENTRIES),
            "backlog_between": count(BACKLOG_BETWEEN),
        }


def longest_life(cache: Mapping[str, Any]) -> int:
    """How long an entry that nobody reads can stay (ns): its time-to-live, each time that it can be
    kept for another one, at most up to the largest."""
    ttl_ns, most_ns = int(cache["ttl_ns"]), int(cache["ttl_max_ns"])
    return max(most_ns, ttl_ns * (1 + int(cache["max_requeue"])))


@lru_cache(maxsize=1024)
def documents_of(own: tuple[str, bool], every: tuple[str, bool]) -> Documents:
    """The documents behind texts, each with whether it came on the stream since the broker
    started; an empty text limits nothing. Equal arguments give one object."""
    limits = [(parsed(text)[2] if text else {}, fresh) for text, fresh in (own, every)]
    return Documents(limits[0], limits[1])


@lru_cache(maxsize=1024)
def settings_of(variant: Variant, policy: int, documents: Documents) -> Mapping[str, int]:
    """`variant.settings` of documents from `documents_of`, remembered."""
    return variant.settings(policy, documents)
