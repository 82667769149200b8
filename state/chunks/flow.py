"""Records and timers of a shard in their order: subscriptions, shared modes, windows."""

from __future__ import annotations

import numpy as np

from state.chunks import layout as L
from state.chunks.consumer import (
    add_position,
    arm,
    deliver,
    expire,
    finish,
    is_blind,
    lose_sight,
    new_row,
    next_pass,
    vanish,
)
from state.chunks.layout import NOBODY, NULL, Feed, Int, Out, World, compiled
from state.chunks.stored import (
    count_consumer,
    count_stalls,
    drop_stored,
    end_cursor,
    end_stall,
    forget_stored,
    has_reader,
    is_waited_for,
    keep_piece,
    list_stalled,
    mark_sent,
    may_stall,
    move_mark,
    prune_stored,
    take_cursor,
)
from state.chunks.tables import (
    acknowledge,
    acknowledged,
    find_binding,
    find_held,
    find_piece,
    index_all,
    put,
    remove,
    slot,
)
from state.engine.broker_changes import GAPS, comes_late, rank_at, turn_after, until
from state.events import KIND_INDEX

CREATED = np.int64(KIND_INDEX["consumer_created"])
CLOSED = np.int64(KIND_INDEX["consumer_closed"])
ENTRY_ADDED = np.int64(KIND_INDEX["entry_added"])
DISPATCH = np.int64(KIND_INDEX["dispatch"])
ACK = np.int64(KIND_INDEX["ack"])
CURSOR = np.int64(KIND_INDEX["cursor_state"])
CURSOR_DELETED = np.int64(KIND_INDEX["cursor_deleted"])
NS_PER_MS = np.int64(1_000_000)
LARGEST = np.int64(2**63 - 1)
ROWS_PER_CHUNK = np.int64(6)
DONE = np.int64(-1)


# -- time ------------------------------------------------------------------------------------


@compiled
def mono_at(w: World, key: Int, at_ms: Int, next_ns: Int, next_broker: Int) -> Int:
    """Monotonic time at a wall time, from the key's last record, at most that of the next one."""
    k = w.keys[key]
    if k["any"] == 0 or k["last_ns"] == NULL:
        return NULL
    mono = k["last_ns"] + (at_ms - k["last_ms"]) * NS_PER_MS
    if next_ns != NULL and next_broker == k["broker"]:
        mono = min(mono, next_ns)
    return mono


@compiled
def set_timer(w: World, key: Int, at_ms: Int, next_ns: Int, next_broker: Int) -> None:
    """Set `w.chunk[0]` to a timer of a key."""
    c, k = w.chunk[0], w.keys[key]
    c["key"], c["at_ms"] = key, at_ms
    c["mono_ns"] = mono_at(w, key, at_ms, next_ns, next_broker)
    c["broker"], c["feed"] = k["broker"], k["feed"]
    c["sub"], c["consumer"], c["uuid"] = NOBODY, NOBODY, NOBODY
    c["chunk_id"], c["num_chunks"], c["ledger"], c["entry"] = NULL, NULL, NULL, NULL
    c["marker_ledger"], c["marker_entry"] = NULL, NULL


@compiled
def touch(w: World, key: Int, at_ms: Int) -> None:
    """Open the window that contains this time."""
    k = w.keys[key]
    if k["open"] == 0:
        k["open"] = 1
        period = w.settings[0]["window_ms"]
        k["window_ms"] = at_ms // period * period


@compiled
def earliest(w: World, key: Int, now: Int) -> Int:
    """The consumer of a key with the earliest timer, -1 without one; sets `due_ms` of the key.

    Timers of one time fire in the order in which they were set. A timer that a pass has set again
    comes after those that records set at the same time, so a later start comes first.
    """
    k = w.keys[key]
    found: Int
    found, due, begin, order = NOBODY, NULL, NULL, np.int64(0)
    at = k["first_consumer"]
    while at >= 0:
        e = w.consumers[at]
        mine, start, number = next_pass(w, at, now), e["start_ms"], e["start_order"]
        if e["closed_ms"] != NULL and e["open"] == 0:
            mine = e["closed_ms"] + w.settings[0]["expiry_ms"]
            start, number = e["closed_ms"], e["closed_order"]
        if mine != NULL and (
            found < 0
            or mine < due
            or (mine == due and (start > begin or (start == begin and number < order)))
        ):
            found, due, begin, order = at, mine, start, number
        at = e["next"]
    k["due_ms"] = due
    return found


