"""Requests, measured rates and changes of limits of a shard, in their order."""

from __future__ import annotations

import numpy as np

from state.client_quotas import layout as L
from state.client_quotas.layout import (
    NOBODY,
    NULL,
    Array,
    Feed,
    Int,
    Out,
    Record,
    World,
    compiled,
    inlined,
)
from state.client_quotas.levels import kinds_of, limit_of, resolve
from state.client_quotas.shared import STARTS, USED
from state.engine import kafka_quota
from state.engine.broker_changes import rank_at
from state.engine.names import NONE
from state.engine.tables import at, is_short

DONE = np.int64(-1)
NANOS_TO_PERCENT = 100.0 / 1e9
"""Share of one thread's second, in percent, that a nanosecond is."""
MOST_NETWORK = 10.0
"""Most time of network threads that a throttle time can tell, in handler times: what needs more has
another cause."""
_NAN = np.nan
_UNBOUNDED = np.float64(2.0**63)
_ZERO, _ONE = np.int64(0), np.int64(1)
NEW = np.int64(2)
"""Most sensors, and most windows, that one record adds: of bytes or mutations, and of time."""
_NO_NAME = np.int64(NONE)


# -- shared records --------------------------------------------------------------------------


@compiled
def _holds(w: World, key: Int, rank: Int) -> bool:
    """Whether a shared record is one of a broker: its own, of all of its cluster, or configured."""
    k, cluster, broker = w.keys[key], w.cluster[rank], w.broker[rank]
    if cluster != k["cluster"]:
        return bool(cluster == _NO_NAME)
    return bool(broker == k["broker"] or broker == w.settings[0]["everywhere"])


@compiled
def _put_document(w: World, key: Int, rank: Int) -> None:
    """Apply a document to a broker."""
    d, entity = w.documents[rank], w.entity[rank]
    in_stream = w.cluster[rank] != _NO_NAME
    sets = False
    for t in range(L.TYPES):
        bound = _bound_of(d, np.int64(t))
        sets = sets or bound == bound
        if in_stream:
            w.stream[key, entity, t] = bound
        else:
            w.configured[key, entity, t] = bound
    if in_stream:
        w.from_stream[key, entity] = 1 if sets else 0
    w.links[key]["version"] += 1


@compiled
def _bound_of(d: Record, type_: Int) -> float:
    if type_ == L.PRODUCE:
        return d["produce"]
    if type_ == L.FETCH:
        return d["fetch"]
    if type_ == L.REQUEST:
        return d["request"]
    return d["mutation"]


@compiled
def new_sensor(w: World, s: Int) -> None:
    """Reset a sensor."""
    e = w.sensors.rows[s]
    e.tokens, e.refilled_ms, e.recorded_ms = 0.0, 0, NULL
    e.used, e.current = 0, 0
    e.network = 0.0


@compiled
def _begin(w: World, key: Int, began: Int) -> None:
    """Remember the kinds of limits that are in force, and no others."""
    kinds = _ZERO
    for entity in range(w.entities.used[0]):
        kinds |= kinds_of(w, key, np.int64(entity))
    w.keys[key]["began"], w.keys[key]["kinds"] = began, kinds
    w.links[key]["version"] += 1


@compiled
def _start_anew(w: World, key: Int) -> None:
    """The broker has started: no sensor has a history, and limits are read again."""
    for s in range(w.sensors.used[0]):
        if w.sensors.rows[s].key == key:
            new_sensor(w, np.int64(s))
    if w.keys[key]["began"] != 0:
        _begin(w, key, _ONE)


@compiled
def _forgets(w: World, key: Int, rank: Int) -> bool:
    """Apply a document; returns whether the broker forgets a kind of limits because of it."""
    before = kinds_of(w, key, w.entity[rank])
    _put_document(w, key, rank)
    kinds = w.documents[rank]["kinds"]
    forgets = kinds if kinds >= 0 else w.settings[0]["forgets"]
    return forgets != 0 and before & ~kinds_of(w, key, w.entity[rank]) != 0


@compiled
def take_shared(w: World, key: Int) -> None:
    """Apply the next shared record to a broker."""
    rank = w.links[key]["next"]
    w.links[key]["next"] = rank + 1
    if not _holds(w, key, rank):
        return
    what = w.documents[rank]["what"]
    if what == STARTS:
        _start_anew(w, key)
    elif what >= USED and w.entity[rank] >= 0:
        if _forgets(w, key, rank):
            _begin(w, key, w.keys[key]["began"])
        w.keys[key]["kinds"] |= kinds_of(w, key, w.entity[rank])


