"""The check of one topic: its row, those of its subscriptions, its eviction, and refusals."""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.ages import age_at_pass, age_of, is_older, refresh, time_after
from state.backlog.cursors import first_cursor, first_hole, slowest, unacked_after
from state.backlog.evictions import evict
from state.backlog.forecast import forecast, remember, remember_pass, time_to_expiry
from state.backlog.layout import (
    NOBODY,
    NULL,
    USED,
    Int,
    Out,
    Record,
    World,
    begin_row,
    compiled,
)
from state.backlog.ledgers import bytes_after, sum_up, total_entries

# -- quotas ----------------------------------------------------------------------------------


@compiled
def _latest(w: World, key: Int, column: Int, rank: Int) -> Int:
    """The last document before a rank for a topic (column 0) or its namespace (2); -1 without one."""
    found = NOBODY
    for i in range(column, column + 2):
        group = w.timeline.own[key, i]
        if group < 0:
            continue
        low, high = w.timeline.groups[group], w.timeline.groups[group + 1]
        begin = low
        while low < high:
            middle = (low + high) >> 1
            if w.timeline.documents[middle].rank < rank:
                low = middle + 1
            else:
                high = middle
        if low > begin and (
            found < 0 or w.timeline.documents[low - 1].rank > w.timeline.documents[found].rank
        ):
            found = low - 1
    return found


@compiled
def look_up(w: World, key: Int, rank: Int) -> None:
    """Set `w.quota[0]` to the quotas of a key after `rank` shared records."""
    q, t = w.quota[0], w.timeline.turns[w.store.links[key].turn - 1]
    q.limit_bytes, q.size_policy, q.size_by = t.limit_bytes, t.policy, L.BY_BROKER
    q.limit_s, q.time_policy, q.time_by = t.limit_s, t.policy, L.BY_BROKER
    q.ttl_s, q.expiry_s = t.ttl_s, t.expiry_s
    if w.store.keys[key].system != 0:
        q.limit_bytes, q.size_by = -1, L.BY_SYSTEM
        q.limit_s, q.time_by, q.ttl_s = -1, L.BY_SYSTEM, 0
        return
    if len(w.timeline.documents) == 0:
        return
    for level in (L.BY_NAMESPACE, L.BY_TOPIC):
        at = _latest(w, key, 2 * level, rank)
        if at < 0:
            continue
        d = w.timeline.documents[at]
        if d.has_size != 0:
            q.limit_bytes, q.size_by = d.limit_bytes, level
            q.size_policy = d.size_policy if d.size_policy >= 0 else t.policy
        if d.has_time != 0:
            q.limit_s, q.time_by = d.limit_s, level
            q.time_policy = d.time_policy if d.time_policy >= 0 else t.policy
        if d.has_ttl != 0:
            q.ttl_s = d.ttl_s


# -- the check -------------------------------------------------------------------------------


@compiled
def _measure(w: World, key: Int) -> bool:
    """Count entries after the mark-delete of every cursor; returns whether a durable one has any."""
    sum_up(w.store, key)
    behind, j = False, first_cursor(w.store, key)
    while j >= 0:
        c = w.store.cursors.rows[j]
        c.after = unacked_after(w.store, key, j, c.ledger, c.entry)
        c.bytes = bytes_after(w.store, key, c.ledger, c.entry)
        behind = behind or (c.durable != 0 and c.after > 0)
        j = w.store.cursors_of.following[j]
    return behind


@compiled
def _act(w: World, key: Int, oldest: Int, row: Record) -> None:
    """The decision of a check: rule, action, policy and producers of its row."""
    q, over_size, over_time = w.quota[0], row.over_size != 0, row.over_time != 0
    row.policy, row.action, row.producers, row.rule = NOBODY, L.NO_ACTION, 0, L.WITHIN
    if not over_size and not over_time:
        return
    row.policy = q.size_policy if over_size else q.time_policy
    row.rule = L.OVER_SIZE if over_size else L.OVER_TIME
    if over_size and over_time:
        row.rule = L.MASKED
    if row.policy == L.EVICTION:
        row.action = L.EVICT_SIZE if over_size else L.EVICT_TIME
    elif oldest >= 0 and w.store.cursors.rows[oldest].kind == L.DEDUPLICATION:
        row.action, row.rule = L.SNAPSHOT, L.DEDUPLICATES
    else:
        row.action, row.producers = L.DISCONNECT, w.store.links[key].producers