@compiled
def short(w: World, o: Out, chunks: Int) -> bool:
    """Whether the rows of this many chunks, or of one timer, may not fit."""
    p = w.settings[0]
    more = p["contexts"] + p["held"] + ROWS_PER_CHUNK * (chunks + 1)
    return bool(
        p["rows"] + more > len(o.rows)
        or p["positions"] + p["nodes"] + more + p["contexts"] > len(o.positions)
        or p["messages"] + chunks + 1 > len(o.messages)
        or p["parts"] + p["nodes"] + chunks + 1 > len(o.parts)
        or p["levels"] + p["consumers"] > len(o.levels)
        or p["missing"] + p["contexts"] + p["listing"] > len(o.missing)
        or p["gone"] + p["listing_gone"] > len(o.gone)
        or p["windows"] + 1 > len(o.windows)
    )


@compiled
def advance(w: World, o: Out, key: Int, until_ms: Int, next_ns: Int, next_broker: Int) -> bool:
    """Fire timers due before `until_ms` and write the windows that have ended by then; False if
    there was no room to continue.
    """
    p, c, k = w.settings[0], w.chunk[0], w.keys[key]
    while True:
        end = k["window_ms"] + p["window_ms"] if k["open"] != 0 else NULL
        due = k["due_ms"]
        fires = due != NULL and due < until_ms
        ends = end != NULL and end <= until_ms
        if not fires and not ends:
            return True
        if not fires or (ends and end <= due):
            stalls = count_stalls(w, key, end)
            p["listing"], p["listing_gone"] = stalls * k["stored"], stalls * k["pieces"]
        if short(w, o, np.int64(1)):
            return False
        if fires and (not ends or due < end):
            consumer = earliest(w, key, due)
            if consumer < 0 or k["due_ms"] > due:
                continue
            e = w.consumers[consumer]
            set_timer(w, key, due, next_ns, next_broker)
            c["sub"], c["consumer"] = e["sub"], consumer
            if e["closed_ms"] != NULL and e["open"] == 0:
                if e["contexts"] > 0:
                    touch(w, key, due)
                vanish(w, o, consumer)
            else:
                expire(w, o, consumer)
            earliest(w, key, due)
        else:
            set_timer(w, key, end, next_ns, next_broker)
            close_window(w, o, key, end)


# -- gaps ------------------------------------------------------------------------------------


@compiled
def next_to_lose(w: World, key: Int) -> Int:
    """The consumer of a key with the earliest first chunk among those with contexts, -1 without
    one.
    """
    found = NOBODY
    at = w.keys[key]["first_consumer"]
    while at >= 0:
        e = w.consumers[at]
        if (e["contexts"] > 0 or e["entries"] > 0 or e["counter"] != 0) and (
            found < 0 or e["start_order"] < w.consumers[found]["start_order"]
        ):
            found = np.int64(at)
        at = e["next"]
    return found


@compiled
def lose_key(w: World, o: Out, key: Int, at_ms: Int, next_ns: Int, next_broker: Int) -> bool:
    """Apply a gap of the key's broker: contexts of its consumers end, bindings and chunks that wait
    for a marker are forgotten; False if there was no room.
    """
    if short(w, o, np.int64(1)):
        return False
    c = w.chunk[0]
    while True:
        consumer = next_to_lose(w, key)
        if consumer < 0:
            break
        set_timer(w, key, at_ms, next_ns, next_broker)
        c["sub"], c["consumer"] = w.consumers[consumer]["sub"], consumer
        lose_sight(w, o, consumer)
    for i in range(len(w.bindings)):
        b = w.bindings[i]
        if b["sub"] >= 0 and w.subs[b["sub"]]["key"] == key:
            drop_binding(w, np.int64(i))
    forget_stored(w, key)
    if w.keys[key]["held"] == 0:
        return True
    set_timer(w, key, at_ms, next_ns, next_broker)
    while w.keys[key]["held"] > 0:
        let_go(w, o, oldest_held(w, key, at_ms, -LARGEST), L.LOST_TO_SIGHT)
    return True


@compiled
def look(w: World, key: Int, turn: Int) -> None:
    """The effect of a turn on what a key knows: messages that began before it."""
    t = w.turns[turn]
    if t["start"] == GAPS:
        w.links[key]["blind_ms"] = until(t["at_ms"], w.settings[0]["blind_ms"])


@compiled
def put_behind(w: World, key: Int, place: Int, rank: Int) -> None:
    """Set the broker of a key, past the turns before a rank."""
    e = w.links[key]
    e["place"], e["blind_ms"] = place, NULL
    e["turn"] = turn_after(w.turns, w.turn_start, place, rank)
    for turn in range(w.turn_start[place], e["turn"]):
        look(w, key, turn)


