"""A publish limiter: two buckets, a FIFO of throttled producers, release tasks (PIP-322).

Both buckets are always charged. The first waiting producer schedules a release task after the
larger pause. The task releases all producers once that pause is 0; otherwise it schedules itself
again.
"""

from __future__ import annotations

import numpy as np

from state.engine import tables
from state.rate_limits.bucket import (
    LARGEST,
    PER_TICK,
    PERIOD_NS,
    RESOLUTION_NS,
    SATURATING,
    balance_at,
    build,
    charge,
    pause_of,
    read_for_pause,
    remove,
)
from state.rate_limits.exchange import announce
from state.rate_limits.layout import (
    BUCKET_EMPTY,
    LIMIT_REMOVED,
    NEVER,
    NOT_OBSERVED,
    NULL,
    RELEASED,
    Amount,
    Instant,
    Int,
    Mark,
    Out,
    Record,
    World,
    compiled,
)
from state.rate_limits.timers import schedule
from state.rate_limits.tracker import is_overdue, mark, unmark


@compiled
def build_limiter(w: World, limiter: int, now: int) -> None:
    """Build both buckets of a limiter, new and full; a limit of 0 or less has no bucket."""
    e, version = w.limiters[limiter], w.key[0]["tokenbucket"]
    for i in range(2):
        limit = e.limit_msgs if i == 0 else e.limit_bytes
        if limit > 0:
            build(
                w.buckets[2 * limiter + i],
                limit,
                limit,
                limit,
                now,
                PERIOD_NS,
                RESOLUTION_NS,
                version,
            )
        else:
            remove(w.buckets, 2 * limiter + i)
    e.built = 1


@compiled
def owes_a_task(w: World, limiter: int, now: int) -> bool:
    """Whether a limiter without buckets has throttled somebody and was used within idle_state_ms:
    its next change of limits schedules a task.
    """
    e = w.limiters[limiter]
    return e.throttled_before != 0 and (e.waiting > 0 or now - e.used_ns < w.key[0]["idle_ns"])


@compiled
def idle_and_full(w: World, limiter: int, now: int) -> bool:
    """Whether a limiter is equivalent to a new one: not used for idle_state_ms, nobody waiting,
    both buckets full. Only a limiter with its newest buckets can be.
    """
    e = w.limiters[limiter]
    if e.built == 0:
        return not owes_a_task(w, limiter, now)
    if w.key[0]["tokenbucket"] != SATURATING:
        return False
    if e.waiting > 0 or now - e.used_ns < w.key[0]["idle_ns"]:
        return False
    for i in range(2):
        b = w.buckets[2 * limiter + i]
        if (
            b["rate"] > 0
            and balance_at(b, now, PERIOD_NS, RESOLUTION_NS, SATURATING) < b["capacity"]
        ):
            return False
    return True


@compiled
def use(w: World, limiter: int, now: int) -> None:
    """Called for every use of a limiter. The first use builds it; a bucket that was full for a long
    time is built anew. Without a limit nothing happens: such a limiter may not exist.
    """
    e, version = w.limiters[limiter], w.key[0]["tokenbucket"]
    if e.limit_msgs <= 0 and e.limit_bytes <= 0:
        return
    if e.built == 0:
        if not owes_a_task(w, limiter, now):
            e.throttled_before = 0
        build_limiter(w, limiter, now)
    elif version == SATURATING and now - e.used_ns >= w.key[0]["idle_ns"]:
        if idle_and_full(w, limiter, now):
            e.throttled_before = 0
        for i in range(2):
            b = w.buckets[2 * limiter + i]
            rate = b["rate"]
            if rate > 0 and balance_at(b, now, PERIOD_NS, RESOLUTION_NS, version) >= b["capacity"]:
                build(b, rate, rate, rate, now, PERIOD_NS, RESOLUTION_NS, version)
    e.used_ns = now


@compiled
def pause_now(b: Record, balance: int, now: int, version: int) -> Int:
    """Pause (ns) of a bucket with this balance, without touching it."""
    if version == PER_TICK:
        balance = balance_at(b, now, PERIOD_NS, RESOLUTION_NS, version)
    return pause_of(b, balance, PERIOD_NS, version)