@compiled
def prepare(w: World, begin_ms: Array) -> None:
    """Move every broker past the shared records before its clock at the beginning of the call (NULL:
    none).

    Those that came with this call hold from the clock on. A start among them that is not newer than
    one that the broker has had is ignored.
    """
    for k in range(len(w.keys)):
        key, begin = np.int64(k), begin_ms[k]
        had_ms, starts, forgets, rank = NULL, False, False, _ZERO
        while rank < len(w.documents):
            at_ms, d = w.shared_ms[rank], w.documents[rank]
            if at_ms != NULL and (begin == NULL or at_ms >= begin):
                break
            if _holds(w, key, rank):
                if d["what"] == STARTS:
                    if d["fresh"] == 0:
                        had_ms, starts = at_ms, False
                    elif at_ms > had_ms:
                        starts = True
                elif d["what"] >= USED and w.entity[rank] >= 0:
                    gone = _forgets(w, key, rank)
                    if d["fresh"] != 0:
                        forgets = forgets or gone
                        w.keys[key]["kinds"] |= kinds_of(w, key, w.entity[rank])
            rank += 1
        w.links[key]["next"] = rank
        if starts:
            _start_anew(w, key)
        elif forgets:
            _begin(w, key, w.keys[key]["began"])


@inlined
def _reach(w: World, key: Int, rank: Int) -> None:
    """Move a broker past the shared records before a rank."""
    while w.links[key]["next"] < rank:
        take_shared(w, key)


# -- sensors ---------------------------------------------------------------------------------


@inlined
def samples_of(w: World, s: Int) -> kafka_quota.Samples:
    """The samples of a sensor."""
    e = w.sensors.rows[s]
    first = s * w.settings[0]["stride"]
    return kafka_quota.Samples(
        w.sample_start, w.sample_last, w.sample_total, first, e.used, e.current
    )


@inlined
def sampling_of(w: World, type_: Int) -> kafka_quota.Sampling:
    """How the rates of a type are sampled."""
    p = w.settings[0]
    if type_ == L.MUTATION:
        return kafka_quota.Sampling(p["mutation_samples"], p["mutation_window_ms"], p["stat"])
    return kafka_quota.Sampling(p["samples"], p["window_ms"], p["stat"])


@inlined
def sensor_of(w: World, pair: Int, type_: Int, now: Int) -> Int:
    """The sensor that a request of a type is charged to, reset if it has been idle for too long."""
    s = w.pair_sensor[pair, type_]
    if s < 0:
        user, client = w.pair_tags[pair, type_, 0], w.pair_tags[pair, type_, 1]
        s = at(w.sensors, (w.pair_names[pair, 0], type_, user, client))
        w.pair_sensor[pair, type_] = s
    e = w.sensors.rows[s]
    if e.recorded_ms != NULL and now - e.recorded_ms > w.settings[0]["idle_ms"]:
        new_sensor(w, s)
    return s


@inlined
def record(w: World, s: Int, type_: Int, value: float, now: Int) -> None:
    """Charge a sensor, without a test."""
    e = w.sensors.rows[s]
    e.used, e.current = kafka_quota.add_sample(samples_of(w, s), value, now, sampling_of(w, type_))
    e.recorded_ms = now


@inlined
def read_rate(w: World, s: Int, type_: Int, now: Int) -> tuple[float, Int]:
    """Rate (per second) and its span (ms); samples that have expired start anew."""
    return kafka_quota.read_rate(samples_of(w, s), now, sampling_of(w, type_))


@inlined
def charge_rate(
    w: World, s: Int, type_: Int, value: float, now: Int, bound: float
) -> tuple[float, Int, Int]:
    """Record, then test: rate, its span (ms) and the throttle time (ms, as reported)."""
    record(w, s, type_, value, now)
    rate, span = read_rate(w, s, type_, now)
    if not rate > bound:
        return rate, span, _ZERO
    throttle = kafka_quota.rate_throttle(rate, bound, span)
    if type_ == L.REQUEST:
        throttle = min(throttle, np.int64(w.settings[0]["window_ms"]))
    return rate, span, kafka_quota.reported_throttle(throttle, w.settings[0]["wraps"] != 0)