@compiled
def reach(
    w: World, o: Out, key: Int, to_ms: Int, rank: Int, next_ns: Int, next_broker: Int
) -> bool:
    """Move a key to a time, past the gaps before a rank; False if there was no room."""
    e = w.links[key]
    if e["late_ms"] != NULL:
        if not lose_key(w, o, key, e["late_ms"], next_ns, next_broker):
            return False
        e["late_ms"] = NULL
    end = w.turn_start[e["place"] + 1]
    while w.keys[key]["any"] != 0 and e["turn"] < end and w.turns[e["turn"]]["rank"] < rank:
        at_ms = w.turns[e["turn"]]["at_ms"]
        if not advance(w, o, key, at_ms, next_ns, next_broker):
            return False
        if not lose_key(w, o, key, at_ms, next_ns, next_broker):
            return False
        look(w, key, e["turn"])
        e["turn"] += 1
    return advance(w, o, key, to_ms, next_ns, next_broker)


# -- windows ---------------------------------------------------------------------------------


@compiled
def close_window(w: World, o: Out, key: Int, end: Int) -> None:
    """Write the open window of a key; the next one opens at once while a level is not zero."""
    p, c, k = w.settings[0], w.chunk[0], w.keys[key]
    forget_held(w, o, key, end)
    live, most, deepest = np.int64(0), k["most"], np.int64(0)
    window = p["windows"]
    at = k["first_consumer"]
    while at >= 0:
        e = w.consumers[at]
        level = e["contexts"] > 0 or e["counter"] > 0
        deepest = max(deepest, e["contexts"])
        if level:
            live += 1
        if level or e["touched"] != 0:
            row = o.levels[p["levels"]]
            p["levels"] += 1
            row["window"], row["sub"], row["consumer"] = window, e["sub"], at
            row["contexts"], row["counter"] = e["contexts"], e["counter"]
            row["buffered"], row["entries"], row["lost"] = (e["buffered"], e["entries"], e["lost"])
            row["declared"], row["oldest_ms"] = 0, NULL
            list_missing(w, o, at, window, p["levels"] - 1)
        e["touched"] = 0
        at = e["next"]
    behind = list_stalled(w, o, key, end, window)
    prune_stored(w, key, behind > 0)
    row = o.windows[window]
    p["windows"] += 1
    row["key"], row["at_ms"], row["mono_ns"] = key, end, c["mono_ns"]
    row["broker"], row["feed"] = c["broker"], c["feed"]
    row["start_ms"], row["window_ms"] = k["window_ms"], p["window_ms"]
    row["topic_row"] = 1 if k["touched"] != 0 or most > 0 or behind + k["behind"] > 0 else 0
    row["chunks"], row["bytes"], row["firsts"] = k["chunks"], k["bytes"], k["firsts"]
    row["producers"], row["most"] = k["producers"], most
    k["chunks"], k["bytes"], k["firsts"], k["producers"] = 0, 0, 0, 0
    k["most"], k["touched"] = deepest, 0
    k["behind"], p["listing"], p["listing_gone"] = behind, 0, 0
    k["open"] = 1 if live > 0 or k["held"] > 0 or k["stored"] > 0 or behind > 0 else 0
    k["window_ms"] = end


@compiled
def list_missing(w: World, o: Out, consumer: Int, window: Int, level: Int) -> None:
    """Every context of a consumer, in order of creation; their sums go into its level."""
    p, row = w.settings[0], o.levels[level]
    at, order = w.consumers[consumer]["first"], np.int64(0)
    while at >= 0:
        e = w.contexts[at]
        row["declared"] += min(e["declared"], LARGEST - row["declared"])
        if row["oldest_ms"] == NULL or e["first_ms"] < row["oldest_ms"]:
            row["oldest_ms"] = e["first_ms"]
        m = o.missing[p["missing"]]
        p["missing"] += 1
        m["window"], m["sub"], m["consumer"] = window, row["sub"], consumer
        m["order"], m["uuid"], m["producer"] = order, e["uuid"], e["producer"]
        m["sequence_id"], m["num_chunks"] = e["sequence_id"], e["num_chunks"]
        m["next_chunk"] = e["last"] + 1
        m["first_ledger"] = m["first_entry"] = m["last_ledger"] = m["last_entry"] = NULL
        if e["first"] >= 0:
            first, last = w.nodes[e["first"]], w.nodes[e["newest"]]
            m["first_ledger"], m["first_entry"] = first["ledger"], first["entry"]
            m["last_ledger"], m["last_entry"] = last["ledger"], last["entry"]
        elif e["more"] != 0:
            m["first_ledger"], m["first_entry"] = e["more_ledger"], e["more_entry"]
            m["last_ledger"], m["last_entry"] = e["more_ledger"], e["more_entry"]
        m["first_ms"], m["last_ms"] = e["first_ms"], e["last_ms"]
        m["buffered"], m["declared"] = e["bytes"], e["declared"]
        m["stall_ledger"] = NULL
        order += 1
        at = e["next"]


