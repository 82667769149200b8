"""The exchange of PIP-385: commands to clients, receipts, and the client's side of a throttle.

A mark of a topic or a resource group sends its producer a command and waits for the receipt; reads
continue unless the receipt is late. Marks for other reasons pause reads at once and inform every
producer of the connection. A client that does not support the command gets none: a row without a
request id shows which producers would have got one.
"""

from __future__ import annotations

import numpy as np

from state.rate_limits.layout import (
    CLIENT_UNSUPPORTED,
    DROPPED,
    INFORMED_ONLY,
    MODEL_OBSERVED,
    NEVER,
    NOBODY,
    NOT_SUPPORTED,
    NOT_WAITED,
    NULL,
    RECEIPT,
    RECEIPT_IN_TIME,
    RECEIPT_TIMEOUT,
    RECEIPT_WAIT,
    RECEIVED,
    RESOURCE_GROUP,
    SEND_TIMEOUT,
    STATE_CHANGED,
    THROTTLED_EXCEPTION,
    TIMED_OUT,
    TIMEOUT_EXCEPTION,
    TOPIC,
    TYPE_CHANGED,
    WAITING_FOR,
    Array,
    Instant,
    Int,
    Mark,
    Out,
    Record,
    World,
    compiled,
    flag_at,
    place_of_flag,
)
from state.rate_limits.timers import schedule_receipt
from state.rate_limits.tracker import (
    awaits_receipt,
    blame,
    counts,
    flag_owner,
    start_blocking,
    write_row,
)

NS_PER_MS = np.int64(1_000_000)
MS_PER_S = np.int64(1000)
HAS_LIMITER = 4


@compiled
def _sift(a: Array, b: Array, c: Array, root: int, end: int) -> None:
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and (
            a[child + 1] > a[child] or (a[child + 1] == a[child] and b[child + 1] > b[child])
        ):
            child += 1
        if a[root] > a[child] or (a[root] == a[child] and b[root] >= b[child]):
            return
        a[root], a[child] = a[child], a[root]
        b[root], b[child] = b[child], b[root]
        c[root], c[child] = c[child], c[root]
        root = child