@inlined
def charge_tokens(
    w: World, s: Int, value: float, now: Int, bound: float, strict: bool
) -> tuple[float, Int, bool]:
    """Tokens after the charge, throttle time (ms, as reported) and whether it is refused.

    Strict: test, then record; what is over the limit is not charged. Permissive: record, then test.
    """
    p, e = w.settings[0], w.sensors.rows[s]
    samples, span = p["mutation_samples"], p["mutation_window_ms"]
    if strict:
        tokens = kafka_quota.read_tokens(e, now, bound, samples, span)
        if tokens < 0.0:
            throttle = kafka_quota.tokens_throttle(tokens, bound)
            return tokens, kafka_quota.reported_throttle(throttle, p["wraps"] != 0), True
    kafka_quota.record_tokens(e, value, now, bound, samples, span)
    record(w, s, L.MUTATION, value, now)
    tokens = kafka_quota.tokens_at(e, now, bound, samples, span)
    if strict or not tokens < 0.0:
        return tokens, _ZERO, False
    throttle = kafka_quota.tokens_throttle(tokens, bound)
    return tokens, kafka_quota.reported_throttle(throttle, p["wraps"] != 0), False


@inlined
def explain_rate(
    w: World, s: Int, type_: Int, throttle_ms: Int, now: Int, bound: float
) -> tuple[float, Int, float]:
    """The rate for which a broker throttles for so long, its span (ms), and what was charged; that
    was taken back."""
    record(w, s, type_, 0.0, now)
    before, span = read_rate(w, s, type_, now)
    rate = bound * (1.0 + throttle_ms / span)
    return rate, span, max(rate - before, 0.0) * span / 1000.0


@inlined
def learn_network(w: World, s: Int, throttle_ms: Int, rate: float, span: Int, bound: float) -> None:
    """Charge a sensor of request time so much more, now and in future, that it has the rate for which
    the broker throttles for so long.

    A broker also charges it for the time of its network threads, which no record has.
    """
    e, most = w.sensors.rows[s], np.int64(w.settings[0]["window_ms"])
    if not (rate > 0.0 and bound > 0.0) or throttle_ms > most:
        return
    before = 1.0 + e.network
    after = max(before * bound * (1.0 + throttle_ms / span) / rate, 1.0)
    if after > 1.0 + MOST_NETWORK:
        return
    e.network = after - 1.0
    first = s * w.settings[0]["stride"]
    for i in range(first, first + e.used):
        w.sample_total[i] *= after / before


# -- windows ---------------------------------------------------------------------------------


@inlined
def _use(w: World, f: Feed, i: Int, window: Int, topic: Int) -> Int:
    """The use of a topic by the client of a request in the open window; mostly that of the request
    of its kind before."""
    key, api, who, client = f.key[i], f.api[i], f.principal[i], f.client_id[i]
    pair, kind = f.pair[i], f.api_kind[i]
    place = w.pair_use[pair, kind]
    if place >= 0:
        e = w.usage.rows[place]
        if (
            e.topic != topic
            or e.window != window
            or e.api != api
            or e.principal != who
            or e.client != client
        ):
            place = NOBODY
    if place < 0:
        place = at(w.usage, (key, window, api, who, client, topic))
    w.usage.rows[place].feed, w.usage.rows[place].last_ms = f.feed[i], f.at_ms[i]
    w.pair_use[pair, kind] = place
    return place


@inlined
def _count_use(w: World, f: Feed, i: Int, window: Int, throttle_ms: Int) -> Int:
    """Add a request to the use of its topics; returns the largest one. What is charged beyond the
    bytes of topics, and all else, belongs to that one."""
    most, sum_, largest = NOBODY, _ZERO, NOBODY
    for j in range(f.topic_start[i], f.topic_start[i + 1]):
        place = _use(w, f, i, window, f.topic[j])
        w.usage.rows[place].bytes += f.topic_bytes[j]
        sum_ += f.topic_bytes[j]
        if f.topic_bytes[j] > most:
            largest, most = place, f.topic_bytes[j]
    if largest < 0:
        largest = _use(w, f, i, window, _NO_NAME)
    u = w.usage.rows[largest]
    u.requests += 1
    u.throttle_ms += throttle_ms
    if f.bytes[i] != NULL:
        u.bytes += max(f.bytes[i] - sum_, _ZERO)
    if f.handler_ns[i] != NULL:
        u.handler_ns += f.handler_ns[i]
    return u.topic


