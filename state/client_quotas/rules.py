"""What a request is charged, whether a quota throttles it, and which one is said to decide.

A broker charges the bytes of a request, or the mutations, and apart from them its time; the longer of
two throttle times holds. Bytes of a throttled fetch are taken back, since it answers with none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.client_quotas import layout as L
from state.client_quotas.layout import (
    NOBODY,
    NULL,
    Int,
    Out,
    Record,
    World,
    compiled,
    inlined,
)
from state.client_quotas.levels import limit_of, remember_kinds, resolve
from state.client_quotas.sensors import (
    charge_rate,
    charge_tokens,
    explain_rate,
    learn_network,
    record,
    samples_of,
    sampling_of,
    sensor_of,
)
from state.client_quotas.use import add_stats, count_use, window_of
from state.engine import kafka_quota
from state.engine.names import NONE
from state.engine.tables import at

NANOS_TO_PERCENT = 100.0 / 1e9
"""Share of one thread's second, in percent, that a nanosecond is."""
_NAN = np.float64(np.nan)
_NOTHING = np.float64(0.0)
_UNBOUNDED = np.float64(2.0**63)
_ZERO, _ONE = np.int64(0), np.int64(1)
_NO_NAME = np.int64(NONE)


class Charge(NamedTuple):
    """What a request was charged to a sensor, and what the broker makes of it."""

    type: Int
    """The type of the quota; NOBODY: it was charged nothing."""
    sensor: Int
    value: float
    bound: float
    """NaN without a limit."""
    rate: float
    span_ms: Int
    tokens: float
    throttle_ms: Int
    refused: bool


@inlined
def _nothing() -> Charge:
    return Charge(NOBODY, NOBODY, _NOTHING, _NAN, _NAN, NULL, _NAN, _ZERO, False)


# -- what is charged -------------------------------------------------------------------------


@inlined
def _is_measured(w: World, key: Int, type_: Int) -> bool:
    """Whether a quota of a type was ever set on a broker."""
    return bool((w.keys[key]["kinds"] >> (3 * type_)) & 7 != 0)


@inlined
def _is_exempt(r: Record) -> bool:
    return bool(r.exempt == 1)


@inlined
def _is_unsized_fetch(r: Record) -> bool:
    return bool(r.api_kind == L.FETCHES and r.charged_bytes == NULL and not _is_exempt(r))


@inlined
def _amount_of(r: Record) -> tuple[Int, float]:
    """The type of quota that a request counts for beside its time, and how much."""
    kind = r.api_kind
    if kind == L.PRODUCES and r.charged_bytes != NULL:
        return L.PRODUCE, np.float64(r.charged_bytes)
    if kind == L.FETCHES and r.charged_bytes != NULL and not _is_exempt(r):
        return L.FETCH, np.float64(r.charged_bytes)
    if kind == L.MUTATES and r.mutations != NULL:
        return L.MUTATION, np.float64(r.mutations)
    return NOBODY, _NOTHING


@inlined
def charge_amount(w: World, r: Record) -> Charge:
    """Charge the bytes or the mutations of a request."""
    type_, value = _amount_of(r)
    if type_ < 0 or not _is_measured(w, r.key, type_):
        return _nothing()
    now, bound = r.ts_wall_ms, w.pair_bound[r.pair, type_]
    s = sensor_of(w, r.pair, type_, now)
    if type_ != L.MUTATION:
        rate, span, throttle = charge_rate(w, s, type_, value, now, bound)
        return Charge(type_, s, value, bound, rate, span, _NAN, throttle, False)
    tokens, throttle, refused = charge_tokens(w, s, value, now, bound, r.strict != 0)
    rate, span = _NAN, NULL
    if w.sensors.rows[s].used > 0:
        rate, span = kafka_quota.sampled_rate(samples_of(w, s), now, sampling_of(w, type_))
    return Charge(type_, s, value, bound, rate, span, tokens, throttle, refused)


@inlined
def charge_time(w: World, r: Record) -> Charge:
    """Charge the time of a request, with that of network threads as far as it is known."""
    if r.handler_time_ns == NULL or _is_exempt(r) or not _is_measured(w, r.key, L.REQUEST):
        return _nothing()
    now, bound = r.ts_wall_ms, w.pair_bound[r.pair, L.REQUEST]
    s = sensor_of(w, r.pair, L.REQUEST, now)
    percent = r.handler_time_ns * NANOS_TO_PERCENT * (1.0 + w.sensors.rows[s].network)
    rate, span, throttle = charge_rate(w, s, L.REQUEST, percent, now, bound)
    return Charge(L.REQUEST, s, percent, bound, rate, span, _NAN, throttle, False)


