"""The timers of one broker: a heap of release tasks, waits for a receipt, looks at connections."""

from __future__ import annotations

from state.rate_limits.layout import (
    LOOK,
    NOBODY,
    NULL,
    RECEIPT_WAIT,
    RELEASE_TASK,
    Int,
    World,
    compiled,
)


@compiled
def _put(
    w: World, kind: int, due: int, limiter: int, cnx: int, place: int, mark: int, request: int
) -> None:
    """Add a timer to the heap; timers of one time keep their order."""
    k = w.key[0]
    timers = w.timers
    i = k["timers"]
    order = k["timer_order"]
    while i > 0:
        parent = (i - 1) // 2
        if timers[parent]["due_ns"] <= due:
            break
        timers[i] = timers[parent]
        i = parent
    t = timers[i]
    t["kind"], t["due_ns"], t["order"], t["limiter"] = kind, due, order, limiter
    t["cnx"], t["place"], t["mark"], t["request"] = cnx, place, mark, request
    k["timers"] += 1
    k["timer_order"] += 1


@compiled
def schedule(w: World, limiter: int, due: int) -> None:
    """A release task of a limiter."""
    w.limiters[limiter].tasks += 1
    _put(w, RELEASE_TASK, due, limiter, NOBODY, NOBODY, NULL, NULL)


@compiled
def schedule_receipt(w: World, due: int, cnx: int, place: int, mark: int, request: int) -> None:
    """The end of the wait for a receipt; `place` and `mark` as in TIMER."""
    _put(w, RECEIPT_WAIT, due, NOBODY, cnx, place, mark, request)


@compiled
def schedule_look(w: World, due: int, cnx: int) -> None:
    """A look at an observed connection, which has one at most."""
    w.cnxs[cnx].look = w.key[0]["timer_order"]
    _put(w, LOOK, due, NOBODY, cnx, NOBODY, w.cnxs[cnx].look, NULL)


@compiled
def pop_timer(w: World) -> tuple[Int, Int, Int, Int, Int]:
    """Remove the earliest timer; returns its kind, limiter, connection, place and mark."""
    k = w.key[0]
    timers = w.timers
    first = timers[0]
    kind, limiter, cnx = first["kind"], first["limiter"], first["cnx"]
    place, mark = first["place"], first["mark"]
    if kind == RELEASE_TASK:
        w.limiters[limiter].tasks -= 1
    n = k["timers"] - 1
    k["timers"] = n
    due, order = timers[n]["due_ns"], timers[n]["order"]
    i = 0
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and (
            timers[child + 1]["due_ns"] < timers[child]["due_ns"]
            or (
                timers[child + 1]["due_ns"] == timers[child]["due_ns"]
                and timers[child + 1]["order"] < timers[child]["order"]
            )
        ):
            child += 1
        if timers[child]["due_ns"] > due or (
            timers[child]["due_ns"] == due and timers[child]["order"] > order
        ):
            break
        timers[i] = timers[child]
        i = child
    timers[i] = timers[n]
    return kind, limiter, cnx, place, mark
