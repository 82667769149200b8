"""Kafka: groups of a partition, their lag, what they lost and the states that they are in.

A partition is a key with one ledger, number 0; a group is a cursor one before the offset that it
reads next. Rules: spec of backlog, section 7b. A key without a topic has the states of groups as a
whole.
"""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import age_of, entry_added, forget_times, is_older, ledger_stated, sample_at
from state.backlog.cursors import create, find_cursor
from state.backlog.forecast import LEAST_CHECKS, growth_rate
from state.backlog.layout import (
    AT,
    BYTES,
    ENTRIES,
    LARGEST,
    MS,
    NOBODY,
    NULL,
    SLOTS,
    SOURCE,
    USED,
    Feed,
    Int,
    Out,
    Record,
    Store,
    World,
    compiled,
)
from state.backlog.ledgers import add, delete, find, state
from state.backlog.pool import remove

LOG = np.int64(0)
"""The one ledger of a partition."""
KNOWN, WITH_LOG, KNOWN_WITHOUT = np.int64(2), np.int64(3), np.int64(4)
"""Of a group that has ended: its state has; its log was deleted, or it is followed no longer; both."""
WAITS, PENDING, EARLIER = np.int64(1), np.int64(3), np.int64(1)
"""A group waits for a transaction at the last stable offset, or since its next offset is in it; with
EARLIER added, an earlier record of its offset has said so."""
LONGEST_S = np.int64(10**9)
MOST_BYTES = np.int64(2**62)
"""A retention above these is none."""
DAY_MS = np.int64(86_400_000)
YEAR_2000_MS = np.int64(946_684_800_000)
_NAN = np.nan


# -- records ---------------------------------------------------------------------------------


@compiled
def _end(w: Store, key: Int) -> Int:
    """The offset that the next record gets; NULL while the log is not known."""
    at = find(w, key, LOG)
    return w.ledgers[at, ENTRIES] if at >= 0 else NULL


@compiled
def log_stated(w: Store, key: Int, end: Int, size: Int, start: Int, now: Int) -> None:
    """Apply the end, size and start of a log. One that is shorter than before is another log, whose
    records have other times."""
    k = w.keys[key]
    k["unseen"] &= ~L.SIZES
    before = _end(w, key)
    if before != NULL and end < before:
        forget_times(w, key)
        slots = w.spans[SLOTS, key]
        for i in range(slots[AT], slots[AT] + slots[USED]):
            w.cursors[w.slots[i, 0]]["first_ms"] = NULL
    state(w, key, LOG, end, size, NULL)
    k["log_start"], k["log_gone"] = start, 0
    ledger_stated(w, key, LOG, end, NULL, now)


@compiled
def log_deleted(w: Store, key: Int) -> None:
    """The partition is gone, and its groups with it, even if another log is there at the check."""
    k = w.keys[key]
    delete(w, key, LOG)
    k["log_start"], k["log_gone"] = NULL, 1
    forget_times(w, key)
    slots = w.spans[SLOTS, key]
    for i in range(slots[AT], slots[AT] + slots[USED]):
        w.cursors[w.slots[i, 0]]["ended"] = WITH_LOG


@compiled
def entry_seen(w: Store, f: Feed, i: Int) -> None:
    """Count a record of the log, and sample its time."""
    key = f.key[i]
    add(w, key, LOG, f.entry[i], f.size[i])
    w.keys[key]["log_gone"] = 0
    entry_added(w, key, LOG, f.entry[i], f.publish_ms[i], f.broker_ms[i], f.at_ms[i])


@compiled
def _forget_transaction(c: Record) -> None:
    c["waits"], c["told"] = 0, 0
    c["transaction"], c["producer"], c["begun_ms"] = NOBODY, NULL, NULL