@inlined
def explain_fetch(w: World, r: Record, amount: Charge, time: Charge) -> Charge:
    """The charge of a fetch without a size. The answer to a throttled fetch is empty, so its size may
    follow from the throttle time that the broker answered, unless its time explains that."""
    observed, bound = r.throttle_ms, w.pair_bound[r.pair, L.FETCH]
    if (
        w.settings[0]["reports"] == 0
        or not _is_unsized_fetch(r)
        or not observed > time.throttle_ms
        or not _is_measured(w, r.key, L.FETCH)
        or not bound > 0.0
    ):
        return amount
    s = sensor_of(w, r.pair, L.FETCH, r.ts_wall_ms)
    rate, span, value = explain_rate(w, s, L.FETCH, observed, r.ts_wall_ms, bound)
    return Charge(L.FETCH, s, value, bound, rate, span, _NAN, np.int64(observed), False)


# -- which of the two decides ----------------------------------------------------------------


@compiled
def _share(rate: float, bound: float) -> float:
    """Rate / bound, for finding the quota that is nearest to its limit; below 0 without a bound."""
    if bound != bound:
        return -1.0
    return rate / bound if bound > 0.0 else np.inf


@inlined
def _decides_by_time(amount: Charge, time: Charge) -> bool:
    """Whether the quota on time decides: it throttles for longer, or is nearer to its limit."""
    if time.type < 0 or amount.type < 0 or amount.refused:
        return bool(time.type >= 0 and amount.type < 0)
    if max(amount.throttle_ms, time.throttle_ms) > 0:
        return bool(time.throttle_ms >= amount.throttle_ms)
    share = _share(amount.rate, amount.bound)
    if amount.type == L.MUTATION and amount.bound == amount.bound:
        share = 0.0
    return bool(_share(time.rate, time.bound) > share)


@inlined
def _may_be_of_another(w: World, r: Record) -> bool:
    """Whether the throttle time of a request may be that of a quota which it was not charged to here:
    of the controller, or of bytes that are not known."""
    kind = r.api_kind
    if kind == L.PRODUCES or kind == L.FETCHES:
        type_ = L.PRODUCE if kind == L.PRODUCES else L.FETCH
        bound = w.pair_bound[r.pair, type_]
        return bool(r.charged_bytes == NULL and bound == bound)
    return bool(kind == L.MUTATES)


@inlined
def _learn(w: World, r: Record, amount: Charge, time: Charge) -> None:
    """Learn the time of network threads from a throttle time that only the quota on time explains."""
    observed = r.throttle_ms
    if (
        w.settings[0]["reports"] != 0
        and amount.throttle_ms == 0
        and observed != NULL
        and observed != time.throttle_ms
        and not _may_be_of_another(w, r)
    ):
        learn_network(w, time.sensor, np.int64(observed), time.rate, time.span_ms, time.bound)


# -- the verdict -----------------------------------------------------------------------------


@inlined
def _rule_of(r: Record, amount: Charge, by_time: bool, throttle_ms: Int, bounded: bool) -> Int:
    if amount.refused:
        return L.REFUSED_OVER
    if throttle_ms > 0:
        if by_time:
            return L.TIME_OVER
        return L.TOKENS_BELOW if amount.type == L.MUTATION else L.RATE_OVER
    if bounded:
        return L.WITHIN
    return L.EXEMPT if _is_exempt(r) and amount.type < 0 else L.UNBOUND


@inlined
def _judge(w: World, o: Out, r: Record, amount: Charge, time: Charge, by_time: bool) -> None:
    """Say what the quota that decides has found."""
    g, pair = o.given[0], r.pair
    throttle_ms = max(amount.throttle_ms, time.throttle_ms, _ZERO)
    type_ = time.type if by_time else amount.type
    bound = time.bound if by_time else amount.bound
    bounded = bound == bound
    g["type"] = type_ if bounded else NOBODY
    g["user"], g["client"], g["level"] = _NO_NAME, _NO_NAME, L.NO_LEVEL
    if type_ >= 0:
        g["user"], g["client"] = w.pair_tags[pair, type_, 0], w.pair_tags[pair, type_, 1]
        g["level"] = w.pair_level[pair, type_]
    g["bound"] = bound
    g["rate"] = time.rate if by_time else amount.rate
    g["span_ms"] = time.span_ms if by_time else amount.span_ms
    g["tokens"] = _NAN if by_time or not bounded else amount.tokens
    g["charged"] = _NAN if type_ < 0 else time.value if by_time else amount.value
    g["throttle_ms"] = throttle_ms
    g["rule"] = _rule_of(r, amount, by_time, throttle_ms, bounded)
    g["verdict"] = L.ALLOWED
    if amount.refused:
        g["verdict"] = L.REFUSED
    elif throttle_ms > 0:
        g["verdict"] = L.THROTTLED


# -- what is counted -------------------------------------------------------------------------


