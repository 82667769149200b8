"""Large messages that are stored and that a shared subscription has not got: who is stalled.

A released broker puts a chunk whose first chunk is gone back for replay, for ever; from then on the
subscription delivers nothing, and no record tells. What tells is a mark-delete position that stands
before such a chunk.
"""

from __future__ import annotations

import numpy as np

from state.chunks.layout import NOBODY, NULL, Feed, Int, Out, World, compiled
from state.chunks.tables import acknowledged, find_piece, find_stored, put, remove, slot

MOST_PIECES = np.int64(10_000)
"""Stored chunks that a topic keeps at the end of a window."""
MOST_SUBSCRIPTIONS = np.int64(63)
"""Subscriptions of a topic that are followed: a bit each."""
ONE = np.int64(1)


@compiled
def before(ledger: Int, entry: Int, other_ledger: Int, other_entry: Int) -> bool:
    """Whether one position is before another."""
    return bool(ledger < other_ledger or (ledger == other_ledger and entry < other_entry))


@compiled
def may_stall(w: World, sub: Int) -> bool:
    """Whether stored chunks matter to a subscription: it is shared, or its type is not known yet."""
    s = w.subs[sub]
    return bool(s["shared"] != 0 or (s["typed"] == 0 and s["mark_ledger"] != NULL))


@compiled
def is_passed(w: World, sub: Int, piece: Int) -> bool:
    """Whether a subscription has acknowledged a stored chunk."""
    s, e = w.subs[sub], w.pieces[piece]
    if s["mark_ledger"] != NULL and not before(
        s["mark_ledger"], s["mark_entry"], e["ledger"], e["entry"]
    ):
        return True
    return bool(acknowledged(w, sub, e["ledger"], e["entry"]))


@compiled
def bit_of(w: World, sub: Int) -> Int:
    """The bit of a subscription in `sent`, 0 if it has none; a new one is set nowhere."""
    s = w.subs[sub]
    if s["number"] < 0:
        key = s["key"]
        for number in range(MOST_SUBSCRIPTIONS):
            other, is_used = w.keys[key]["first_sub"], False
            while other >= 0:
                is_used = is_used or w.subs[other]["number"] == number
                other = w.subs[other]["next"]
            if not is_used:
                s["number"] = number
                clear_sent(w, sub)
                break
    return ONE << s["number"] if s["number"] >= 0 else np.int64(0)


@compiled
def clear_sent(w: World, sub: Int) -> None:
    """What a subscription has not acknowledged will be sent again."""
    s = w.subs[sub]
    if s["number"] < 0:
        return
    others = ~(ONE << s["number"])
    message = w.keys[s["key"]]["first_stored"]
    while message >= 0:
        at = w.stored[message]["first"]
        while at >= 0:
            w.pieces[at]["sent"] &= others
            at = w.pieces[at]["next"]
        message = w.stored[message]["next"]


# -- what is stored --------------------------------------------------------------------------


@compiled
def has_reader(w: World, key: Int) -> bool:
    """Whether a subscription of a key may have to get stored chunks."""
    sub = w.keys[key]["first_sub"]
    while sub >= 0:
        if may_stall(w, sub):
            return True
        sub = w.subs[sub]["next"]
    return False


@compiled
def message_of(w: World, f: Feed, i: Int, producer: Int) -> Int:
    """The stored message that a record's chunk belongs to, perhaps a new one."""
    p, key = w.settings[0], f.key[i]
    place = find_stored(w, key, f.hash[i], f.uuid[i])
    if place >= 0 and f.chunk_id[i] != 0:
        return place
    if place >= 0:
        # sent again: a message of its own
        remove(w.stored_table, slot(key, f.hash[i], 0, w.stored_table), place)
    k = w.keys[key]
    place = p["free_stored"]
    e = w.stored[place]
    p["free_stored"] = e["next"]
    e["key"], e["uuid"], e["hash"] = key, f.uuid[i], f.hash[i]
    e["num_chunks"], e["declared"] = f.num_chunks[i], f.declared[i]
    e["sequence_id"], e["producer"] = f.sequence_id[i], producer
    e["order"] = p["next_order"]
    p["next_order"] += 1
    e["first"] = e["newest"] = NOBODY
    e["pieces"] = 0
    e["next"], e["previous"] = NOBODY, k["last_stored"]
    if k["last_stored"] >= 0:
        w.stored[k["last_stored"]]["next"] = place
    else:
        k["first_stored"] = place
    k["last_stored"] = place
    k["stored"] += 1
    put(w.stored_table, slot(key, e["hash"], 0, w.stored_table), place)
    return place


