"""The consumer's side of chunked messages: contexts, FIFO and counter (PIP-37, Pulsar 4.2.4).

`deliver` judges one chunk, `expire` runs an expiry pass, `vanish` ends a consumer that has not
returned. The chunk being judged is `w.chunk[0]`.
"""

from __future__ import annotations

import numpy as np

from state.chunks import layout as L
from state.chunks.crc import combine
from state.chunks.layout import NOBODY, NULL, Int, Out, Record, World, compiled
from state.chunks.tables import acknowledged, find_context, put, remove, slot

ZERO, ONE = np.int64(0), np.int64(1)


# -- rows ------------------------------------------------------------------------------------


@compiled
def new_row(w: World, o: Out, outcome: Int, defect: Int) -> Record:
    """A row about the chunk or timer that is being judged."""
    p, c = w.settings[0], w.chunk[0]
    k = w.keys[c["key"]]
    if k["row_ms"] != c["at_ms"]:
        k["row_ms"], k["row_no"] = c["at_ms"], 0
    row = o.rows[p["rows"]]
    p["rows"] += 1
    row["key"], row["at_ms"], row["mono_ns"] = c["key"], c["at_ms"], c["mono_ns"]
    row["broker"], row["feed"] = c["broker"], c["feed"]
    row["sub"], row["consumer"], row["uuid"] = c["sub"], c["consumer"], c["uuid"]
    row["chunk_id"], row["num_chunks"] = c["chunk_id"], c["num_chunks"]
    row["ledger"], row["entry"] = c["ledger"], c["entry"]
    row["row_no"] = k["row_no"]
    k["row_no"] += 1
    row["outcome"], row["defect"] = outcome, defect
    row["start"], row["acks"], row["tracked"], row["orphaned"] = p["positions"], 0, 0, 0
    row["permits"], row["counter"], row["contexts"], row["buffered"] = 0, 0, 0, 0
    row["age_ms"] = NULL
    return row


@compiled
def add_position(w: World, o: Out, ledger: Int, entry: Int) -> None:
    p = w.settings[0]
    o.positions[p["positions"], 0], o.positions[p["positions"], 1] = ledger, entry
    p["positions"] += 1


@compiled
def add_ids(w: World, o: Out, context: Int) -> Int:
    """Write the positions that a context has; returns how many."""
    return add_other_ids(w, o, context, NULL, NULL)


@compiled
def add_other_ids(w: World, o: Out, context: Int, ledger: Int, entry: Int) -> Int:
    """Write the positions of a context except one, which its new delivery decides."""
    e = w.contexts[context]
    at, n = e["first"], np.int64(0)
    while at >= 0:
        node = w.nodes[at]
        if node["ledger"] != ledger or node["entry"] != entry:
            add_position(w, o, node["ledger"], node["entry"])
            n += 1
        at = node["next"]
    if e["more"] != 0 and (e["more_ledger"] != ledger or e["more_entry"] != entry):
        add_position(w, o, e["more_ledger"], e["more_entry"])
        n += 1
    return n


@compiled
def add_marker(w: World, o: Out, context: Int) -> Int:
    """Write the position of the marker of a context, which has the outcome of its chunks; returns
    the number of positions.
    """
    e = w.contexts[context]
    if e["marker_ledger"] == NULL:
        return ZERO
    add_position(w, o, e["marker_ledger"], e["marker_entry"])
    return ONE


@compiled
def finish(w: World, o: Out, begin: Int, permits: Int) -> None:
    """Set the values after a chunk or timer on all of its rows, and permits on the last."""
    p = w.settings[0]
    e = w.consumers[w.chunk[0]["consumer"]]
    for i in range(begin, p["rows"]):
        row = o.rows[i]
        row["counter"], row["contexts"], row["buffered"] = (
            e["counter"],
            e["contexts"],
            e["buffered"],
        )
    if p["rows"] > begin:
        o.rows[p["rows"] - 1]["permits"] = permits


# -- fifo ------------------------------------------------------------------------------------


@compiled
def push(w: World, consumer: Int, hash_: Int) -> None:
    """Put a uuid at the end of the fifo."""
    p, e = w.settings[0], w.consumers[consumer]
    place = p["free_entry"]
    entry = w.entries[place]
    p["free_entry"] = entry["next"]
    entry["hash"], entry["next"], entry["previous"] = hash_, NOBODY, e["tail"]
    if e["tail"] >= 0:
        w.entries[e["tail"]]["next"] = place
    else:
        e["head"] = place
    e["tail"] = place
    e["entries"] += 1


