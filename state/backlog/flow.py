"""Records, passes and changes of settings of a shard, in their order."""

from __future__ import annotations

import numpy as np

from state.backlog import groups
from state.backlog import layout as L
from state.backlog.ages import entry_added, entry_time, forget_times, ledger_stated, trim
from state.backlog.check import check, look_up, not_checked, refused_by
from state.backlog.cursors import (
    acknowledge,
    acknowledge_to,
    count_ranges,
    create,
    find_cursor,
    forget,
    is_before,
    observe,
    take_ranges,
)
from state.backlog.evictions import expired_to
from state.backlog.layout import (
    AT,
    LARGEST,
    LEDGERS,
    NOBODY,
    NULL,
    PRODUCERS,
    SAMPLES,
    SLOTS,
    USED,
    Array,
    Feed,
    Int,
    Out,
    Store,
    World,
    compiled,
)
from state.backlog.ledgers import add, delete, entries_after, state, sum_up
from state.backlog.pool import insert, is_short, lower, remove, room_for
from state.engine.broker_changes import GAPS, STARTS, comes_late, rank_at, turn_after
from state.events import KIND_INDEX

CREATED = np.int64(KIND_INDEX["producer_created"])
CLOSED = np.int64(KIND_INDEX["producer_closed"])
ENTRY_ADDED = np.int64(KIND_INDEX["entry_added"])
ACK = np.int64(KIND_INDEX["ack"])
CURSOR_STATE = np.int64(KIND_INDEX["cursor_state"])
CURSOR_DELETED = np.int64(KIND_INDEX["cursor_deleted"])
LEDGER_STATE = np.int64(KIND_INDEX["ledger_state"])
LEDGER_DELETED = np.int64(KIND_INDEX["ledger_deleted"])
GROUP_STATE = np.int64(KIND_INDEX["group_state"])
NS_PER_MS = np.int64(1_000_000)
DONE = np.int64(-1)
SILENT = np.int64(4096)
"""Checks since the last record of a topic, beyond which they become fewer."""


# -- shared records --------------------------------------------------------------------------


@compiled
def _distance(w: World, key: Int, at_ms: Int) -> Int:
    """From one pass of a key to the next one at a time: it doubles with the silence of the topic."""
    interval: Int = w.turns[w.store.links[key]["turn"] - 1]["interval_ms"]
    silence, distance = (at_ms - w.store.keys[key]["last_ms"]) // interval, interval
    while silence >= SILENT:
        silence >>= 1
        distance <<= 1
    return distance


@compiled
def _set_due(w: World, key: Int, since_ms: Int) -> None:
    """Set the next pass of a key to the first one that is due at or after a time."""
    due = since_ms
    distance = _distance(w, key, due)
    while due % distance != 0:
        if due > LARGEST - distance:
            due = LARGEST
            break
        due += distance - due % distance
        distance = _distance(w, key, due)  # a pass further on may be one that is left out
    w.store.links[key]["due_ms"] = due


@compiled
def _start_anew(w: World, key: Int) -> None:
    """The broker of a key has started."""
    w.store.keys[key]["cached"] = 0
    w.store.spans[PRODUCERS, key, USED] = 0


@compiled
def _lose_sight(w: World, key: Int) -> None:
    """Records of the key's broker are missing: positions of cursors, contents of ledgers and
    producers are unknown until they are stated.
    """
    w.store.keys[key]["unseen"] = L.CURSORS | L.SIZES
    w.store.spans[PRODUCERS, key, USED] = 0
    not_checked(w, key)


@compiled
def _begin(w: World, key: Int) -> None:
    """A topic without ledgers and cursors counts as new; after a gap of its broker it is unknown."""
    e, k, spans = w.store.links[key], w.store.keys[key], w.store.spans
    if spans[LEDGERS, key, USED] > 0 or spans[SLOTS, key, USED] > 0:
        return
    k["unseen"] = 0
    for turn in range(w.turn_start[e["place"]], e["turn"]):
        if w.turns[turn]["start"] == GAPS:
            k["unseen"] = L.CURSORS | L.SIZES