@compiled
def oldest_held(w: World, key: Int, now: Int, unread_ms: Int) -> Int:
    """The chunk of a key that waits for a marker longest, among those that none has read for a
    time; -1 without one.
    """
    oldest = NOBODY
    for i in range(len(w.held)):
        h = w.held[i]
        if (
            h["key"] == key
            and now - h["used_ms"] >= unread_ms
            and (oldest < 0 or h["order"] < w.held[oldest]["order"])
        ):
            oldest = np.int64(i)
    return oldest


@compiled
def let_go(w: World, o: Out, place: Int, outcome: Int) -> None:
    """Stop waiting for the marker of a chunk; reported unless the chunk was acknowledged."""
    c, h = w.chunk[0], w.held[place]
    if not acknowledged(w, h["sub"], h["ledger"], h["entry"]):
        c["sub"], c["consumer"], c["uuid"] = h["sub"], NOBODY, h["uuid"]
        c["chunk_id"], c["num_chunks"] = h["chunk_id"], h["num_chunks"]
        c["ledger"], c["entry"] = h["ledger"], h["entry"]
        row = new_row(w, o, outcome, L.NO_DEFECT)
        row["age_ms"] = c["at_ms"] - h["at_ms"]
        if outcome == L.ORPHANED:
            add_position(w, o, h["ledger"], h["entry"])
            row["orphaned"] = 1
    drop_held(w, place)


@compiled
def forget_held(w: World, o: Out, key: Int, now: Int) -> None:
    """Chunks that no marker has read for idle_state_ms are forgotten."""
    while w.keys[key]["held"] > 0:
        oldest = oldest_held(w, key, now, w.settings[0]["idle_ms"])
        if oldest < 0:
            return
        let_go(w, o, oldest, L.ORPHANED)


# -- shared subscriptions --------------------------------------------------------------------


@compiled
def drop_held(w: World, place: Int) -> None:
    p, h = w.settings[0], w.held[place]
    remove(w.held_table, slot(h["sub"], h["ledger"], h["entry"], w.held_table), place)
    w.keys[h["key"]]["held"] -= 1
    h["key"], h["next"] = NOBODY, p["free_held"]
    p["free_held"] = place
    p["held"] -= 1


@compiled
def drop_binding(w: World, place: Int) -> None:
    p, b = w.settings[0], w.bindings[place]
    remove(w.binding_table, slot(b["sub"], b["hash"], 0, w.binding_table), place)
    b["sub"], b["next"] = NOBODY, p["free_binding"]
    p["free_binding"] = place
    p["bindings"] -= 1


@compiled
def bind(w: World, consumer: Int) -> None:
    """Bind the uuid of the chunk to a consumer."""
    p, c = w.settings[0], w.chunk[0]
    place = p["free_binding"]
    b = w.bindings[place]
    p["free_binding"] = b["next"]
    p["bindings"] += 1
    b["sub"], b["uuid"], b["hash"] = c["sub"], c["uuid"], c["hash"]
    b["consumer"], b["used_ms"] = consumer, c["at_ms"]
    put(w.binding_table, slot(c["sub"], c["hash"], 0, w.binding_table), place)


@compiled
def bound(w: World) -> Int:
    """The consumer to which the uuid of the chunk is bound, -1 without one. A binding that was not
    used for idle_state_ms is forgotten.
    """
    c = w.chunk[0]
    place = find_binding(w, c["sub"], c["hash"], c["uuid"])
    if place < 0:
        return NOBODY
    b = w.bindings[place]
    if c["at_ms"] - b["used_ms"] >= w.settings[0]["idle_ms"]:
        drop_binding(w, place)
        return NOBODY
    b["used_ms"] = c["at_ms"]
    return b["consumer"]


@compiled
def release_last(w: World) -> None:
    """Remove the binding of a uuid at its last chunk, by the chunk's own count."""
    c = w.chunk[0]
    if c["chunk_id"] == c["num_chunks"] - 1:
        place = find_binding(w, c["sub"], c["hash"], c["uuid"])
        if place >= 0:
            drop_binding(w, place)


