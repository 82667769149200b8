"""Client quotas of one broker: whose quota a request is charged to, and what is written of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.reference.order import Record, each_once
from tests.reference.producer_ids import Rules, Sensor, divided, reported, round_half_up, user_of
from tests.reference.wall import SHARED, wall_level
from tests.reference.words import words

Row = dict[str, Any]
Entity = tuple[str | None, str | None]
"""User and client; None for the one that it has not, `DEFAULT` for a default."""
OWN = ("client_request", "client_rate")
TABLES = words("client_quota_decisions client_quota_verdicts client_quota_stats client_usage")
TYPES = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "request": "request_percentage",
    "controller_mutation": "controller_mutation_rate",
}
DEFAULT = "\0default"
"""No name: Kafka's entity of a default has none."""
FETCHES = ("FETCH", "SHARE_FETCH")
MOST_NETWORK = 10
"""Time of network threads for each unit of handler time, from which on it explains nothing."""
MUTATIONS = {"CREATE_TOPICS": 6, "CREATE_PARTITIONS": 3, "DELETE_TOPICS": 5}
"""The first version that is strict, by request."""
_LATER = words(
    "source_feed cluster broker ts_mono_ns principal client_id policy_json api charged_bytes"
    " handler_time_ns mutations throttle_ms exempt quota_type value_milli topic_bytes"
    " bound_milli throttle_avg_milli api_version"
)


# -- records ---------------------------------------------------------------------------------


def _level(record: Record) -> tuple[Any, ...]:
    return wall_level(record, ("seq",), _LATER)


