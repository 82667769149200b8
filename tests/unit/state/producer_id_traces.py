"""Random small traces of producer ids, drawn so that every rule is met often."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

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

PRINCIPALS = (
    "User:alice",
    "User:alice",
    "alice",
    "ServiceAccount:alice",
    "User:bob",
    "bob",
    "User:a:b",
    "Group:a:b",
    "User:Alice",
    "User:<default>",
    "User:",
)
"""Seven users: what follows the first colon, all of it without one."""
NAMES = (
    "alice",
    "alice",
    "bob",
    "a:b",
    "User:alice",
    "<default>",
    "<default>",
    "\\<default>",
    "nobody",
)
TOPICS = (("orders", 0), ("orders", 1), ("t", 0))
CLIENTS = ("c1", "c2", None)
LARGEST = 2**63 - 1
STEPS_MS = (
    *(0,) * 8,
    1,
    1,
    2,
    40,
    249,
    250,
    250,
    251,
    333,
    334,
    400,
    499,
    500,
    500,
    501,
    501,
    750,
    999,
    1000,
    1000,
    1001,
    1499,
    1500,
    1501,
    2999,
    3000,
    3001,
    7000,
    11_000,
    30_000,
    200_000,
)
LATE_MS = (0, 1, 40, 250, 400)
"""How much older a late policy is than the record before it; less than any lateness allowed."""
KINDS = (
    *("new",) * 10,
    *("again",) * 14,
    *("burst",) * 4,
    *("recent",) * 6,
    *("largest",) * 2,
    *("none",) * 2,
    *("assigned",) * 3,
    *("user",) * 4,
    *("remove",) * 2,
    *("default",) * 2,
    *("late",) * 2,
    *("everywhere",) * 2,
    "other",
    "started",
    "started",
    "stray",
    "gap",
)
BOUNDS = (0, 1, 1, 2, 2, 3.3, 3.3, 0.5, 5, 10, 50, 1e-7, 1e13, 9_007_199_254_740_993, -1, 0.1, 0.25)
PARAMS: dict[str, tuple[Any, ...]] = {
    "producer.id.quota.window.num": (11, 1, 2, 3),
    "producer.id.quota.window.size.seconds": (1, 1, 2, 3, 10),
    "producer.id.quota.window.count": (4, 1, 2, 3),
    "producer.id.expiration.ms": (86_400_000, 86_400_000, 1500, 5000),
    "bloom_items": (1000, 1, 2, 5, 40),
    "bloom_fpp": (0.01, 0.5, 0.2, 1e-9),
    "window_mode": ("A", "A", "B", "C", "L", "L", "L"),
    "refresh_on_hit": (False, True),
    "membership": ("bloom", "exact"),
    "bloom_rounding": ("ceil", "trunc"),
    "enforcement": ("strict", "permissive"),
    "insert_rejected": (False, True),
    "quota_math": ("token_bucket", "sampled_rate"),
    "rate_unit": ("window", "second"),
    "sampled_stat": ("last_event", "start_time"),
    "unlimited_default": ("long", "int"),
    "defects": ([], ["Q1"]),
    "stats_window_ms": (1000, 300, 7000, 60_000),
    "idle_state_ms": (3_600_000, 400, 2500, 12_000),
}
"""Values of the parameters, those that lead furthest more often."""
BROKER_VALUES: dict[str, tuple[Any, ...]] = {
    "producer.id.quota.window.num": (11, 1, 2, 3, 0, -1),
    "producer.id.quota.window.size.seconds": (1, 2, 3, 10, -1),
    "producer.id.quota.window.count": (4, 1, 2, 3),
    "producer.id.expiration.ms": (1500, 5000, 60_000, -1),
}
"""What policies of the scope `broker` say, where traces have any."""


class _Writer(WallWriter):
    """Turns drawn numbers into records."""

    def __init__(self, brokers: int, principals: list[str], plain: dict[str, Any]) -> None:
        super().__init__(plain)
        self._brokers = BROKERS[:brokers]
        self._principals = principals
        self._pids = [7]
        self._sent: list[tuple[str, int, int]] = []
        """Broker, number of the user and producer id of every batch."""
        self._offset = 0

    def step(self, kind: str, a: int, b: int, c: int) -> None:
        """One thing that happens; `a`, `b`, `c` choose among its possibilities."""
        getattr(self, f"_{kind}")(self._brokers[a % len(self._brokers)], a, b, c)

    # -- batches ---------------------------------------------------------------------------------

    def _batch(self, broker: str, pid: int, b: int, c: int) -> None:
        self._sent.append((broker, b, pid))
        topic, partition = TOPICS[(b + c) % len(TOPICS)]
        self._offset += 1
        self.put(
            broker,
            "produce_batch",
            principal=self._principals[b % len(self._principals)],
            client_id=CLIENTS[c % len(CLIENTS)],
            topic=topic,
            partition=partition,
            producer_id=pid,
            entry_bytes=c,
            num_messages=None if c % 5 else 1,
            sequence_id=self._offset,
            ledger_id=0 if c % 2 else None,
            entry_id=self._offset if c % 7 else None,
        )

    def _fresh(self) -> int:
        self._pids.append(self._pids[-1] * 3 + 1 if len(self._pids) < 25 else len(self._pids))
        return self._pids[-1]

    def _new(self, broker: str, a: int, b: int, c: int) -> None:
        self._batch(broker, self._fresh(), b, c)

    def _again(self, broker: str, a: int, b: int, c: int) -> None:
        """A batch like an earlier one, rarely from another user."""
        if not self._sent:
            self._new(broker, a, b, c)
            return
        where, who, pid = self._sent[-1 - (a + c) % min(len(self._sent), 12)]
        self._batch(where, pid, b if c % 6 == 0 else who, c)

    def _recent(self, broker: str, a: int, b: int, c: int) -> None:
        """One of the last two, several times."""
        for i in range(a % 3 + 1):
            self._batch(broker, self._pids[-1 - i % min(len(self._pids), 2)], b, c)

    def _burst(self, broker: str, a: int, b: int, c: int) -> None:
        for _ in range(2 + c % 14):
            self._batch(broker, self._fresh(), b, c)
            self.now += a == 0

    def _largest(self, broker: str, a: int, b: int, c: int) -> None:
        self._batch(broker, (LARGEST, LARGEST - 1, 0, 2**53 + 1)[a % 4], b, c)

    def _none(self, broker: str, a: int, b: int, c: int) -> None:
        """A producer that is not idempotent."""
        self._batch(broker, -1, b, c)

    def _assigned(self, broker: str, a: int, b: int, c: int) -> None:
        pid = -1 if c == 23 else self._fresh() if c % 2 else self._pids[-1]
        self.put(
            broker,
            "producer_id_assigned",
            principal=self._principals[b % len(self._principals)],
            client_id=CLIENTS[c % len(CLIENTS)],
            producer_id=pid,
        )

    # -- policies --------------------------------------------------------------------------------

    def _limits(self, c: int) -> dict[str, Any]:
        return {"producer_ids_rate": BOUNDS[c % len(BOUNDS)]}

    def _policy(
        self, broker: str, name: str, limits: dict[str, Any], late_ms: int = 0, scope: str = "user"
    ) -> None:
        document = {"scope": scope, "name": name, "limits": limits}
        self.put(broker, "policy", late_ms, policy_json=json.dumps(document))

    def _user(self, broker: str, a: int, b: int, c: int) -> None:
        self._policy(broker, NAMES[b % len(NAMES)], self._limits(c))

    def _default(self, broker: str, a: int, b: int, c: int) -> None:
        self._policy(broker, "<default>", self._limits(c))

    def _remove(self, broker: str, a: int, b: int, c: int) -> None:
        limits = {"producer_ids_rate": -1} if c % 3 == 0 else {}
        self._policy(broker, NAMES[b % len(NAMES)], limits)

    def _late(self, broker: str, a: int, b: int, c: int) -> None:
        late_ms = min(LATE_MS[a % len(LATE_MS)], self.now - START_MS)
        self._policy(broker, NAMES[b % len(NAMES)], self._limits(c), late_ms)

    def _everywhere(self, broker: str, a: int, b: int, c: int) -> None:
        """One for every broker of the cluster."""
        self._policy(EVERYWHERE, NAMES[b % len(NAMES)], self._limits(c) if c % 4 else {})

    def _other(self, broker: str, a: int, b: int, c: int) -> None:
        """One that this job does not use."""
        self._policy(broker, "alice", {"publishRateInMsgs": c}, scope="topic")

    def _broker(self, broker: str, a: int, b: int, c: int) -> None:
        """A setting of the broker's own configuration."""
        key = tuple(BROKER_VALUES)[b % len(BROKER_VALUES)]
        limits = {key: BROKER_VALUES[key][c % len(BROKER_VALUES[key])]} if a % 5 else {}
        where = EVERYWHERE if a % 3 == 0 else broker
        self._policy(where, (broker, EVERYWHERE)[a % 2], limits, scope="broker")

    # -- others ----------------------------------------------------------------------------------

    def _started(self, broker: str, a: int, b: int, c: int) -> None:
        self.put(broker, "broker_started")

    def _gap(self, broker: str, a: int, b: int, c: int) -> None:
        self.put(broker, "gap", late_ms=400 * (c == 0), since=GAPS_MS[b % len(GAPS_MS)])

    def _stray(self, broker: str, a: int, b: int, c: int) -> None:
        """Something that other jobs read."""
        self.put(broker, "connection_opened", cnx_id="x", principal="User:carol")