@compiled
def picked(w: World, key: Int, sub: Int, pick: Int, default: Int) -> Int:
    """The open consumer that a hash selects, by order of opening."""
    n = np.int64(0)
    at = w.keys[key]["first_consumer"]
    while at >= 0:
        if w.consumers[at]["sub"] == sub and w.consumers[at]["open"] != 0:
            n += 1
        at = w.consumers[at]["next"]
    if n == 0:
        return default
    wanted = pick % n
    at = w.keys[key]["first_consumer"]
    while at >= 0:
        e = w.consumers[at]
        if e["sub"] == sub and e["open"] != 0:
            rank, other = np.int64(0), w.keys[key]["first_consumer"]
            while other >= 0:
                x = w.consumers[other]
                if x["sub"] == sub and x["open"] != 0 and x["opened_order"] < e["opened_order"]:
                    rank += 1
                other = x["next"]
            if rank == wanted:
                return at
        at = e["next"]
    return default


@compiled
def orphan(w: World, o: Out, f: Feed, i: Int) -> None:
    """Handle a chunk without a bound consumer, or one that a stalled subscription does not deliver."""
    p, c = w.settings[0], w.chunk[0]
    touch(w, c["key"], c["at_ms"])
    begin = p["rows"]
    row = new_row(w, o, L.SHARED_ORPHAN, L.NO_DEFECT)
    if p["orphan"] == L.ACK_SKIP and w.subs[c["sub"]]["stalled"] == 0:
        add_position(w, o, c["ledger"], c["entry"])
        row["acks"] = 1
    if p["stalls"] != 0:
        keep_piece(w, f, i, f.size[i], f.producer[i])
    finish(w, o, begin, np.int64(0))


@compiled
def hold(w: World) -> None:
    """Keep the chunk until its marker has been acknowledged."""
    p, c = w.settings[0], w.chunk[0]
    old = find_held(w, c["sub"], c["ledger"], c["entry"])
    marker_ledger, marker_entry = NULL, NULL
    if old >= 0:
        marker_ledger = w.held[old]["marker_ledger"]
        marker_entry = w.held[old]["marker_entry"]
        drop_held(w, old)
    place = p["free_held"]
    h = w.held[place]
    p["free_held"] = h["next"]
    p["held"] += 1
    w.keys[c["key"]]["held"] += 1
    h["key"], h["sub"], h["at_ms"] = c["key"], c["sub"], c["at_ms"]
    h["order"] = p["next_order"]
    p["next_order"] += 1
    h["uuid"], h["hash"], h["chunk_id"] = c["uuid"], c["hash"], c["chunk_id"]
    h["num_chunks"], h["declared"], h["size"] = c["num_chunks"], c["declared"], c["size"]
    h["crc"], h["has_crc"], h["payload"] = c["crc"], c["has_crc"], c["payload"]
    h["file"], h["row"], h["ledger"], h["entry"] = c["file"], c["row"], c["ledger"], c["entry"]
    h["publish_ms"], h["sequence_id"] = c["publish_ms"], c["sequence_id"]
    h["producer"], h["used_ms"] = c["producer"], c["at_ms"]
    h["marker_ledger"], h["marker_entry"] = marker_ledger, marker_entry
    put(w.held_table, slot(c["sub"], c["ledger"], c["entry"], w.held_table), place)
    touch(w, c["key"], c["at_ms"])


@compiled
def play_marker(w: World, o: Out, f: Feed, i: Int, consumer: Int) -> None:
    """Deliver the chunks that a marker lists, in its order, at each of its deliveries."""
    c = w.chunk[0]
    ledger, entry = f.ledger[i], f.entry[i]
    if acknowledged(w, c["sub"], ledger, entry):
        return
    c["marker_ledger"], c["marker_entry"] = ledger, entry
    for at in range(f.marker_start[i], f.marker_start[i + 1]):
        place = find_held(w, c["sub"], f.marker_ledger[at], f.marker_entry[at])
        if place < 0:
            continue
        h = w.held[place]
        c["uuid"], c["hash"], c["chunk_id"] = h["uuid"], h["hash"], h["chunk_id"]
        c["num_chunks"], c["declared"], c["size"] = h["num_chunks"], h["declared"], h["size"]
        c["crc"], c["has_crc"], c["payload"] = h["crc"], h["has_crc"], h["payload"]
        c["file"], c["row"], c["ledger"], c["entry"] = (
            h["file"],
            h["row"],
            h["ledger"],
            h["entry"],
        )
        c["publish_ms"], c["sequence_id"] = h["publish_ms"], h["sequence_id"]
        c["producer"] = h["producer"]
        h["marker_ledger"], h["marker_entry"], h["used_ms"] = ledger, entry, c["at_ms"]
        c["consumer"] = consumer
        touch(w, c["key"], c["at_ms"])
        deliver(w, o, w.settings[0]["rows"])