@compiled
def describe(w: World, o: Out, row: int, limiter: int, balances: Amount, now: int) -> None:
    """Add balances, pause and FIFO length to a row of this limiter."""
    e, version = o.rows[row], w.key[0]["tokenbucket"]
    m, b = w.buckets[2 * limiter], w.buckets[2 * limiter + 1]
    e["has"] = 4
    pause = np.int64(0)
    if m["rate"] > 0:
        e["has"] |= 1
        e["balance_msgs"] = balances.messages
        pause = max(pause, pause_now(m, balances.messages, now, version))
    if b["rate"] > 0:
        e["has"] |= 2
        e["balance_bytes"] = balances.bytes
        pause = max(pause, pause_now(b, balances.bytes, now, version))
    e["pause_ns"] = pause
    e["waiting"] = w.limiters[limiter].waiting


@compiled
def _verdict(
    w: World, o: Out, at: Instant, limiter: int, topic: int, charged: Amount, balances: Amount
) -> None:
    k, now = w.key[0], at.mono_ns
    version = k["tokenbucket"]
    if k["verdict_ns"] != now:
        k["verdict_ns"], k["verdict_no"] = now, 0
    v = o.verdicts[k["verdict_rows"]]
    m, b = w.buckets[2 * limiter], w.buckets[2 * limiter + 1]
    v["ts_mono_ns"], v["ts_wall_ms"], v["feed"] = at
    v["row_no"], v["limiter"], v["topic"] = k["verdict_no"], limiter, topic
    v["messages"], v["bytes"] = charged
    v["has"], v["messages_ok"], v["bytes_ok"] = 0, 1, 1
    v["balance_msgs"], v["balance_bytes"] = 0, 0
    pause = np.int64(0)
    if m["rate"] > 0:
        v["has"] |= 1
        v["balance_msgs"] = balances.messages
        v["messages_ok"] = 1 if balances.messages > 0 else 0
        pause = max(pause, pause_now(m, balances.messages, now, version))
    if b["rate"] > 0:
        v["has"] |= 2
        v["balance_bytes"] = balances.bytes
        v["bytes_ok"] = 1 if balances.bytes > 0 else 0
        pause = max(pause, pause_now(b, balances.bytes, now, version))
    v["pause_ns"] = pause
    k["verdict_rows"] += 1
    k["verdict_no"] += 1


@compiled
def wait(w: World, limiter: int, producer: int, trigger: int, now: int) -> Int:
    """Append a producer to the FIFO, where it may be several times; its place there."""
    k, e, p = w.key[0], w.limiters[limiter], w.producers[producer]
    place = tables.at(w.waiting, (k["timer_order"],))
    k["timer_order"] += 1
    x = w.waiting.rows[place]
    x.producer, x.trigger, x.limiter, x.type = producer, trigger, limiter, e.kind
    x.marked_ns = now
    tables.adopt(w.fifos, limiter, place)
    tables.adopt(w.marks, p.cnx, place)
    e.waiting += 1
    e.throttles += 1
    e.most_waiting = max(e.most_waiting, e.waiting)
    p.queued += 1
    w.cnxs[p.cnx].queued += 1
    return place


@compiled
def leave_queue(w: World, place: int) -> None:
    """Remove a place from the FIFO."""
    x = w.waiting.rows[place]
    p = w.producers[x.producer]
    w.limiters[x.limiter].waiting -= 1
    p.queued -= 1
    w.cnxs[p.cnx].queued -= 1
    tables.release(w.fifos, x.limiter, place)
    tables.release(w.marks, p.cnx, place)
    tables.drop(w.waiting, (x.order,))


@compiled
def unmark_place(
    w: World, o: Out, at: Instant, settle_ns: int, place: int, rule: int, balances: Amount
) -> None:
    """End the mark of a place, which leaves the FIFO of its limiter."""
    x = w.waiting.rows[place]
    limiter, producer, trigger = x.limiter, x.producer, x.trigger
    request, receipt = x.request, x.receipt
    leave_queue(w, place)
    p = w.producers[producer]
    kind = w.limiters[limiter].kind
    m = Mark(p.cnx, producer, p.topic, kind, rule, limiter, trigger)
    row = unmark(w, o, at, settle_ns, m, request, receipt)
    describe(w, o, row, limiter, balances, settle_ns)


