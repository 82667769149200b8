"""Producer ids of one user: which are new, what the quota says to them, and what is written."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mmh3

from tests.reference.order import Record, each_once
from tests.reference.wall import SHARED, gathered, play, wall_level
from tests.reference.wall import Key as WallKey
from tests.reference.words import words

Row = dict[str, Any]
Key = tuple[str, str, str]

OWN = ("produce_batch", "producer_id_assigned")
"""Kinds that have a key of their own; the others hold for every key of their broker."""
TABLES = ("producer_id_decisions", "producer_id_stats", "producer_id_owners")
DEFAULT_USER = "<default>"
UNLIMITED = {"long": 2**63 - 1, "int": 2**31 - 1}
SAMPLES = "producer.id.quota.window.num"
WINDOW_S = "producer.id.quota.window.size.seconds"
LAYERS = "producer.id.quota.window.count"
EXPIRATION_MS = "producer.id.expiration.ms"
BROKER_KEYS = {SAMPLES: 11, WINDOW_S: 3600, LAYERS: 4, EXPIRATION_MS: 86_400_000}
"""What a broker's configuration says unless it or the parameters say otherwise."""
DEFAULTS: dict[str, Any] = {
    "window_mode": "A",
    "refresh_on_hit": False,
    "membership": "bloom",
    "bloom_rounding": "ceil",
    "bloom_items": 1000,
    "bloom_fpp": 0.01,
    "enforcement": "strict",
    "insert_rejected": False,
    "quota_math": "token_bucket",
    "rate_unit": "window",
    "sampled_stat": "last_event",
    "unlimited_default": "long",
    "defects": [],
    "stats_window_ms": 60_000,
    "idle_state_ms": 3_600_000,
}
LONG_MAX, INT_MAX = 2**63 - 1, 2**31 - 1
_LATER = words(
    "source_feed cluster broker ts_mono_ns principal client_id producer_id producer_name"
    " sequence_id entry_bytes num_messages policy_json"
)


# -- records ---------------------------------------------------------------------------------


def _level(record: Record) -> tuple[Any, ...]:
    return wall_level(record, ("seq", "topic", "partition", "ledger_id", "entry_id"), _LATER)


def user_of(principal: str) -> str:
    """What follows the first colon, all of it without one."""
    return principal.partition(":")[2] if ":" in principal else principal


# -- quota arithmetic ------------------------------------------------------------------------


def round_half_up(x: float) -> int:
    """The nearest 64-bit integer, ties upwards; 0 for NaN."""
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return LONG_MAX if x > 0 else -LONG_MAX - 1
    down = math.floor(x)
    return max(min(down + (x - down >= 0.5), LONG_MAX), -LONG_MAX - 1)


def reported(throttle_ms: int, defects: Iterable[str] = ()) -> int:
    """A 64-bit throttle time as 32 bits: wrapped with defect `Q1`, else at most 2**31 - 1."""
    if "Q1" not in defects:
        return min(throttle_ms, INT_MAX)
    wrapped = throttle_ms % 2**32
    return wrapped - 2**32 if wrapped > INT_MAX else wrapped


def divided(a: float, b: float) -> float:
    """a / b, by IEEE rules for b = 0."""
    if b != 0:
        return a / b
    return math.nan if a == 0 else math.copysign(math.inf, a)


@dataclass
class Rules:
    """What decides about a quota at one moment; `bound` is per second, None for no bound."""

    samples: int
    window_ms: int
    bound: float | None
    math: str = "token_bucket"
    stat: str = "last_event"

    @property
    def burst(self) -> float:
        """Capacity of the token bucket."""
        assert self.bound is not None
        return self.samples * (self.window_ms / 1000.0) * self.bound


@dataclass
class Sample:
    """One sample of a rate."""

    start: int
    last: int
    total: float = 0.0


