"""Kafka: the check of a partition's groups: lag, age, forecasts, and changes of their states."""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import age_of, sample_at
from state.backlog.cursors import first_cursor, remove_cursor
from state.backlog.forecast import (
    LEAST_CHECKS,
    consumption_rate,
    growth_rate,
    remember,
    remember_pass,
    time_to_limit,
)
from state.backlog.group_states import state_of
from state.backlog.groups import LOG, WITH_LOG, end_of, is_held, unread_of
from state.backlog.layout import (
    BYTES,
    LARGEST,
    MS,
    NOBODY,
    NULL,
    SOURCE,
    Int,
    Out,
    Record,
    Store,
    World,
    begin_row,
    compiled,
)
from state.backlog.ledgers import find

LONGEST_S = np.int64(10**9)
MOST_BYTES = np.int64(2**62)
"""A retention above these is none."""
DAY_MS = np.int64(86_400_000)
YEAR_2000_MS = np.int64(946_684_800_000)
_NAN, _ONE = np.nan, np.int64(1)


@compiled
def _aged(w: Store, key: Int, c: Record, first: Int, now: Int, row: Record) -> None:
    """The age of the oldest unread record, by its own time or since a poll first saw it."""
    time, known = c.first_ms, L.READ
    if time == NULL:
        at = sample_at(w, key, LOG, first)
        if at >= 0:
            time = w.samples[at, MS]
            known = L.FIRST_SEEN if w.samples[at, SOURCE] == L.SEEN else L.READ
    if time == NULL:
        row.age_state = L.UNKNOWN
    elif time < YEAR_2000_MS or time > now + DAY_MS:
        row.age_state = L.OTHER_UNIT
    else:
        row.age_state, row.oldest_ms, row.age_s = known, time, age_of(now, time)


@compiled
def _forecast(w: World, key: Int, j: Int, stands: bool, per_record: Int, row: Record) -> None:
    """Rates and times of a group, after the check was entered."""
    checks = w.store.cursors.rows[j].checks
    if checks >= LEAST_CHECKS:
        row.growth = growth_rate(w, key, j, checks)
        row.commits = consumption_rate(w, key, j, checks)
        if row.growth < 0:
            row.to_drain = row.lag / -row.growth
    row.to_loss = time_to_limit(
        row.at_ms,
        row.bytes,
        row.growth * per_record,
        row.limit_bytes,
        row.limit_s,
        row.oldest_ms,
        stands,
    )


@compiled
def _measure(w: World, key: Int, j: Int, row: Record) -> None:
    """Lag, unread records, age and forecasts of a group with an offset."""
    e, q = w.store, w.quota[0]
    p, k, c, end = e.settings[0], e.keys[key], e.cursors.rows[j], end_of(e, key)
    row.lag = end - row.committed
    if row.state == p.ahead:
        row.records, row.bytes, row.age_state, c.checks = 0, 0, L.NOTHING_UNREAD, 0
        return
    left, at = unread_of(e, key, c), find(e, key, LOG)
    if left == 0 or (c.unread != NULL and c.unread_end == end):
        row.records = left
    per_record = e.ledgers[at, BYTES] // end if end > 0 else np.int64(0)
    if left == 0 or per_record > 0:
        row.bytes = left * per_record if left <= LARGEST // max(per_record, _ONE) else LARGEST
    row.limit_s = q.limit_s if q.limit_s <= LONGEST_S else NOBODY
    row.limit_bytes = q.limit_bytes if q.limit_bytes <= MOST_BYTES else NOBODY
    is_first = c.checks == 0
    stands = remember(w, j, row.lag, row.committed) or is_first
    if left == 0:
        row.age_state = L.NOTHING_UNREAD
    else:
        _aged(e, key, c, max(row.committed, k.log_start), row.at_ms, row)
    _forecast(w, key, j, stands, per_record, row)


@compiled
def _begin_lag(w: Store, key: Int, c: Record, state: Int, row: Record) -> None:
    """What a row of `group_lag` has whether or not the group has an offset, and else nulls."""
    row.name, row.state, row.type, row.answered_ms = c.name, state, c.type, c.answered_ms
    row.start, row.end = w.keys[key].log_start, end_of(w, key)
    if c.ended >= WITH_LOG:
        row.start, row.end = NULL, NULL
    row.committed = c.entry + 1 if c.ledger != NULL else NULL
    row.lag, row.records, row.bytes = NULL, NULL, NULL
    row.client, row.host = NOBODY, NOBODY
    row.age_state, row.age_s, row.oldest_ms = NOBODY, NULL, NULL
    row.limit_s, row.limit_bytes = NOBODY, NOBODY
    row.growth, row.commits, row.to_drain, row.to_loss = _NAN, _NAN, _NAN, _NAN