@compiled
def lift(w: World, limiter: int, now: int, to_target: bool) -> Amount:
    """Raise the balances of a limiter to what a release waits for, or to one token; returns them."""
    version, positive = w.key[0]["tokenbucket"], w.key[0]["positive"]
    msgs, size = np.int64(0), np.int64(0)
    for i in range(2):
        b = w.buckets[2 * limiter + i]
        if b["rate"] <= 0:
            continue
        least = np.int64(1)
        if to_target and version != PER_TICK and positive == 0:
            least = max(least, b["target"])
        balance = read_for_pause(b, now, PERIOD_NS, RESOLUTION_NS, version)
        if balance < least:
            b["tokens"] += least - balance
            balance = least
        if i == 0:
            msgs = balance
        else:
            size = balance
    return Amount(msgs, size)


@compiled
def queue_up(
    w: World,
    o: Out,
    at: Instant,
    limiter: int,
    producer: int,
    topic: int,
    rule: int,
    balances: Amount,
) -> None:
    """Throttle a producer: a place in the FIFO, the mark, and a release task where none is due."""
    e, now = w.limiters[limiter], at.mono_ns
    place = wait(w, limiter, producer, topic, now)
    e.throttled_before, e.used_ns = 1, now
    cnx = w.producers[producer].cnx
    row = mark(w, o, at, Mark(cnx, producer, topic, e.kind, rule, limiter, topic))
    describe(w, o, row, limiter, balances, now)
    announce(w, o, row, place)
    if e.waiting == 1 or e.tasks == 0:
        pause, _ = read_limiter(w, limiter, now)
        schedule(w, limiter, release_due(now, pause))


@compiled
def charge_limiter(
    w: World, o: Out, at: Instant, limiter: int, producer: int, topic: int, amount: Amount
) -> bool:
    """Charge both buckets for one publish; throttle the producer if a bucket is empty."""
    now = at.mono_ns
    use(w, limiter, now)
    e = w.limiters[limiter]
    m, b = w.buckets[2 * limiter], w.buckets[2 * limiter + 1]
    if m["rate"] <= 0 and b["rate"] <= 0:
        return False
    version = w.key[0]["tokenbucket"]
    e.charged = 1
    e.messages += amount.messages
    e.bytes += amount.bytes
    msgs, bytes_ = np.int64(1), np.int64(1)
    if m["rate"] > 0:
        msgs = charge(m, amount.messages, now, PERIOD_NS, RESOLUTION_NS, version)
        if (e.has_least & 1) == 0 or msgs < e.least_msgs:
            e.least_msgs = msgs
            e.has_least |= 1
    if b["rate"] > 0:
        bytes_ = charge(b, amount.bytes, now, PERIOD_NS, RESOLUTION_NS, version)
        if (e.has_least & 2) == 0 or bytes_ < e.least_bytes:
            e.least_bytes = bytes_
            e.has_least |= 2
    if w.key[0]["verdicts"] != 0:
        _verdict(w, o, at, limiter, topic, amount, Amount(msgs, bytes_))
    if msgs > 0 and bytes_ > 0:
        return False
    queue_up(w, o, at, limiter, producer, topic, BUCKET_EMPTY, Amount(msgs, bytes_))
    return True


@compiled
def charge_digest(w: World, limiter: int, now: int, amount: Amount) -> None:
    """Charge both buckets for the publishes of a digest at its end. Nobody is throttled, and the
    lowest balances of the window are those of other charges: the broker had others than these.
    """
    use(w, limiter, now)
    e = w.limiters[limiter]
    m, b = w.buckets[2 * limiter], w.buckets[2 * limiter + 1]
    if m["rate"] <= 0 and b["rate"] <= 0:
        return
    version = w.key[0]["tokenbucket"]
    e.charged = 1
    e.messages += amount.messages
    e.bytes += amount.bytes
    if m["rate"] > 0:
        charge(m, amount.messages, now, PERIOD_NS, RESOLUTION_NS, version)
    if b["rate"] > 0:
        charge(b, amount.bytes, now, PERIOD_NS, RESOLUTION_NS, version)