@compiled
def prepare(w: World, begin_ms: Array) -> None:
    """Move every key past the turns that are before its clock at the beginning of the call (NULL:
    none).

    Turns that came with this call hold from the clock on. A start or a gap among them that is not
    newer than one that the key has had is ignored.
    """
    at_ms, rank = NULL, np.int64(0)
    for key in range(len(w.store.keys)):
        e, begin = w.store.links[key], begin_ms[key]
        e["due_ms"] = NULL
        if begin == NULL or w.store.keys[key]["last_ms"] == NULL:
            continue
        if begin != at_ms:
            at_ms = begin
            rank = rank_at(w.shared_ms, begin)
        e["turn"] = turn_after(w.turns, w.turn_start, e["place"], rank)
        if comes_late(w.turns, w.turn_start, e["place"], e["turn"], STARTS):
            _start_anew(w, np.int64(key))
        if comes_late(w.turns, w.turn_start, e["place"], e["turn"], GAPS):
            _lose_sight(w, np.int64(key))
        _set_due(w, np.int64(key), begin)


# -- passes ----------------------------------------------------------------------------------


@compiled
def _mono_at(w: World, key: Int, at_ms: Int, next_ns: Int, next_broker: Int) -> Int:
    """Monotonic time at a wall time, from the key's last record, at most that of the next one."""
    k = w.store.keys[key]
    if k["last_ns"] == NULL:
        return NULL
    mono = k["last_ns"] + (at_ms - k["last_ms"]) * NS_PER_MS
    if next_ns != NULL and next_broker == k["broker"]:
        mono = min(mono, next_ns)
    return mono


@compiled
def _is_full(w: World, o: Out, key: Int) -> bool:
    """Whether the rows of one pass may not fit."""
    p, cursors = w.store.settings[0], w.store.spans[SLOTS, key, USED]
    return bool(
        p["checks"] + 1 > len(o.checks)
        or p["evictions"] + cursors + 1 > len(o.evictions)
        or p["subscriptions"] + cursors > len(o.subscriptions)
        or p["lags"] + cursors + 1 > len(o.lags)
        or p["states"] + 2 * cursors > len(o.states)
        or cursors + 1 > len(w.store.order)
    )


@compiled
def _advance(w: World, o: Out, key: Int, to_ms: Int, next_ns: Int, next_broker: Int) -> bool:
    """Run the passes that are due before a time; False if there was no room to continue.

    If a pass has no rows, later ones have none while nothing changes: only the last ones are run,
    which cursors remember.
    """
    p, e = w.store.settings[0], w.store.links[key]
    while e["due_ms"] < to_ms:
        if _is_full(w, o, key):
            return False
        due, t = e["due_ms"], w.turns[e["turn"] - 1]
        if due != p["rank_ms"]:
            p["rank_ms"], p["rank"] = due, rank_at(w.shared_ms, due + 1)
        says = False
        if t["enabled"] != 0:
            k = w.store.keys[key]
            if k["kafka"] != 0:
                if k["unseen"] == 0:
                    look_up(w, key, p["rank"])
                    says = groups.check_groups(
                        w, o, key, due, _mono_at(w, key, due, next_ns, next_broker)
                    )
                    _begin(w, key)
            elif k["has_state"] != 0 and k["unseen"] == 0:
                look_up(w, key, p["rank"])
                says = check(w, o, key, due, _mono_at(w, key, due, next_ns, next_broker))
            else:
                not_checked(w, key)
        trim(w.store, key)
        since = due + 1
        if not says:
            end = to_ms
            if p["rank"] < len(w.shared_ms):
                end = min(end, w.shared_ms[p["rank"]])
            since = max(since, end - p["most_checks"] * _distance(w, key, end))
        _set_due(w, key, since)
    return True