@compiled
def take_out(w: World, consumer: Int, place: Int) -> None:
    """Take one element out of the fifo."""
    p, e, entry = w.settings[0], w.consumers[consumer], w.entries[place]
    before, after = entry["previous"], entry["next"]
    if before >= 0:
        w.entries[before]["next"] = after
    else:
        e["head"] = after
    if after >= 0:
        w.entries[after]["previous"] = before
    else:
        e["tail"] = before
    e["entries"] -= 1
    entry["next"] = p["free_entry"]
    p["free_entry"] = place


@compiled
def leave_fifo(w: World, consumer: Int, hash_: Int) -> None:
    """Take the newest occurrence of a uuid out of the fifo."""
    at = w.consumers[consumer]["tail"]
    while at >= 0:
        if w.entries[at]["hash"] == hash_:
            take_out(w, consumer, at)
            return
        at = w.entries[at]["previous"]


# -- contexts --------------------------------------------------------------------------------


@compiled
def create(w: World) -> Int:
    """A context for the chunk 0 that is being judged."""
    p, c = w.settings[0], w.chunk[0]
    consumer = c["consumer"]
    owner = w.consumers[consumer]
    place = p["free_context"]
    e = w.contexts[place]
    p["free_context"] = e["next"]
    p["contexts"] += 1
    e["consumer"], e["uuid"], e["hash"] = consumer, c["uuid"], c["hash"]
    e["num_chunks"], e["last"], e["declared"] = c["num_chunks"], -1, c["declared"]
    e["first_ms"], e["last_ms"] = c["at_ms"], c["at_ms"]
    e["bytes"], e["unknown"], e["crc"], e["has_crc"] = 0, 0, 0, 1
    e["publish_ms"], e["sequence_id"] = c["publish_ms"], c["sequence_id"]
    e["producer"] = c["producer"]
    e["first"] = e["newest"] = NOBODY
    e["nodes"], e["more"] = 0, 0
    e["marker_ledger"], e["marker_entry"] = c["marker_ledger"], c["marker_entry"]
    e["next"], e["previous"] = NOBODY, owner["last"]
    if owner["last"] >= 0:
        w.contexts[owner["last"]]["next"] = place
    else:
        owner["first"] = place
    owner["last"] = place
    owner["contexts"] += 1
    put(w.context_table, slot(consumer, e["hash"], ZERO, w.context_table), place)
    push(w, consumer, e["hash"])
    return place


@compiled
def drop(w: World, context: Int) -> None:
    """Remove a context and its chunks; the caller updates counter and FIFO."""
    p, e = w.settings[0], w.contexts[context]
    owner = w.consumers[e["consumer"]]
    remove(w.context_table, slot(e["consumer"], e["hash"], ZERO, w.context_table), context)
    if e["previous"] >= 0:
        w.contexts[e["previous"]]["next"] = e["next"]
    else:
        owner["first"] = e["next"]
    if e["next"] >= 0:
        w.contexts[e["next"]]["previous"] = e["previous"]
    else:
        owner["last"] = e["previous"]
    owner["contexts"] -= 1
    owner["buffered"] -= e["bytes"]
    if e["first"] >= 0:
        w.nodes[e["newest"]]["next"] = p["free_node"]
        p["free_node"] = e["first"]
        p["nodes"] -= e["nodes"]
    e["consumer"] = NOBODY
    e["next"] = p["free_context"]
    p["free_context"] = context
    p["contexts"] -= 1


@compiled
def drop_counted(w: World, context: Int) -> None:
    """Remove a context as the client does at a failure: without B1 counter and FIFO are updated."""
    e = w.contexts[context]
    consumer, hash_ = e["consumer"], e["hash"]
    drop(w, context)
    if w.settings[0]["b1"] == 0:
        w.consumers[consumer]["counter"] -= 1
        leave_fifo(w, consumer, hash_)


@compiled
def has_position(w: World, context: Int, ledger: Int, entry: Int) -> bool:
    """Whether a position is among the ids of a context."""
    e = w.contexts[context]
    if e["more"] != 0 and e["more_ledger"] == ledger and e["more_entry"] == entry:
        return True
    at = e["first"]
    while at >= 0:
        if w.nodes[at]["ledger"] == ledger and w.nodes[at]["entry"] == entry:
            return True
        at = w.nodes[at]["next"]
    return False