@compiled
def _age(w: World, key: Int, row: Record) -> None:
    """The age of a topic and whether it is above its limit, in the row of a check."""
    k, limit_s = w.store.keys[key], w.quota[0].limit_s
    row.name, row.ledger, row.entry, row.oldest_ms = NOBODY, NULL, NULL, NULL
    row.age_s, row.over_time = -1, 0
    if k.cached != 0:
        row.name, row.oldest_ms = k.cached_name, k.cached_ms
        row.ledger, row.entry = k.cached_ledger, k.cached_entry
        row.age_s = age_of(row.at_ms, k.cached_ms)
        if limit_s > 0 and is_older(row.at_ms, k.cached_ms, limit_s):
            row.over_time = 1
    elif w.store.settings[0].zero != 0 and row.state != L.NO_ESTIMATE:
        row.age_s = 0


@compiled
def check(w: World, o: Out, key: Int, now: Int, mono_ns: Int) -> bool:
    """Check a topic; returns whether there was anything to report."""
    e, q = w.store, w.quota[0]
    p, k, precise = e.settings[0], e.keys[key], w.timeline.turns[e.links[key].turn - 1].precise
    behind = _measure(w, key)
    row = o.checks[p.checks]
    row.key, row.at_ms, row.mono_ns, row.broker, row.feed = key, now, mono_ns, k.broker, k.feed
    row.state, row.source = age_at_pass(e, key, q.limit_s, precise)
    oldest = slowest(e, key)
    backlog = e.cursors.rows[oldest].bytes if oldest >= 0 else np.int64(0)
    row.bytes, row.limit_bytes, row.limit_s = backlog, q.limit_bytes, q.limit_s
    row.size_by, row.time_by, row.ttl_s = q.size_by, q.time_by, q.ttl_s
    row.over_size = 1 if 0 <= q.limit_bytes <= backlog else 0
    _age(w, key, row)
    _act(w, key, oldest, row)
    is_backlogged = backlog > 0 or behind or row.over_size != 0 or row.over_time != 0
    says = is_backlogged or k.was != 0 or p.all_rows != 0
    if says:
        p.checks += 1
    k.was = 1 if is_backlogged else 0
    says = _subscriptions(w, o, key, row) or says
    if row.action == L.EVICT_SIZE:
        evict(e, o, key, L.SIZE, q.limit_bytes, precise, row)
    elif row.action == L.EVICT_TIME:
        evict(e, o, key, L.TIME, q.limit_s, precise, row)
    return bool(says or k.cached != 0)


@compiled
def _own_time(w: World, key: Int, cursor: Int, precise: Int) -> Int:
    """Time of the first message in the backlog of a cursor (NULL: none, not known, or no
    subscription's)."""
    k, c = w.store.keys[key], w.store.cursors.rows[cursor]
    is_unused = w.store.settings[0].quota_only != 0 and w.quota[0].limit_s <= 0
    if c.kind == L.REPLICATOR or c.after == 0 or is_unused:
        return NULL
    if k.cached != 0 and k.cached_ledger == c.ledger and k.cached_entry == c.entry:
        return k.cached_ms
    time, _ = time_after(w.store, key, c.ledger, c.entry, precise)
    return time


@compiled
def _enter(w: World, cursor: Int, total: Int) -> bool:
    """Enter a check of a cursor; returns whether its mark-delete is that of the one before."""
    c = w.store.cursors.rows[cursor]
    if c.expired != NULL:
        c.expired_before += c.expired
    stands = remember(w, cursor, c.bytes, total - c.after - c.expired_before)
    return bool(stands and c.checks > 1)