def topics_of(text: str | None) -> dict[str, int]:
    """Bytes by topic; none of a text that is no such object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    wrong = [n for n in found.values() if type(n) is not int or not 0 <= n < 10**18]
    return {} if wrong else found


# -- limits ----------------------------------------------------------------------------------


def _name(text: str | None) -> str | None:
    """A user or client id of a document: `<default>` is the default, and `\\<default>` the name of
    this text."""
    if text == "<default>":
        return DEFAULT
    if text is not None and text.strip("\\") == "<default>":
        return text.removeprefix("\\")
    return text


class Limits:
    """The quotas of a broker, and the kinds of entities that ever had one of each type."""

    def __init__(self, forgets: bool = False) -> None:
        """`forgets`: Kafka from 4.2 on, where the last quota of a kind takes it along; for documents
        that do not say it."""
        self._forgets = forgets
        self._stream: dict[Entity, dict[str, float]] = {}
        self._configured: dict[Entity, dict[str, float]] = {}
        self._kinds: dict[str, set[tuple[bool, bool]]] = {name: set() for name in TYPES}

    def put(self, text: str, of_stream: bool) -> None:
        """Take a document; it replaces that of the same entity."""
        document = json.loads(text)
        if document["scope"] not in ("user", "client"):
            return
        entity: Entity = (_name(document["name"]), _name(document.get("client_id")))
        if document["scope"] == "client":
            entity = (None, _name(document["name"]))
        given = document.get("limits", {})
        limits = {name: float(given[key]) for name, key in TYPES.items() if key in given}
        before = self._in_force(entity)
        (self._stream if of_stream else self._configured)[entity] = limits
        kinds = document.get("quota_kinds")
        forgets = self._forgets if kinds is None else kinds == "in_force"
        if forgets and before.keys() - self._in_force(entity).keys():
            self.begin()
        self._remember(entity)

    def _remember(self, entity: Entity) -> None:
        for name in self._in_force(entity):
            self._kinds[name].add((entity[0] is not None, entity[1] is not None))

    def _in_force(self, entity: Entity) -> dict[str, float]:
        return self._stream.get(entity) or self._configured.get(entity, {})

    def begin(self) -> None:
        """Forget the kinds of limits that are not in force."""
        for kinds in self._kinds.values():
            kinds.clear()
        for entity in {*self._stream, *self._configured}:
            self._remember(entity)

    def is_measured(self, name: str) -> bool:
        """Whether a quota of a type was ever set."""
        return bool(self._kinds[name])

    def _quota(self, name: str, user: str | None, client: str | None) -> float | None:
        return self._in_force((user, client)).get(name)

    def _levels(self, user: str, client: str) -> list[tuple[str, Entity, tuple[str, str]]]:
        """The eight levels: name, the entity whose quota it is, and who shares it."""
        return [
            ("user_client", (user, client), (user, client)),
            ("user_default_client", (user, DEFAULT), (user, client)),
            ("user", (user, None), (user, "")),
            ("default_user_client", (DEFAULT, client), (user, client)),
            ("default_user_default_client", (DEFAULT, DEFAULT), (user, client)),
            ("default_user", (DEFAULT, None), (user, "")),
            ("client", (None, client), ("", client)),
            ("default_client", (None, DEFAULT), ("", client)),
        ]

    def entity(self, name: str, user: str, client: str) -> tuple[str, str]:
        """The tags of the sensor that a request is charged to."""
        kinds = self._kinds[name]
        if len(kinds) < 2:
            with_user, with_client = next(iter(kinds), (False, True))
            return user if with_user else "", client if with_client else ""
        for _, entity, shared in self._levels(user, client):
            if self._quota(name, *entity) is not None:
                return shared
        return "", client

    def bound(self, name: str, user: str, client: str) -> tuple[float | None, str]:
        """Bound and level for tags: of the levels only those that such tags can have."""
        for level, entity, _ in self._levels(user, client):
            has = (entity[0] is not None, entity[1] is not None)
            if has != (user != "", client != ""):
                continue
            bound = self._quota(name, *entity)
            if bound is not None:
                return bound, level
        return None, "none"


# -- one broker ------------------------------------------------------------------------------


@dataclass
class Charge:
    """What one quota says of a request."""

    name: str
    value: float
    entity: tuple[str, str]
    bound: float | None
    level: str
    rate: float | None = None
    span: int | None = None
    tokens: float | None = None
    throttle: int = 0
    refused: bool = False

    @property
    def share(self) -> float:
        """How near it is to its limit; tokens do not compare."""
        if self.bound is None:
            return -1.0
        if self.name == "controller_mutation":
            return 0.0
        return divided(self.rate or 0.0, self.bound) if self.bound else math.inf


class Broker:
    """A broker with its sensors and open windows."""

    def __init__(
        self, cluster: str, broker: str, params: Mapping[str, Any], configured: Sequence[str]
    ) -> None:
        self._at = {"cluster": cluster, "broker": broker}
        self._p = params
        self._limits = Limits(params["quota_kinds"] == "in_force")
        for text in configured:
            self._limits.put(text, of_stream=False)
        self._began = False
        self._sensors: dict[tuple[str, str, str], Sensor] = {}
        self._stats: dict[tuple[Any, ...], Row] = {}
        self._usage: dict[tuple[Any, ...], Row] = {}
        self.rows: dict[str, list[Row]] = {table: [] for table in TABLES}

    def take(self, r: Record) -> None:
        """Apply one record."""
        if r["event_type"] == "policy":
            self._limits.put(r["policy_json"], of_stream=True)
        elif r["event_type"] == "broker_started":
            self._sensors.clear()
            self._limits.begin()
        elif r["event_type"] == "client_rate":
            self._measured(r)
        elif r["event_type"] == "client_request":
            if not self._began:
                self._began = True
                self._limits.begin()
            self._request(r)

    # -- sensors -----------------------------------------------------------------------------

    def _rules(self, charge: Charge) -> Rules:
        of = "controller" if charge.name == "controller_mutation" else "quota"
        return Rules(
            self._p[f"{of}_window_num"],
            self._p[f"{of}_window_ms"],
            charge.bound,
            "token_bucket" if of == "controller" else "sampled_rate",
            self._p["sampled_stat"],
        )

    def _sensor(self, charge: Charge, now: int) -> Sensor:
        key = (charge.name, *charge.entity)
        sensor = self._sensors.get(key)
        idle_ms = self._p["idle_state_ms"]
        if sensor is None or (sensor.recorded is not None and now - sensor.recorded > idle_ms):
            sensor = self._sensors[key] = Sensor()
        return sensor

    def _charged(self, name: str, value: float, r: Record) -> Charge | None:
        if not self._limits.is_measured(name):
            return None
        now = r["ts_wall_ms"]
        who = user_of(r.get("principal") or ""), r.get("client_id") or ""
        entity = self._limits.entity(name, *who)
        charge = Charge(name, value, entity, *self._limits.bound(name, *entity))
        sensor, by = self._sensor(charge, now), self._rules(charge)
        if name == "request":
            value = charge.value = value * (1.0 + sensor.network)
        if name == "controller_mutation":
            self._permits(charge, sensor, by, r)
            return charge
        sensor.record(value, now, by)
        charge.rate, charge.span = sensor.rate(now, by)
        if charge.bound is not None and charge.rate > charge.bound:
            over = divided(charge.rate - charge.bound, charge.bound)
            throttle = round_half_up(over * charge.span)
            if name == "request":
                throttle = min(throttle, self._p["quota_window_ms"])
            charge.throttle = reported(throttle, self._p["defects"])
        return charge

    def _permits(self, charge: Charge, sensor: Sensor, by: Rules, r: Record) -> None:
        now, version, how = r["ts_wall_ms"], r.get("api_version"), self._p["controller_enforcement"]
        if version is not None:
            how = "strict" if version >= MUTATIONS[r["api"]] else "permissive"
        verdict, throttle = sensor.charge(charge.value, now, by, how)
        charge.refused = verdict == "rejected"
        charge.throttle = reported(throttle, self._p["defects"])
        if charge.bound is not None:
            charge.tokens = sensor.copy().tokens(now, by)
        if sensor.samples:
            charge.rate, charge.span = sensor.copy().rate(now, by)

    def _explained(self, r: Record) -> Charge | None:
        """The charge of a throttled fetch, by the time for which the broker throttled it."""
        who = user_of(r.get("principal") or ""), r.get("client_id") or ""
        entity = self._limits.entity("fetch", *who)
        bound = self._limits.bound("fetch", *entity)[0]
        if bound is None or not bound > 0:
            return None
        charge = self._charged("fetch", 0.0, r)
        if charge is None:
            return None
        assert charge.rate is not None and charge.span is not None
        charge.throttle = r["throttle_ms"]
        rate = bound * (1.0 + charge.throttle / charge.span)
        charge.value = max(rate - charge.rate, 0.0) * charge.span / 1000.0
        charge.rate = rate
        return charge

    def _learn_network(self, timed: Charge, r: Record) -> None:
        """What the broker answered tells the rate that it has; what is more than the time of request
        handlers is that of network threads, in this proportion from now on."""
        answered = r.get("throttle_ms")
        if answered in (None, timed.throttle) or self._may_be_of_another_quota(r):
            return
        if timed.bound is None or not timed.rate or answered > self._p["quota_window_ms"]:
            return
        assert timed.span is not None
        sensor = self._sensor(timed, r["ts_wall_ms"])
        is_, had = timed.bound * (1.0 + answered / timed.span), 1.0 + sensor.network
        has = max(had * is_ / timed.rate, 1.0)
        if has <= 1.0 + MOST_NETWORK:
            sensor.network = has - 1.0
            for sample in sensor.samples:
                sample.total *= has / had

    def _may_be_of_another_quota(self, r: Record) -> bool:
        """The controller's, or one on bytes where the size is not known."""
        name = {"PRODUCE": "produce", **dict.fromkeys(FETCHES, "fetch")}.get(r["api"])
        if name is None or r.get("charged_bytes") is not None:
            return r["api"] in MUTATIONS
        who = user_of(r.get("principal") or ""), r.get("client_id") or ""
        return self._limits.bound(name, *self._limits.entity(name, *who))[0] is not None

    # -- requests ----------------------------------------------------------------------------

    def _request(self, r: Record) -> None:
        exempt = bool(r.get("exempt"))
        size, api = r.get("charged_bytes"), r["api"]
        first = timed = None
        if api == "PRODUCE" and size is not None:
            first = self._charged("produce", float(size), r)
        elif api in FETCHES and size is not None and not exempt:
            first = self._charged("fetch", float(size), r)
        elif api in MUTATIONS and r.get("mutations") is not None:
            first = self._charged("controller_mutation", float(r["mutations"]), r)
        if r.get("handler_time_ns") is not None and not exempt:
            timed = self._charged("request", r["handler_time_ns"] * (100.0 / 1e9), r)
        reports = self._p["broker_reports"] == "use"
        unsized = reports and api in FETCHES and size is None and not exempt
        if unsized and (r.get("throttle_ms") or 0) > (timed.throttle if timed else 0):
            first = self._explained(r)
        longest = max(first.throttle if first else 0, timed.throttle if timed else 0, 0)
        decides = self._deciding(first, timed, longest)
        if reports and timed is not None and decides is timed and not (first and first.throttle):
            self._learn_network(timed, r)
        if longest and first is not None and first.name == "fetch" and not unsized:
            sensor = self._sensor(first, r["ts_wall_ms"])
            sensor.record(-first.value, r["ts_wall_ms"], self._rules(first))
        verdict = "allowed"
        if first is not None and first.refused:
            verdict, rule = "refused", "refused_over_bound"
        elif longest:
            assert decides is not None
            verdict = "throttled"
            rule = {
                "request": "request_time_over_bound",
                "controller_mutation": "tokens_below_zero",
            }.get(decides.name, "rate_over_bound")
        elif decides is not None and decides.bound is not None:
            rule = "within_bound"
        else:
            rule = "exempt" if exempt and first is None else "no_bound"
        observed = r.get("throttle_ms")
        for charge in (first, timed):
            if charge is None:
                continue
            taken_back = longest and charge.name == "fetch"
            e = self._window(r, charge)
            e["requests"] += 1
            e["charged"] += 0.0 if taken_back or charge.refused else charge.value
            rates = [rate for rate in (e["rate_max"], charge.rate) if rate is not None]
            e["rate_max"] = max(rates, default=None)
            if charge is decides:
                if verdict != "allowed":
                    e["throttled"] += 1
                    e["throttle_ms"] += longest
                if observed is not None:
                    e["observed_throttle_ms"] = (e["observed_throttle_ms"] or 0) + observed
                    e["observed_throttled"] = (e["observed_throttled"] or 0) + (observed > 0)
        top = self._use(r, longest if observed is None else observed)
        row = {
            "api": api,
            "principal": r.get("principal"),
            "client_id": r.get("client_id"),
            "quota_type": None,
            "user": None,
            "client": None,
            "bound_level": "none",
            **dict.fromkeys(("bound", "rate", "window_ms", "tokens", "charged")),
            "throttle_ms": longest,
            "observed_throttle_ms": observed,
            "verdict": verdict,
            "top_topic": top,
        }
        if decides is not None:
            row |= {
                "quota_type": None if decides.bound is None else decides.name,
                "user": decides.entity[0],
                "client": decides.entity[1],
                "bound_level": decides.level,
                "bound": decides.bound,
                "rate": decides.rate,
                "window_ms": decides.span,
                "tokens": decides.tokens,
                "charged": decides.value,
            }
        if verdict != "allowed":
            self._put("client_quota_decisions", r, rule, row)
        if "client_quota_verdicts" in self._p["extra_outputs"]:
            self._put("client_quota_verdicts", r, rule, row)

    @staticmethod
    def _deciding(first: Charge | None, timed: Charge | None, longest: int) -> Charge | None:
        """On a tie the request quota decides a throttle time; nothing throttled, the other does."""
        if first is None or timed is None:
            return first or timed
        if first.refused:
            return first
        if longest:
            return timed if timed.throttle >= first.throttle else first
        return timed if timed.share > first.share else first

    def _start(self, r: Record) -> int:
        period: int = self._p["stats_window_ms"]
        return r["ts_wall_ms"] // period * period

    def _window(self, r: Record, charge: Charge, basis: str = "requests") -> Row:
        start = self._start(r)
        key = (start, charge.name, *charge.entity, basis)
        empty = {
            "requests": 0,
            "charged": 0.0,
            "rate_max": None,
            "sum": 0.0,
            "throttled": 0,
            "throttle_ms": 0,
            "observed_throttled": None,
            "observed_throttle_ms": None,
        }
        found = self._stats.setdefault(key, empty)
        found |= {"bound": charge.bound, "level": charge.level, "feed": r["source_feed"]}
        return found

    def _use(self, r: Record, throttle_ms: int) -> str | None:
        """The largest topic of a request, whose use it is; bytes are those of each topic."""
        topics = topics_of(r.get("topic_bytes"))
        top = max(topics, key=topics.__getitem__) if topics else None
        charged = r.get("charged_bytes") or 0
        for topic, size in topics.items():
            self._used(r, topic)["bytes"] += size
        e = self._used(r, top)
        e["bytes"] += max(charged - sum(topics.values()), 0)
        e["requests"] += 1
        e["ns"] += r.get("handler_time_ns") or 0
        e["throttle_ms"] += throttle_ms
        return top

    def _used(self, r: Record, topic: str | None) -> Row:
        start = self._start(r)
        key = (start, r.get("principal"), r.get("client_id"), r["api"], topic)
        none = {"requests": 0, "bytes": 0, "ns": 0, "throttle_ms": 0}
        found = self._usage.setdefault(key, none)
        found["feed"] = r["source_feed"]
        return found

    def _measured(self, r: Record) -> None:
        name, entity = r["quota_type"], (r.get("principal") or "", r.get("client_id") or "")
        bound, level = self._limits.bound(name, *entity)
        reported = self._p["broker_reports"] == "use"
        if reported and r.get("bound_milli") is not None:
            # Kafka before 3.5: a throttle time of (rate - bound) / bound is negative or divided by 0.
            bound = r["bound_milli"] / 1000.0 if r["bound_milli"] > 0 else 2.0**63
        had = self._stats.get((self._start(r), name, *entity, "metrics"))
        if bound is None and had and had["throttled"]:
            bound_of, level = had["bound"], had["level"]
        else:
            bound_of = bound
        e = self._window(r, Charge(name, 0.0, entity, bound_of, level), "metrics")
        e["requests"] += 1
        # A mean of a minute outlives its limit; where no limit is known at all, it is all there is.
        over = (r.get("throttle_avg_milli") or 0) > 0 and (
            bound is not None or not any(map(self._limits.is_measured, TYPES))
        )
        over = over or (name == "controller_mutation" and r["value_milli"] < 0)
        if not reported:
            rated = bound is not None and name != "controller_mutation"
            over = rated and r["value_milli"] / 1000.0 > bound
        if name != "controller_mutation":
            rate = r["value_milli"] / 1000.0
            e["sum"] += rate
            e["rate_max"] = rate if e["rate_max"] is None else max(e["rate_max"], rate)
        e["throttled"] += over

    # -- rows --------------------------------------------------------------------------------

    def _put(self, table: str, r: Record, rule: str, columns: Row) -> None:
        rows = self.rows[table]
        again = rows and rows[-1]["ts_wall_ms"] == r["ts_wall_ms"]
        rows.append(
            {
                **self._at,
                "ts_mono_ns": r.get("ts_mono_ns"),
                "ts_wall_ms": r["ts_wall_ms"],
                "source_feed": r["source_feed"],
                "rule": rule,
                "row_no": rows[-1]["row_no"] + 1 if again else 0,
                **columns,
            }
        )

    def _window_row(self, start: int, feed: str, rule: str, number: int, columns: Row) -> Row:
        period = self._p["stats_window_ms"]
        return {
            **self._at,
            "ts_mono_ns": None,
            "ts_wall_ms": start + period,
            "source_feed": feed,
            "rule": rule,
            "row_no": number,
            "window_start_ms": start,
            "window_ms": period,
            **columns,
        }

    def close(self, until_ms: int) -> None:
        """Write the windows that end by a time."""
        period = self._p["stats_window_ms"]
        ended = sorted({k[0] for k in (*self._stats, *self._usage) if k[0] + period <= until_ms})
        for start in ended:
            keys = sorted(
                (k for k in self._stats if k[0] == start), key=lambda k: [x.encode() for x in k[1:]]
            )
            for number, key in enumerate(keys):
                self.rows["client_quota_stats"].append(
                    self._stats_row(key, self._stats[key], number)
                )
            self._close_usage(start)

    def _stats_row(self, key: tuple[Any, ...], e: Row, number: int) -> Row:
        start, name, user, client, basis = key
        metrics = basis == "metrics"
        seconds = self._p["stats_window_ms"] / 1000.0
        average = e["sum"] / e["requests"] if metrics else e["charged"] / seconds
        most, bound = e["rate_max"], e["bound"]
        rule = "measured" if metrics else "window"
        return self._window_row(
            start,
            e["feed"],
            rule,
            number,
            {
                "quota_type": name,
                "user": user,
                "client": client,
                "requests": None if metrics else e["requests"],
                "charged": None if metrics else e["charged"],
                "rate_max": most,
                "rate_avg": None if metrics and name == "controller_mutation" else average,
                "bound": bound,
                "bound_level": e["level"],
                "utilisation": None if most is None or not bound else most / bound,
                "throttled": e["throttled"],
                "throttle_ms": None if metrics else e["throttle_ms"],
                "observed_throttled": e["observed_throttled"],
                "observed_throttle_ms": e["observed_throttle_ms"],
                "basis": basis,
            },
        )

    def _close_usage(self, start: int) -> None:
        def place(key: tuple[Any, ...]) -> tuple[Any, ...]:
            e = self._usage[key]
            texts = [(x is None, (x or "").encode()) for x in key[1:]]
            return -e["bytes"], -e["requests"], *texts

        keys = sorted((k for k in self._usage if k[0] == start), key=place)
        most = self._p["usage_rows"]
        for number, key in enumerate(keys[:most]):
            self._usage_row(start, key[1:], [self._usage[key]], number)
        if keys[most:]:
            others = (None, "<others>", None, None)
            self._usage_row(start, others, [self._usage[key] for key in keys[most:]], most)

    def _usage_row(self, start: int, key: Sequence[Any], every: list[Row], number: int) -> None:
        principal, client, api, topic = key
        columns = {
            "principal": principal,
            "client_id": client,
            "api": api,
            "topic": topic,
            **{n: sum(e[n] for e in every) for n in ("requests", "bytes", "throttle_ms")},
            "handler_time_ms": float(sum(e["ns"] for e in every)) / 1e6,
        }
        row = self._window_row(start, every[0]["feed"], "window", number, columns)
        self.rows["client_usage"].append(row)