@compiled
def store(w: World, context: Int) -> None:
    """Append the chunk that is being judged."""
    p, c, e = w.settings[0], w.chunk[0], w.contexts[context]
    place = p["free_node"]
    node = w.nodes[place]
    p["free_node"] = node["next"]
    p["nodes"] += 1
    node["next"], node["ledger"], node["entry"] = NOBODY, c["ledger"], c["entry"]
    node["size"], node["payload"] = c["size"], c["payload"]
    node["file"], node["row"] = c["file"], c["row"]
    if e["newest"] >= 0:
        w.nodes[e["newest"]]["next"] = place
    else:
        e["first"] = place
    e["newest"] = place
    e["nodes"] += 1
    e["more"] = 0
    e["last"], e["last_ms"] = c["chunk_id"], c["at_ms"]
    e["marker_ledger"], e["marker_entry"] = c["marker_ledger"], c["marker_entry"]
    if c["size"] == NULL:
        e["unknown"] = 1
    else:
        e["bytes"] += c["size"]
        w.consumers[e["consumer"]]["buffered"] += c["size"]
    if c["has_crc"] == 0:
        e["has_crc"] = 0
    elif e["has_crc"] != 0:
        e["crc"] = combine(e["crc"], c["crc"], c["size"])


# -- timers ----------------------------------------------------------------------------------


@compiled
def next_pass(w: World, consumer: Int, now: Int) -> Int:
    """Due time of the first expiry pass at or after `now`; NULL if none can change anything."""
    p, e = w.settings[0], w.consumers[consumer]
    period = p["expiry_ms"]
    if period <= 0 or e["start_ms"] == NULL or e["open"] == 0:
        return NULL
    if (e["contexts"] if p["b3"] != 0 else e["entries"]) == 0:
        return NULL
    past = max(now - e["start_ms"], ONE)
    due = e["start_ms"] + (past + period - 1) // period * period
    return due if due > e["passed_ms"] else due + period


@compiled
def arm(w: World, consumer: Int, now: Int) -> None:
    """Lower the key's earliest timer to this consumer's."""
    e = w.consumers[consumer]
    k = w.keys[e["key"]]
    due = next_pass(w, consumer, now)
    if e["closed_ms"] != NULL and e["open"] == 0:
        due = e["closed_ms"] + w.settings[0]["expiry_ms"]
    if due != NULL and (k["due_ms"] == NULL or due < k["due_ms"]):
        k["due_ms"] = due


@compiled
def about_context(w: World, row: Record, context: Int) -> None:
    """Make a row about a context instead of the chunk: its uuid and its last chunk."""
    e = w.contexts[context]
    row["uuid"], row["num_chunks"], row["chunk_id"] = e["uuid"], e["num_chunks"], e["last"]
    if e["newest"] >= 0:
        node = w.nodes[e["newest"]]
        row["ledger"], row["entry"] = node["ledger"], node["entry"]
    if e["more"] != 0 and e["newest"] < 0:
        row["chunk_id"], row["ledger"], row["entry"] = 0, e["more_ledger"], e["more_entry"]
    row["age_ms"] = w.chunk[0]["at_ms"] - e["first_ms"]


@compiled
def evict(w: World, o: Out, consumer: Int) -> None:
    """Give up the oldest uuid in the FIFO that still has a context."""
    p, e = w.settings[0], w.consumers[consumer]
    while e["head"] >= 0:
        context = find_context(w, consumer, w.entries[e["head"]]["hash"], NOBODY)
        take_out(w, consumer, e["head"])
        if context >= 0:
            row = new_row(w, o, L.EVICTED, L.NO_DEFECT)
            about_context(w, row, context)
            n = add_ids(w, o, context) + add_marker(w, o, context)
            if p["auto_ack"] != 0:
                row["acks"] = n
            else:
                row["tracked"] = n
            drop(w, context)
            e["counter"] -= 1
            return


