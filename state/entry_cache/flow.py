"""The records of one broker in order, with its passes and windows between them.

The kernel stops with a status when it needs its caller: for more room, to apply a policy or to
carry out a restart. The next call continues at the same record.
"""

from __future__ import annotations

import numpy as np

from state.engine.clocks import wall_at, window_clock
from state.entry_cache.backlogs import caches_reads, drop_ledger
from state.entry_cache.cache import (
    change,
    find,
    hit,
    insert,
    invalidate_ledger,
    remove,
)
from state.entry_cache.cursors import (
    after_cursor,
    delete_cursor,
    drop_replays_of_ledger,
    follow,
    has_moved,
    is_counted,
    is_last,
    meet,
    others_before,
    persist,
    queue_replay,
    read_on,
    set_cursor,
    slowest_mark,
    slowest_read,
    take_replay,
)
from state.entry_cache.layout import (
    CATCH_UP,
    INVALIDATED,
    LARGEST,
    NOBODY,
    NULL,
    ONE,
    REPLAY,
    TAIL,
    ZERO,
    Array,
    CursorState,
    Int,
    Out,
    Position,
    Record,
    World,
    compiled,
    inlined,
)
from state.entry_cache.passes import check_size, periodic_pass, skip_idle
from state.entry_cache.stats import end_ns, end_window
from state.events import KIND_INDEX

DONE, ROOM, ASK = (np.int64(i) for i in range(3))
"""Why the kernel stopped: nothing left, no room, or a record needs the caller."""

BROKER_STARTED = np.int64(KIND_INDEX["broker_started"])
ENTRY_ADDED = np.int64(KIND_INDEX["entry_added"])
DISPATCH = np.int64(KIND_INDEX["dispatch"])
ENTRY_READ = np.int64(KIND_INDEX["entry_read"])
ENTRY_RELEASED = np.int64(KIND_INDEX["entry_released"])
REPLAY_QUEUED = np.int64(KIND_INDEX["replay_queued"])
ENTRY_INVALIDATED = np.int64(KIND_INDEX["entry_invalidated"])
CURSOR_STATE = np.int64(KIND_INDEX["cursor_state"])
CURSOR_DELETED = np.int64(KIND_INDEX["cursor_deleted"])
LEDGER_DELETED = np.int64(KIND_INDEX["ledger_deleted"])
POLICY = np.int64(KIND_INDEX["policy"])
GAP = np.int64(KIND_INDEX["gap"])
MISS, HIT, UNKNOWN = ZERO, ONE, np.int64(2)
"""Outcomes of a read."""


# -- time ------------------------------------------------------------------------------------


@compiled
def window_edge(w: World, next_wall: int) -> Int:
    """The first moment (ns) at which the open window has ended, before the key's next record."""
    k = w.key[0]
    end = k["window_start_ms"] + k["window_ms"]
    if k["last_wall_ms"] != NULL and next_wall != NULL and next_wall < end:
        return LARGEST
    return end_ns(w)


@compiled
def end_windows(w: World, o: Out, clock: int, next_mono: int, has_next: int, jumps: int) -> Int:
    """Write the windows that end by a time; with `jumps` the next begins at that time."""
    k = w.key[0]
    while clock >= k["window_start_ms"] + k["window_ms"]:
        aligned = clock // k["window_ms"] * k["window_ms"]
        if k["touched"] == 0:
            k["window_start_ms"] = aligned
            break
        if k["stats"] + len(w.cells) + len(w.variants) > len(o.stats):
            return ROOM
        end_window(w, o, next_mono, has_next)
        if k["touched"] == 0 or jumps != 0:
            k["window_start_ms"] = max(k["window_start_ms"], aligned)
    return DONE


@compiled
def no_room(w: World, o: Out) -> bool:
    """Whether the next step may need more room than there is."""
    k, count = w.key[0], len(w.variants)
    return (
        k["entries"] + count > len(w.entries)
        or k["pages"] + count + ONE > len(w.pages)
        or k["ledgers"] + ONE > len(w.ledgers)
        or k["reads"] + count > len(o.reads)
        or (k["with_evictions"] != 0 and k["evictions"] + k["entries"] + count > len(o.evictions))
    )