@compiled
def keep_piece(w: World, f: Feed, i: Int, size: Int, producer: Int) -> None:
    """Keep the chunk of a record until every shared subscription has acknowledged it."""
    p, key, ledger, entry = w.settings[0], f.key[i], f.ledger[i], f.entry[i]
    if find_piece(w, key, ledger, entry) >= 0:
        return
    k, owner = w.keys[key], message_of(w, f, i, producer)
    message = w.stored[owner]
    place = p["free_piece"]
    e = w.pieces[place]
    p["free_piece"] = e["next"]
    e["stored"], e["next"], e["order"] = owner, NOBODY, p["next_order"]
    p["next_order"] += 1
    e["ledger"], e["entry"], e["chunk_id"] = ledger, entry, f.chunk_id[i]
    e["num_chunks"], e["at_ms"], e["size"], e["sent"] = f.num_chunks[i], f.at_ms[i], size, 0
    e["before_ledger"], e["before_entry"] = k["added_ledger"], k["added_entry"]
    if message["newest"] >= 0:
        w.pieces[message["newest"]]["next"] = place
    else:
        message["first"] = place
    message["newest"] = place
    message["pieces"] += 1
    k["pieces"] += 1
    put(w.piece_table, slot(key, ledger, entry, w.piece_table), place)
    sub = k["first_sub"]
    while sub >= 0:
        s = w.subs[sub]
        # a chunk can be sent before the record that it was stored
        if (
            s["sent_ledger"] != NULL
            and may_stall(w, sub)
            and not before(s["sent_ledger"], s["sent_entry"], ledger, entry)
        ):
            e["sent"] |= bit_of(w, sub)
        sub = s["next"]


@compiled
def drop_stored(w: World, message: Int) -> None:
    """Forget a stored message."""
    p, e = w.settings[0], w.stored[message]
    key = e["key"]
    k = w.keys[key]
    remove(w.stored_table, slot(key, e["hash"], 0, w.stored_table), message)
    at = e["first"]
    while at >= 0:
        x = w.pieces[at]
        following = x["next"]
        remove(w.piece_table, slot(key, x["ledger"], x["entry"], w.piece_table), at)
        x["stored"], x["next"] = NOBODY, p["free_piece"]
        p["free_piece"] = at
        at = following
    if e["previous"] >= 0:
        w.stored[e["previous"]]["next"] = e["next"]
    else:
        k["first_stored"] = e["next"]
    if e["next"] >= 0:
        w.stored[e["next"]]["previous"] = e["previous"]
    else:
        k["last_stored"] = e["previous"]
    k["stored"] -= 1
    k["pieces"] -= e["pieces"]
    e["key"], e["next"] = NOBODY, p["free_stored"]
    p["free_stored"] = message


@compiled
def is_waited_for(w: World, message: Int) -> bool:
    """Whether a subscription has not acknowledged all of a stored message; where it is not known
    what it acknowledges, whether it has not been sent all. A feed tells that a moment after the
    subscription came, so what was stored in the window waits for it."""
    k = w.keys[w.stored[message]["key"]]
    sub = k["first_sub"]
    while sub >= 0:
        s = w.subs[sub]
        if may_stall(w, sub):
            bit = bit_of(w, sub)
            tells = s["acks_seen"] != 0 or s["mark_ledger"] != NULL
            at = w.stored[message]["first"]
            while bit != 0 and at >= 0:
                e = w.pieces[at]
                is_open = tells or e["sent"] & bit == 0 or e["at_ms"] >= k["window_ms"]
                if is_open and not is_passed(w, sub, at):
                    return True
                at = e["next"]
        sub = s["next"]
    return False


@compiled
def forget_stored(w: World, key: Int) -> None:
    """Forget all stored messages of a key, and what its subscriptions were sent."""
    while w.keys[key]["first_stored"] >= 0:
        drop_stored(w, w.keys[key]["first_stored"])
    w.keys[key]["added_ledger"] = NULL
    sub = w.keys[key]["first_sub"]
    while sub >= 0:
        w.subs[sub]["sent_ledger"] = NULL
        sub = w.subs[sub]["next"]