# -- records ---------------------------------------------------------------------------------


@inlined
def _may_be_of_another(w: World, f: Feed, i: Int) -> bool:
    """Whether the throttle time of a request may be that of a quota which it was not charged to here:
    of the controller, or of bytes that are not known."""
    kind = f.api_kind[i]
    if kind == L.PRODUCES or kind == L.FETCHES:
        type_ = L.PRODUCE if kind == L.PRODUCES else L.FETCH
        bound = w.pair_bound[f.pair[i], type_]
        return bool(f.bytes[i] == NULL and bound == bound)
    return bool(kind == L.MUTATES)


@compiled
def _share(rate: float, bound: float) -> float:
    """Rate / bound, for finding the quota that is nearest to its limit; below 0 without a bound."""
    if bound != bound:
        return -1.0
    return rate / bound if bound > 0.0 else np.inf


@inlined
def _add_stats(
    w: World, f: Feed, i: Int, window: Int, type_: Int, value: float, rate: float
) -> Int:
    """Add a charge to the open window of its entity."""
    pair = f.pair[i]
    place = w.pair_stats[pair, type_]
    if place < 0 or w.stats.rows[place].window != window:
        user, client = w.pair_tags[pair, type_, 0], w.pair_tags[pair, type_, 1]
        place = at(w.stats, (f.key[i], window, type_, user, client, L.OF_REQUESTS))
        w.pair_stats[pair, type_] = place
    e = w.stats.rows[place]
    e.requests += 1
    e.charged += value
    if not e.rate_max >= rate:
        e.rate_max = rate
    e.bound, e.level = w.pair_bound[pair, type_], w.pair_level[pair, type_]
    e.feed, e.last_ms = f.feed[i], f.at_ms[i]
    return place


@inlined
def _put_verdict(w: World, row: Record, f: Feed, i: Int, number: Int, given: Record) -> None:
    row["record"], row["row_no"] = i, number
    row["rule"], row["verdict"], row["type"] = given["rule"], given["verdict"], given["type"]
    row["user"], row["client"], row["level"] = given["user"], given["client"], given["level"]
    row["bound"], row["rate"], row["span_ms"] = given["bound"], given["rate"], given["span_ms"]
    row["tokens"], row["charged"] = given["tokens"], given["charged"]
    row["throttle_ms"], row["top_topic"] = given["throttle_ms"], given["top_topic"]


@inlined
def _is_measured(w: World, key: Int, type_: Int) -> bool:
    """Whether a quota of a type was ever set on a broker."""
    return bool((w.keys[key]["kinds"] >> (3 * type_)) & 7 != 0)