# -- whole traces ----------------------------------------------------------------------------


def key_of(record: Record) -> tuple[str, str]:
    """Cluster and broker."""
    return record["cluster"], record["broker"]


def judge(
    records: Sequence[Record],
    params: Mapping[str, Any],
    configured: Sequence[str] = (),
    until_ms: int | None = None,
) -> dict[str, list[Row]]:
    """Rows by table after all records, with every broker's clock moved on to `until_ms`."""
    rows: dict[str, list[Row]] = {table: [] for table in TABLES}
    own = [r for r in records if r["event_type"] in OWN]
    for cluster, broker in sorted({key_of(r) for r in own}):
        mine = [r for r in own if key_of(r) == (cluster, broker)]
        shared = [
            r
            for r in records
            if r["event_type"] in SHARED
            and r["cluster"] == cluster
            and (r["broker"] == broker or (r["broker"] == "*" and r["event_type"] == "policy"))
        ]
        judged = Broker(cluster, broker, params, configured)
        for record in sorted([*each_once(mine, _level), *each_once(shared, _level)], key=_level):
            judged.take(record)
        latest = max(r["ts_wall_ms"] for r in mine) - params["allowed_lateness_ms"]
        judged.close(latest if until_ms is None else max(until_ms, latest))
        for table, found in judged.rows.items():
            rows[table].extend(found)
    return rows