@compiled
def prune_stored(w: World, key: Int, is_stalled: bool) -> None:
    """Forget what every subscription has, and what is more than a topic keeps: of a stalled one the
    newest, else the oldest."""
    message = w.keys[key]["first_stored"]
    while message >= 0:
        following = w.stored[message]["next"]
        if not is_waited_for(w, message):
            drop_stored(w, message)
        message = following
    k = w.keys[key]
    while k["pieces"] > MOST_PIECES:
        drop_stored(w, k["last_stored"] if is_stalled else k["first_stored"])


# -- what subscriptions do -------------------------------------------------------------------


@compiled
def mark_sent(w: World, sub: Int, ledger: Int, entry: Int, at_ms: Int, is_chunk: bool) -> None:
    """An entry was delivered to a consumer of a subscription."""
    s = w.subs[sub]
    s["sent_ms"] = at_ms
    if s["sent_ledger"] == NULL or before(s["sent_ledger"], s["sent_entry"], ledger, entry):
        s["sent_ledger"], s["sent_entry"] = ledger, entry
    if not is_chunk:
        return
    piece = find_piece(w, s["key"], ledger, entry)
    if piece >= 0:
        w.pieces[piece]["sent"] |= bit_of(w, sub)


@compiled
def end_stall(w: World, sub: Int, ledger: Int, entry: Int, cumulative: bool) -> None:
    """An acknowledgement of the chunk at which a subscription stopped lets it go on."""
    s = w.subs[sub]
    if s["stalled"] == 0:
        return
    same = s["stall_ledger"] == ledger and s["stall_entry"] == entry
    if same or (cumulative and before(s["stall_ledger"], s["stall_entry"], ledger, entry)):
        s["stalled"] = 0


@compiled
def move_mark(w: World, sub: Int, ledger: Int, entry: Int) -> None:
    """Move mark-delete forward, past what was acknowledged behind it."""
    s = w.subs[sub]
    if s["mark_ledger"] == NULL or before(s["mark_ledger"], s["mark_entry"], ledger, entry):
        s["mark_ledger"], s["mark_entry"] = ledger, entry
    while acknowledged(w, sub, s["mark_ledger"], s["mark_entry"] + 1) and (
        s["has_cumulative"] == 0
        or before(s["ledger"], s["entry"], s["mark_ledger"], s["mark_entry"] + 1)
    ):
        s["mark_entry"] += 1


@compiled
def take_cursor(w: World, f: Feed, i: Int) -> None:
    """Apply the position of a cursor."""
    sub, ledger, entry = f.sub[i], f.mark_ledger[i], f.mark_entry[i]
    if sub < 0 or ledger == NULL:
        return
    s = w.subs[sub]
    if s["told_ledger"] != NULL and before(ledger, entry, s["told_ledger"], s["told_entry"]):
        # set back: what follows is read again
        s["mark_ledger"], s["mark_entry"] = ledger, entry
        s["sent_ledger"], s["stalled"], s["has_cumulative"] = NULL, 0, 0
        s["epoch"] += 1
        clear_sent(w, sub)
    else:
        move_mark(w, sub, ledger, entry)
    s["told_ledger"], s["told_entry"], s["told_ms"] = ledger, entry, f.at_ms[i]
    end_stall(w, sub, ledger, entry, True)


@compiled
def end_cursor(w: World, sub: Int) -> None:
    """A subscription was removed."""
    if sub < 0:
        return
    s = w.subs[sub]
    s["mark_ledger"] = s["told_ledger"] = s["sent_ledger"] = s["sent_ms"] = NULL
    s["shared"], s["typed"], s["stalled"], s["counted"], s["consumers"] = 0, 0, 0, 0, 0
    clear_sent(w, sub)


@compiled
def count_consumer(w: World, sub: Int, came: bool) -> None:
    """A consumer of a subscription came or went."""
    s = w.subs[sub]
    s["counted"] = 1
    if came:
        s["consumers"] += 1
        return
    s["consumers"] = max(s["consumers"] - 1, np.int64(0))
    clear_sent(w, sub)
    if s["consumers"] == 0:
        s["sent_ledger"] = NULL


# -- who is stalled --------------------------------------------------------------------------


@compiled
def stands_at(w: World, sub: Int, piece: Int) -> bool:
    """Whether mark-delete is directly before a stored chunk."""
    s, e = w.subs[sub], w.pieces[piece]
    if s["mark_ledger"] == e["ledger"]:
        return bool(s["mark_entry"] + 1 == e["entry"])
    return bool(
        e["entry"] == 0
        and (
            e["before_ledger"] == NULL
            or not before(s["mark_ledger"], s["mark_entry"], e["before_ledger"], e["before_entry"])
        )
    )