@compiled
def expire(w: World, o: Out, consumer: Int) -> None:
    """An expiry pass at the time of `w.chunk[0]`."""
    p, c, e = w.settings[0], w.chunk[0], w.consumers[consumer]
    begin = p["rows"]
    e["passed_ms"] = c["at_ms"]
    while e["head"] >= 0:
        context = find_context(w, consumer, w.entries[e["head"]]["hash"], NOBODY)
        if context < 0:
            if p["b3"] != 0:
                break
            take_out(w, consumer, e["head"])
            continue
        if c["at_ms"] - w.contexts[context]["first_ms"] <= p["expiry_ms"]:
            break
        take_out(w, consumer, e["head"])
        row = new_row(w, o, L.EXPIRED, L.NO_DEFECT)
        about_context(w, row, context)
        row["acks"] = add_ids(w, o, context) + add_marker(w, o, context)
        drop(w, context)
        e["counter"] -= 1
    finish(w, o, begin, ZERO)


@compiled
def vanish(w: World, o: Out, consumer: Int) -> None:
    """End a closed consumer that has not returned: its contexts are dropped, nothing is
    acknowledged.
    """
    e = w.consumers[consumer]
    begin = w.settings[0]["rows"]
    while e["first"] >= 0:
        context = e["first"]
        row = new_row(w, o, L.ORPHANED, L.NO_DEFECT)
        about_context(w, row, context)
        row["orphaned"] = add_ids(w, o, context) + add_marker(w, o, context)
        drop(w, context)
    while e["head"] >= 0:
        take_out(w, consumer, e["head"])
    e["counter"] = 0
    finish(w, o, begin, ZERO)
    e["known"], e["touched"], e["start_ms"], e["lost"], e["passed_ms"] = 0, 0, NULL, 0, NULL
    e["closed_ms"] = NULL


# -- gaps ------------------------------------------------------------------------------------


@compiled
def is_blind(w: World, key: Int, now: Int) -> bool:
    """Whether a message may have begun in a gap of the key's broker."""
    blind_ms = w.links[key]["blind_ms"]
    return bool(blind_ms != NULL and now < blind_ms)


@compiled
def lose_sight(w: World, o: Out, consumer: Int) -> None:
    """End the contexts of a consumer that cannot be followed any further; whether its client
    acknowledges or tracks them is unknown. `w.chunk[0]` is the gap.
    """
    e = w.consumers[consumer]
    begin = w.settings[0]["rows"]
    while e["first"] >= 0:
        context = e["first"]
        about_context(w, new_row(w, o, L.LOST_TO_SIGHT, L.NO_DEFECT), context)
        drop(w, context)
    while e["head"] >= 0:
        take_out(w, consumer, e["head"])
    e["counter"] = 0
    finish(w, o, begin, ZERO)


# -- chunks ----------------------------------------------------------------------------------


@compiled
def discarded(w: World, is_last: bool) -> Int:
    """Permits for a discarded chunk: with B2 a last chunk returns none."""
    if is_last and w.settings[0]["b2"] != 0:
        w.consumers[w.chunk[0]["consumer"]]["lost"] += 1
        return ZERO
    return ONE


@compiled
def defect_of_loss(w: World, is_last: bool) -> Int:
    return L.B2 if is_last and w.settings[0]["b2"] != 0 else L.NO_DEFECT


@compiled
def lose(w: World, o: Out, context: Int, is_last: bool) -> Int:
    """Handle a chunk out of order: its context, if any, is dropped. Returns the permits."""
    p, c = w.settings[0], w.chunk[0]
    orphaned, tracked = np.int64(0), np.int64(0)
    publish = c["publish_ms"] if c["publish_ms"] != NULL else c["at_ms"]
    old = p["expiry_ms"] > 0 and c["at_ms"] - publish > p["expiry_ms"]
    if context < 0 and is_blind(w, c["key"], c["at_ms"]):
        new_row(w, o, L.FIRST_UNSEEN, L.NO_DEFECT)
        return ZERO if is_last else ONE
    row = new_row(w, o, L.NO_FIRST_CHUNK, defect_of_loss(w, is_last))
    if old:
        add_position(w, o, c["ledger"], c["entry"])
        row["acks"] = 1
    if context >= 0:
        row["outcome"] = L.GAP
        row["age_ms"] = c["at_ms"] - w.contexts[context]["first_ms"]
        if p["b4"] != 0:
            row["defect"] = L.B4
        elif p["b1"] != 0:
            row["defect"] = L.B1
    if context >= 0 and p["b4"] == 0:
        tracked = add_other_ids(w, o, context, c["ledger"], c["entry"])
        tracked += add_marker(w, o, context)
    if not old:
        add_position(w, o, c["ledger"], c["entry"])
        tracked += 1
    if context >= 0:
        if p["b4"] != 0:
            orphaned = add_other_ids(w, o, context, c["ledger"], c["entry"])
            orphaned += add_marker(w, o, context)
        drop_counted(w, context)
    row["tracked"], row["orphaned"] = tracked, orphaned
    return discarded(w, is_last)