@compiled
def _reach(
    w: World, o: Out, key: Int, to_ms: Int, rank: Int, next_ns: Int, next_broker: Int
) -> bool:
    """Move a key to a time, past the turns before a rank; False if there was no room."""
    e = w.store.links[key]
    if w.store.keys[key]["last_ms"] == NULL or w.store.keys[key]["base"] < 0:
        return True
    end = w.turn_start[e["place"] + 1]
    while e["turn"] < end and w.turns[e["turn"]]["rank"] < rank:
        t = w.turns[e["turn"]]
        if not _advance(w, o, key, t["at_ms"], next_ns, next_broker):
            return False
        if t["start"] == STARTS:
            _start_anew(w, key)
        elif t["start"] == GAPS:
            _lose_sight(w, key)
        e["turn"] += 1
        _set_due(w, key, t["at_ms"])
    return _advance(w, o, key, to_ms, next_ns, next_broker)


# -- records ---------------------------------------------------------------------------------


@compiled
def _is_short(w: World, o: Out, key: Int, kind: Int, ranges: Int) -> bool:
    """Whether a record of a kind, with so many acknowledged ranges, may not fit."""
    e = w.store
    p = e.settings[0]
    if kind == ENTRY_ADDED or kind == LEDGER_STATE:
        return is_short(e.ledgers, e.spans[LEDGERS, key], e.tops[LEDGERS]) or is_short(
            e.samples, e.spans[SAMPLES, key], e.tops[SAMPLES]
        )
    if kind == ACK:
        return bool(e.tops[L.RANGES] + 2 * L.MOST_RANGES > len(e.ranges))
    if kind == CURSOR_STATE or kind == GROUP_STATE:
        need = min(ranges, L.MOST_RANGES)
        return bool(
            p["cursors"] == len(e.cursors)
            or p["lost"] == len(o.lost)
            or is_short(e.slots, e.spans[SLOTS, key], e.tops[SLOTS])
            or (need > 0 and e.tops[L.RANGES] + room_for(need) > len(e.ranges))
        )
    return kind == CREATED and bool(
        p["refusals"] == len(o.refusals)
        or is_short(w.producers, e.spans[PRODUCERS, key], e.tops[PRODUCERS])
    )


@compiled
def _expire(w: World, f: Feed, i: Int, cursor: Int) -> None:
    """Count the messages that have expired on a cursor since its last state: by the broker's own
    count, else the entries beyond the TTL that its new mark-delete has passed.
    """
    key, c, e = f.key[i], w.store.cursors[cursor], w.store
    before, total = c["expired_total"], f.expired[i]
    if total != NULL:
        # A broker that loads a topic counts from 0.
        more = total if total < before else total - before
        c["expired_total"] = total
        known = c["expired"] if c["expired"] != NULL else np.int64(0)
        c["expired"] = known + more if before != NULL else np.int64(0)
        return
    if not is_before(c["ledger"], c["entry"], f.ledger[i], f.entry[i]):
        return
    look_up(w, key, f.rank[i])
    ttl_s = w.quota[0]["ttl_s"]
    if ttl_s <= 0:
        return
    ledger, entry = expired_to(e, key, c["ledger"], c["entry"], ttl_s, f.at_ms[i], np.int64(1))
    if is_before(f.ledger[i], f.entry[i], ledger, entry):
        ledger, entry = f.ledger[i], f.entry[i]
    sum_up(e, key)
    gone = entries_after(e, key, c["ledger"], c["entry"]) - entries_after(e, key, ledger, entry)
    c["expired"] = gone + (c["expired"] if c["expired"] != NULL else np.int64(0))


@compiled
def _take_cursor(w: Store, f: Feed, i: Int) -> None:
    """The position of a cursor, which may be new."""
    key, name, ledger, entry = f.key[i], f.name[i], f.ledger[i], f.entry[i]
    if ledger == NULL:
        return
    cursor, is_new = find_cursor(w, key, name), False
    if cursor < 0:
        cursor, is_new = create(w, key, name, ledger, entry), True
    w.keys[key]["unseen"] &= ~L.CURSORS
    c = w.cursors[cursor]
    was_durable, old_ledger, old_entry = c["durable"], c["ledger"], c["entry"]
    c["durable"], c["client"] = f.flag[i], f.remarks[i]
    first_ms, source = entry_time(f.publish_ms[i], f.broker_ms[i])
    observe(w, key, cursor, ledger, entry, first_ms, source)
    if f.acked[i] >= 0:
        take_ranges(w, key, cursor, f.acked[i])
    moved = is_new or c["ledger"] != old_ledger or c["entry"] != old_entry
    if was_durable != c["durable"] or (moved and c["durable"] != 0):
        w.keys[key]["version"] += 1