@inlined
def take_request(w: World, o: Out, f: Feed, i: Int) -> None:
    """Judge one request, once its broker has reached its time."""
    p, key, now, pair = w.settings[0], f.key[i], f.at_ms[i], f.pair[i]
    if w.keys[key]["began"] == 0:
        _begin(w, key, _ONE)
    if w.pair_version[pair] != w.links[key]["version"]:
        resolve(w, pair)
    window = now // p["period_ms"] * p["period_ms"]
    exempt, kind = f.exempt[i] == 1, f.api_kind[i]

    # the quota on bytes or mutations
    type_: Int
    type_, value, charged = NOBODY, np.float64(0.0), False
    if kind == L.PRODUCES and f.bytes[i] != NULL:
        type_, value = L.PRODUCE, np.float64(f.bytes[i])
    elif kind == L.FETCHES and f.bytes[i] != NULL and not exempt:
        type_, value = L.FETCH, np.float64(f.bytes[i])
    elif kind == L.MUTATES and f.mutations[i] != NULL:
        type_, value = L.MUTATION, np.float64(f.mutations[i])
    bound: Record
    rate, span, tokens, throttle, refused = _NAN, NULL, _NAN, _ZERO, False
    bound, s = _NAN, NOBODY
    if type_ >= 0 and _is_measured(w, key, type_):
        charged, bound = True, w.pair_bound[pair, type_]
        s = sensor_of(w, pair, type_, now)
        if type_ == L.MUTATION:
            tokens, throttle, refused = charge_tokens(w, s, value, now, bound, f.strict[i] != 0)
            if w.sensors.rows[s].used > 0:
                how = sampling_of(w, type_)
                rate, span = kafka_quota.sampled_rate(samples_of(w, s), now, how)
        else:
            rate, span, throttle = charge_rate(w, s, type_, value, now, bound)

    # the quota on request time
    timed = f.handler_ns[i] != NULL and not exempt and _is_measured(w, key, L.REQUEST)
    percent: Record
    percent, time_rate, time_span, time_throttle, time_bound = 0.0, _NAN, NULL, _ZERO, _NAN
    time_s = NOBODY
    if timed:
        time_s, time_bound = sensor_of(w, pair, L.REQUEST, now), w.pair_bound[pair, L.REQUEST]
        percent = f.handler_ns[i] * NANOS_TO_PERCENT * (1.0 + w.sensors.rows[time_s].network)
        time_rate, time_span, time_throttle = charge_rate(
            w, time_s, L.REQUEST, percent, now, time_bound
        )

    # The answer to a throttled fetch is empty. If its size is not known it may follow from the
    # throttle time, unless the request time explains that.
    observed, unsized = f.throttle_ms[i], kind == L.FETCHES and f.bytes[i] == NULL and not exempt
    if p["reports"] != 0 and unsized and observed > time_throttle and _is_measured(w, key, L.FETCH):
        fetch_bound = w.pair_bound[pair, L.FETCH]
        if fetch_bound > 0.0:
            type_, charged, bound, throttle = L.FETCH, True, fetch_bound, np.int64(observed)
            s = sensor_of(w, pair, type_, now)
            rate, span, value = explain_rate(w, s, type_, observed, now, bound)

    # which of the two decides
    longest = max(throttle, time_throttle)
    by_time = timed and not charged
    if timed and charged and not refused:
        if longest > 0:
            by_time = time_throttle >= throttle
        else:
            share = _share(rate, bound)
            if type_ == L.MUTATION and bound == bound:
                share = 0.0
            by_time = _share(time_rate, time_bound) > share
    if (
        p["reports"] != 0
        and by_time
        and throttle == 0
        and observed != NULL
        and observed != time_throttle
        and not _may_be_of_another(w, f, i)
    ):
        learn_network(w, time_s, np.int64(observed), time_rate, time_span, time_bound)
    back = longest > 0 and charged and type_ == L.FETCH
    if back and not unsized:
        record(w, s, type_, -value, now)

    g = o.given[0]
    g["type"], g["user"], g["client"], g["level"] = NOBODY, _NO_NAME, _NO_NAME, L.NO_LEVEL
    g["bound"], g["rate"], g["span_ms"], g["tokens"] = _NAN, _NAN, NULL, _NAN
    g["charged"], g["throttle_ms"] = _NAN, longest if longest > 0 else _ZERO
    decides = L.REQUEST if by_time else type_
    if by_time or charged:
        g["bound"] = time_bound if by_time else bound
        g["rate"], g["charged"] = (time_rate, percent) if by_time else (rate, value)
        g["span_ms"] = time_span if by_time else span
        g["tokens"] = _NAN if by_time or bound != bound else tokens
        g["user"], g["client"] = w.pair_tags[pair, decides, 0], w.pair_tags[pair, decides, 1]
        g["level"] = w.pair_level[pair, decides]
        if g["bound"] == g["bound"]:
            g["type"] = decides
    g["verdict"] = L.ALLOWED
    if refused:
        g["rule"], g["verdict"] = L.REFUSED_OVER, L.REFUSED
    elif longest > 0:
        g["verdict"] = L.THROTTLED
        g["rule"] = L.RATE_OVER
        if by_time:
            g["rule"] = L.TIME_OVER
        elif type_ == L.MUTATION:
            g["rule"] = L.TOKENS_BELOW
    elif g["type"] >= 0:
        g["rule"] = L.WITHIN
    else:
        g["rule"] = L.EXEMPT if exempt and not charged else L.UNBOUND

    # what is counted
    known = f.throttle_ms[i] != NULL
    for second in range(2):
        if (second == 0 and not charged) or (second == 1 and not timed):
            continue
        t = L.REQUEST if second else type_
        amount = percent if second else value
        if not second and (back or refused):
            amount = 0.0
        place = _add_stats(w, f, i, window, t, amount, time_rate if second else rate)
        if t == decides:
            e = w.stats.rows[place]
            if g["verdict"] != L.ALLOWED:
                e.throttled += 1
                e.throttle_ms += g["throttle_ms"]
            if known:
                e.observed += 1
                e.observed_ms += f.throttle_ms[i]
                if f.throttle_ms[i] > 0:
                    e.observed_throttled += 1
    g["top_topic"] = _count_use(w, f, i, window, f.throttle_ms[i] if known else g["throttle_ms"])

    if p["row_key"] != key or p["row_ms"] != now:
        p["row_key"], p["row_ms"], p["decision_no"], p["verdict_no"] = key, now, 0, 0
    if g["verdict"] != L.ALLOWED:
        _put_verdict(w, o.decisions[p["decisions"]], f, i, p["decision_no"], g)
        p["decisions"] += 1
        p["decision_no"] += 1
    if p["verdicts_too"] != 0:
        _put_verdict(w, o.verdicts[p["verdicts"]], f, i, p["verdict_no"], g)
        p["verdicts"] += 1
        p["verdict_no"] += 1


