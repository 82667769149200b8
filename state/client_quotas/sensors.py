"""Sensors: what an entity has used of a type of quota, and what a charge to it gives (Kafka's
`ClientQuotaManager` and `ControllerMutationQuotaManager`).
"""

from __future__ import annotations

import numpy as np

from state.client_quotas import layout as L
from state.client_quotas.layout import NULL, Int, World, compiled, inlined
from state.engine import kafka_quota
from state.engine.tables import at

MOST_NETWORK = 10.0
"""Most time of network threads that a throttle time can tell, in handler times: what needs more has
another cause."""
_ZERO = np.int64(0)


@compiled
def new_sensor(w: World, s: Int) -> None:
    """Reset a sensor."""
    e = w.sensors.rows[s]
    e.tokens, e.refilled_ms, e.recorded_ms = 0.0, 0, NULL
    e.used, e.current = 0, 0
    e.network = 0.0


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