@compiled
def release_marked(w: World, sub: Int, ledger: Int, entry: Int, cumulative: bool) -> None:
    """Release a marker that was acknowledged, with the chunks that it lists: they are not read
    again.
    """
    if w.settings[0]["mode"] != L.MARKER or w.keys[w.subs[sub]["key"]]["held"] == 0:
        return
    for i in range(len(w.held)):
        h = w.held[i]
        if h["key"] < 0 or h["sub"] != sub or h["marker_ledger"] == NULL:
            continue
        same = h["marker_ledger"] == ledger and h["marker_entry"] == entry
        before = h["marker_ledger"] < ledger or (
            h["marker_ledger"] == ledger and h["marker_entry"] < entry
        )
        if same or (cumulative and before):
            drop_held(w, np.int64(i))


@compiled
def dispatch_shared(w: World, o: Out, f: Feed, i: Int) -> None:
    """Deliver a chunk on a shared subscription to the consumer that gets it, if any."""
    p, c = w.settings[0], w.chunk[0]
    s, own, begin = w.subs[c["sub"]], c["consumer"], p["rows"]
    if s["stalled"] != 0:
        orphan(w, o, f, i)
        return
    if p["mode"] == L.MARKER:
        if acknowledged(w, c["sub"], c["ledger"], c["entry"]):
            touch(w, c["key"], c["at_ms"])
            deliver(w, o, begin)
            return
        hold(w)
        return
    consumer = bound(w)
    if consumer < 0 and p["mode"] == L.PIN and is_blind(w, c["key"], c["at_ms"]):
        # the first chunk may have bound it in the gap, to the consumer of this record
        consumer = own
        bind(w, consumer)
    if consumer < 0 and p["mode"] == L.HASH:
        consumer = picked(w, c["key"], c["sub"], f.pick[i], own)
        bind(w, consumer)
    elif consumer < 0 and c["chunk_id"] == 0:
        consumer = own
        bind(w, consumer)
    elif consumer < 0:
        if p["orphan"] == L.STALL:
            s["stalled"], s["stall_ledger"], s["stall_entry"] = 1, c["ledger"], c["entry"]
        orphan(w, o, f, i)
        if p["orphan"] != L.DISPATCH_ANY:
            return
        consumer = own
    release_last(w)
    c["consumer"] = consumer
    touch(w, c["key"], c["at_ms"])
    if p["stalls"] != 0:
        mark_sent(w, c["sub"], c["ledger"], c["entry"], c["at_ms"], True)
    deliver(w, o, begin)


# -- records ---------------------------------------------------------------------------------


@compiled
def open_consumer(w: World, consumer: Int, at_ms: Int) -> None:
    """Open a consumer, perhaps again."""
    p, e = w.settings[0], w.consumers[consumer]
    if e["known"] == 0 or e["open"] == 0:
        e["opened_ms"], e["opened_order"] = at_ms, p["next_order"]
        p["next_order"] += 1
        e["known"], e["open"], e["closed_ms"] = 1, 1, NULL
        arm(w, consumer, at_ms)


@compiled
def close_consumer(w: World, o: Out, consumer: Int) -> None:
    """Close a consumer; its contexts stay for an expiry, its bindings do not."""
    p, c, e = w.settings[0], w.chunk[0], w.consumers[consumer]
    if e["known"] == 0 or e["open"] == 0:
        return
    e["open"] = 0
    for i in range(len(w.bindings)):
        if w.bindings[i]["sub"] >= 0 and w.bindings[i]["consumer"] == consumer:
            drop_binding(w, np.int64(i))
    if p["expiry_ms"] <= 0:
        if e["contexts"] > 0:
            touch(w, c["key"], c["at_ms"])
        vanish(w, o, consumer)
        return
    e["closed_ms"], e["closed_order"] = c["at_ms"], p["next_order"]
    p["next_order"] += 1
    arm(w, consumer, c["at_ms"])