@compiled
def give_up(w: World, o: Out, context: Int, outcome: Int) -> Int:
    """Acknowledge everything of a message that can never complete. Returns the permits."""
    p, c, e = w.settings[0], w.chunk[0], w.contexts[context]
    row = new_row(w, o, outcome, L.NO_DEFECT)
    row["age_ms"] = c["at_ms"] - e["first_ms"]
    n = add_other_ids(w, o, context, c["ledger"], c["entry"])
    add_position(w, o, c["ledger"], c["entry"])
    row["acks"] = n + 1 + add_marker(w, o, context)
    consumer, hash_ = e["consumer"], e["hash"]
    drop(w, context)
    w.consumers[consumer]["counter"] -= 1
    if p["b1"] == 0:
        leave_fifo(w, consumer, hash_)
    return ONE


@compiled
def fail(w: World, o: Out, context: Int, outcome: Int, defect: Int, is_last: bool) -> Int:
    """Handle an exception in the client. Returns the permits."""
    row = new_row(w, o, outcome, defect)
    row["age_ms"] = w.chunk[0]["at_ms"] - w.contexts[context]["first_ms"]
    if is_last:
        w.consumers[w.chunk[0]["consumer"]]["lost"] += 1
        return ZERO
    return ONE


@compiled
def complete(w: World, o: Out, context: Int) -> Int:
    """Complete a message. Returns the permits."""
    p, c, e = w.settings[0], w.chunk[0], w.contexts[context]
    k, consumer = w.keys[c["key"]], w.contexts[context]["consumer"]
    row = new_row(w, o, L.COMPLETE, L.NO_DEFECT)
    row["age_ms"] = c["at_ms"] - e["first_ms"]
    if k["message_ms"] != c["at_ms"]:
        k["message_ms"], k["message_no"] = c["at_ms"], 0
    m = o.messages[p["messages"]]
    p["messages"] += 1
    m["key"], m["at_ms"], m["mono_ns"] = c["key"], c["at_ms"], c["mono_ns"]
    m["broker"], m["feed"], m["sub"], m["consumer"] = c["broker"], c["feed"], c["sub"], consumer
    m["uuid"], m["producer"], m["sequence_id"] = e["uuid"], e["producer"], e["sequence_id"]
    m["num_chunks"], m["declared"], m["bytes"] = e["num_chunks"], e["declared"], e["bytes"]
    m["unknown"], m["crc"], m["has_crc"] = e["unknown"], e["crc"], e["has_crc"]
    m["first_ms"], m["publish_ms"] = e["first_ms"], e["publish_ms"]
    m["marker_ledger"], m["marker_entry"] = e["marker_ledger"], e["marker_entry"]
    m["row_no"] = k["message_no"]
    k["message_no"] += 1
    m["start"], m["parts"] = p["parts"], e["nodes"]
    at = e["first"]
    while at >= 0:
        part, node = o.parts[p["parts"]], w.nodes[at]
        part["ledger"], part["entry"], part["size"] = node["ledger"], node["entry"], node["size"]
        part["payload"], part["file"], part["row"] = node["payload"], node["file"], node["row"]
        p["parts"] += 1
        at = node["next"]
    drop(w, context)
    w.consumers[consumer]["counter"] -= 1
    return ZERO


