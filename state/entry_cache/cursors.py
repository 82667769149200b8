"""Topics and their cursors: readers, entries queued for replay, and the slowest position."""

from __future__ import annotations

from state.entry_cache.backlogs import close_ledger, forget_ledgers, take_backlogs
from state.entry_cache.cache import invalidate_all, invalidate_before, pass_by
from state.entry_cache.layout import (
    BLOCK_MASK,
    FIFO,
    NULL,
    ONE,
    PROPORTIONAL,
    ZERO,
    Int,
    Out,
    World,
    compiled,
    inlined,
)
from state.entry_cache.positions import add, discard, entry_at, first_from, has, lowest, precedes


@compiled
def meet(w: World, t: int, now: int) -> None:
    """Record an event of a topic. A topic without entries and without recent records counts as new."""
    topic = w.topics[t]
    if (
        topic["seen_ns"] != NULL
        and topic["cursors"] == 0
        and topic["flags"] == 0
        and now - topic["seen_ns"] > w.key[0]["idle_ns"]
    ):
        topic["has_persisted"], topic["left_ns"] = 0, NULL
        forget_ledgers(w, t)
    topic["seen_ns"] = now
    if now > topic["check_ns"]:
        take_backlogs(w, t, now)


@compiled
def persist(w: World, t: int, ledger: int, entry: int) -> None:
    """Record a persisted entry."""
    topic = w.topics[t]
    if topic["has_persisted"] == 0 or precedes(
        topic["persisted_ledger"], topic["persisted_entry"], ledger, entry
    ):
        if topic["has_persisted"] != 0 and topic["persisted_ledger"] != ledger:
            close_ledger(w, t)
        topic["has_persisted"] = 1
        topic["persisted_ledger"], topic["persisted_entry"] = ledger, entry


@compiled
def is_last(w: World, t: int, ledger: int, entry: int) -> bool:
    """Whether a position is at or after the last persisted one."""
    topic = w.topics[t]
    return topic["has_persisted"] != 0 and not precedes(
        ledger, entry, topic["persisted_ledger"], topic["persisted_entry"]
    )


@compiled
def is_counted(w: World, c: int) -> bool:
    """Whether a cursor is active and has a position."""
    cursor = w.cursors[c]
    return cursor["known"] != 0 and cursor["active"] != 0 and cursor["has_read"] != 0


@compiled
def others_before(w: World, t: int, c: int, ledger: int, entry: int) -> Int:
    """Active cursors besides one that read at a position or before it."""
    n = ZERO
    at = w.topics[t]["first_cursor"]
    while at >= 0:
        cursor = w.cursors[at]
        if (
            at != c
            and is_counted(w, at)
            and not precedes(ledger, entry, cursor["read_ledger"], cursor["read_entry"])
        ):
            n += ONE
        at = cursor["next"]
    return n


@compiled
def find_slowest(w: World, t: int) -> None:
    """Positions of the slowest active cursor, by what it reads and by what it has deleted."""
    topic = w.topics[t]
    topic["has_slow_read"] = topic["has_slow_mark"] = 0
    at = topic["first_cursor"]
    while at >= 0:
        cursor = w.cursors[at]
        if cursor["known"] != 0 and cursor["active"] != 0:
            if cursor["has_read"] != 0 and (
                topic["has_slow_read"] == 0
                or precedes(
                    cursor["read_ledger"],
                    cursor["read_entry"],
                    topic["slow_read_ledger"],
                    topic["slow_read_entry"],
                )
            ):
                topic["has_slow_read"] = 1
                topic["slow_read_ledger"] = cursor["read_ledger"]
                topic["slow_read_entry"] = cursor["read_entry"]
            if cursor["has_mark"] != 0 and (
                topic["has_slow_mark"] == 0
                or precedes(
                    cursor["mark_ledger"],
                    cursor["mark_entry"],
                    topic["slow_mark_ledger"],
                    topic["slow_mark_entry"],
                )
            ):
                topic["has_slow_mark"] = 1
                topic["slow_mark_ledger"] = cursor["mark_ledger"]
                topic["slow_mark_entry"] = cursor["mark_entry"]
        at = cursor["next"]


@compiled
def read_on(w: World, t: int, c: int, ledger: int, entry: int, is_replay: bool) -> bool:
    """Move a reader past what it has read; True if the slowest position may have changed."""
    cursor = w.cursors[c]
    if cursor["known"] == 0:
        return False
    had = cursor["has_read"] != 0
    if had:
        if precedes(ledger, entry, cursor["read_ledger"], cursor["read_entry"]):
            return False
    elif is_replay:
        return False
    topic = w.topics[t]
    was_slowest = (
        not had
        or topic["has_slow_read"] == 0
        or not precedes(
            topic["slow_read_ledger"],
            topic["slow_read_entry"],
            cursor["read_ledger"],
            cursor["read_entry"],
        )
    )
    cursor["has_read"] = 1
    cursor["read_ledger"], cursor["read_entry"] = ledger, entry + ONE
    if cursor["active"] == 0 or not was_slowest:
        return False
    find_slowest(w, t)
    return True


@compiled
def follow(
    w: World,
    o: Out,
    v: int,
    t: int,
    had_read: int,
    read_ledger: int,
    read_entry: int,
    had_mark: int,
    mark_ledger: int,
    mark_entry: int,
) -> None:
    """Remove what the slowest active cursor has passed, if it has moved and the policy requires it."""
    cache, topic = w.variants[v], w.topics[t]
    if cache["policy"] != FIFO and cache["policy"] != PROPORTIONAL:
        return
    cell = t * len(w.variants) + v
    if cache["by_mark_delete"] == 0:
        ledger, entry = topic["slow_read_ledger"], topic["slow_read_entry"]
        if topic["has_slow_read"] != 0 and not (
            had_read != 0 and ledger == read_ledger and entry == read_entry
        ):
            invalidate_before(w, o, v, cell, ledger, entry)
        return
    ledger, entry = topic["slow_mark_ledger"], topic["slow_mark_entry"]
    if topic["has_slow_mark"] != 0 and not (
        had_mark != 0 and ledger == mark_ledger and entry == mark_entry
    ):
        invalidate_before(w, o, v, cell, ledger, entry + ONE)