@compiled
def advance(w: World, o: Out, to: int, next_mono: int, has_next: int, next_wall: int) -> Int:
    """Passes that are due before a moment and windows that end up to it.

    `next_…` are the times of the key's next record; a wall time that is not known is NULL.
    """
    k = w.key[0]
    if k["any"] == 0:
        return DONE
    while True:
        edge = window_edge(w, next_wall)
        first, at = NOBODY, LARGEST
        for v in range(len(w.variants)):
            if w.variants[v]["count"] > 0:
                due = skip_idle(w, v, to, edge)
                if due < at:
                    first, at = np.int64(v), due
        k["next_ns"] = at
        if first < 0 or at >= to:
            break
        now = at + ONE
        wall = wall_at(w.key, now, next_wall)
        if now >= edge:
            if end_windows(w, o, window_clock(now, wall), next_mono, has_next, ZERO) != DONE:
                return ROOM
            continue
        if no_room(w, o):
            return ROOM
        k["now_ns"], k["now_wall_ms"], k["now_feed"] = now, wall, k["last_feed"]
        periodic_pass(w, o, first, at)
    for v in range(len(w.variants)):
        w.variants[v]["passed_ns"] = max(w.variants[v]["passed_ns"], to)
    return end_windows(
        w, o, window_clock(to, wall_at(w.key, to, next_wall)), next_mono, has_next, ZERO
    )


# -- records ---------------------------------------------------------------------------------


@compiled
def run(w: World, o: Out, records: Array, start: int, end: int) -> tuple[Int, Int]:
    """Judge records [start, end); returns a status and the record reached.

    After ASK a policy already counts as the key's last record; the caller carries it out.
    """
    k = w.key[0]
    for i in range(start, end):
        if no_room(w, o):
            return ROOM, i
        r = records[i]
        now, wall, kind = r.ts_mono_ns, r.ts_wall_ms, r.event_type
        if kind == BROKER_STARTED:
            return ASK, i
        if (
            now > k["next_ns"]
            or wall == NULL
            or k["last_wall_ms"] == NULL
            or wall >= k["window_start_ms"] + k["window_ms"]
        ):
            status = advance(w, o, now, now, ONE, wall)
            if status != DONE:
                return status, i
            jumps = ONE if (wall == NULL) != (k["last_wall_ms"] == NULL) else ZERO
            status = end_windows(w, o, window_clock(now, wall), now, ONE, jumps)
            if status != DONE:
                return status, i
        k["last_ns"], k["last_wall_ms"], k["last_feed"] = now, wall, r.source_feed
        if kind == POLICY or kind == GAP:
            return ASK, i
        judge(w, o, r, now, kind)
    return DONE, end


@inlined
def judge(w: World, o: Out, r: Record, now: int, kind: int) -> None:
    """Carry out one record."""
    k = w.key[0]
    by_dispatch = k["by_dispatch"] != 0
    is_read = kind == (DISPATCH if by_dispatch else ENTRY_READ)
    if not is_read and (
        kind == DISPATCH or kind == ENTRY_READ or (kind == ENTRY_RELEASED and by_dispatch)
    ):
        return
    t, c, ledger, entry = r.topic, r.cursor, r.ledger_id, r.entry_id
    k["now_ns"], k["now_wall_ms"], k["now_feed"] = now, r.ts_wall_ms, r.source_feed
    meet(w, t, now)
    topic = w.topics[t]
    count = len(w.variants)
    if kind != CURSOR_STATE and kind != CURSOR_DELETED:
        topic["event"] = k["touched"] = 1
    if is_read:
        at = Position(ledger, entry)
        read(w, o, t, c, r.subscription, at, r.entry_bytes, r.next_read)
    elif kind == ENTRY_ADDED:
        persist(w, t, ledger, entry)
        add_entry(w, o, t, ledger, entry, r.entry_bytes, r.next_read)
    elif kind == ENTRY_RELEASED or kind == REPLAY_QUEUED:
        by = -ONE
        if kind == REPLAY_QUEUED:
            queue_replay(w, t, c, ledger, entry)
            by = ONE
        for v in range(count):
            x = find(w, t * count + v, ledger, entry)
            if x >= 0:
                change(w, v, x, by)
    elif kind == LEDGER_DELETED or (kind == ENTRY_INVALIDATED and entry == NULL):
        if kind == LEDGER_DELETED:
            drop_replays_of_ledger(w, t, ledger)
            drop_ledger(w, t, ledger)
        for v in range(count):
            invalidate_ledger(w, o, v, t * count + v, ledger)
    elif kind == ENTRY_INVALIDATED:
        for v in range(count):
            x = find(w, t * count + v, ledger, entry)
            if x >= 0:
                remove(w, o, v, x, INVALIDATED)
    else:
        change_cursor(w, o, r, t, c, kind)


