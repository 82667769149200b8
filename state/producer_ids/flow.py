"""Records, windows and changes of policy of a shard, in their order."""

from __future__ import annotations

import numpy as np

from state.engine import kafka_quota
from state.engine.broker_changes import GAPS, STARTS, rank_at, until
from state.engine.tables import is_short
from state.events import KIND_INDEX
from state.producer_ids import bloom, quota
from state.producer_ids import layout as L
from state.producer_ids.filters import count, dispose, drop_all, is_seen, put, was_counted
from state.producer_ids.heap import more_samples
from state.producer_ids.layout import (
    NOBODY,
    NULL,
    Array,
    Int,
    Out,
    Record,
    World,
    compiled,
)
from state.producer_ids.murmur import murmur3

ASSIGNED = np.int64(KIND_INDEX["producer_id_assigned"])
NS_PER_MS = np.int64(1_000_000)
DONE = np.int64(-1)
_NO_HASH = np.uint64(0)
_NAN = np.nan


# -- policies --------------------------------------------------------------------------------


@compiled
def _latest(w: World, group: Int, rank: Int) -> Int:
    """The last document of a group before a rank, -1 without."""
    low, high = w.groups[group], w.groups[group + 1]
    begin = low
    while low < high:
        middle = (low + high) >> 1
        if w.document_rank[middle] < rank:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low > begin else NOBODY


@compiled
def _set_by(w: World, groups: Array, row: Int, rank: Int) -> float:
    """The bound that the last document before a rank sets in three groups; NaN for none."""
    last: Int
    bound: Record
    last, bound = NOBODY, _NAN
    for i in range(3):
        group = groups[row, i]
        if group < 0:
            continue
        at = _latest(w, group, rank)
        if at >= 0 and w.document_rank[at] > last:
            last, bound = w.document_rank[at], w.document_bound[at]
    return bound


@compiled
def bound_of(w: World, key: Int, rank: Int) -> tuple[float, Int]:
    """Bound of a user as configured, and its source, after `rank` shared records."""
    return quota.bound_in_force(
        _set_by(w, w.own, key, rank),
        _set_by(w, w.defaults, w.links[key].place, rank),
        w.settings[0]["unlimited"],
    )


@compiled
def _settle(w: World, key: Int, turn: Int, now: Int) -> None:
    """Apply the settings of a turn to a key; first drop what is too old under the old settings."""
    k, t = w.keys[key], w.turns[turn]
    if k.span_ms == t.span_ms and k.expiration_ms == t.expiration_ms:
        return
    if k.span_ms > 0:
        dispose(w, key, now)
        k.lost_ms = max(k.lost_ms, now - k.expiration_ms)
    k.span_ms, k.expiration_ms = t.span_ms, t.expiration_ms


@compiled
def new_sensor(w: World, key: Int) -> None:
    """Reset the quota sensor of a key."""
    k = w.keys[key]
    k.tokens = 0.0
    k.refilled_ms, k.recorded_ms, k.used, k.current = 0, NULL, 0, 0


@compiled
def _start_anew(w: World, key: Int) -> None:
    """The broker has started: clear filters, sensor and memory of a key."""
    p = w.settings[0]
    drop_all(w, key)
    new_sensor(w, key)
    w.links[key].serial = p["next_serial"]
    p["next_serial"] += 1


@compiled
def _take_turn(w: World, key: Int) -> None:
    turn = w.links[key].turn
    t = w.turns[turn]
    if t.start == STARTS:
        _start_anew(w, key)
    _settle(w, key, turn, t.at_ms)
    _look(w, key, turn)
    w.links[key].turn = turn + 1