OPS = operations(KINDS, STEPS_MS)
BROKER_OPS = operations((*KINDS, *("broker",) * 6), STEPS_MS)


@st.composite
def traces(draw: st.DrawFn, most: int = 60, least: int = 20, broker_keys: bool = False) -> Trace:
    """A trace of one or two brokers with one to four spellings of users.

    With `broker_keys` policies change the brokers' own settings (windows, expiration) too.
    """
    ops = draw(st.lists(BROKER_OPS if broker_keys else OPS, min_size=least, max_size=most))
    params = {name: draw(st.sampled_from(values)) for name, values in PARAMS.items()}
    principals = draw(st.lists(st.sampled_from(PRINCIPALS), min_size=1, max_size=4))
    plain = clocks(draw)
    configured = [
        {"scope": "user", "name": name, "limits": {"producer_ids_rate": bound}}
        for name, bound in draw(
            st.lists(
                st.tuples(st.sampled_from(NAMES), st.sampled_from(BOUNDS)),
                max_size=3,
                unique_by=lambda p: p[0],
            )
        )
    ]
    if broker_keys and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(BROKER_VALUES)))
        value = draw(st.sampled_from(BROKER_VALUES[key]))
        configured.append({"scope": "broker", "name": "*", "limits": {key: value}})
    writer = _Writer(draw(st.integers(1, 2)), principals, plain)
    for kind, step, a, b, c in ops:
        writer.now += step
        writer.step(kind, a, b, c)
    rest = draw(st.sampled_from((0, 1, 1000, 15_000, 61_000, 130_001)))
    return Trace(
        writer.records, dict(params), [json.dumps(d) for d in configured], writer.now + rest
    )


__all__ = ["Trace", "traces"]