@compiled
def _take_ack(w: Store, f: Feed, i: Int) -> None:
    """An acknowledgement, of a cursor that is known."""
    key = f.key[i]
    cursor = find_cursor(w, key, f.name[i])
    if cursor < 0:
        return
    c = w.cursors[cursor]
    ledger, entry = c["ledger"], c["entry"]
    if f.flag[i] != 0:
        acknowledge_to(w, key, cursor, f.ledger[i], f.entry[i])
    else:
        acknowledge(w, key, cursor, f.ledger[i], f.entry[i])
    if c["durable"] != 0 and (c["ledger"] != ledger or c["entry"] != entry):
        w.keys[key]["version"] += 1


@compiled
def _take_producer(w: World, o: Out, f: Feed, i: Int) -> None:
    """A producer is created, unless a quota refuses it, or closed."""
    p, key, refusal = w.store.settings[0], f.key[i], NOBODY
    if f.kind[i] == CREATED:
        refusal = refused_by(w, key, f.rank[i], f.at_ms[i])
    span = w.store.spans[PRODUCERS, key]
    at = lower(w.producers, span, f.name[i], f.pid[i])
    is_known = (
        at < span[AT] + span[USED]
        and w.producers[at, 0] == f.name[i]
        and w.producers[at, 1] == f.pid[i]
    )
    if f.kind[i] == CREATED and refusal < 0:
        if not is_known:
            at = insert(w.producers, span, w.store.tops, PRODUCERS, at)
            w.producers[at, 0], w.producers[at, 1] = f.name[i], f.pid[i]
        return
    if is_known:
        remove(w.producers, span, at)
    if refusal < 0:
        return
    if p["refusal_key"] != key or p["refusal_ms"] != f.at_ms[i]:
        p["refusal_key"], p["refusal_ms"], p["refusal_no"] = key, f.at_ms[i], 0
    row, q = o.refusals[p["refusals"]], w.quota[0]
    p["refusals"] += 1
    row["record"], row["key"], row["row_no"], row["rule"] = i, key, p["refusal_no"], refusal
    row["policy"] = q["size_policy"] if refusal == L.SIZE else q["time_policy"]
    p["refusal_no"] += 1


@compiled
def _take_ledger(w: Store, f: Feed, i: Int) -> None:
    """The contents of a ledger, or its deletion."""
    key, ledger = f.key[i], f.ledger[i]
    if f.kind[i] == LEDGER_STATE:
        w.keys[key]["unseen"] &= ~L.SIZES
        close_ms = state(w, key, ledger, f.entries[i], f.size[i], f.close_ms[i])
        ledger_stated(w, key, ledger, f.entries[i], close_ms, f.at_ms[i])
        return
    delete(w, key, ledger)
    slots = w.spans[SLOTS, key]
    for j in range(slots[AT], slots[AT] + slots[USED]):
        c = w.cursors[w.slots[j, 0]]
        if c["ledger"] <= ledger:
            c["first_ms"] = NULL
    if w.spans[LEDGERS, key, USED] == 0:
        forget_times(w, key)


@compiled
def _take_group(w: World, o: Out, f: Feed, i: Int) -> None:
    """A record of a partition of Kafka, or of a whole group; other kinds mean nothing there."""
    e, kind, key = w.store, f.kind[i], f.key[i]
    if kind == CURSOR_DELETED:
        groups.ended(e, key, f.name[i], f.unread[i])
    elif kind == GROUP_STATE:
        groups.stated(e, f, i)
    elif f.ledger[i] != groups.LOG:
        return
    elif kind == LEDGER_STATE:
        groups.log_stated(e, key, f.entries[i], f.size[i], f.log_start[i], f.at_ms[i])
    elif kind == LEDGER_DELETED:
        groups.log_deleted(e, key)
        _begin(w, key)
    elif kind == ENTRY_ADDED:
        groups.entry_seen(e, f, i)
    elif kind == CURSOR_STATE:
        groups.committed(e, o, f, i)