@compiled
def _new_or_known(w: Store, key: Int, name: Int) -> Int:
    """The cursor of a group; one that has ended begins anew."""
    j = find_cursor(w, key, name)
    if j < 0:
        j = create(w, key, name, NULL, NULL)
        c = w.cursors[j]
        c["durable"], c["state"], c["stated"], c["ended"] = 1, NOBODY, NOBODY, 0
        c["safe"], c["unread"], c["unread_end"], c["left_unread"] = NULL, NULL, NULL, NULL
        c["answered_ms"] = NULL
        c["client"], c["host"] = NOBODY, NOBODY
        c["type"] = NOBODY
        _forget_transaction(c)
    elif w.cursors[j]["ended"] != 0:
        c = w.cursors[j]
        c["ledger"], c["entry"], c["first_ms"], c["safe"] = NULL, NULL, NULL, NULL
        c["ended"], c["checks"], c["before_ledger"] = 0, 0, NULL
        c["client"], c["host"] = NOBODY, NOBODY
        _forget_transaction(c)
    k = w.keys[key]
    k["unseen"] &= ~L.CURSORS
    k["log_gone"] = 0
    return j


@compiled
def _count_lost(w: Store, o: Out, f: Feed, i: Int, j: Int) -> None:
    """A row for the records that were deleted before the group read them.

    `safe`: offset below which nothing more can be lost: the log start of earlier polls, or an end
    before which nothing was left to read. Committed 40, start 50: 10 are lost; start 60 then: 10
    more; committed 80, start 70: none.
    """
    key, c = f.key[i], w.cursors[j]
    start, end, committed = w.keys[key]["log_start"], _end(w, key), c["entry"] + 1
    if start == NULL or end == NULL:
        return
    first_sight = c["safe"] == NULL
    if first_sight:
        # One offset of an emptied log: the marker of a transaction, before which readers of it stand.
        c["safe"] = start if start == end == committed + 1 else committed
    elif end < c["safe"]:
        c["safe"] = start  # another log
    begin = max(committed, c["safe"])
    if start > begin:
        p = w.settings[0]
        if p["lost_key"] != key or p["lost_ms"] != f.at_ms[i]:
            p["lost_key"], p["lost_ms"], p["lost_no"] = key, f.at_ms[i], 0
        row = o.lost[p["lost"]]
        p["lost"] += 1
        row["record"], row["key"], row["row_no"], row["name"] = i, key, p["lost_no"], c["name"]
        row["begin"], row["end"], row["rule"] = begin, start, 1 if first_sight else 0
        row["committed"] = committed
        p["lost_no"] += 1
    c["safe"] = start if first_sight else max(c["safe"], start)
    if c["unread"] == 0:
        c["safe"] = max(c["safe"], end)


@compiled
def committed(w: Store, o: Out, f: Feed, i: Int) -> None:
    """Apply the offset of a group."""
    key = f.key[i]
    j = _new_or_known(w, key, f.name[i])
    c = w.cursors[j]
    stands = c["ledger"] == LOG and c["entry"] == f.entry[i]
    if c["ledger"] != NULL and f.entry[i] < c["entry"]:
        c["checks"] = 0  # set back: neither growth nor consumption
    time, source = f.publish_ms[i], L.PUBLISH_TIME
    if f.broker_ms[i] != NULL:
        time, source = f.broker_ms[i], L.BROKER_TIME
    start = w.keys[key]["log_start"]
    was_deleted = start != NULL and start > f.entry[i] + 1
    if time != NULL or not stands or was_deleted:
        c["first_ms"], c["first_source"] = time, source
    c["ledger"], c["entry"], c["stated"], c["answered_ms"] = LOG, f.entry[i], NOBODY, f.at_ms[i]
    c["unread"], c["unread_end"] = f.unread[i], _end(w, key)
    c["client"], c["host"], c["type"] = f.client[i], f.host[i], f.group_type[i]
    if stands and c["waits"] != 0:
        c["waits"] += c["waits"] % 2  # EARLIER: a `group_state` that follows says it again
    else:
        _forget_transaction(c)
    _count_lost(w, o, f, i, j)


@compiled
def _waits(w: Store, f: Feed, i: Int) -> None:
    """An open transaction holds a group, in the way of its state. A record without a producer leaves
    that which an earlier one has named."""
    j = find_cursor(w, f.key[i], f.name[i])
    if j < 0 or w.cursors[j]["ledger"] == NULL or w.cursors[j]["ended"] != 0:
        return
    c = w.cursors[j]
    waits = PENDING if f.state[i] == w.settings[0]["pending"] else WAITS
    if c["waits"] != waits and c["waits"] != waits + EARLIER:
        _forget_transaction(c)
    c["waits"] = waits
    if f.pid[i] != NULL and (
        c["producer"] != f.pid[i]
        or c["transaction"] != f.transaction[i]
        or c["begun_ms"] != f.publish_ms[i]
    ):
        c["producer"], c["transaction"] = f.pid[i], f.transaction[i]
        c["begun_ms"], c["told"] = f.publish_ms[i], 0


