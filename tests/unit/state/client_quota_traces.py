"""Random small traces of client quotas, drawn so that every rule is met often."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from state.events import QUOTA_TYPES
from state.policies import CLIENT_QUOTAS
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
    "User:a",
    "User:a",
    "a",
    "User:b",
    "ServiceAccount:b",
    "User:x:y",
    "User:<default>",
    None,
)
CLIENTS = ("c1", "c1", "c2", "<default>", "", None)
USERS = ("a", "a", "b", "x:y", "<default>", "<default>", "\\<default>", "nobody")
NAMES = ("c1", "c1", "c2", "<default>", "<default>", "\\<default>")
TOPICS = (
    None,
    None,
    '{"t":60}',
    '{"t": 60, "u" : 30,"":5}',
    "{}",
    '{"\\u0074": 7, "v": 7}',
    '{"u":1}',
    "[1]",
    '{"t":-1}',
    '{"t":1.5}',
    '{"t"',
)
STEPS_MS = (*(0,) * 8, 1, 40, 250, 333, 500, 999, 1000, 1001, 2999, 3000, 11_000, 30_000, 200_000)
LATE_MS = (0, 1, 40, 250, 400)
KINDS = (
    *("produce",) * 12,
    *("fetch",) * 8,
    *("follower",) * 2,
    *("other",) * 5,
    *("mutation",) * 6,
    *("measured",) * 4,
    *("set",) * 9,
    *("remove",) * 3,
    *("late",) * 2,
    *("everywhere",) * 3,
    "unused",
    "started",
    "started",
    "stray",
    "gap",
)
BOUNDS = (1, 1, 5, 10, 50, 3.3, 0.5, 1000, 1e-7, 1e13, 0.1)
AMOUNTS = (0, 1, 5, 10, 55, 100, 1000, 2**53 + 1, None, 10**7)
TIMES_NS = (0, 1_000_000, 50_000_000, 333_333_333, 10**9, 5 * 10**10, None, None)
PARAMS: dict[str, tuple[Any, ...]] = {
    "quota_window_num": (11, 11, 1, 2, 3),
    "quota_window_ms": (1000, 1000, 500, 10_000),
    "controller_window_num": (11, 1, 2),
    "controller_window_ms": (1000, 10_000),
    "controller_enforcement": ("strict", "permissive"),
    "broker_reports": ("use", "ignore"),
    "sampled_stat": ("last_event", "start_time"),
    "quota_kinds": ("remembered", "in_force"),
    "defects": ([], ["Q1"]),
    "usage_rows": (1000, 1, 2, 3),
    "stats_window_ms": (1000, 7000, 60_000),
    "idle_state_ms": (3_600_000, 2500, 12_000),
}


class _Writer(WallWriter):
    """Turns drawn numbers into records."""

    def __init__(self, brokers: int, plain: dict[str, Any]) -> None:
        super().__init__(plain)
        self._brokers = BROKERS[:brokers]

    def step(self, kind: str, a: int, b: int, c: int) -> None:
        """One thing that happens; `a`, `b`, `c` choose among its possibilities."""
        getattr(self, f"_{kind}")(self._brokers[a % len(self._brokers)], a, b, c)

    # -- requests ----------------------------------------------------------------------------

    def _request(self, broker: str, api: str, b: int, c: int, **columns: Any) -> None:
        self.put(
            broker,
            "client_request",
            principal=PRINCIPALS[b % len(PRINCIPALS)],
            client_id=CLIENTS[c % len(CLIENTS)],
            api=api,
            throttle_ms=None if c % 3 else 7 * b,
            **columns,
        )

    def _produce(self, broker: str, a: int, b: int, c: int) -> None:
        self._request(
            broker,
            "PRODUCE",
            b,
            c,
            charged_bytes=AMOUNTS[(a + c) % len(AMOUNTS)],
            handler_time_ns=TIMES_NS[(a + b) % len(TIMES_NS)],
            exempt=None if a % 4 else b % 2 == 0,
            topic_bytes=TOPICS[(b + c) % len(TOPICS)],
        )

    def _fetch(self, broker: str, a: int, b: int, c: int) -> None:
        self._request(
            broker,
            ("FETCH", "FETCH", "SHARE_FETCH")[b % 3],
            b,
            c,
            charged_bytes=AMOUNTS[(a + c) % len(AMOUNTS)],
            handler_time_ns=TIMES_NS[(a + c) % len(TIMES_NS)],
            topic_bytes=TOPICS[(a + b) % len(TOPICS)],
        )

    def _follower(self, broker: str, a: int, b: int, c: int) -> None:
        columns = {"charged_bytes": 10**6, "handler_time_ns": 10**8, "exempt": True}
        self._request(broker, "FETCH", b, c, **columns)

    def _other(self, broker: str, a: int, b: int, c: int) -> None:
        time_ns = TIMES_NS[a % len(TIMES_NS)]
        self._request(broker, ("METADATA", "HEARTBEAT")[a % 2], b, c, handler_time_ns=time_ns)

    def _mutation(self, broker: str, a: int, b: int, c: int) -> None:
        api = ("CREATE_TOPICS", "CREATE_PARTITIONS", "DELETE_TOPICS")[a % 3]
        time_ns = TIMES_NS[b % len(TIMES_NS)]
        many = (1, 1, 3, 40, 0, None)[c % 6]
        version = (None, 2, 3, 4, 5, 6)[(a + b) % 6]
        columns = {"mutations": many, "handler_time_ns": time_ns, "api_version": version}
        self._request(broker, api, b, c, **columns)

    def _measured(self, broker: str, a: int, b: int, c: int) -> None:
        value = AMOUNTS[c % len(AMOUNTS)] or 0
        type_ = QUOTA_TYPES[a % len(QUOTA_TYPES)]
        self.put(
            broker,
            "client_rate",
            principal=("a", "b", "", None)[b % 4],
            client_id=("", "c1", None)[c % 3],
            quota_type=type_,
            value_milli=-value if type_ == QUOTA_TYPES[3] and b % 3 == 0 else value,
            bound_milli=None if c % 2 else 10 * (b - 1),
            throttle_avg_milli=(None, 0, 1500)[(a + c) % 3],
        )

    # -- policies ----------------------------------------------------------------------------

    def _about(self, b: int, c: int) -> dict[str, Any]:
        user, client = USERS[b % len(USERS)], NAMES[c % len(NAMES)]
        if (b + c) % 3 == 0:
            return {"scope": "client", "name": client}
        pair = {} if (b + c) % 3 == 1 else {"client_id": client}
        return {"scope": "user", "name": user, **pair}

    def _limits(self, a: int, c: int) -> dict[str, float]:
        keys = [key for i, key in enumerate(CLIENT_QUOTAS) if (a + c) % 5 in (i, 4)]
        return {key: BOUNDS[(c + i) % len(BOUNDS)] for i, key in enumerate(keys)}

    def _policy(self, broker: str, document: dict[str, Any], late_ms: int = 0) -> None:
        self.put(broker, "policy", late_ms, policy_json=json.dumps(document))

    def _set(self, broker: str, a: int, b: int, c: int) -> None:
        self._policy(broker, {**self._about(b, c), "limits": self._limits(a, c)})

    def _remove(self, broker: str, a: int, b: int, c: int) -> None:
        kinds = ({}, {}, {"quota_kinds": "in_force"}, {"quota_kinds": "remembered"})[a % 4]
        self._policy(broker, {**self._about(b, c), "limits": {}, **kinds})

    def _late(self, broker: str, a: int, b: int, c: int) -> None:
        late_ms = min(LATE_MS[a % len(LATE_MS)], self.now - START_MS)
        self._policy(broker, {**self._about(b, c), "limits": self._limits(b, c)}, late_ms)

    def _everywhere(self, broker: str, a: int, b: int, c: int) -> None:
        limits = self._limits(a, c) if c % 4 else {}
        self._policy(EVERYWHERE, {**self._about(b, c), "limits": limits})

    def _unused(self, broker: str, a: int, b: int, c: int) -> None:
        """One of another job, and one of a user with another limit."""
        self._policy(broker, {"scope": "topic", "name": "t", "limits": {"publishRateInMsgs": c}})
        limits = {"producer_ids_rate": c}
        self._policy(broker, {"scope": "user", "name": "b", "limits": limits})

    # -- others ------------------------------------------------------------------------------

    def _started(self, broker: str, a: int, b: int, c: int) -> None:
        self.put(broker, "broker_started")

    def _gap(self, broker: str, a: int, b: int, c: int) -> None:
        self.put(broker, "gap", late_ms=400 * (c == 0), since=GAPS_MS[b % len(GAPS_MS)])

    def _stray(self, broker: str, a: int, b: int, c: int) -> None:
        """Something that other jobs read."""
        self.put(broker, "connection_opened", cnx_id="x", principal="User:carol")


OPS = operations(KINDS, STEPS_MS)


@st.composite
def traces(draw: st.DrawFn, most: int = 60, least: int = 20) -> Trace:
    """A trace of one or two brokers."""
    ops = draw(st.lists(OPS, min_size=least, max_size=most))
    params = {name: draw(st.sampled_from(values)) for name, values in PARAMS.items()}
    writer = _Writer(draw(st.integers(1, 2)), clocks(draw))
    about = st.tuples(st.integers(0, 11), st.integers(0, 15), st.integers(0, 23))
    configured = {}
    for a, b, c in draw(st.lists(about, max_size=4)):
        document = {**writer._about(b, c), "limits": writer._limits(a, c)}
        configured[json.dumps(writer._about(b, c))] = json.dumps(document)
    for kind, step, a, b, c in ops:
        writer.now += step
        writer.step(kind, a, b, c)
    rest = draw(st.sampled_from((0, 1, 1000, 15_000, 61_000, 130_001)))
    return Trace(writer.records, dict(params), list(configured.values()), writer.now + rest)