@compiled
def _put_subscription(
    w: World, key: Int, j: Int, stands: bool, check_row: Record, row: Record
) -> None:
    """The row of a cursor at a check, after it was entered."""
    c, now = w.store.cursors.rows[j], check_row.at_ms
    precise = w.timeline.turns[w.store.links[key].turn - 1].precise
    row.rule, row.name, row.kind, row.durable = check_row.rule, c.name, c.kind, c.durable
    row.ledger, row.entry, row.entries, row.bytes = c.ledger, c.entry, c.after, c.bytes
    row.expired, row.remarks, row.ranges = c.expired, c.client, w.store.range_spans[j, USED]
    row.hole_ledger, row.hole_entry = NULL, NULL
    if row.ranges > 0:
        row.hole_ledger, row.hole_entry = first_hole(w.store, key, j)
    row.from_ledger, row.from_entry = c.back_ledger, c.back_entry
    row.to_ledger, row.to_entry = c.back_to_ledger, c.back_to_entry
    timestamp = _own_time(w, key, j, precise)
    row.age_s = age_of(now, timestamp) if timestamp != NULL else NULL
    if check_row.state == L.NO_BACKLOG:
        timestamp = NULL  # what is no subscription makes no topic old
    forecast(w, key, j, stands, timestamp, row)
    row.to_expiry = time_to_expiry(w, key, j, stands, now)


@compiled
def _subscriptions(w: World, o: Out, key: Int, check_row: Record) -> bool:
    """Write a row for every cursor with a backlog; all cursors remember the check. Returns whether
    there were rows.
    """
    e = w.store
    p, j = e.settings[0], first_cursor(e, key)
    first, total = p.subscriptions, e.keys[key].deleted + total_entries(e, key)
    remember_pass(w, key, check_row.at_ms)
    while j >= 0:
        c, stands = e.cursors.rows[j], _enter(w, j, total)
        is_behind = c.after > 0 or c.bytes > 0
        has_news = c.expired > 0 or c.back_ledger != NULL
        if is_behind or has_news or c.was != 0 or p.all_rows != 0:
            row = o.subscriptions[p.subscriptions]
            begin_row(row, check_row, p.subscriptions - first)
            _put_subscription(w, key, j, stands, check_row, row)
            p.subscriptions += 1
        c.was, c.back_ledger = 1 if is_behind else 0, NULL
        c.expired = NULL if c.expired_total == NULL else 0
        j = e.cursors_of.following[j]
    return bool(p.subscriptions > first)


@compiled
def not_checked(w: World, key: Int) -> None:
    """Handle a pass over a topic whose ledgers are unknown or that is out of sight."""
    e = w.store
    k, j = e.keys[key], first_cursor(e, key)
    k.cached, k.was = 0, 0
    while j >= 0:
        e.cursors.rows[j].was = 0
        j = e.cursors_of.following[j]


# -- refusals --------------------------------------------------------------------------------


@compiled
def refused_by(w: World, key: Int, rank: Int, now: Int) -> Int:
    """The quota type by which a new producer is refused, -1 if it is not; `w.quota[0]` has the
    quotas."""
    k, q = w.store.keys[key], w.quota[0]
    if k.has_state == 0 or k.unseen != 0:
        return NOBODY
    look_up(w, key, rank)
    precise = w.timeline.turns[w.store.links[key].turn - 1].precise
    over_time = False
    if q.limit_s > 0 and q.time_policy != L.EVICTION:
        refresh(w.store, key, precise)
        over_time = k.cached != 0 and is_older(now, k.cached_ms, q.limit_s)
    if q.limit_bytes >= 0 and q.size_policy != L.EVICTION:
        sum_up(w.store, key)
        oldest = slowest(w.store, key)
        c = w.store.cursors.rows[oldest]
        backlog = bytes_after(w.store, key, c.ledger, c.entry) if oldest >= 0 else np.int64(0)
        if backlog >= q.limit_bytes:
            return L.SIZE
    return L.TIME if over_time else NOBODY