@compiled
def _holds(w: Store, state: Int) -> bool:
    """Whether in this state an open transaction holds a group."""
    return state == w.settings[0]["open"] or state == w.settings[0]["pending"]


@compiled
def stated(w: Store, f: Feed, i: Int) -> None:
    """Apply a state without an offset, which `known` ends, or that beside one."""
    key, name = f.key[i], f.name[i]
    if _holds(w, f.state[i]):
        _waits(w, f, i)
        return
    if f.state[i] == w.settings[0]["known"]:
        j = find_cursor(w, key, name)
        if j >= 0:
            w.cursors[j]["ended"] = KNOWN_WITHOUT if w.cursors[j]["ended"] >= WITH_LOG else KNOWN
        return
    c = w.cursors[_new_or_known(w, key, name)]
    if w.keys[key]["topic"] < 0:
        w.keys[key]["unseen"] = 0  # of a whole group: there is no log
    if c["ledger"] != NULL:
        c["left_unread"] = _left(w, key, c)
        c["ledger"], c["entry"], c["first_ms"], c["safe"] = NULL, NULL, NULL, NULL
        _forget_transaction(c)
    c["stated"], c["answered_ms"], c["type"] = f.state[i], f.at_ms[i], f.group_type[i]
    c["unread"], c["unread_end"] = f.group_epoch[i], f.assignment_epoch[i]


@compiled
def ended(w: Store, key: Int, name: Int, unread: Int) -> None:
    """A group has no offset any more, or (`unread` 0) is followed no longer. The next check finds
    out whether its log is there."""
    j = find_cursor(w, key, name)
    if j >= 0 and w.cursors[j]["ended"] == 0:
        w.cursors[j]["ended"] = WITH_LOG if unread == 0 else np.int64(1)


# -- the check -------------------------------------------------------------------------------


@compiled
def _left(w: Store, key: Int, c: Record) -> Int:
    """Records that a group has not read, as far as known: by count, else by offsets."""
    end, start = _end(w, key), w.keys[key]["log_start"]
    if end == NULL or c["ledger"] == NULL:
        return np.int64(0)
    if c["unread"] != NULL and c["unread_end"] == end:
        return c["unread"]
    first = max(c["entry"] + 1, start)  # NULL is below every offset
    return max(end - first, np.int64(0))


@compiled
def _state_of(w: Store, key: Int, c: Record) -> Int:
    """The state of a group at a check; NOBODY while its log is not known."""
    p, k, end = w.settings[0], w.keys[key], _end(w, key)
    if c["ended"] == KNOWN or c["ended"] == KNOWN_WITHOUT:
        return p["known"]
    if k["log_gone"] != 0 or c["ended"] == WITH_LOG:
        return p["gone"]
    if c["ended"] != 0:
        return p["expired"] if end != NULL and _left(w, key, c) > 0 else p["gone"]
    if c["stated"] >= 0:
        return c["stated"]
    if end == NULL or c["ledger"] == NULL:
        return NOBODY
    if c["entry"] + 1 > end:
        return p["ahead"]
    if c["entry"] + 1 < end and c["waits"] == PENDING:
        return p["pending"]
    return p["open"] if c["waits"] == WAITS and c["entry"] + 1 < end else p["committed"]


@compiled
def _aged(w: Store, key: Int, c: Record, first: Int, now: Int, row: Record) -> None:
    """The age of the oldest unread record, by its own time or since a poll first saw it."""
    time, known = c["first_ms"], L.READ
    if time == NULL:
        at = sample_at(w, key, LOG, first)
        if at >= 0:
            time = w.samples[at, MS]
            known = L.FIRST_SEEN if w.samples[at, SOURCE] == L.SEEN else L.READ
    if time == NULL:
        row["age_state"] = L.UNKNOWN
    elif time < YEAR_2000_MS or time > now + DAY_MS:
        row["age_state"] = L.OTHER_UNIT
    else:
        row["age_state"], row["oldest_ms"], row["age_s"] = known, time, age_of(now, time)