@compiled
def sort_by_two(a: Array, b: Array, c: Array) -> None:
    """Sort three columns in place by the first two (heap sort, which needs no further memory)."""
    n = len(a)
    for root in range(n // 2 - 1, -1, -1):
        _sift(a, b, c, root, n)
    for end in range(n - 1, 0, -1):
        a[0], a[end] = a[end], a[0]
        b[0], b[end] = b[end], b[0]
        c[0], c[end] = c[end], c[0]
        _sift(a, b, c, 0, end)


@compiled
def client_clock(at: Instant) -> Int:
    """Milliseconds of the client: wall time, or the broker's monotonic time if that is unknown."""
    return np.int64(at.mono_ns // NS_PER_MS) if at.wall_ms == NULL else np.int64(at.wall_ms)


@compiled
def _pause_sent(w: World, row: Record) -> Int:
    """The pause (ms) that the commands of a mark announce; 0 = unknown."""
    wall = row["ts_wall_ms"]
    if wall == NULL:
        return np.int64(0)
    if w.key[0]["sends_model"] != 0:
        if row["has"] & HAS_LIMITER:
            return max(row["pause_ns"], np.int64(0)) // NS_PER_MS
        return np.int64(0)
    if row["type"] == TOPIC or row["type"] == RESOURCE_GROUP:
        return MS_PER_S - wall % MS_PER_S
    return np.int64(0)


@compiled
def _new_row(w: World, o: Out, at: Instant, p: int, kind: int, rule: int) -> Int:
    """A row of producer_throttle with the columns of the decision and of the producer."""
    k = w.key[0]
    if k["command_ns"] != at.mono_ns:
        k["command_ns"], k["command_no"] = at.mono_ns, 0
    n = k["command_rows"]
    row = o.commands[n]
    row["ts_mono_ns"], row["ts_wall_ms"], row["feed"] = at
    row["row_no"], row["type"], row["rule"] = k["command_no"], kind, rule
    row["timed"], row["start_ms"], row["pause_ms"], row["end_ms"] = 0, 0, 0, 0
    row["request"], row["total_ms"], row["sequence_id"], row["exception"] = NULL, NULL, NULL, 0
    if p >= 0:
        producer = w.producers[p]
        row["cnx"] = w.cnxs[producer.cnx].name
        row["topic"] = w.topics[producer.topic].name
        row["producer_id"], row["producer_name"] = producer.producer_id, producer.name
    k["command_rows"] = n + 1
    k["command_no"] += 1
    return n


@compiled
def _command(w: World, o: Out, p: int, at: Instant, kind: int, rule: int, pause: int) -> Int:
    """Send a command to a producer; returns its request id on the connection."""
    producer = w.producers[p]
    cnx, link = w.cnxs[producer.cnx], w.links[producer.link]
    cnx.requests += 1
    request = cnx.requests
    link.throttled_ms[kind] += pause
    begin = client_clock(at)
    row = o.commands[_new_row(w, o, at, p, kind, rule)]
    row["timed"] = 1 if at.wall_ms != NULL else 0
    row["start_ms"], row["pause_ms"], row["end_ms"] = begin, pause, begin + pause
    row["request"], row["total_ms"] = request, link.throttled_ms[kind]
    producer.heard_ms = begin
    if (
        w.key[0]["keeps_later"] == 0
        or producer.kept_end_ms == NEVER
        or begin + pause >= producer.kept_end_ms
    ):
        producer.kept_start_ms, producer.kept_pause_ms = begin, pause
        producer.kept_end_ms, producer.kept_request = begin + pause, request
        producer.kept_type, producer.kept_timed = kind, row["timed"]
    return request


@compiled
def _producers(w: World, c: int) -> tuple[int, int]:
    """Open producers of a connection by id and age: where their places are in `w.scratch`."""
    start = 2 * len(w.cnxs)
    most = len(w.producers)
    ids = w.scratch[start : start + most]
    ages = w.scratch[start + most : start + 2 * most]
    places = w.scratch[start + 2 * most : start + 3 * most]
    n = 0
    link = w.cnxs[c].first_link
    while link >= 0:
        p = w.links[link].first_producer
        while p >= 0:
            if w.producers[p].open != 0:
                ids[n], ages[n] = w.producers[p].producer_id, w.producers[p].opened
                places[n] = p
                n += 1
            p = w.producers[p].next
        link = w.links[link].next
    sort_by_two(ids[:n], ages[:n], places[:n])
    first = start + 2 * most
    return first, first + n


@compiled
def _inform(w: World, o: Out, c: int, first: int, at: Instant, kind: int, pause: int) -> Int:
    """Send a command to every producer of a connection, by id. Returns the request id of the first
    one, or of the smallest producer (first = -1); NULL without a producer.
    """
    answer = NULL
    first_place, last_place = _producers(w, c)
    for i in range(first_place, last_place):
        p = w.scratch[i]
        request = _command(w, o, p, at, kind, INFORMED_ONLY, pause)
        if i == first_place or p == first:
            answer = request
    return answer


@compiled
def _send_nothing(w: World, o: Out, c: int, producer: int, at: Instant, kind: int) -> None:
    """Write a row for each producer that would get a command if its client supported it."""
    if awaits_receipt(w, kind):
        _new_row(w, o, at, producer, kind, CLIENT_UNSUPPORTED)
        return
    first, last = _producers(w, c)
    for i in range(first, last):
        _new_row(w, o, at, w.scratch[i], kind, CLIENT_UNSUPPORTED)


@compiled
def announce(w: World, o: Out, row: int, place: int) -> None:
    """Send the commands of a mark whose row was just written.

    `place` is that of the mark in the FIFO of its limiter; flags have none.
    """
    k, r = w.key[0], o.rows[row]
    receipt = r["receipt"]
    if k["protocol"] == 0 or r["transition"] == DROPPED:
        return
    at, c = Instant(r["ts_mono_ns"], r["ts_wall_ms"], r["feed"]), r["cnx"]
    kind = np.int64(r["type"])
    request = NULL
    if receipt == RECEIVED or receipt == WAITING_FOR:
        request = _command(w, o, r["producer"], at, kind, r["rule"], _pause_sent(w, r))
    elif receipt == NOT_WAITED:
        request = _inform(w, o, c, r["producer"], at, kind, _pause_sent(w, r))
    elif receipt == NOT_SUPPORTED:
        _send_nothing(w, o, c, r["producer"], at, kind)
    r["request"] = request
    if counts(kind, k["shared"]):
        x = w.waiting.rows[place]
        x.request, x.receipt, mark = request, receipt, x.order
    else:
        cnx = w.cnxs[c]
        mark = k["timer_order"]
        k["timer_order"] += 1
        cnx.flag_request[kind], cnx.flag_mark[kind] = request, mark
        place = place_of_flag(kind)
    if receipt == WAITING_FOR:
        schedule_receipt(w, at.mono_ns + k["receipt_wait_ns"], c, place, mark, request)


@compiled
def _is_waiting(w: World, c: int, place: int, mark: int) -> bool:
    """Whether a mark is active and its receipt is still awaited."""
    if place >= 0:
        x = w.waiting.rows[place]
        return x.order == mark and x.receipt == WAITING_FOR
    cnx, kind = w.cnxs[c], flag_at(place)
    return cnx.flag_mark[kind] == mark and cnx.flag_receipt[kind] == WAITING_FOR


@compiled
def _decide(w: World, o: Out, at: Instant, c: int, place: int, receipt: int) -> None:
    """End the wait of a mark: without a receipt in time its reads pause."""
    cnx = w.cnxs[c]
    if place >= 0:
        x = w.waiting.rows[place]
        x.receipt = receipt
        producer, trigger, request = x.producer, x.trigger, x.request
        kind, owner = x.type, x.limiter
    else:
        kind = flag_at(place)
        cnx.flag_receipt[kind] = receipt
        producer, trigger = cnx.mark_producer[kind], cnx.mark_topic[kind]
        request, owner = cnx.flag_request[kind], flag_owner(w, c, kind)
    was = cnx.paused
    if receipt == TIMED_OUT:
        start_blocking(w, c, at.mono_ns, kind, owner, trigger)
        if kind == TOPIC:
            blame(w, c, at.mono_ns, trigger)
    topic = w.producers[producer].topic if producer >= 0 else NOBODY
    rule = RECEIPT_TIMEOUT if receipt == TIMED_OUT else RECEIPT_IN_TIME
    transition = STATE_CHANGED if cnx.paused != was else TYPE_CHANGED
    m = Mark(c, producer, topic, kind, rule, owner, trigger)
    write_row(w, o, at, m, RECEIPT, transition, request, receipt)


@compiled
def take_receipt(w: World, o: Out, at: Instant, c: int, request: int) -> None:
    """A client has confirmed a command. A late, unknown or unexpected receipt has no effect."""
    k = w.key[0]
    if k["protocol"] == 0 or k["receipt_model"] != MODEL_OBSERVED:
        return
    for i in range(k["timers"]):
        t = w.timers[i]
        if t["kind"] == RECEIPT_WAIT and t["cnx"] == c and t["request"] == request:
            place, mark = t["place"], t["mark"]
            if _is_waiting(w, c, place, mark):
                _decide(w, o, at, c, place, RECEIVED)
                return


@compiled
def end_wait(w: World, o: Out, at: Instant, c: int, place: int, mark: int) -> None:
    """The time limit of a receipt has passed."""
    if _is_waiting(w, c, place, mark):
        _decide(w, o, at, c, place, TIMED_OUT)


@compiled
def _sender(w: World, r: Record) -> Int:
    """The open producer of a send; if the record does not say its connection, the newest one of its
    topic and producer id."""
    found = r.producer_place
    if r.cnx_id < 0 and r.topic_place >= 0:
        latest = NEVER
        for p in range(len(w.producers)):
            e = w.producers[p]
            if (
                e.open != 0
                and e.topic == r.topic_place
                and e.producer_id == r.producer_id
                and e.opened > latest
            ):
                found, latest = np.int64(p), e.opened
    return found if found >= 0 and w.producers[found].open != 0 else NOBODY


@compiled
def time_out(w: World, o: Out, at: Instant, r: Record) -> None:
    """A send has timed out in the client: determine the exception that the client gets."""
    k = w.key[0]
    if k["protocol"] == 0:
        return
    p = _sender(w, r)
    row = o.commands[_new_row(w, o, at, p, NOBODY, SEND_TIMEOUT)]
    row["sequence_id"], row["exception"] = r.sequence_id, TIMEOUT_EXCEPTION
    if p < 0:
        row["cnx"], row["topic"], row["producer_id"] = r.cnx_id, r.topic, r.producer_id
        row["producer_name"] = NOBODY
        return
    e = w.producers[p]
    if k["seen_counts"] != 0:
        throttled = e.heard_ms != NEVER and (
            r.publish_time_ms == NULL or e.heard_ms >= r.publish_time_ms
        )
    else:
        throttled = e.kept_end_ms != NEVER and client_clock(at) < e.kept_end_ms
    if throttled:
        row["exception"], row["type"], row["timed"] = (
            THROTTLED_EXCEPTION,
            e.kept_type,
            e.kept_timed,
        )
        row["start_ms"], row["pause_ms"] = e.kept_start_ms, e.kept_pause_ms
        row["end_ms"], row["request"] = e.kept_end_ms, e.kept_request