# -- replay ----------------------------------------------------------------------------------


@compiled
def queue_replay(w: World, t: int, c: int, ledger: int, entry: int) -> None:
    """A subscription will read this entry again."""
    _, _, is_new = add(w, w.flag_sets[c], -ONE - c, ledger, entry)
    if is_new:
        w.topics[t]["flags"] += 1
        w.cursors[c]["flags"] += 1


@inlined
def take_replay(w: World, t: int, c: int, ledger: int, entry: int) -> bool:
    """Remove an entry from the replay queue of a subscription; returns whether it was queued."""
    if c < 0 or w.cursors[c]["flags"] == 0:
        return False
    p = has(w, w.flag_sets[c], -ONE - c, ledger, entry)
    if p < 0:
        return False
    drop_replay(w, t, c, p, entry & BLOCK_MASK)
    return True


@compiled
def drop_replay(w: World, t: int, c: int, p: int, i: int) -> None:
    """Remove one place of a page from the replay queue."""
    discard(w, w.flag_sets[c], p, i)
    w.topics[t]["flags"] -= 1
    w.cursors[c]["flags"] -= 1


@compiled
def drop_replays_to(w: World, t: int, c: int, ledger: int, entry: int) -> None:
    """Remove from the replay queue what a subscription has deleted."""
    s = w.flag_sets[c]
    while s["first"] >= 0:
        p = s["first"]
        i = lowest(w.pages[p]["bits"])
        if precedes(ledger, entry, w.pages[p]["ledger"], entry_at(w, p, i)):
            break
        drop_replay(w, t, c, p, i)


@compiled
def drop_replays(w: World, t: int, c: int) -> None:
    """Clear the replay queue of a subscription."""
    s = w.flag_sets[c]
    while s["first"] >= 0:
        p = s["first"]
        drop_replay(w, t, c, p, lowest(w.pages[p]["bits"]))


@compiled
def drop_replays_of_ledger(w: World, t: int, ledger: int) -> None:
    """Remove entries of a deleted ledger from the replay queues."""
    c = w.topics[t]["first_cursor"]
    while c >= 0:
        while True:
            p = first_from(w, w.flag_sets[c], ledger, NULL)
            if p < 0 or w.pages[p]["ledger"] != ledger:
                break
            drop_replay(w, t, c, p, lowest(w.pages[p]["bits"]))
        c = w.cursors[c]["next"]


# -- cursors that come, move and go ----------------------------------------------------------


@compiled
def set_cursor(
    w: World,
    t: int,
    c: int,
    active: int,
    told: int,
    durable: int,
    has_read: int,
    read_ledger: int,
    read_entry: int,
    has_mark: int,
    mark_ledger: int,
    mark_entry: int,
) -> None:
    """Apply the record of a cursor; an advancing mark-delete may lower counts."""
    cursor, topic = w.cursors[c], w.topics[t]
    if cursor["known"] == 0:
        topic["cursors"] += 1
        cursor["known"] = 1
    topic["active"] += active - cursor["active"]
    cursor["active"], cursor["has_read"] = active, has_read
    cursor["told"], cursor["durable"] = told, durable
    cursor["read_ledger"], cursor["read_entry"] = read_ledger, read_entry
    if has_mark != 0:
        had, was_ledger, was_entry = (
            cursor["has_mark"],
            cursor["mark_ledger"],
            cursor["mark_entry"],
        )
        cursor["has_mark"] = 1
        cursor["mark_ledger"], cursor["mark_entry"] = mark_ledger, mark_entry
        drop_replays_to(w, t, c, mark_ledger, mark_entry)
        if had != 0 and active != 0:
            count = len(w.variants)
            for v in range(count):
                if w.variants[v]["decrement"] != 0:
                    pass_by(w, v, t * count + v, was_ledger, was_entry, mark_ledger, mark_entry)


@compiled
def delete_cursor(w: World, t: int, c: int) -> None:
    """Remove a cursor and its replay queue."""
    if c < 0:
        return
    cursor, topic = w.cursors[c], w.topics[t]
    if cursor["known"] != 0:
        topic["cursors"] -= 1
        topic["active"] -= cursor["active"]
        cursor["known"] = cursor["active"] = cursor["has_read"] = cursor["has_mark"] = 0
        cursor["backlog"] = NULL
    drop_replays(w, t, c)


@compiled
def after_cursor(
    w: World,
    o: Out,
    t: int,
    active: int,
    had_read: int,
    read_ledger: int,
    read_entry: int,
    had_mark: int,
    mark_ledger: int,
    mark_entry: int,
) -> None:
    """Apply the effects of a changed cursor to the entries of its topic."""
    topic = w.topics[t]
    left = active > 0 and topic["active"] == 0
    if left:
        topic["left_ns"] = w.key[0]["now_ns"]
    find_slowest(w, t)
    count = len(w.variants)
    for v in range(count):
        cache = w.variants[v]
        if (
            left
            and cache["grace_ns"] == 0
            and (cache["policy"] == FIFO or cache["policy"] == PROPORTIONAL)
        ):
            invalidate_all(w, o, v, t * count + v)
        follow(w, o, v, t, had_read, read_ledger, read_entry, had_mark, mark_ledger, mark_entry)