@compiled
def _enter(w: World, key: Int, j: Int, lag: Int) -> bool:
    """Enter a check of a group; returns whether its offset is that of the check before, or the
    first one."""
    c, last = w.store.cursors[j], w.passes.shape[1] - 1
    for i in range(last):
        w.seen_bytes[j, i] = w.seen_bytes[j, i + 1]
        w.seen_consumed[j, i] = w.seen_consumed[j, i + 1]
    w.seen_bytes[j, last], w.seen_consumed[j, last] = lag, c["entry"] + 1
    stands = c["checks"] == 0 or c["before_entry"] == c["entry"]
    c["checks"] = min(c["checks"] + 1, last + 1)
    c["before_ledger"], c["before_entry"] = c["ledger"], c["entry"]
    return bool(stands)


@compiled
def _forecast(w: World, key: Int, j: Int, stands: bool, per_record: Int, row: Record) -> None:
    """Rates and times of a group, after the check was entered."""
    checks, last = w.store.cursors[j]["checks"], w.passes.shape[1] - 1
    growth: Record
    growth = _NAN
    if checks >= LEAST_CHECKS:
        first = last + 1 - checks
        growth = growth_rate(w, key, j, checks)
        row["growth"] = growth
        row["commits"] = (w.seen_consumed[j, last] - w.seen_consumed[j, first]) / (
            (w.passes[key, last] - w.passes[key, first]) / 1000.0
        )
        if growth < 0:
            row["to_drain"] = row["lag"] / -growth
    limit, limit_s, size = row["limit_bytes"], row["limit_s"], row["bytes"]
    sized, timed = limit >= 0 and size != NULL, limit_s > 0 and row["oldest_ms"] != NULL
    if (sized and size >= limit) or (timed and is_older(row["at_ms"], row["oldest_ms"], limit_s)):
        row["to_loss"] = 0.0
        return
    if sized and growth > 0 and per_record > 0:
        row["to_loss"] = (limit - size) / (growth * per_record)
    if timed and stands:
        left = max(float(limit_s - row["age_s"]), 0.0)
        if not row["to_loss"] <= left:
            row["to_loss"] = left


