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
    CursorState,
    Int,
    Out,
    Position,
    Record,
    Slowest,
    World,
    compiled,
    inlined,
)
from state.entry_cache.positions import (
    add,
    discard,
    entry_at,
    first_from,
    has,
    lowest,
    precedes,
    replay_owner,
)


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
def is_last(w: World, t: int, at: Position) -> bool:
    """Whether a position is at or after the last persisted one."""
    topic = w.topics[t]
    return topic["has_persisted"] != 0 and not precedes(
        at.ledger, at.entry, topic["persisted_ledger"], topic["persisted_entry"]
    )


@compiled
def is_counted(w: World, c: int) -> bool:
    """Whether a cursor is active and has a position."""
    cursor = w.cursors[c]
    return cursor["known"] != 0 and cursor["active"] != 0 and cursor["has_read"] != 0


@compiled
def others_before(w: World, t: int, c: int, at: Position) -> Int:
    """Active cursors besides one that read at a position or before it."""
    n = ZERO
    other = w.topics[t]["first_cursor"]
    while other >= 0:
        cursor = w.cursors[other]
        if (
            other != c
            and is_counted(w, other)
            and not precedes(at.ledger, at.entry, cursor["read_ledger"], cursor["read_entry"])
        ):
            n += ONE
        other = cursor["next"]
    return n


@compiled
def slowest_read(topic: Record) -> Slowest:
    """The slowest position of a topic by reads."""
    return Slowest(topic["has_slow_read"], topic["slow_read_ledger"], topic["slow_read_entry"])


@compiled
def slowest_mark(topic: Record) -> Slowest:
    """The slowest position of a topic by mark-deletes."""
    return Slowest(topic["has_slow_mark"], topic["slow_mark_ledger"], topic["slow_mark_entry"])


@compiled
def has_moved(was: Slowest, now: Slowest) -> bool:
    """Whether a slowest position is another one than before."""
    return now.exists != 0 and (
        was.exists == 0 or now.ledger != was.ledger or now.entry != was.entry
    )


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
                topic["has_slow_read"], topic["slow_read_ledger"] = 1, cursor["read_ledger"]
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
                topic["has_slow_mark"], topic["slow_mark_ledger"] = 1, cursor["mark_ledger"]
                topic["slow_mark_entry"] = cursor["mark_entry"]
        at = cursor["next"]


@compiled
def read_on(w: World, t: int, c: int, at: Position, is_replay: bool) -> bool:
    """Move a reader past what it has read; True if the slowest position may have changed."""
    cursor = w.cursors[c]
    if cursor["known"] == 0:
        return False
    had = cursor["has_read"] != 0
    if had:
        if precedes(at.ledger, at.entry, cursor["read_ledger"], cursor["read_entry"]):
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
    cursor["read_ledger"], cursor["read_entry"] = at.ledger, at.entry + ONE
    if cursor["active"] == 0 or not was_slowest:
        return False
    find_slowest(w, t)
    return True


@compiled
def follow(w: World, o: Out, v: int, t: int, has_read: bool, has_marked: bool) -> None:
    """Remove what the slowest cursor has read or deleted, after it has moved, if the policy
    requires it."""
    topic, cell, by_mark = w.topics[t], t * len(w.variants) + v, w.variants[v]["by_mark_delete"]
    if not evicts_behind(w, v):
        return
    if has_read and by_mark == 0:
        invalidate_before(w, o, v, cell, topic["slow_read_ledger"], topic["slow_read_entry"])
    if has_marked and by_mark != 0:
        invalidate_before(w, o, v, cell, topic["slow_mark_ledger"], topic["slow_mark_entry"] + ONE)


@compiled
def evicts_behind(w: World, v: int) -> bool:
    """Whether a cache removes what all active cursors have passed."""
    policy = w.variants[v]["policy"]
    return policy == FIFO or policy == PROPORTIONAL


# -- replay ----------------------------------------------------------------------------------


@compiled
def queue_replay(w: World, t: int, c: int, ledger: int, entry: int) -> None:
    """A subscription will read this entry again."""
    _, _, is_new = add(w, w.flag_sets[c], replay_owner(c), ledger, entry)
    if is_new:
        w.topics[t]["flags"] += 1
        w.cursors[c]["flags"] += 1


@inlined
def take_replay(w: World, t: int, c: int, ledger: int, entry: int) -> bool:
    """Remove an entry from the replay queue of a subscription; returns whether it was queued."""
    if c < 0 or w.cursors[c]["flags"] == 0:
        return False
    p = has(w, w.flag_sets[c], replay_owner(c), ledger, entry)
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
def set_cursor(w: World, t: int, c: int, state: CursorState) -> None:
    """Apply the record of a cursor; an advancing mark-delete may lower counts."""
    cursor, topic = w.cursors[c], w.topics[t]
    if cursor["known"] == 0:
        topic["cursors"] += 1
        cursor["known"] = 1
    topic["active"] += state.active - cursor["active"]
    cursor["active"], cursor["has_read"] = state.active, state.has_read
    cursor["told"], cursor["durable"] = state.told, state.durable
    cursor["read_ledger"], cursor["read_entry"] = state.read
    if state.has_mark != 0:
        had, was = cursor["has_mark"], Position(cursor["mark_ledger"], cursor["mark_entry"])
        cursor["has_mark"] = 1
        cursor["mark_ledger"], cursor["mark_entry"] = state.mark
        drop_replays_to(w, t, c, state.mark.ledger, state.mark.entry)
        if had != 0 and state.active != 0:
            count = len(w.variants)
            for v in range(count):
                if w.variants[v]["decrement"] != 0:
                    pass_by(w, v, t * count + v, was, state.mark)


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
def after_cursor(w: World, o: Out, t: int, active: int, read: Slowest, mark: Slowest) -> None:
    """Apply the effects of a changed cursor to the entries of its topic; the number of active
    cursors and the slowest positions are those before the change.
    """
    topic, left = w.topics[t], active > 0 and w.topics[t]["active"] == 0
    if left:
        topic["left_ns"] = w.key[0]["now_ns"]
    find_slowest(w, t)
    has_read = has_moved(read, slowest_read(topic))
    has_marked, count = has_moved(mark, slowest_mark(topic)), len(w.variants)
    for v in range(count):
        if left and w.variants[v]["grace_ns"] == 0 and evicts_behind(w, v):
            invalidate_all(w, o, v, t * count + v)
        follow(w, o, v, t, has_read, has_marked)