@compiled
def has_lost_first(w: World, sub: Int, piece: Int) -> bool:
    """Whether chunk 0 of a stored chunk's message is known to be acknowledged."""
    at = w.stored[w.pieces[piece]["stored"]]["first"]
    while at >= 0:
        if w.pieces[at]["chunk_id"] == 0 and is_passed(w, sub, at):
            return True
        at = w.pieces[at]["next"]
    return False


@compiled
def first_left(w: World, key: Int, sub: Int) -> Int:
    """The stored chunk with the smallest position that a subscription has not acknowledged, -1
    without."""
    found, message = NOBODY, w.keys[key]["first_stored"]
    while message >= 0:
        at = w.stored[message]["first"]
        while at >= 0:
            e = w.pieces[at]
            if (
                found < 0
                or before(
                    e["ledger"], e["entry"], w.pieces[found]["ledger"], w.pieces[found]["entry"]
                )
            ) and not is_passed(w, sub, at):
                found = np.int64(at)
            at = e["next"]
        message = w.stored[message]["next"]
    return found


@compiled
def leads(w: World, sub: Int, head: Int) -> bool:
    """Whether a stored chunk is the first of its message that a subscription has left, and not
    chunk 0."""
    h = w.pieces[head]
    at = w.stored[h["stored"]]["first"]
    while at >= 0:
        e = w.pieces[at]
        is_earlier = before(e["ledger"], e["entry"], h["ledger"], h["entry"])
        if (is_earlier or e["chunk_id"] < h["chunk_id"]) and not is_passed(w, sub, at):
            return False
        at = e["next"]
    return bool(h["chunk_id"] > 0)


@compiled
def handed_back(w: World, sub: Int, head: Int, now: Int) -> Int:
    """The last chunk of the message at mark-delete that a subscription was sent whole and has not
    acknowledged, while others wait: its client asks for that chunk alone. -1 if it is not so."""
    s, own = w.subs[sub], w.pieces[head]["stored"]
    bit, last, at = bit_of(w, sub), NOBODY, w.stored[own]["first"]
    while at >= 0:
        e = w.pieces[at]
        if e["sent"] & bit == 0:
            return NOBODY
        if e["chunk_id"] == e["num_chunks"] - 1 and not is_passed(w, sub, at):
            last = np.int64(at)
        at = e["next"]
    if last < 0 or s["mark_ledger"] == NULL or not stands_at(w, sub, head):
        return NOBODY
    message = w.keys[s["key"]]["first_stored"]
    while message >= 0:
        if message != own and is_behind(w, sub, message, last, now):
            return last
        message = w.stored[message]["next"]
    return NOBODY


@compiled
def stalled_at(w: World, key: Int, sub: Int, now: Int) -> Int:
    """The stored chunk at which a shared subscription has stopped, -1 if it has not: a chunk above
    0 that it has not been sent, at mark-delete, while nothing was delivered for a time; or the last
    one of a message that was sent and handed back.
    """
    p, s = w.settings[0], w.subs[sub]
    if s["shared"] == 0 or (s["counted"] != 0 and s["consumers"] == 0):
        return NOBODY
    if s["sent_ms"] != NULL and now - s["sent_ms"] <= p["wait_ms"]:
        return NOBODY
    if s["stalled"] != 0:
        head = find_piece(w, key, s["stall_ledger"], s["stall_entry"])
        if head >= 0 and is_passed(w, sub, head):
            return NOBODY
    else:
        head = first_left(w, key, sub)
    if head < 0 or now - w.pieces[head]["at_ms"] <= p["wait_ms"]:
        return NOBODY
    if not leads(w, sub, head):
        return handed_back(w, sub, head, now) if s["stalled"] == 0 else NOBODY
    if s["stalled"] != 0:
        return head
    if w.pieces[head]["sent"] & bit_of(w, sub) != 0:
        return NOBODY
    if s["mark_ledger"] != NULL:
        return head if stands_at(w, sub, head) else NOBODY
    return head if has_lost_first(w, sub, head) else NOBODY


@compiled
def count_stalls(w: World, key: Int, now: Int) -> Int:
    """How many subscriptions of a key are stalled."""
    n = np.int64(0)
    if w.keys[key]["stored"] == 0:
        return n
    sub = w.keys[key]["first_sub"]
    while sub >= 0:
        if stalled_at(w, key, sub, now) >= 0:
            n += 1
        sub = w.subs[sub]["next"]
    return n