@compiled
def change_cursor(w: World, o: Out, r: Record, t: int, c: int, kind: int) -> None:
    """Create, move or delete a cursor."""
    topic = w.topics[t]
    active, read, mark = topic["active"], slowest_read(topic), slowest_mark(topic)
    if kind == CURSOR_STATE:
        state = CursorState(
            r.active,
            r.told,
            r.durable,
            r.has_read,
            Position(r.read_ledger, r.read_entry),
            r.has_mark,
            Position(r.mark_ledger, r.mark_entry),
        )
        set_cursor(w, t, c, state)
    elif kind == CURSOR_DELETED:
        delete_cursor(w, t, c)
    after_cursor(w, o, t, active, read, mark)


@inlined
def add_entry(w: World, o: Out, t: int, ledger: int, entry: int, size: int, next_read: int) -> None:
    """An entry was persisted; it is cached if a cursor is there to read it."""
    now, topic, count = w.key[0]["now_ns"], w.topics[t], len(w.variants)
    for v in range(count):
        cache = w.variants[v]
        lingers = topic["left_ns"] != NULL and now - topic["left_ns"] < cache["grace_ns"]
        if (
            cache["max_bytes"] != 0
            and (topic["active"] > 0 or lingers)
            and insert(w, v, t * count + v, ledger, entry, size, topic["active"], next_read)
        ):
            check_size(w, o, v, now, now)


@inlined
def read(
    w: World,
    o: Out,
    t: int,
    c: int,
    subscription: int,
    at: Position,
    size: int,
    next_read: int,
) -> None:
    """A reader requests an entry: hit, or miss and insertion; then the reader moves on."""
    k, topic, count = w.key[0], w.topics[t], len(w.variants)
    now, reader, releases = k["now_ns"], CATCH_UP, k["by_dispatch"] != 0
    ledger, entry = at
    is_blind = k["blind"] != 0 and now < k["blind_until_ns"]
    if take_replay(w, t, c, ledger, entry):
        reader = REPLAY
    elif is_last(w, t, at):
        reader = TAIL
    expected, was_at = ZERO, Position(NULL, NULL)
    if c >= 0 and is_counted(w, c):
        # its position before it moves
        cursor = w.cursors[c]
        expected, was_at = NOBODY, Position(cursor["read_ledger"], cursor["read_entry"])
    slowest = slowest_read(topic)
    moves = c >= 0 and read_on(w, t, c, at, reader == REPLAY)
    has_passed = moves and has_moved(slowest, slowest_read(topic))
    for v in range(count):
        cell = t * count + v
        cache, counts = w.variants[v], w.cells[cell]
        x = find(w, cell, ledger, entry)
        found = HIT if x >= 0 else UNKNOWN if is_blind else MISS
        if x >= 0:
            counts["hits"] += 1
            counts["hit_bytes"] += w.entries[x]["bytes"]
            hit(w, v, x, next_read)
        else:
            if is_blind:
                counts["unknown_reads"] += 1
            else:
                counts["misses"] += 1
                if size != NULL:
                    counts["miss_bytes"] += size
            if (
                size != NULL
                and cache["max_bytes"] != 0
                and caches_reads(w, t, c, v, expected != ZERO, reader == REPLAY)
            ):
                if expected < 0:
                    expected = ONE + others_before(w, t, c, was_at)
                insert(w, v, cell, ledger, entry, size, expected, next_read)
                check_size(w, o, v, now, now)
                x = find(w, cell, ledger, entry)
        if releases and x >= 0:
            change(w, v, x, -ONE)
        if has_passed:
            follow(w, o, v, t, True, False)
        if k["with_reads"] != 0:
            write_read(w, o, v, cell, subscription, at, found, reader)