@dataclass
class Sensor:
    """Kafka's quota state of one user: a bucket, and samples that are recorded in any case."""

    bucket: float = 0.0
    refilled: int = 0
    samples: list[Sample] = field(default_factory=list)
    current: int = 0
    recorded: int | None = None
    network: float = 0.0
    """Of request time: that of network threads for each unit of handler time."""

    def copy(self) -> Sensor:
        """One to read from without a trace."""
        samples = [Sample(s.start, s.last, s.total) for s in self.samples]
        return Sensor(self.bucket, self.refilled, samples, self.current, self.recorded)

    def tokens(self, now: int, by: Rules) -> float:
        """Refill the bucket and answer the balance."""
        if by.bound is None:
            return 2.0**63
        self.bucket = min(by.burst, self.bucket + by.bound * ((now - self.refilled) / 1000.0))
        self.refilled = now
        return self.bucket

    def rate(self, now: int, by: Rules) -> tuple[float, int]:
        """Start expired samples anew; answers ids per second and the span in ms."""
        if not self.samples:
            self.samples.append(Sample(now, now))
        for i, s in enumerate(self.samples):
            since = s.last if by.stat == "last_event" else s.start
            if now - since >= by.samples * by.window_ms:
                self.samples[i] = Sample(now, now)
        span = now - min(s.start for s in self.samples)
        full = int(math.copysign(abs(span) // by.window_ms, span))
        if full < by.samples - 1:
            span += (by.samples - 1 - full) * by.window_ms
        span = max(span, 1)
        total = 0.0
        for s in self.samples:
            total += s.total
        return total / (span / 1000.0), span

    def record(self, value: float, now: int, by: Rules) -> None:
        """Charge without a test."""
        if not self.samples:
            self.samples.append(Sample(now, now))
        elif now - self.samples[self.current].start >= by.window_ms:
            self.current = (self.current + 1) % (by.samples + (by.stat == "last_event"))
            self.samples[self.current : self.current + 1] = [Sample(now, now)]
        sample = self.samples[self.current]
        sample.total += value
        sample.last = self.recorded = now
        if by.math == "token_bucket" and by.bound is not None:
            self.bucket = min(by.burst, self.tokens(now, by) - value)

    def violation(self, now: int, by: Rules) -> tuple[bool, int]:
        """Test, which reads: whether the quota is violated, and for how many ms (64 bits)."""
        if by.math == "token_bucket":
            tokens = self.tokens(now, by)
            if tokens >= 0 or by.bound is None:
                return False, 0
            return True, round_half_up(divided(-tokens, by.bound) * 1000.0)
        rate, span = self.rate(now, by)
        if by.bound is None or rate <= by.bound:
            return False, 0
        return True, round_half_up(divided(rate - by.bound, by.bound) * span)

    def charge(self, value: float, now: int, by: Rules, enforcement: str) -> tuple[str, int]:
        """Verdict and throttle time (64 bits)."""
        if enforcement == "strict":
            violated, throttle_ms = self.violation(now, by)
            if violated:
                return "rejected", throttle_ms
            self.record(value, now, by)
            return "counted", 0
        self.record(value, now, by)
        violated, throttle_ms = self.violation(now, by)
        return "throttled" if violated else "counted", throttle_ms


# -- filters ---------------------------------------------------------------------------------


STEP, TURN = 0x5851F42D4C957F2D, 1 << 64


@dataclass(frozen=True)
class Shape:
    """Bits (m) and hashes (k) for `items` ids at a rate of false positives: "Sizing"."""

    bits: int
    hashes: int

    @staticmethod
    def of(items: int, fpp: float, rounding: str) -> Shape:
        exact = -items * math.log(fpp) / math.log(2) ** 2
        bits = math.ceil(exact) if rounding == "ceil" else int(exact)
        return Shape(max(bits, 1), max(1, math.floor(bits / items * math.log(2) + 0.5)))

    def mask(self, pid: int) -> int:
        """The bits of an id. How they follow from its hash belongs to the state's version: the
        halves (x, y) of MurmurHash3 give the share x / 2**64 of all bits, the next x is x * STEP + y
        made odd."""
        x, y = mmh3.hash64(pid.to_bytes(8, "little", signed=True), 0, signed=False)
        found = 0
        for _ in range(self.hashes):
            found |= 1 << x * self.bits // TURN
            x = (x * STEP + (y | 1)) % TURN
        return found


class Filter:
    """One filter: exact, or its bits as one number."""

    def __init__(self, created_ms: int, shape: Shape | None) -> None:
        self.created_ms, self.shape = created_ms, shape
        self.items = self._bits = 0
        self._ids: set[int] = set()

    def insert(self, pid: int) -> None:
        """Take a producer id in; the caller has seen that it looks absent."""
        self.items += 1
        if self.shape is None:
            self._ids.add(pid)
        else:
            self._bits |= self.shape.mask(pid)

    def holds(self, pid: int) -> bool:
        """Membership, with false positives unless exact."""
        if self.shape is None:
            return pid in self._ids
        return not self.shape.mask(pid) & ~self._bits

    @property
    def bits_set(self) -> int:
        """How many bits are set."""
        return self._bits.bit_count()

    @property
    def bytes(self) -> int:
        """Size of the bits, or of the ids at 8 bytes each."""
        return 8 * self.items if self.shape is None else -(-self.shape.bits // 8)


class Filters:
    """The filters of one user, oldest first: section 4."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._mode: str = params["window_mode"]
        self._refreshes: bool = params["refresh_on_hit"]
        self._most: int = params["bloom_items"]
        self.shape = (
            None
            if params["membership"] == "exact"
            else Shape.of(params["bloom_items"], params["bloom_fpp"], params["bloom_rounding"])
        )
        self.live: list[Filter] = []

    def dispose(self, now: int, window_ms: int) -> None:
        """Drop what has reached the age of disposal."""
        halves = 3 if self._mode in "AC" else 2
        self.live = [f for f in self.live if 2 * (now - f.created_ms) < halves * window_ms]

    def is_seen(self, pid: int) -> bool:
        """The membership test, which may refresh."""
        holders = [f for f in self.live if f.holds(pid)]
        if holders and self._refreshes and holders[-1] is not self.live[-1]:
            self.live[-1].insert(pid)
        return bool(holders)

    def put(self, pid: int, now: int, window_ms: int, layers: int) -> Filter:
        """Insert into the newest filter, or into a new one where that is due."""
        if not self.live or self._is_aged(self.live[-1], now, window_ms, layers):
            self.live.append(Filter(now, self.shape))
        self.live[-1].insert(pid)
        return self.live[-1]

    def _is_aged(self, newest: Filter, now: int, window_ms: int, layers: int) -> bool:
        age = now - newest.created_ms
        if self._mode == "L":
            return age * layers >= window_ms or newest.items >= self._most
        return age * (1 if self._mode == "C" else 2) >= window_ms


# -- policies --------------------------------------------------------------------------------


class Policies:
    """Documents in force on one broker."""

    def __init__(self, broker: str, params: Mapping[str, Any]) -> None:
        self._broker, self._params = broker, params
        self._limits: dict[tuple[str, str], dict[str, Any]] = {}

    def put(self, document: Mapping[str, Any]) -> None:
        """A document replaces the earlier one of its scope and name; a negative limit is off."""
        limits = document.get("limits") or {}
        self._limits[document["scope"], document["name"]] = (
            {key: value for key, value in limits.items() if value is not None and value >= 0}
            if document["scope"] in ("user", "broker")
            else {}
        )

    def bound(self, user: str) -> tuple[float, str]:
        """Bound as configured and its source: the user's own, the default user's, none."""
        text = "\\" + user if user.lstrip("\\") == DEFAULT_USER else user  # a name in quotes
        levels = [(text, "user")]
        for name, source in [*levels, (DEFAULT_USER, "default_user")]:
            limits = self._limits.get(("user", name), {})
            if "producer_ids_rate" in limits:
                return float(limits["producer_ids_rate"]), source
        return float(UNLIMITED[self._params["unlimited_default"]]), "none"

    def broker(self, key: str) -> int:
        """A broker's own value, that for all, the parameter, the default; none below 1."""
        for name in (self._broker, "*"):
            value = self._limits.get(("broker", name), {}).get(key, 0)
            if value >= 1:
                return int(value)
        return int(self._params.get(key, BROKER_KEYS[key]))


# -- one key ---------------------------------------------------------------------------------


@dataclass
class Window:
    """Counts of one statistics window."""

    start: int
    began_live: bool = False
    new_ids: int = 0
    seen: int = 0
    rejected: int = 0
    throttles: list[int] = field(default_factory=list)


class User(WallKey):
    """One key: a user on a broker, its clock and windows."""

    def __init__(
        self,
        cluster: str,
        broker: str,
        user: str,
        params: Mapping[str, Any],
        configured: Sequence[str] = (),
    ) -> None:
        super().__init__(cluster, TABLES)
        self._params = {**DEFAULTS, **params}
        self._user = user
        self._policies = Policies(broker, self._params)
        for text in configured:
            self._policies.put(json.loads(text))
        self._window_ms: int = self._params["stats_window_ms"]
        self._window: Window | None = None
        self._empty()

    def _empty(self) -> None:
        self.filters = Filters(self._params)
        self._sensor = Sensor()
        self._blind_until: int | None = None
        """Until then the broker may have filters with ids that came in a gap."""
        self._counted: dict[int, int] = {}
        """When each producer id was counted last."""

    # -- time --------------------------------------------------------------------------------

    def advance(self, to: int, following: Record | None = None) -> None:
        """Write the windows that end by `to`; `following` is the next record of this key."""
        self._next, self._from_record = following, False
        while self._window is not None and self._window.start + self._window_ms <= to:
            self._end_window(self._window)

    def live_at(self, now: int) -> list[Filter]:
        """The filters at a time that is not before the last record."""
        self.filters.dispose(now, self._w)
        return self.filters.live

    def take(self, record: Record) -> str | None:
        """A record at its time, to which the key has been advanced; answers what became of a
        batch: `new`, `seen`, or None for everything else."""
        now = record["ts_wall_ms"]
        if record["event_type"] == "broker_started":
            self._empty()
            return None
        if record["event_type"] == "gap":
            life = 1.5 if self._params["window_mode"] in "AC" else 1
            self._blind_until = now + math.ceil(life * self._w)
            return None
        if record["event_type"] == "policy":
            self._forget(now)
            self._policies.put(json.loads(record["policy_json"]))
            return None
        self._last, self._from_record, self._now = record, True, now
        if self._window is None:
            self._window = Window(now // self._window_ms * self._window_ms)
        if record["producer_id"] == -1:
            return None
        if record["event_type"] == "producer_id_assigned":
            self._owner("assigned", record)
            return None
        self._forget(now)
        if self.filters.is_seen(record["producer_id"]):
            self._window.seen += 1
            return "seen"
        self._judge(record, self._window)
        return "new"

    @property
    def _w(self) -> int:
        return self._policies.broker(WINDOW_S) * 1000

    def _forget(self, now: int) -> None:
        """What is too old by the settings in force."""
        self.filters.dispose(now, self._w)
        expiration = self._policies.broker(EXPIRATION_MS)
        self._counted = {p: at for p, at in self._counted.items() if now - at < expiration}

    def _rules(self) -> Rules:
        bound, _ = self._policies.bound(self._user)
        if self._params["rate_unit"] == "window":
            bound /= self._w / 1000.0
        return Rules(
            self._policies.broker(SAMPLES),
            self._w,
            bound,
            self._params["quota_math"],
            self._params["sampled_stat"],
        )

    def _is_idle(self, now: int) -> bool:
        recorded = self._sensor.recorded
        return recorded is not None and now - recorded > self._params["idle_state_ms"]

    def _levels(self, now: int) -> tuple[float, float | None]:
        """Rate and tokens at a time, read from a copy."""
        by = self._rules()
        sensor = Sensor() if self._is_idle(now) else self._sensor.copy()
        has_tokens = by.math == "token_bucket"
        return sensor.rate(now, by)[0], sensor.tokens(now, by) if has_tokens else None

    # -- decisions ---------------------------------------------------------------------------

    def _judge(self, record: Record, window: Window) -> None:
        pid, now = record["producer_id"], self._now
        is_blind = self._blind_until is not None and now < self._blind_until
        verdict, throttle = "counted", 0
        if not is_blind:
            if self._is_idle(now):
                self._sensor = Sensor()
            verdict, throttle = self._sensor.charge(
                1, now, self._rules(), self._params["enforcement"]
            )
        throttle = reported(throttle, self._params["defects"])
        recount = pid in self._counted
        receiver: Filter | None = None
        if verdict != "rejected" or self._params["insert_rejected"]:
            receiver = self.filters.put(pid, now, self._w, self._policies.broker(LAYERS))
        if verdict != "counted":
            window.throttles.append(throttle)
        if verdict == "rejected":
            window.rejected += 1
            rule, receiver = "rejected_over_bound", None
        else:
            window.new_ids += 1
            self._counted[pid] = now
            rule = "unseen_within_bound" if verdict == "counted" else "unseen_over_bound"
        known = self._params["membership"] == "exact"
        if known and recount and verdict != "rejected":
            rule = "recounted_after_disposal"
        if is_blind:
            rule = "unseen_after_gap"
        bound, source = self._policies.bound(self._user)
        rate, tokens = self._levels(now)
        self._put(
            "producer_id_decisions",
            rule,
            {
                "user": self._user,
                "client_id": record.get("client_id"),
                "producer_id": pid,
                "topic": record["topic"],
                "partition": record["partition"],
                "verdict": verdict,
                "bound": bound,
                "bound_source": source,
                "rate": rate,
                "tokens": tokens,
                "throttle_ms": throttle,
                "live_filters": len(self.filters.live),
                "filter_created_ms": None if receiver is None else receiver.created_ms,
                "recount": recount if known else None,
            },
        )
        self._owner(rule, record)

    def _owner(self, rule: str, record: Record) -> None:
        self._put(
            "producer_id_owners",
            rule,
            {
                "producer_id": record["producer_id"],
                "user": self._user,
                "client_id": record.get("client_id"),
            },
        )

    # -- windows -----------------------------------------------------------------------------

    def _end_window(self, w: Window) -> None:
        end = self._now = w.start + self._window_ms
        live = self.live_at(end)
        rate, tokens = self._levels(end)
        busy = bool(live) or rate > 0
        if busy or w.began_live or w.new_ids or w.seen or w.rejected:
            self._stats_row(w, rate, tokens)
        self._window = Window(end, began_live=bool(live)) if busy else None

    def _stats_row(self, w: Window, rate: float, tokens: float | None) -> None:
        live, shape = self.filters.live, self.filters.shape
        bound = self._rules().bound
        fill = fpp = None
        if shape is not None:
            most = max((f.bits_set for f in live), default=0)
            fill = most / shape.bits
            fpp = math.prod([fill] * shape.hashes)
        self._put(
            "producer_id_stats",
            "window",
            {
                "window_start_ms": w.start,
                "window_ms": self._window_ms,
                "user": self._user,
                "new_ids": w.new_ids,
                "seen_batches": w.seen,
                "rejected": w.rejected,
                "rate": rate,
                "tokens": tokens,
                "throttle_time_avg_ms": sum(w.throttles) / len(w.throttles)
                if w.throttles
                else None,
                "utilisation": rate / bound if bound else None,
                "live_filters": len(live),
                "filter_fill": fill,
                "estimated_fpp": fpp,
                "state_bytes": sum(f.bytes for f in live),
            },
        )


# -- whole traces ----------------------------------------------------------------------------


def key_of(record: Record) -> Key:
    """Cluster, broker and user of a record that has them."""
    return record["cluster"], record["broker"], user_of(record["principal"])


def keys_of(records: Iterable[Record]) -> list[Key]:
    """The keys of the records that this job reads."""
    return sorted({key_of(r) for r in records if r["event_type"] in OWN})


def records_of(records: Iterable[Record], key: Key) -> list[Record]:
    """What one key reads, in order: its own records and those that hold for all of its broker."""
    cluster, broker, _ = key
    own, shared = [], []
    for r in records:
        if r["event_type"] in OWN and key_of(r) == key:
            own.append(r)
        elif (
            r["event_type"] in SHARED
            and r["cluster"] == cluster
            and (r["broker"] == broker or (r["broker"] == "*" and r["event_type"] == "policy"))
        ):
            shared.append(r)
    return sorted([*each_once(own, _level), *each_once(shared, _level)], key=_level)


def judge(
    records: Sequence[Record],
    params: Mapping[str, Any],
    configured: Sequence[str] = (),
    until_ms: int | None = None,
) -> dict[str, list[Row]]:
    """Rows by table after all records, with every key's clock moved on to `until_ms`."""
    keys = keys_of(records)
    played = (
        play(User(*key, params, configured), records_of(records, key), until_ms) for key in keys
    )
    return gathered(TABLES, (user.rows for user in played))