@compiled
def is_behind(w: World, sub: Int, message: Int, head: Int, now: Int) -> bool:
    """Whether a stored message waits for a stalled subscription: the one at which it stands, and
    those that are whole for a time and whose last chunk it has not been sent."""
    if w.pieces[head]["stored"] == message:
        return True
    bit, at = bit_of(w, sub), w.stored[message]["first"]
    while at >= 0:
        e = w.pieces[at]
        if (
            e["chunk_id"] == e["num_chunks"] - 1
            and e["sent"] & bit == 0
            and now - e["at_ms"] > w.settings[0]["wait_ms"]
            and not is_passed(w, sub, at)
        ):
            return True
        at = e["next"]
    return False


@compiled
def is_left(w: World, sub: Int, piece: Int, head: Int) -> bool:
    """Whether a stalled subscription waits for a stored chunk: for none that it has acknowledged,
    and of the message at which it stands for none before that chunk."""
    e, h = w.pieces[piece], w.pieces[head]
    is_before = e["stored"] == h["stored"] and e["chunk_id"] < h["chunk_id"]
    return bool(not is_before and not is_passed(w, sub, piece))


@compiled
def next_id(w: World, sub: Int, message: Int, head: Int, least: Int) -> Int:
    """The smallest chunk id from `least` on that is stored and left, -1 without."""
    found, at = NOBODY, w.stored[message]["first"]
    while at >= 0:
        e = w.pieces[at]
        if (
            e["chunk_id"] >= least
            and (found < 0 or e["chunk_id"] < found)
            and is_left(w, sub, at, head)
        ):
            found = np.int64(e["chunk_id"])
        at = e["next"]
    return found


@compiled
def list_message(
    w: World, o: Out, sub: Int, message: Int, head: Int, window: Int, order: Int
) -> None:
    """A row about a stored message of a stalled subscription."""
    p, e, h = w.settings[0], w.stored[message], w.pieces[head]
    m = o.missing[p["missing"]]
    p["missing"] += 1
    m["window"], m["sub"], m["consumer"], m["order"] = window, sub, NOBODY, order
    m["uuid"], m["producer"] = e["uuid"], e["producer"]
    m["sequence_id"], m["num_chunks"], m["declared"] = (
        e["sequence_id"],
        e["num_chunks"],
        e["declared"],
    )
    m["stall_ledger"], m["stall_entry"] = h["ledger"], h["entry"]
    m["first_ledger"], m["buffered"] = NULL, 0
    at = e["first"]
    while at >= 0:
        x = w.pieces[at]
        if is_left(w, sub, at, head):
            if m["first_ledger"] == NULL:
                m["first_ledger"], m["first_entry"] = x["ledger"], x["entry"]
                m["last_ledger"], m["last_entry"] = x["ledger"], x["entry"]
                m["first_ms"] = x["at_ms"]
            if before(x["ledger"], x["entry"], m["first_ledger"], m["first_entry"]):
                m["first_ledger"], m["first_entry"] = x["ledger"], x["entry"]
            if before(m["last_ledger"], m["last_entry"], x["ledger"], x["entry"]):
                m["last_ledger"], m["last_entry"] = x["ledger"], x["entry"]
            m["last_ms"] = x["at_ms"]
            if x["size"] != NULL:
                m["buffered"] += x["size"]
        at = x["next"]
    m["gone_start"], m["gone"] = p["gone"], 0
    least, here = np.int64(0), next_id(w, sub, message, head, np.int64(0))
    m["next_chunk"] = here
    while here >= 0:
        if here > least:
            if m["gone"] == 0:
                m["next_chunk"] = least
            o.gone[p["gone"], 0], o.gone[p["gone"], 1] = least, here - 1
            p["gone"] += 1
            m["gone"] += 1
        least = here + 1
        here = next_id(w, sub, message, head, least)


@compiled
def list_stalled(w: World, o: Out, key: Int, now: Int, window: Int) -> Int:
    """Rows about the messages of every stalled subscription; returns how many."""
    n = np.int64(0)
    if w.keys[key]["stored"] == 0:
        return n
    sub = w.keys[key]["first_sub"]
    while sub >= 0:
        head = stalled_at(w, key, sub, now)
        message = w.keys[key]["first_stored"] if head >= 0 else NOBODY
        while message >= 0:
            if is_behind(w, sub, message, head, now):
                list_message(w, o, sub, message, head, window, n)
                n += 1
            message = w.stored[message]["next"]
        sub = w.subs[sub]["next"]
    return n