@compiled
def _take(w: World, o: Out, f: Feed, i: Int) -> None:
    """Apply one record, once its key has reached its time."""
    kind, key = f.kind[i], f.key[i]
    k, e = w.store.keys[key], w.store.links[key]
    if k["last_ms"] == NULL or e["place"] != f.place[i]:
        e["place"] = f.place[i]
        e["turn"] = turn_after(w.turns, w.turn_start, e["place"], f.rank[i])
        _begin(w, key)
        k["last_ms"] = f.at_ms[i]
        _set_due(w, key, f.at_ms[i])
    elif (f.at_ms[i] - k["last_ms"]) // w.turns[e["turn"] - 1]["interval_ms"] >= SILENT:
        k["last_ms"] = f.at_ms[i]
        _set_due(w, key, f.at_ms[i])  # it is silent no longer
    k["last_ms"], k["last_ns"] = f.at_ms[i], f.mono_ns[i]
    k["broker"], k["feed"] = f.broker[i], f.feed[i]
    if k["base"] < 0:
        return
    if k["kafka"] != 0:
        _take_group(w, o, f, i)
    elif kind == ENTRY_ADDED:
        if add(w.store, key, f.ledger[i], f.entry[i], f.size[i]):
            entry_added(
                w.store, key, f.ledger[i], f.entry[i], f.publish_ms[i], f.broker_ms[i], f.at_ms[i]
            )
    elif kind == ACK:
        _take_ack(w.store, f, i)
    elif kind == CURSOR_STATE:
        cursor = find_cursor(w.store, key, f.name[i])
        if cursor >= 0 and f.ledger[i] != NULL:
            _expire(w, f, i, cursor)
        _take_cursor(w.store, f, i)
        if cursor < 0 and f.ledger[i] != NULL:
            w.store.cursors[find_cursor(w.store, key, f.name[i])]["expired_total"] = f.expired[i]
    elif kind == CURSOR_DELETED:
        forget(w.store, key, f.name[i])
        _begin(w, key)
    elif kind == LEDGER_STATE or kind == LEDGER_DELETED:
        _take_ledger(w.store, f, i)
        _begin(w, key)
    elif kind == CREATED or kind == CLOSED:
        _take_producer(w, o, f, i)


@compiled
def judge(w: World, o: Out, f: Feed, begin: Int, next_ns: Array, next_broker: Array) -> Int:
    """Judge records, then move every key to its clock, from step `begin` on; returns the first step
    that there was no room for, or DONE.

    `next_ns` and `next_broker` are of the first record of each key that still waits.
    """
    key: Int
    clock_ms: Int
    records, clock_ms, rank = len(f.key), NULL, np.int64(0)
    for i in range(begin, records + len(w.store.keys)):
        if i < records:
            key, to_ms, to_rank = f.key[i], f.at_ms[i], f.rank[i]
            ns, broker = f.mono_ns[i], f.broker[i]
        else:
            key = np.int64(i - records)
            k = w.store.keys[key]
            if k["has_clock"] == 0:
                continue
            if k["clock_ms"] != clock_ms:
                clock_ms = k["clock_ms"]
                rank = rank_at(w.shared_ms, clock_ms)
            to_ms, to_rank, ns, broker = clock_ms, rank, next_ns[key], next_broker[key]
        if not _reach(w, o, key, to_ms, to_rank, ns, broker):
            return np.int64(i)
        if i < records:
            ranges = count_ranges(w.store, f.acked[i]) if f.acked[i] >= 0 else np.int64(0)
            if _is_short(w, o, key, f.kind[i], ranges):
                return np.int64(i)
            _take(w, o, f, i)
    return DONE