@compiled
def set_chunk(w: World, f: Feed, i: Int) -> None:
    """Set `w.chunk[0]` to a record."""
    c = w.chunk[0]
    c["key"], c["at_ms"], c["mono_ns"] = f.key[i], f.at_ms[i], f.mono_ns[i]
    c["broker"], c["feed"], c["sub"] = f.broker[i], f.feed[i], f.sub[i]
    c["consumer"], c["uuid"], c["hash"] = f.consumer[i], f.uuid[i], f.hash[i]
    c["chunk_id"], c["num_chunks"], c["declared"] = f.chunk_id[i], f.num_chunks[i], f.declared[i]
    c["size"], c["crc"], c["has_crc"] = f.size[i], f.crc[i], f.has_crc[i]
    c["payload"], c["file"], c["row"] = f.payload[i], f.file[i], f.row[i]
    c["ledger"], c["entry"], c["publish_ms"] = f.ledger[i], f.entry[i], f.publish_ms[i]
    c["sequence_id"], c["producer"] = f.sequence_id[i], f.producer[i]
    c["marker_ledger"], c["marker_entry"] = NULL, NULL


@compiled
def take_dispatch(w: World, o: Out, f: Feed, i: Int) -> None:
    """Apply a delivered entry: a chunk, a marker, or an ordinary message, which is skipped."""
    p, sub = w.settings[0], f.sub[i]
    chunked = f.num_chunks[i] > 1
    marker = not chunked and f.marker_start[i + 1] > f.marker_start[i]
    if sub < 0:
        return
    s = w.subs[sub]
    if f.shared[i] >= 0:
        s["shared"], s["typed"] = f.shared[i], 1
    if not chunked and not marker:
        if p["stalls"] != 0 and s["stalled"] == 0 and may_stall(w, sub):
            mark_sent(w, sub, f.ledger[i], f.entry[i], f.at_ms[i], False)
        return
    w.keys[f.key[i]]["chunked"] = 1
    if marker and (s["shared"] == 0 or p["mode"] != L.MARKER or s["stalled"] != 0):
        return
    open_consumer(w, f.consumer[i], f.at_ms[i])
    set_chunk(w, f, i)
    now = f.at_ms[i]
    if s["last_chunk_ms"] != NULL and now - s["last_chunk_ms"] >= p["idle_ms"]:
        s["epoch"] += 1
        s["has_cumulative"] = 0
    s["last_chunk_ms"] = now
    if marker:
        play_marker(w, o, f, i, f.consumer[i])
        return
    if s["shared"] != 0:
        dispatch_shared(w, o, f, i)
        return
    touch(w, f.key[i], now)
    deliver(w, o, p["rows"])


@compiled
def take_ack(w: World, f: Feed, i: Int) -> None:
    """Apply an acknowledgement of a subscription to which chunks were delivered."""
    sub = f.sub[i]
    if sub < 0:
        return
    s = w.subs[sub]
    now = f.at_ms[i]
    end_stall(w, sub, f.ledger[i], f.entry[i], f.cumulative[i] != 0)
    take_mark(w, f, i)
    if s["last_chunk_ms"] == NULL or now - s["last_chunk_ms"] >= w.settings[0]["idle_ms"]:
        return
    ledger, entry = f.ledger[i], f.entry[i]
    if f.cumulative[i] == 0:
        acknowledge(w, sub, ledger, entry)
    elif (
        s["has_cumulative"] == 0
        or ledger > s["ledger"]
        or (ledger == s["ledger"] and entry > s["entry"])
    ):
        s["has_cumulative"], s["ledger"], s["entry"] = 1, ledger, entry
    s["acks_seen"] = 1
    if s["mark_ledger"] != NULL:
        move_mark(w, sub, s["mark_ledger"], s["mark_entry"])
    piece = find_piece(w, s["key"], ledger, entry)
    if piece >= 0 and not is_waited_for(w, w.pieces[piece]["stored"]):
        drop_stored(w, w.pieces[piece]["stored"])
    release_marked(w, sub, ledger, entry, f.cumulative[i] != 0)


@compiled
def take_mark(w: World, f: Feed, i: Int) -> None:
    """Move a known mark-delete by an acknowledgement."""
    s = w.subs[f.sub[i]]
    if s["mark_ledger"] == NULL:
        return
    follows = s["mark_ledger"] == f.ledger[i] and s["mark_entry"] + 1 == f.entry[i]
    if follows or f.cumulative[i] != 0:
        move_mark(w, f.sub[i], f.ledger[i], f.entry[i])