@compiled
def release_due(now: int, pause: Int) -> Int:
    """When a release task is due. If the product of a pause has wrapped below 0, the broker would
    retry without end; here the delay is one resolution, before which no bucket changes.
    """
    if pause < 0:
        pause = np.int64(RESOLUTION_NS)
    return now + pause if now <= LARGEST - pause else LARGEST


@compiled
def read_limiter(w: World, limiter: int, now: int) -> tuple[Int, Amount]:
    """Read both buckets: the larger pause (ns) and both balances."""
    m, b = w.buckets[2 * limiter], w.buckets[2 * limiter + 1]
    version = w.key[0]["tokenbucket"]
    pause, msgs, size = np.int64(0), np.int64(0), np.int64(0)
    if m["rate"] > 0:
        msgs = read_for_pause(m, now, PERIOD_NS, RESOLUTION_NS, version)
        pause = max(pause, pause_of(m, msgs, PERIOD_NS, version))
    if b["rate"] > 0:
        size = read_for_pause(b, now, PERIOD_NS, RESOLUTION_NS, version)
        pause = max(pause, pause_of(b, size, PERIOD_NS, version))
    return pause, Amount(msgs, size)


@compiled
def release(w: World, o: Out, at: Instant, limiter: int) -> Int:
    """Run a release task; returns the delay (ns) it scheduled itself with, NULL if none.

    All producers leave once both buckets have their target or, with `release_condition` positive,
    anything at all. Those of an observed connection stay until the feed reports that its reads are
    resumed, or has not reported a pause in time.
    """
    e, now = w.limiters[limiter], at.mono_ns
    m, b = w.buckets[2 * limiter], w.buckets[2 * limiter + 1]
    if e.built != 0 and e.waiting > 0:
        # a task that finds nobody does nothing, so that one more or less changes nothing
        e.used_ns = now
    pause, balances = read_limiter(w, limiter, now)
    if w.key[0]["positive"] != 0:
        ready = (m["rate"] <= 0 or balances.messages > 0) and (b["rate"] <= 0 or balances.bytes > 0)
    else:
        ready = pause == 0
    if ready:
        released = LIMIT_REMOVED if m["rate"] <= 0 and b["rate"] <= 0 else RELEASED
        place = w.fifos.first[limiter]
        while place >= 0:
            x, following = w.waiting.rows[place], w.fifos.following[place]
            c = w.producers[x.producer].cnx
            x.ended = 1
            if w.cnxs[c].observed == 0:
                unmark_place(w, o, at, now, place, released, balances)
            elif is_overdue(w, c, x.marked_ns, now):
                unmark_place(w, o, at, now, place, NOT_OBSERVED, balances)
            place = following
    if ready or e.waiting == 0:
        return NULL
    schedule(w, limiter, release_due(now, pause))
    return pause


@compiled
def change_limits(
    w: World, limiter: int, limit_msgs: int, limit_bytes: int, now: int, seen: bool
) -> None:
    """Set new limits: both buckets are new and full, and the history is forgotten. Waiting
    producers are tried again at once with `limit_change = immediate`, at their time with
    `scheduled`.

    A limiter that was not used for idle_state_ms is only built at its next use; `seen` records that
    for one without buckets.
    """
    e = w.limiters[limiter]
    rested = idle_and_full(w, limiter, now) if e.built != 0 else not seen
    rested = rested and e.waiting == 0
    if rested or (e.built == 0 and not owes_a_task(w, limiter, now)):
        e.throttled_before = 0  # it may have been dropped meanwhile
    e.limit_msgs, e.limit_bytes = limit_msgs, limit_bytes
    if rested or (limit_msgs <= 0 and limit_bytes <= 0):
        e.built = 0
        remove(w.buckets, 2 * limiter)
        remove(w.buckets, 2 * limiter + 1)
    else:
        build_limiter(w, limiter, now)
        e.used_ns = now
    if e.throttled_before != 0 and not rested and w.key[0]["scheduled"] == 0:
        schedule(w, limiter, now)


@compiled
def forget(w: World, limiter: int) -> None:
    """Reset a limiter as at a start of the broker: nobody waits, no bucket is built."""
    e = w.limiters[limiter]
    e.built, e.throttled_before, e.used_ns, e.tasks = 0, 0, NEVER, 0
    remove(w.buckets, 2 * limiter)
    remove(w.buckets, 2 * limiter + 1)