@inlined
def take_rate(w: World, f: Feed, i: Int) -> None:
    """Add a rate that the broker measured to the open window of its entity."""
    p, key, now, type_ = w.settings[0], f.key[i], f.at_ms[i], f.type[i]
    user, client = w.pair_names[f.pair[i], 1], w.pair_names[f.pair[i], 2]
    window = now // p["period_ms"] * p["period_ms"]
    e = w.stats.rows[at(w.stats, (key, window, type_, user, client, L.OF_METRICS))]
    bound, level = limit_of(w, key, user, client, type_)
    reported = p["reports"] != 0
    if reported and f.bound[i] != NULL:
        # 0 and less, of brokers before 3.5, throttle nobody
        bound = f.bound[i] / 1000.0 if f.bound[i] > 0 else _UNBOUNDED
    e.feed, e.last_ms = f.feed[i], now
    e.requests += 1
    # A limit that went amid the window is the one that throttled in it.
    if bound == bound or e.throttled == 0:
        e.bound, e.level = bound, level
    over: Record = False
    if type_ == L.MUTATION:
        over = reported and f.value[i] < 0
    else:
        rate = f.value[i] / 1000.0
        e.rate_sum += rate
        if not e.rate_max >= rate:
            e.rate_max = rate
        over = not reported and rate > bound
    # A mean of a minute outlives its limit; where no limit is known at all, it is all there is.
    if over or (
        (reported and f.throttle_avg[i] != NULL and f.throttle_avg[i] > 0)
        and (bound == bound or w.keys[key]["kinds"] == 0)
    ):
        e.throttled += 1


@inlined
def lacks_room(w: World, f: Feed, i: Int) -> bool:
    """Whether what one more record adds may not fit."""
    topics = f.topic_start[i + 1] - f.topic_start[i] + 1
    return bool(is_short(w.sensors, NEW) or is_short(w.stats, NEW) or is_short(w.usage, topics))


@compiled
def judge(w: World, o: Out, f: Feed, begin: Int) -> Int:
    """Judge records from `begin` on; returns the first that there was no room for, or DONE."""
    for i in range(begin, len(f.key)):
        if lacks_room(w, f, i):
            return i
        _reach(w, f.key[i], f.rank[i])
        if f.rate[i] != 0:
            take_rate(w, f, i)
        else:
            take_request(w, o, f, i)
    return DONE


@compiled
def move_on(w: World) -> None:
    """Move every broker past the shared records before its clock."""
    for key in range(len(w.keys)):
        if w.keys[key]["has_clock"] != 0:
            _reach(w, np.int64(key), rank_at(w.shared_ms, w.keys[key]["clock_ms"]))


@compiled
def hold(w: World) -> None:
    """Note how many samples of each sensor are to be stored: none if all have expired by the clock
    of its broker, since they then start anew in any case."""
    for s in range(w.sensors.used[0]):
        e = w.sensors.rows[s]
        k, how = w.keys[e.key], sampling_of(w, e.type)
        first = np.int64(s) * w.settings[0]["stride"]
        e.held = 0
        for j in range(first, first + e.used):
            since = w.sample_last[j] if how.stat == kafka_quota.LAST_EVENT else w.sample_start[j]
            if k["has_clock"] == 0 or k["clock_ms"] - since < how.samples * how.window_ms:
                e.held = e.used
                break