@compiled
def _measure(w: World, key: Int, j: Int, row: Record) -> None:
    """Lag, unread records, age and forecasts of a group with an offset."""
    e, q = w.store, w.quota[0]
    p, k, c, end = e.settings[0], e.keys[key], e.cursors[j], _end(e, key)
    row["committed"] = c["entry"] + 1
    row["lag"] = end - row["committed"]
    if row["state"] == p["ahead"]:
        row["records"], row["bytes"], row["age_state"], c["checks"] = 0, 0, L.NOTHING_UNREAD, 0
        return
    left, at = _left(e, key, c), find(e, key, LOG)
    if left == 0 or (c["unread"] != NULL and c["unread_end"] == end):
        row["records"] = left
    per_record = e.ledgers[at, BYTES] // end if end > 0 else np.int64(0)
    row["bytes"] = (
        NULL
        if left > 0 and per_record == 0
        else (left * per_record if left <= LARGEST // max(per_record, np.int64(1)) else LARGEST)
    )
    row["limit_s"] = q["limit_s"] if q["limit_s"] <= LONGEST_S else NOBODY
    row["limit_bytes"] = q["limit_bytes"] if q["limit_bytes"] <= MOST_BYTES else NOBODY
    stands = _enter(w, key, j, row["lag"])
    if left == 0:
        row["age_state"] = L.NOTHING_UNREAD
    else:
        _aged(e, key, c, max(row["committed"], k["log_start"]), row["at_ms"], row)
    _forecast(w, key, j, stands, per_record, row)


@compiled
def _state_row(w: World, o: Out, at: Record, state_no: Int, state: Int, unread: Int) -> None:
    """A row of `group_states`, with the place and offsets of a row of `group_lag`."""
    p = w.store.settings[0]
    row = o.states[p["states"]]
    p["states"] += 1
    row["key"], row["at_ms"], row["mono_ns"] = at["key"], at["at_ms"], at["mono_ns"]
    row["broker"], row["feed"], row["name"] = at["broker"], at["feed"], at["name"]
    row["row_no"], row["state"], row["before"], row["unread"] = state_no, state, NOBODY, unread
    row["committed"], row["start"], row["end"] = at["committed"], at["start"], at["end"]
    row["transaction"], row["producer"], row["begun_ms"] = NOBODY, NULL, NULL
    row["type"], row["group_epoch"], row["assignment_epoch"] = at["type"], NULL, NULL


@compiled
def check_groups(w: World, o: Out, key: Int, now: Int, mono_ns: Int) -> bool:
    """Check the groups of a partition; returns whether there was anything to report."""
    e = w.store
    p, k, slots = e.settings[0], e.keys[key], e.spans[SLOTS, key]
    for i in range(w.passes.shape[1] - 1):
        w.passes[key, i] = w.passes[key, i + 1]
    w.passes[key, w.passes.shape[1] - 1] = now
    said, number, state_no = False, np.int64(0), np.int64(0)
    for i in range(slots[AT], slots[AT] + slots[USED]):
        j = e.slots[i, 0]
        c = e.cursors[j]
        state = _state_of(e, key, c)
        if state < 0:
            continue
        row = o.lags[p["lags"]]
        row["key"], row["at_ms"], row["mono_ns"], row["row_no"] = key, now, mono_ns, number
        row["broker"], row["feed"], row["name"] = k["broker"], k["feed"], c["name"]
        row["answered_ms"] = (
            c["answered_ms"] if c["answered_ms"] != 0 else NULL
        )  # 0: an older state
        row["state"], row["start"], row["end"] = state, k["log_start"], _end(e, key)
        if c["ended"] >= WITH_LOG:
            row["start"], row["end"] = NULL, NULL
        row["committed"], row["lag"], row["records"], row["bytes"] = NULL, NULL, NULL, NULL
        row["client"], row["host"], row["type"] = NOBODY, NOBODY, c["type"]
        row["age_state"], row["age_s"], row["oldest_ms"] = NOBODY, NULL, NULL
        row["limit_s"], row["limit_bytes"] = NOBODY, NOBODY
        row["growth"], row["commits"], row["to_drain"], row["to_loss"] = _NAN, _NAN, _NAN, _NAN
        waits = _holds(e, state)
        with_offset = waits or state == p["committed"] or state == p["ahead"]
        if with_offset:
            _measure(w, key, j, row)
            row["client"], row["host"] = c["client"], c["host"]
        else:
            c["checks"] = 0
            if c["ledger"] != NULL:
                row["committed"] = c["entry"] + 1
        unread: Int
        unread = NULL
        if state == p["expired"] or waits:
            unread = _left(e, key, c)
        elif c["ended"] == 0 and c["stated"] >= 0 and row["end"] != NULL:
            unread = row["end"] - max(k["log_start"], np.int64(0))
        if c["left_unread"] != NULL:
            if c["left_unread"] > 0:
                _state_row(w, o, row, state_no, p["expired"], c["left_unread"])
                o.states[p["states"] - 1]["before"] = c["state"]
                c["state"] = p["expired"]
                state_no += 1
            c["left_unread"] = NULL
        changes = state != c["state"] or (waits and c["told"] == 0)
        if changes and not (c["state"] < 0 and state == p["committed"]):
            _state_row(w, o, row, state_no, state, unread)
            changed = o.states[p["states"] - 1]
            changed["before"] = c["state"] if state != c["state"] else NOBODY
            if waits:
                changed["transaction"], changed["producer"] = c["transaction"], c["producer"]
                changed["begun_ms"] = c["begun_ms"]
            if state == c["stated"]:
                changed["group_epoch"], changed["assignment_epoch"] = c["unread"], c["unread_end"]
            state_no += 1
        c["told"] = 1 if waits else 0
        lags = with_offset and row["lag"] != 0
        if k["topic"] >= 0 and (lags or c["was"] != 0 or changes or p["all_rows"] != 0):
            p["lags"] += 1
            number += 1
            said = True
        said = said or changes
        c["was"], c["state"] = 1 if lags else 0, state
    _forget_ended(e, key)
    return bool(said)


@compiled
def _forget_ended(w: Store, key: Int) -> None:
    """Remove the groups that have ended, after their last row."""
    k, slots = w.keys[key], w.spans[SLOTS, key]
    for i in range(slots[AT] + slots[USED] - 1, slots[AT] - 1, -1):
        c = w.cursors[w.slots[i, 0]]
        if c["ended"] != 0 or k["log_gone"] != 0:
            c["key"] = NOBODY
            remove(w.slots, slots, np.int64(i))