@inlined
def _count(w: World, r: Record, charge: Charge, value: float, decides: bool, given: Record) -> None:
    """Count a charge in the open window of its entity and, if its quota decides, the verdict."""
    e = w.stats.rows[add_stats(w, r, charge.type, value, charge.rate)]
    if not decides:
        return
    if given["verdict"] != L.ALLOWED:
        e.throttled += 1
        e.throttle_ms += given["throttle_ms"]
    observed = r.throttle_ms
    if observed != NULL:
        e.observed += 1
        e.observed_ms += observed
        e.observed_throttled += 1 if observed > 0 else 0


@inlined
def _put_verdict(row: Record, i: Int, number: Int, given: Record) -> None:
    row["record"], row["row_no"] = i, number
    row["rule"], row["verdict"], row["type"] = given["rule"], given["verdict"], given["type"]
    row["user"], row["client"], row["level"] = given["user"], given["client"], given["level"]
    row["bound"], row["rate"], row["span_ms"] = given["bound"], given["rate"], given["span_ms"]
    row["tokens"], row["charged"] = given["tokens"], given["charged"]
    row["throttle_ms"], row["top_topic"] = given["throttle_ms"], given["top_topic"]


@inlined
def _put_rows(w: World, o: Out, r: Record) -> None:
    """The rows of a request, numbered among those of its broker and time."""
    p, given = w.settings[0], o.given[0]
    if p["row_key"] != r.key or p["row_ms"] != r.ts_wall_ms:
        p["row_key"], p["row_ms"], p["decision_no"], p["verdict_no"] = r.key, r.ts_wall_ms, 0, 0
    if given["verdict"] != L.ALLOWED:
        _put_verdict(o.decisions[p["decisions"]], r.record, p["decision_no"], given)
        p["decisions"] += 1
        p["decision_no"] += 1
    if p["verdicts_too"] != 0:
        _put_verdict(o.verdicts[p["verdicts"]], r.record, p["verdict_no"], given)
        p["verdicts"] += 1
        p["verdict_no"] += 1


# -- records ---------------------------------------------------------------------------------


@inlined
def take_request(w: World, o: Out, r: Record) -> None:
    """Judge one request, once its broker has reached its time."""
    key, pair, given = r.key, r.pair, o.given[0]
    if w.keys[key]["began"] == 0:
        remember_kinds(w, key, _ONE)
    if w.pair_version[pair] != w.links[key]["version"]:
        resolve(w, pair)
    charged, time = charge_amount(w, r), charge_time(w, r)
    amount = explain_fetch(w, r, charged, time)
    by_time = _decides_by_time(amount, time)
    if by_time:
        _learn(w, r, amount, time)
    _judge(w, o, r, amount, time, by_time)
    value = amount.value
    if amount.refused or (amount.type == L.FETCH and given["throttle_ms"] > 0):
        value = _NOTHING
        if not amount.refused and not _is_unsized_fetch(r):
            record(w, amount.sensor, L.FETCH, -amount.value, r.ts_wall_ms)
    if amount.type >= 0:
        _count(w, r, amount, value, not by_time, given)
    if time.type >= 0:
        _count(w, r, time, time.value, by_time, given)
    observed = r.throttle_ms
    known = observed if observed != NULL else given["throttle_ms"]
    given["top_topic"] = count_use(w, r, known)
    _put_rows(w, o, r)


@inlined
def take_rate(w: World, r: Record) -> None:
    """Add a rate that the broker measured to the open window of its entity."""
    p, key, now, type_ = w.settings[0], r.key, r.ts_wall_ms, r.quota_type
    user, client = w.pair_names[r.pair, 1], w.pair_names[r.pair, 2]
    window = window_of(w, now)
    e = w.stats.rows[at(w.stats, (key, window, type_, user, client, L.OF_METRICS))]
    bound, level = limit_of(w, key, user, client, type_)
    reported = p["reports"] != 0
    if reported and r.bound_milli != NULL:
        # 0 and less, of brokers before 3.5, throttle nobody
        bound = r.bound_milli / 1000.0 if r.bound_milli > 0 else _UNBOUNDED
    e.feed, e.last_ms = r.source_feed, now
    e.requests += 1
    # A limit that went amid the window is the one that throttled in it.
    if bound == bound or e.throttled == 0:
        e.bound, e.level = bound, level
    over: Record = False
    if type_ == L.MUTATION:
        over = reported and r.value_milli < 0
    else:
        rate = r.value_milli / 1000.0
        e.rate_sum += rate
        if not e.rate_max >= rate:
            e.rate_max = rate
        over = not reported and rate > bound
    # A mean of a minute outlives its limit; where no limit is known at all, it is all there is.
    if over or (
        (reported and r.throttle_avg_milli != NULL and r.throttle_avg_milli > 0)
        and (bound == bound or w.keys[key]["kinds"] == 0)
    ):
        e.throttled += 1