@compiled
def write_read(
    w: World,
    o: Out,
    v: int,
    cell: int,
    subscription: int,
    at: Position,
    found: int,
    reader: int,
) -> None:
    """A row of cache_reads."""
    k, cache = w.key[0], w.variants[v]
    now = k["now_ns"]
    k["read_no"] = k["read_no"] + 1 if k["read_ns"] == now else ZERO
    k["read_ns"] = now
    row = o.reads[k["reads"]]
    k["reads"] += 1
    row["ts_mono_ns"], row["ts_wall_ms"], row["feed"] = now, k["now_wall_ms"], k["now_feed"]
    row["row_no"] = k["read_no"]
    row["variant"], row["policy"], row["max_bytes"] = v, cache["policy"], cache["max_bytes"]
    row["topic"] = w.topics[cell // len(w.variants)]["name"]
    row["subscription"], row["ledger"], row["entry"] = subscription, at.ledger, at.entry
    row["rule"], row["reader"] = found, reader
    x = find(w, cell, at.ledger, at.entry)
    row["expected"] = w.entries[x]["expected"] if x >= 0 and w.entries[x]["counted"] != 0 else NULL


# -- a new run of the broker -----------------------------------------------------------------


@compiled
def begin_run(w: World, now: int) -> None:
    """Clear the memory of the broker; counts of the open window stay."""
    k = w.key[0]
    k["started_ns"], k["next_ns"], k["blind"], k["blind_until_ns"] = now, LARGEST, 0, 0
    k["entries"] = k["entries_top"] = k["pages"] = k["pages_top"] = 0
    k["ledgers"] = k["ledgers_top"] = 0
    k["free_entry"] = k["free_page"] = k["free_ledger"] = NOBODY
    w.table[:] = NOBODY
    for s in range(len(w.sets)):
        w.sets[s]["first"] = w.sets[s]["last"] = w.sets[s]["finger"] = NOBODY
        c = w.cells[s]
        c["used"] = c["count"] = c["wanted"] = c["bare"] = 0
        c["head_at"] = NOBODY
    for s in range(len(w.flag_sets)):
        w.flag_sets[s]["first"] = w.flag_sets[s]["last"] = w.flag_sets[s]["finger"] = NOBODY
        c = w.cursors[s]
        c["known"] = c["active"] = c["told"] = c["durable"] = 0
        c["has_read"] = c["has_mark"] = c["flags"] = 0
        c["backlog"] = NULL
    for t in range(len(w.topics)):
        topic = w.topics[t]
        topic["cursors"] = topic["active"] = topic["flags"] = topic["has_persisted"] = 0
        topic["has_slow_read"] = topic["has_slow_mark"] = 0
        topic["left_ns"] = topic["seen_ns"] = topic["check_ns"] = NULL
        topic["first_ledger"] = NOBODY
    for v in range(len(w.variants)):
        cache = w.variants[v]
        cache["used"] = cache["count"] = cache["wanted"] = cache["topics"] = cache["aside"] = 0
        cache["head"] = cache["tail"] = cache["stash_head"] = cache["stash_tail"] = NOBODY
        cache["unwanted_head"] = cache["unwanted_tail"] = NOBODY
        cache["passed_ns"], cache["idle_until_ns"] = now, NULL
