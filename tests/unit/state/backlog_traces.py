"""Random small traces of backlogs, drawn so that every rule is met often."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.reference.words import words
from tests.unit.state.drawn_trace import (
    BROKERS,
    EVERYWHERE,
    GAPS_MS,
    Trace,
    WallWriter,
    clocks,
    operations,
)
from tests.unit.state.trace import START_MS

TOPICS = words(
    "persistent://t/a/x persistent://t/a/x persistent://t/a/p-partition-0"
    " persistent://t/a/p-partition-1 persistent://t/b/y orders-partition-0"
    " non-persistent://t/a/n persistent://t/a/__change_events-partition-0"
)
NAMESPACES = ("t/a", "t/a", "t/b")
POLICY_TOPICS = words(
    "persistent://t/a/x t/a/x persistent://t/a/p t/a/p persistent://t/b/y orders"
    " persistent://t/a/p-partition-0"
)
SUBSCRIPTIONS = (
    "s",
    "s",
    "q",
    "\u00e9",
    "reader",
    "pulsar.dedup",
    "s",
    "pulsar.repl.west",
    "__compaction",
)
RETENTIONS = words(
    "consumer_backlog_eviction producer_request_hold consumer_backlog_eviction producer_exception"
)
STEPS_MS = (
    *(0,) * 8,
    1,
    1,
    2,
    40,
    250,
    250,
    499,
    500,
    500,
    999,
    1000,
    1000,
    1000,
    1001,
    1001,
    1500,
    1999,
    2000,
    2000,
    2001,
    3000,
    3000,
    5000,
    7000,
    11_000,
    30_000,
)
LATE_MS = (0, 1, 40, 250, 400)
"""How much older a late policy is than the record before it; less than any lateness allowed."""
KINDS = (
    *("added",) * 18,
    *("state",) * 4,
    *("roll",) * 4,
    *("poll",) * 8,
    "deleted",
    "deleted",
    *("move",) * 8,
    *("jump",) * 4,
    "gone",
    *("ack",) * 5,
    *("upto",) * 3,
    *("created",) * 4,
    "closed",
    *("topic",) * 3,
    *("namespace",) * 3,
    *("broker",) * 4,
    "late",
    "everywhere",
    "other",
    "started",
    "stray",
    *("gap",) * 2,
    *("kafka",) * 6,
)
GROUPS = ("g", "h", "g", "\u00e9")
SIZES = (100, 100, 1, 0, 7, 1000, 589, 2345)
LIMITS = (1000, 100_000, -1, 2500, 10_000, 30_000, -1, 300, 0, 250.5, None, 100_000, 1)
SECONDS = (2, 3, 5, 8, 20, 60, 3, 1, 0, -1, 2.5, None)
FAR = 2**62
BROKER_VALUES: dict[str, tuple[Any, ...]] = {
    "backlogQuotaCheckEnabled": (True, False, True),
    "backlogQuotaCheckIntervalInSeconds": (1, 2, 3, 5, 7, 0, -1),
    "backlogQuotaDefaultLimitBytes": (1000, 300, 0, -1, 100_000, 10_000, 5000),
    "backlogQuotaDefaultLimitGB": (1e-6, 0, -1, 5e-5, 0),
    "backlogQuotaDefaultLimitSecond": (1, 2, 5, 10, 0, -1),
    "backlogQuotaDefaultRetentionPolicy": RETENTIONS,
    "preciseTimeBasedBacklogQuotaCheck": (True, False),
    "ttlDurationDefaultInSeconds": (2, 5, 0, -1),
    "messageExpiryCheckIntervalInMinutes": (1, 2, 0),
}
"""What policies of the scope `broker` say."""
PARAMS: dict[str, tuple[Any, ...]] = {
    "size_estimate": ("consumed_average", "ledger_sum"),
    "age_without_quota": ("always", "always", "quota_only"),
    "age_reset": ("reset", "keep"),
    "age_when_empty": ("minus_one", "zero"),
    "age_reading": ("live", "last_check"),
    "eviction_count_rule": ("evicted_only", "every_call"),
    "apply_evictions": (False, True),
    "check_rows": ("backlogged", "all"),
    "forecast_checks": (10, 3, 4, 2),
    "backlogQuotaCheckIntervalInSeconds": (1, 2, 2, 3, 5),
    "backlogQuotaDefaultLimitBytes": (-1, -1, -1, 1000, 300, 20_000, 0),
    "backlogQuotaDefaultLimitGB": (-1, -1, -1, -1, 0, 1e-6),
    "backlogQuotaDefaultLimitSecond": (-1, 2, 3, 5, 20),
    "backlogQuotaDefaultRetentionPolicy": RETENTIONS,
    "preciseTimeBasedBacklogQuotaCheck": (True, False),
    "backlogQuotaCheckEnabled": (True, True, True, True, True, False),
    "ttlDurationDefaultInSeconds": (0, 0, 3, 20),
    "messageExpiryCheckIntervalInMinutes": (5, 1),
}
"""Values of the parameters, those that lead furthest more often."""


@dataclass
class _Topic:
    """What the writer knows of a topic, so that most of what it writes makes sense."""

    name: str
    ledgers: dict[int, list[int]]
    """Entries, bytes and close time (0: open) by ledger."""
    marks: dict[str, tuple[int, int]]

    @property
    def newest(self) -> int:
        return max(self.ledgers, default=0)


class _Writer(WallWriter):
    """Turns drawn numbers into records."""

    def __init__(self, brokers: int, topics: list[str], plain: dict[str, Any]) -> None:
        super().__init__(plain)
        self._brokers = BROKERS[:brokers]
        self._topics = [_Topic(name, {}, {}) for name in topics]
        self._next_ledger = 3
        self._count = 0
        self._log = [0, 0]
        """Start and end of Kafka's log."""
        self._offsets: dict[str, int] = {}

    def step(self, kind: str, a: int, b: int, c: int) -> None:
        """One thing that happens; `a`, `b`, `c` choose among its possibilities."""
        index = a % len(self._topics)
        # a topic mostly has one broker
        broker = self._brokers[(index + (b == 15)) % len(self._brokers)]
        getattr(self, f"_{kind}")(broker, self._topics[index], b, c)

    # -- entries and ledgers ---------------------------------------------------------------------

    def _added(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """A few entries, sometimes with a hole, again, or in a ledger that nobody announced."""
        if not t.ledgers or b == 0:
            self._open(t)
        for i in range(1 + c % 4):
            ledger = t.newest
            entry = t.ledgers[ledger][0] + (2 if c == 21 else 0)
            if c == 22:
                entry = max(entry - 1, 0)
            if c == 23:
                ledger = min(t.ledgers)
            size = SIZES[(b + i) % len(SIZES)] if c % 3 else 100
            if entry >= t.ledgers[ledger][0]:
                t.ledgers[ledger][0] = entry + 1
                t.ledgers[ledger][1] += size
            self.put(
                broker,
                "entry_added",
                topic=t.name,
                ledger_id=ledger,
                entry_id=entry,
                entry_bytes=size,
                **self._times(b, c + i),
            )
            self.now += (0, 0, 1, 300)[b % 4]

    def _times(self, b: int, c: int) -> dict[str, Any]:
        """Times of an entry: mostly a publish time a little before."""
        publish = self.now - (0, 0, 3, 40, 999, 1500, 5000, -700)[b % 8]
        return {
            "publish_time_ms": None if c % 7 == 0 else publish,
            "broker_time_ms": self.now - c % 3 if c % 5 == 0 else None,
        }

    def _open(self, t: _Topic) -> None:
        self._next_ledger += 1 + len(t.ledgers) % 2
        t.ledgers[self._next_ledger] = [0, 0, 0]

    def _ledger(self, broker: str, t: _Topic, ledger: int, close: int | None) -> None:
        entries, size, _ = t.ledgers[ledger]
        self.put(
            broker,
            "ledger_state",
            topic=t.name,
            ledger_id=ledger,
            ledger_entries=entries,
            ledger_bytes=size,
            ledger_close_ms=close,
        )

    def _state(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """The newest ledger or an older one, sometimes changed."""
        if not t.ledgers:
            self._open(t)
        ids = sorted(t.ledgers)
        ledger = ids[-1 - (b % len(ids) if c % 3 == 0 else 0)]
        if c % 4 == 1:
            grown = (0, 1, 5, 30, 100)[b % 5]
            t.ledgers[ledger][0] += grown
            t.ledgers[ledger][1] += grown * 100 + b
        if c == 20:
            t.ledgers[ledger][0] //= 2
            t.ledgers[ledger][1] //= 2
        if c == 21:
            t.ledgers[ledger][:2] = [0, b]
        close = t.ledgers[ledger][2] or None
        if c in (22, 23) and ledger == ids[-1]:
            close = (0, self.now)[c - 22]
        self._ledger(broker, t, ledger, close)

    def _roll(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """The open ledger is closed and a new one opened."""
        if not t.ledgers:
            self._open(t)
        ledger = t.newest
        t.ledgers[ledger][2] = self.now
        close = (self.now, self.now - 1500, 0, None, self.now, self.now - 1)[c % 6]
        if c % 7:
            self._ledger(broker, t, ledger, close)
        self._open(t)
        if b % 3:
            self._ledger(broker, t, t.newest, None)

    def _deleted(self, broker: str, t: _Topic, b: int, c: int) -> None:
        ids = sorted(t.ledgers)
        gone = ids if c == 0 else ids[: 1 + (c == 1)] if c % 4 else [77]
        for ledger in gone:
            t.ledgers.pop(ledger, None)
            self.put(broker, "ledger_deleted", topic=t.name, ledger_id=ledger)

    def _poll(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """All that is known, at one time."""
        if not t.ledgers:
            self._open(t)
        for ledger in sorted(t.ledgers, reverse=c == 23):
            newest = ledger == t.newest
            self._ledger(broker, t, ledger, None if newest else t.ledgers[ledger][2] or None)
        for name in sorted(t.marks) or ["s"]:
            self._cursor(broker, t, name, t.marks.get(name, (min(t.ledgers), -1)), b, c)

    # -- cursors ---------------------------------------------------------------------------------

    def _cursor(
        self, broker: str, t: _Topic, name: str, at: tuple[int, int], b: int, c: int
    ) -> None:
        t.marks[name] = at
        durable = False if name == "reader" else (None, True)[b % 2]
        if c == 19:
            durable = not durable
        timed = c % 4 == 0
        self.put(
            broker,
            "cursor_state",
            topic=t.name,
            subscription=name,
            durable=durable,
            mark_delete=f"{at[0]}:{at[1]}",
            read_pos=None if b % 4 else f"{at[0]}:{at[1] + 1}",
            publish_time_ms=self.now - (0, 700, 2500, 60_000)[b % 4] if timed else None,
            broker_time_ms=self.now - 100 * b if timed and b % 5 == 0 else None,
            active=None if b % 3 else True,
            acked_ranges=self._ranges(t, at, b, c),
            remarks=(None, "1 transaction is open on the topic", "9 messages are delayed")[c % 3],
            expired_messages=None if name in ("q", "\u00e9") else self._expired(b, c),
        )

    def _ranges(self, t: _Topic, at: tuple[int, int], b: int, c: int) -> str | None:
        """Ranges of acknowledged entries: none, unknown, or some, not all of them possible."""
        if c % 3:
            return (None, "")[b % 2]
        ledger, entry = at[0], max(at[1], -1) + 1 + b % 3
        found = [(ledger, entry, entry + b % 4), (ledger, entry + 5, entry + 5 + c % 3)]
        if t.newest > ledger:
            found += [(t.newest, 0, b % 3), (t.newest, 4, 30)]
        if c == 15:
            found.reverse()
        if c == 18:
            found = [(1, 0, 3), (ledger, 0, entry), (ledger, 9, 7)]
        return ",".join("{}:{}..{}".format(*each) for each in found if each[0] < FAR)

    def _expired(self, b: int, c: int) -> int:
        """A count that grows, and begins anew at times."""
        self._count += (0, 0, 3, 7)[b % 4]
        return self._count if c % 11 else b

    def _name(self, b: int) -> str:
        return SUBSCRIPTIONS[b % len(SUBSCRIPTIONS)]

    def _move(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """A cursor goes forward to an entry that exists."""
        ids = sorted(t.ledgers) or [1]
        at = t.marks.get(self._name(b), (ids[0], -1))
        ledger = at[0] if at[0] in t.ledgers and c % 6 else ids[c % len(ids)]
        last = t.ledgers.get(ledger, [0])[0] - 1
        entry = min(at[1] + c % 4, last) if ledger == at[0] else (last, -1, last - 1)[c % 3]
        self._cursor(broker, t, self._name(b), (ledger, max(entry, -1)), b, c // 2)

    def _jump(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """A cursor goes back, beyond the end, to a ledger that nobody knows, or only reads."""
        ids, name = sorted(t.ledgers) or [1], self._name(b)
        last = t.ledgers.get(ids[-1], [0])[0]
        places = (
            (ids[0], -1),
            (ids[0], 0),
            (ids[-1], last + 3),
            (1, 7),
            (ids[-1] + 5, 0),
            (ids[-1], last - 1),
            (ids[-1] - 1, 2),
            (FAR, FAR),
        )
        if c == 23:
            self.put(
                broker, "cursor_state", topic=t.name, subscription=name, read_pos=f"{ids[0]}:0"
            )
        else:
            self._cursor(broker, t, name, places[c % len(places)], b, c // 3)

    def _gone(self, broker: str, t: _Topic, b: int, c: int) -> None:
        t.marks.pop(self._name(b), None)
        self.put(broker, "cursor_deleted", topic=t.name, subscription=self._name(b))

    def _ack(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """Single entries after the mark-delete, with holes that close."""
        name = self._name(b) if c % 3 else next(iter(t.marks), "s")
        ledger, entry = t.marks.get(name, (t.newest, -1))
        for distance in ((1,), (2, 1), (3, 1, 2), (2, 4), (5, 3, 4))[c % 5]:
            self.put(
                broker,
                "ack",
                topic=t.name,
                subscription=name,
                ledger_id=ledger,
                entry_id=max(entry, -1) + distance,
                consumer="k",
                ack_cumulative=None if b % 2 else False,
            )
        if c % 7 == 0 and t.newest > ledger:
            self.put(broker, "ack", topic=t.name, subscription=name, ledger_id=t.newest, entry_id=0)

    def _upto(self, broker: str, t: _Topic, b: int, c: int) -> None:
        name = self._name(b) if c % 3 else next(iter(t.marks), "s")
        ledger, entry = t.marks.get(name, (t.newest, -1))
        if c % 4 == 0:
            ledger, entry = t.newest, c % 3 - 1
        entry = max(entry, -1) + 1 + c % 3
        if name in t.marks:
            t.marks[name] = ledger, entry
        self.put(
            broker,
            "ack",
            topic=t.name,
            subscription=name,
            ledger_id=ledger,
            entry_id=entry,
            ack_cumulative=True,
        )

    # -- Kafka -----------------------------------------------------------------------------------

    def _kafka(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """A poll of a partition, or an end of something."""
        log, name = self._log, GROUPS[b % len(GROUPS)]
        place = {"topic": "orders", "partition": 0}
        if c == 20:
            log[:] = [0, b]
            self.put(broker, "ledger_deleted", **place, ledger_id=0)
        if c in (20, 21):
            self._offsets.pop(name, None)
            self.put(broker, "cursor_deleted", **place, subscription=name)
        elif c == 22:
            self._offsets.pop(name, None)
            self.put(
                broker,
                "group_state",
                **place,
                subscription=name,
                group_state=("no_offset", "known")[b % 2],
            )
        elif c == 23:
            self.put(
                broker,
                "group_state",
                subscription=name,
                group_state=("unknown_group", "rebalancing", "known")[b % 3],
                group_type=(None, "consumer", "share")[c % 3],
                group_epoch=(None, 4)[b % 2],
                assignment_epoch=(3, None)[b % 2],
            )
        elif c == 19:
            log[1] = max(log[1] - 3, 0)
        else:
            log[1] += (0, 0, 1, 5, 40)[c % 5]
            if c % 4 == 0:
                log[0] = min(log[0] + 3 * b, log[1])
            self.put(
                broker,
                "ledger_state",
                **place,
                ledger_id=0,
                ledger_entries=log[1],
                ledger_bytes=(0, 7, 100)[b % 3] * log[1],
                log_start=None if c == 18 else log[0],
            )
            at = self._offsets.get(name, log[0])
            at = (at, at, at + 2, at - 5, log[1], log[1] + 4, log[0] - 2)[(b + c) % 7]
            self._offsets[name] = at = max(at, 0)
            age = (0, 700, 60_000, 4000, -90_000_000, 10**13)[c % 6]
            self.put(
                broker,
                "cursor_state",
                **place,
                subscription=name,
                mark_delete=f"0:{at - 1}",
                publish_time_ms=max(self.now - age, 0) if b % 2 else None,
                unread=(None, 0, 1, None)[c % 4],
                client_id=(None, "c1", "c2")[b % 3],
                client_host=(None, "10.0.0.7")[c % 2],
                group_type=(None, "consumer", "share")[c % 3],
            )
            if (b + c) % 3 == 0:
                self.put(
                    broker,
                    "group_state",
                    **place,
                    subscription=name,
                    group_state=("open_transaction", "pending_offsets")[(b + c) % 2],
                    producer_id=(None, 7, 7, 8)[c % 4],
                    producer_name=("t", None)[b % 2],
                    publish_time_ms=(None, 5, 9)[c % 3],
                )

    # -- producers -------------------------------------------------------------------------------

    def _created(self, broker: str, t: _Topic, b: int, c: int) -> None:
        self.put(
            broker,
            "producer_created",
            topic=t.name,
            cnx_id=f"c{b % 3}",
            producer_id=c % 3,
            producer_name=None if c % 2 else "p",
        )

    def _closed(self, broker: str, t: _Topic, b: int, c: int) -> None:
        self.put(broker, "producer_closed", topic=t.name, cnx_id=f"c{b % 3}", producer_id=c % 3)

    # -- policies --------------------------------------------------------------------------------

    def _policy(
        self, broker: str, scope: str, name: str, limits: dict[str, Any], late_ms: int = 0
    ) -> None:
        document = {"scope": scope, "name": name, "limits": limits}
        self.put(broker, "policy", late_ms, policy_json=json.dumps(document))

    def _topic(self, broker: str, t: _Topic, b: int, c: int) -> None:
        name = POLICY_TOPICS[b % len(POLICY_TOPICS)]
        self._policy(broker, "topic", name, quotas(b, c))

    def _namespace(self, broker: str, t: _Topic, b: int, c: int) -> None:
        self._policy(broker, "namespace", NAMESPACES[b % len(NAMESPACES)], quotas(b, c))

    def _broker(self, broker: str, t: _Topic, b: int, c: int) -> None:
        name = EVERYWHERE if b % 3 == 0 else broker
        self._policy(broker, "broker", name, settings_of(b, c))

    def _late(self, broker: str, t: _Topic, b: int, c: int) -> None:
        late_ms = min(LATE_MS[b % len(LATE_MS)], self.now - START_MS)
        self._policy(broker, "topic", t.name, quotas(b, c), late_ms)

    def _everywhere(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """From no broker in particular."""
        if b % 2:
            self._policy(EVERYWHERE, "broker", (broker, EVERYWHERE)[b % 3 == 0], settings_of(b, c))
        else:
            self._policy(EVERYWHERE, "namespace", NAMESPACES[b % 3], quotas(b, c))

    def _other(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """One that this job does not use, or that takes a quota back."""
        if c % 2:
            self._policy(broker, "user", "alice", {"producer_ids_rate": c})
        else:
            self._policy(broker, "namespace", NAMESPACES[b % 3], {"publishRateInMsgs": c})

    # -- others ----------------------------------------------------------------------------------

    def _started(self, broker: str, t: _Topic, b: int, c: int) -> None:
        self.put(broker, "broker_started")

    def _gap(self, broker: str, t: _Topic, b: int, c: int) -> None:
        self.put(broker, "gap", late_ms=400 * (c == 0), since=GAPS_MS[b % len(GAPS_MS)])

    def _stray(self, broker: str, t: _Topic, b: int, c: int) -> None:
        """Something that other jobs read."""
        self.put(broker, "connection_opened", cnx_id="x", principal="User:carol")


def quotas(b: int, c: int) -> dict[str, Any]:
    """Limits of a namespace or topic document: none, one or both types."""
    found: dict[str, Any] = {}
    if c % 8 != 0:
        size = {"limitSize": LIMITS[(b + c) % len(LIMITS)], "policy": RETENTIONS[c % 4]}
        if c % 3 != 1:
            found["destination_storage"] = size
        if c % 3 != 0:
            found["message_age"] = {
                "limitTime": SECONDS[(b * 3 + c) % len(SECONDS)],
                "policy": RETENTIONS[(b + c) % 4],
                "limitSize": -1,
            }
        for quota in found.values():
            for key in [k for k, v in quota.items() if v is None or (k == "policy" and b == 1)]:
                del quota[key]
    ttl = {"message_ttl_in_seconds": SECONDS[(b + 2 * c) % len(SECONDS)]} if c % 5 == 0 else {}
    return (
        {"backlog_quota": found, **{k: v for k, v in ttl.items() if v is not None}}
        if (c != 16)
        else {}
    )


def settings_of(b: int, c: int) -> dict[str, Any]:
    """Limits of a broker document: none or up to two of its settings."""
    keys = tuple(BROKER_VALUES)
    chosen = {keys[c % len(keys)], keys[b % len(keys)]} if c % 4 else set()
    return {k: BROKER_VALUES[k][(b + c) % len(BROKER_VALUES[k])] for k in sorted(chosen)}


OPS = operations(KINDS, STEPS_MS)
GROUP_OPS = operations((*("kafka",) * 20, "topic", "broker", "gap"), STEPS_MS)
"""Kafka groups, and what changes their limits and checks."""


@st.composite
def traces(draw: st.DrawFn, most: int = 60, least: int = 20, ops: Any = OPS) -> Trace:
    """A trace of one or two brokers with one to four topics."""
    ops = draw(st.lists(ops, min_size=least, max_size=most))
    params = {name: draw(st.sampled_from(values)) for name, values in PARAMS.items()}
    topics = draw(st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4, unique=True))
    plain = clocks(draw)
    numbers = st.tuples(st.integers(0, 15), st.integers(0, 23))
    configured = []
    for b, c in draw(st.lists(numbers, max_size=3)):
        scope, name, limits = (
            ("topic", POLICY_TOPICS[b % len(POLICY_TOPICS)], quotas(b, c)),
            ("namespace", NAMESPACES[b % 3], quotas(b, c)),
            ("broker", (EVERYWHERE, "b1")[b % 2], settings_of(b, c)),
        )[c % 3]
        configured.append({"scope": scope, "name": name, "limits": limits})
    writer = _Writer(draw(st.integers(1, 2)), topics, plain)
    if draw(st.booleans()):
        for i in range(len(topics)):
            writer.step("poll", i, 1, 1)
    for kind, step, a, b, c in ops:
        writer.now += step
        writer.step(kind, a, b, c)
    rest = draw(st.sampled_from((0, 1, 1000, 5000, 15_000, 61_000)))
    return Trace(
        writer.records, dict(params), [json.dumps(d) for d in configured], writer.now + rest
    )


__all__ = ["GROUP_OPS", "Trace", "traces"]