@compiled
def take_added(w: World, f: Feed, i: Int) -> None:
    """Apply a persisted entry: chunks count for their topic, and are followed to shared
    subscriptions."""
    key = f.key[i]
    k = w.keys[key]
    chunked = f.num_chunks[i] > 1
    if chunked and w.settings[0]["stalls"] != 0 and has_reader(w, key):
        row = f.producer[i]
        name = w.producers[row]["name"] if row >= 0 else NOBODY
        keep_piece(w, f, i, f.entry_bytes[i], name)
    k["added_ledger"], k["added_entry"] = f.ledger[i], f.entry[i]
    if not chunked:
        return
    touch(w, key, f.at_ms[i])
    k["touched"] = k["chunked"] = 1
    k["chunks"] += 1
    k["bytes"] += f.entry_bytes[i]
    if f.chunk_id[i] == 0:
        k["firsts"] += 1
    if f.producer[i] >= 0:
        sender = w.producers[f.producer[i]]
        if sender["window_ms"] != k["window_ms"]:
            sender["window_ms"] = k["window_ms"]
            k["producers"] += 1


@compiled
def take(w: World, o: Out, f: Feed, i: Int) -> None:
    """Apply one record, once its key has reached its time."""
    kind = f.kind[i]
    if w.keys[f.key[i]]["any"] == 0 or w.links[f.key[i]]["place"] != f.place[i]:
        put_behind(w, f.key[i], f.place[i], f.rank[i])
    if kind == DISPATCH:
        take_dispatch(w, o, f, i)
    elif kind == ACK:
        take_ack(w, f, i)
    elif kind == ENTRY_ADDED:
        take_added(w, f, i)
    elif kind == CURSOR:
        take_cursor(w, f, i)
    elif kind == CURSOR_DELETED:
        end_cursor(w, f.sub[i])
    elif kind == CREATED or kind == CLOSED:
        if f.sub[i] >= 0 and f.shared[i] >= 0:
            w.subs[f.sub[i]]["shared"], w.subs[f.sub[i]]["typed"] = f.shared[i], 1
        if f.sub[i] >= 0:
            count_consumer(w, f.sub[i], kind == CREATED)
        if f.consumer[i] >= 0:
            set_chunk(w, f, i)
            if kind == CREATED:
                open_consumer(w, f.consumer[i], f.at_ms[i])
            else:
                close_consumer(w, o, f.consumer[i])
    k = w.keys[f.key[i]]
    k["any"], k["last_ms"], k["last_ns"] = 1, f.at_ms[i], f.mono_ns[i]
    k["broker"], k["feed"] = f.broker[i], f.feed[i]


@compiled
def judge(w: World, o: Out, f: Feed, begin: Int) -> Int:
    """Judge records from `begin` on; returns the first that there was no room for, or DONE."""
    for i in range(begin, len(f.key)):
        marked = f.marker_start[i + 1] - f.marker_start[i]
        if not reach(w, o, f.key[i], f.at_ms[i], f.rank[i], f.mono_ns[i], f.broker[i]):
            return i
        if short(w, o, marked + 1):
            return i
        take(w, o, f, i)
    return DONE


@compiled
def move_on(w: World, o: Out, begin: Int, next_ns: L.Array, next_broker: L.Array) -> Int:
    """Move every key from `begin` on to its clock; returns the first without room, or DONE.

    `next_ns` and `next_broker`: the first record of each key that still waits.
    """
    clock_ms: Int
    clock_ms, rank = NULL, np.int64(0)
    for key in range(begin, len(w.keys)):
        k = w.keys[key]
        if k["has_clock"] == 0:
            continue
        if k["clock_ms"] != clock_ms:
            clock_ms = k["clock_ms"]
            rank = rank_at(w.shared_ms, clock_ms)
        if not reach(w, o, np.int64(key), clock_ms, rank, next_ns[key], next_broker[key]):
            return key
    return DONE


@compiled
def prepare(w: World, begin_ms: L.Array) -> None:
    """Index what was read, and move every key past the gaps that are before its clock at the
    beginning of the call (NULL: none); a gap that came with this call applies at the clock.
    """
    index_all(w)
    at_ms, rank = NULL, np.int64(0)
    for key in range(len(w.keys)):
        e, begin = w.links[key], begin_ms[key]
        e["late_ms"], e["blind_ms"] = NULL, NULL
        if begin == NULL or w.keys[key]["any"] == 0:
            continue
        if begin != at_ms:
            at_ms = begin
            rank = rank_at(w.shared_ms, begin)
        put_behind(w, np.int64(key), e["place"], rank)
        if comes_late(w.turns, w.turn_start, e["place"], e["turn"], GAPS):
            e["late_ms"] = begin