@compiled
def _state_row(w: Store, o: Out, c: Record, lag: Record, state: Int, first: Int) -> Record:
    """A row for a group's new state, beside its row of `group_lag`; the first row of the check is at
    `first`."""
    p = w.settings[0]
    row = o.states[p.states]
    begin_row(row, lag, p.states - first)
    p.states += 1
    row.name, row.type, row.state, row.before = c.name, lag.type, state, c.state
    row.committed, row.start, row.end, row.unread = lag.committed, lag.start, lag.end, NULL
    row.transaction, row.producer, row.begun_ms = NOBODY, NULL, NULL
    row.group_epoch, row.assignment_epoch = NULL, NULL
    c.state = state
    return row


@compiled
def _unread(w: Store, key: Int, c: Record, lag: Record) -> Int:
    """What a row of a state says is unread; NULL where it says nothing."""
    if lag.state == w.settings[0].expired or is_held(w, lag.state):
        return unread_of(w, key, c)
    if c.ended == 0 and c.stated >= 0 and lag.end != NULL:
        return lag.end - max(w.keys[key].log_start, np.int64(0))
    return NULL


@compiled
def _put_states(w: Store, o: Out, key: Int, c: Record, lag: Record, first: Int) -> bool:
    """Rows of `group_states` of a group: that its offset has expired since the check before, and its
    state if it is another one, or held by another transaction. Returns whether it is."""
    state, waits = lag.state, is_held(w, lag.state)
    if c.left_unread != NULL and c.left_unread > 0:
        _state_row(w, o, c, lag, w.settings[0].expired, first).unread = c.left_unread
    c.left_unread = NULL
    is_new = state != c.state
    changes = is_new or (waits and c.told == 0)
    if changes and not (c.state < 0 and state == w.settings[0].committed):
        row = _state_row(w, o, c, lag, state, first)
        row.unread = _unread(w, key, c, lag)
        if not is_new:
            row.before = NOBODY
        if waits:
            row.transaction, row.producer, row.begun_ms = c.transaction, c.producer, c.begun_ms
        if state == c.stated:
            row.group_epoch, row.assignment_epoch = c.unread, c.unread_end
    c.told, c.state = 1 if waits else 0, state
    return bool(changes)


@compiled
def _check_group(w: World, o: Out, key: Int, j: Int, row: Record, first: Int) -> bool:
    """Check a group, whose row of `group_lag` has its first columns; returns whether there was
    anything to report. `first` is the first row of `group_states` of the check."""
    e, c = w.store, w.store.cursors.rows[j]
    p, state, lags = e.settings[0], state_of(e, key, c), False
    if state < 0:
        return False
    _begin_lag(e, key, c, state, row)
    if is_held(e, state) or state == p.committed or state == p.ahead:
        _measure(w, key, j, row)
        row.client, row.host = c.client, c.host
        lags = row.lag != 0
    else:
        c.checks = 0
    changes = _put_states(e, o, key, c, row, first)
    says = e.keys[key].topic >= 0 and (lags or c.was != 0 or changes or p.all_rows != 0)
    c.was = 1 if lags else 0
    if says:
        p.lags += 1
    return says or changes


@compiled
def check_groups(w: World, o: Out, key: Int, now: Int, mono_ns: Int) -> bool:
    """Check the groups of a partition; returns whether there was anything to report."""
    e = w.store
    p, k, j = e.settings[0], e.keys[key], first_cursor(e, key)
    said, lags, states = False, p.lags, p.states
    remember_pass(w, key, now)
    while j >= 0:
        row = o.lags[p.lags]
        row.key, row.at_ms, row.mono_ns = key, now, mono_ns
        row.broker, row.feed, row.row_no = k.broker, k.feed, p.lags - lags
        said = _check_group(w, o, key, j, row, states) or said
        j = e.cursors_of.following[j]
    _forget_ended(e, key)
    return said


@compiled
def _forget_ended(w: Store, key: Int) -> None:
    """Remove the groups that have ended, after their last row."""
    j = first_cursor(w, key)
    while j >= 0:
        cursor, j = j, w.cursors_of.following[j]
        if w.cursors.rows[cursor].ended != 0 or w.keys[key].log_gone != 0:
            remove_cursor(w, key, cursor)