@compiled
def _look(w: World, key: Int, turn: Int) -> None:
    """The effect of a turn on what a key knows: after a gap a filter of the broker may hold unseen
    ids, until the last filter that began in the gap is disposed of.
    """
    e, t = w.links[key], w.turns[turn]
    if t.start == STARTS:
        e.blind_ms = NULL
    elif t.start == GAPS:
        mode = w.settings[0]["mode"]
        halves = np.int64(3 if mode == L.MODE_A or mode == L.MODE_C else 2)
        e.blind_ms = until(t.at_ms, (halves * t.span_ms + 1) // 2)


@compiled
def prepare(w: World, begin_ms: Array) -> None:
    """Move every key past the turns that are before its clock at the beginning of the call (NULL:
    none).

    Turns that came with this call hold from the clock on. A start among them that is not newer than
    one that the key has had is ignored.
    """
    for key in range(len(w.keys)):
        first, end = w.turn_start[w.links[key].place], w.turn_start[w.links[key].place + 1]
        begin = begin_ms[key]
        turn, had_ms, starts = first + 1, NULL, False
        w.links[key].blind_ms = NULL
        while turn < end:
            t = w.turns[turn]
            # those of the configuration (NULL) hold from ever
            if t.at_ms != NULL and (begin == NULL or t.at_ms >= begin):
                break
            _look(w, np.int64(key), turn)
            if t.start == STARTS:
                if t.fresh == 0:
                    had_ms, starts = t.at_ms, False
                elif t.at_ms > had_ms:
                    starts = True
            turn += 1
        w.links[key].turn = turn
        if starts:
            _start_anew(w, np.int64(key))
        _settle(w, np.int64(key), turn - 1, begin)


# -- quota -----------------------------------------------------------------------------------


@compiled
def _is_idle(w: World, key: Int, now: Int) -> bool:
    recorded = w.keys[key].recorded_ms
    return bool(recorded != NULL and now - recorded > w.settings[0]["idle_ms"])


@compiled
def _samples(w: World, key: Int) -> kafka_quota.Samples:
    k, at = w.keys[key], w.links[key].sample_at
    return kafka_quota.Samples(w.sample_start, w.sample_last, w.sample_total, at, k.used, k.current)


@compiled
def _sampling(w: World, key: Int) -> kafka_quota.Sampling:
    t = w.turns[w.links[key].turn - 1]
    return kafka_quota.Sampling(t.samples, t.span_ms, w.settings[0]["stat"])


@compiled
def levels(w: World, key: Int, now: Int, bound: float) -> tuple[float, float]:
    """Rate and tokens of a key at a time, changing nothing; `bound` is per second."""
    k = w.keys[key]
    t = w.turns[w.links[key].turn - 1]
    refilled: Int
    tokens: Record
    s, tokens, refilled = _samples(w, key), k.tokens, k.refilled_ms
    if _is_idle(w, key, now):
        s = kafka_quota.Samples(s.start, s.last, s.total, s.at, np.int64(0), s.current)
        tokens, refilled = 0.0, np.int64(0)
    rate, _ = kafka_quota.sampled_rate(s, now, _sampling(w, key))
    return rate, kafka_quota.balance(tokens, refilled, now, bound, t.samples, t.span_ms)


@compiled
def record(w: World, key: Int, value: float, now: Int, bound: float) -> None:
    """Charge `value` ids to the sensor of a key, without a test; the rate is updated under either
    arithmetic.
    """
    k, how = w.keys[key], _sampling(w, key)
    if kafka_quota.next_sample(_samples(w, key), now, how) >= w.links[key].sample_room:
        more_samples(w, key)
    k.used, k.current = kafka_quota.add_sample(_samples(w, key), value, now, how)
    if w.settings[0]["math"] == quota.TOKEN_BUCKET:
        kafka_quota.record_tokens(k, value, now, bound, how.samples, how.window_ms)
    k.recorded_ms = now


@compiled
def read_rate(w: World, key: Int, now: Int) -> tuple[float, Int]:
    """Rate (ids per second) of a key and its span (ms); samples that have expired start anew, and
    without any the first one starts."""
    k, how = w.keys[key], _sampling(w, key)
    if k.used == 0:
        if w.links[key].sample_room == 0:
            more_samples(w, key)
        k.used, k.current = kafka_quota.add_sample(_samples(w, key), 0.0, now, how)
    return kafka_quota.read_rate(_samples(w, key), now, how)


@compiled
def violation(w: World, key: Int, now: Int, bound: float) -> tuple[bool, Int]:
    """Test the quota of a key, which reads it: whether it is violated, and for how long (ms, 64
    bits; 0 if not).
    """
    p, k, e = w.settings[0], w.keys[key], w.links[key]
    t = w.turns[e.turn - 1]
    if p["math"] == quota.TOKEN_BUCKET:
        tokens = kafka_quota.read_tokens(k, now, bound, t.samples, t.span_ms)
        if tokens < 0.0:
            return True, kafka_quota.tokens_throttle(tokens, bound)
        return False, np.int64(0)
    rate, span = read_rate(w, key, now)
    if rate > bound:
        return True, kafka_quota.rate_throttle(rate, bound, span)
    return False, np.int64(0)


@compiled
def charge(w: World, key: Int, value: float, now: Int, bound: float) -> tuple[Int, Int]:
    """The verdict on `value` unseen ids, and its throttle time (ms, 64 bits).

    Strict: test, then charge; rejected ids are not charged. Permissive: charge, then test.
    """
    if _is_idle(w, key, now):
        new_sensor(w, key)
    if w.settings[0]["enforcement"] == kafka_quota.STRICT:
        violated, throttle_ms = violation(w, key, now, bound)
        if violated:
            return quota.REJECTED, throttle_ms
        record(w, key, value, now, bound)
        return quota.COUNTED, np.int64(0)
    record(w, key, value, now, bound)
    violated, throttle_ms = violation(w, key, now, bound)
    return (quota.THROTTLED if violated else quota.COUNTED), throttle_ms


# -- windows ---------------------------------------------------------------------------------


@compiled
def _mono_at(w: World, key: Int, at_ms: Int, next_ns: Int) -> Int:
    """Monotonic time at a wall time, from the key's last record; not beyond the next one's."""
    k = w.keys[key]
    if k.last_ns == NULL:
        return NULL
    mono = k.last_ns + (at_ms - k.last_ms) * NS_PER_MS
    return min(mono, next_ns) if next_ns != NULL else mono


@compiled
def _fullest(w: World, key: Int) -> tuple[Int, Int]:
    """Most bits set in a live filter of a key, and the bytes of all."""
    p, place = w.settings[0], w.live.first[key]
    most, size = np.int64(0), np.int64(0)
    while place >= 0:
        f = w.filters.rows[place]
        most = max(most, f.set)
        size += 8 * f.items if p["exact"] != 0 else (p["bits"] + 7) // 8
        place = w.live.following[place]
    return most, size


@compiled
def _end_window(w: World, o: Out, key: Int, end: Int, next_ns: Int) -> None:
    """Write the open window of a key if it has anything to report; the next one opens at once while
    a level is not zero.
    """
    p, k = w.settings[0], w.keys[key]
    dispose(w, key, end)
    bound, _ = bound_of(w, key, rank_at(w.shared_ms, end))
    bound = quota.bound_per_second(bound, k.span_ms, p["unit"])
    rate, tokens = levels(w, key, end, bound)
    busy = w.links[key].live > 0 or rate > 0.0
    if busy or k.began_live != 0 or k.new_ids + k.seen + k.rejected > 0:
        row = o.stats[p["stats"]]
        p["stats"] += 1
        most, size = _fullest(w, key)
        row["key"], row["at_ms"], row["mono_ns"] = key, end, _mono_at(w, key, end, next_ns)
        row["feed"], row["start_ms"], row["window_ms"] = k.feed, k.window_ms, p["window_ms"]
        row["new_ids"], row["seen"], row["rejected"] = k.new_ids, k.seen, k.rejected
        row["rate"], row["tokens"], row["bound"] = rate, tokens, bound
        row["throttled"], row["throttle_ms"] = k.throttled, k.throttle_ms
        row["live"], row["bytes"] = w.links[key].live, size
        if p["exact"] == 0:
            row["fill"] = most / p["bits"]
            row["fpp"] = bloom.estimated_fpp(most, p["bits"], p["hashes"])
    k.new_ids, k.seen, k.rejected, k.throttled, k.throttle_ms = 0, 0, 0, 0, 0
    k.open = 1 if busy else 0
    k.began_live = 1 if w.links[key].live > 0 else 0
    k.window_ms = end


@compiled
def _advance(w: World, o: Out, key: Int, to_ms: Int, next_ns: Int) -> bool:
    """Write the windows that end by a time; False if there was no room to continue."""
    p, k = w.settings[0], w.keys[key]
    period = p["window_ms"]
    while k.open != 0:
        # a window that another period began ends where one of this period does
        end = (k.window_ms // period + 1) * period
        if end > to_ms:
            return True
        if p["stats"] == len(o.stats):
            return False
        _end_window(w, o, key, end, next_ns)
    return True


@compiled
def _reach(w: World, o: Out, key: Int, to_ms: Int, rank: Int, next_ns: Int) -> bool:
    """Move a key to a time, past the turns before a rank; False if there was no room."""
    e = w.links[key]
    end = w.turn_start[e.place + 1]
    while e.turn < end and w.turns[e.turn].rank < rank:
        if not _advance(w, o, key, w.turns[e.turn].at_ms, next_ns):
            return False
        _take_turn(w, key)
    return _advance(w, o, key, to_ms, next_ns)


# -- records ---------------------------------------------------------------------------------


@compiled
def is_short_of(w: World, key: Int) -> bool:
    """Whether one more record of a user may not fit."""
    p = w.settings[0]
    return bool(
        p["words"] + p["bits_words"] + 2 * L.LISTED_MOST > len(w.words)
        or p["samples"] + 2 * w.keys[key].used + 2 > len(w.sample_start)
        or is_short(w.filters, 1)
        or is_short(w.ids, 1)
        or is_short(w.counted, 1)
    )


@compiled
def _put_owner(w: World, o: Out, r: Record, rule: Int) -> None:
    p = w.settings[0]
    row = o.owners[p["owners"]]
    row["record"], row["key"], row["rule"], row["row_no"] = r.record, r.key, rule, p["owner_no"]
    p["owners"] += 1
    p["owner_no"] += 1


@compiled
def _rule_of(verdict: Int, recounted: bool, is_blind: bool) -> Int:
    if verdict == quota.REJECTED:
        return L.REJECTED_OVER
    if is_blind:
        return L.AFTER_GAP
    if recounted:
        return L.RECOUNTED
    return L.OVER if verdict == quota.THROTTLED else L.WITHIN


@compiled
def _count_verdict(w: World, r: Record, verdict: Int, throttle_ms: Int) -> None:
    """Count a verdict in the open window, and remember an id that was counted."""
    k = w.keys[r.key]
    if verdict != quota.COUNTED:
        k.throttled += 1
        k.throttle_ms += throttle_ms
    if verdict == quota.REJECTED:
        k.rejected += 1
        return
    k.new_ids += 1
    if w.settings[0]["exact"] != 0:
        count(w, r.key, r.producer_id, r.ts_wall_ms)


@compiled
def _judge_unseen(w: World, o: Out, r: Record, low: Int, high: Int) -> None:
    """Judge an id that no live filter has: charge the quota, insert it, write a row. An id that may
    have come in a gap is not charged.
    """
    p, key, now, blind_ms = w.settings[0], r.key, r.ts_wall_ms, w.links[r.key].blind_ms
    k, t = w.keys[key], w.turns[w.links[key].turn - 1]
    bound, source = bound_of(w, key, r.rank)
    per_second = quota.bound_per_second(bound, k.span_ms, p["unit"])
    is_blind = blind_ms != NULL and now < blind_ms
    verdict, throttle_ms = quota.COUNTED, np.int64(0)
    if not is_blind:
        verdict, throttle_ms = charge(w, key, 1.0, now, per_second)
    throttle_ms = kafka_quota.reported_throttle(throttle_ms, p["wraps"] != 0)
    recounted = p["exact"] != 0 and was_counted(w, key, r.producer_id, now)
    created = NULL
    if verdict != quota.REJECTED or p["insert_rejected"] != 0:
        created = put(w, key, r.producer_id, low, high, now, k.span_ms, t.layers)
    _count_verdict(w, r, verdict, throttle_ms)
    rule = _rule_of(verdict, recounted, is_blind)
    rate, tokens = levels(w, key, now, per_second)
    row = o.decisions[p["decisions"]]
    row["record"], row["key"], row["row_no"], row["rule"] = r.record, key, p["decision_no"], rule
    row["verdict"], row["bound"], row["source"] = verdict, bound, source
    row["rate"], row["tokens"], row["throttle_ms"] = rate, tokens, throttle_ms
    row["live"] = w.links[key].live
    row["created_ms"] = created if verdict != quota.REJECTED else NULL
    row["recount"] = 1 if recounted else 0
    p["decisions"] += 1
    p["decision_no"] += 1
    _put_owner(w, o, r, rule)


@compiled
def _open_window(w: World, r: Record) -> None:
    """Open the statistics window of a record's time, if its user has none."""
    k, period = w.keys[r.key], w.settings[0]["window_ms"]
    if k.open == 0:
        k.open, k.began_live = 1, 0
        k.window_ms = r.ts_wall_ms // period * period


@compiled
def take(w: World, o: Out, r: Record) -> None:
    """Apply one record, once its user has reached its time."""
    p, key, now = w.settings[0], r.key, r.ts_wall_ms
    if p["row_key"] != key or p["row_ms"] != now:
        p["row_key"], p["row_ms"], p["decision_no"], p["owner_no"] = key, now, 0, 0
    k = w.keys[key]
    k.last_ms, k.last_ns, k.feed = now, r.ts_mono_ns, r.source_feed
    _open_window(w, r)
    if r.producer_id < 0:
        return
    if r.event_type == ASSIGNED:
        _put_owner(w, o, r, L.ASSIGNED)
        return
    dispose(w, key, now)
    low, high = _NO_HASH, _NO_HASH
    if p["exact"] == 0:
        low, high = murmur3(r.producer_id)
    if is_seen(w, key, r.producer_id, low, high):
        k.seen += 1
    else:
        _judge_unseen(w, o, r, low, high)


@compiled
def judge(w: World, o: Out, records: Array, begin: Int) -> Int:
    """Judge records from `begin` on; returns the first that there was no room for, or DONE."""
    for i in range(begin, len(records)):
        r = records[i]
        if not _reach(w, o, r.key, r.ts_wall_ms, r.rank, r.ts_mono_ns) or is_short_of(w, r.key):
            return i
        take(w, o, r)
    return DONE


@compiled
def move_on(w: World, o: Out, begin: Int, next_ns: Array) -> Int:
    """Move every key from `begin` on to its clock; returns the first without room, or DONE.

    `next_ns` is the monotonic time of the first record of each key that still waits.
    """
    at_ms, rank = NULL, np.int64(0)
    for key in range(begin, len(w.keys)):
        k = w.keys[key]
        if k.has_clock == 0:
            continue
        if k.clock_ms != at_ms:
            at_ms = k.clock_ms
            rank = rank_at(w.shared_ms, at_ms)
        if not _reach(w, o, np.int64(key), at_ms, rank, next_ns[key]):
            return np.int64(key)
        dispose(w, np.int64(key), at_ms)
    return DONE