@compiled
def append(w: World, o: Out, context: Int, is_last: bool) -> Int:
    """Append the next chunk of a message. Returns the permits."""
    p, c, e = w.settings[0], w.chunk[0], w.contexts[context]
    if p["b8"] == 0:
        if c["num_chunks"] != e["num_chunks"]:
            return give_up(w, o, context, L.GIVEN_UP_COUNT)
    elif c["chunk_id"] >= e["num_chunks"]:
        return fail(w, o, context, L.COUNT_EXCEPTION, L.B8, is_last)
    if c["size"] != NULL and e["unknown"] == 0 and c["size"] > e["declared"] - e["bytes"]:
        if p["b7"] == 0:
            return give_up(w, o, context, L.GIVEN_UP_OVERFLOW)
        permits = fail(w, o, context, L.OVERFLOW_EXCEPTION, L.B7, is_last)
        e["more"], e["more_ledger"], e["more_entry"] = 1, c["ledger"], c["entry"]
        return permits
    store(w, context)
    if not is_last:
        return ONE
    if c["chunk_id"] != e["num_chunks"] - 1:
        permits = fail(w, o, context, L.COUNT_EXCEPTION, L.B8, is_last)
        drop_counted(w, context)
        return permits
    return complete(w, o, context)


@compiled
def judge_chunk(w: World, o: Out) -> Int:
    """Apply sections 4 and 5 of the client's algorithm. Returns the permits."""
    p, c = w.settings[0], w.chunk[0]
    consumer = c["consumer"]
    e = w.consumers[consumer]
    is_last = c["chunk_id"] == c["num_chunks"] - 1
    if e["start_ms"] == NULL:
        e["start_ms"], e["start_order"] = c["at_ms"], p["next_order"]
        p["next_order"] += 1
    context = find_context(w, consumer, c["hash"], c["uuid"])
    if c["chunk_id"] == 0:
        if context >= 0:
            if p["lose"] != 0:
                return lose(w, o, context, is_last)
            restart(w, o, context)
        e["counter"] += 1
        if 0 < w.most_pending[consumer] < e["counter"]:
            evict(w, o, consumer)
        return append(w, o, create(w), is_last)
    if context >= 0 and c["chunk_id"] == w.contexts[context]["last"] + 1:
        return append(w, o, context, is_last)
    if context >= 0 and c["chunk_id"] <= w.contexts[context]["last"]:
        same = has_position(w, context, c["ledger"], c["entry"])
        row = new_row(w, o, L.DUP_SAME_ID if same else L.DUP_ACKED, defect_of_loss(w, is_last))
        row["age_ms"] = c["at_ms"] - w.contexts[context]["first_ms"]
        if not same:
            add_position(w, o, c["ledger"], c["entry"])
            row["acks"] = 1
        return discarded(w, is_last)
    return lose(w, o, context, is_last)


@compiled
def restart(w: World, o: Out, context: Int) -> None:
    """Handle chunk 0 of a message that is being assembled."""
    c = w.chunk[0]
    same = has_position(w, context, c["ledger"], c["entry"])
    row = new_row(
        w,
        o,
        L.RESTART_REDELIVERY if same else L.RESTART_CORRUPTED,
        L.B1 if w.settings[0]["b1"] != 0 else L.NO_DEFECT,
    )
    row["age_ms"] = c["at_ms"] - w.contexts[context]["first_ms"]
    if not same:
        n = add_ids(w, o, context)
        e = w.contexts[context]
        if e["marker_ledger"] != c["marker_ledger"] or e["marker_entry"] != c["marker_entry"]:
            n += add_marker(w, o, context)
        row["acks"] = n
    drop_counted(w, context)


@compiled
def deliver(w: World, o: Out, begin: Int) -> Int:
    """Judge the chunk in `w.chunk[0]`, which its consumer receives; its rows start at `begin`.
    Returns the permits that it gives back at once.
    """
    p, c = w.settings[0], w.chunk[0]
    consumer = c["consumer"]
    e = w.consumers[consumer]
    k = w.keys[c["key"]]
    k["touched"], e["touched"] = 1, 1
    if (
        e["start_ms"] != NULL
        and e["contexts"] == 0
        and e["counter"] == 0
        and c["at_ms"] - e["used_ms"] >= p["idle_ms"]
    ):
        while e["head"] >= 0:
            take_out(w, consumer, e["head"])
        e["start_ms"], e["lost"], e["passed_ms"] = NULL, 0, NULL
    e["used_ms"] = c["at_ms"]
    if acknowledged(w, c["sub"], c["ledger"], c["entry"]):
        new_row(w, o, L.ALREADY_ACKED, L.NO_DEFECT)
        finish(w, o, begin, ONE)
        return ONE
    permits = judge_chunk(w, o)
    k["most"] = max(k["most"], e["contexts"])
    finish(w, o, begin, permits)
    arm(w, consumer, c["at_ms"])
    return permits
