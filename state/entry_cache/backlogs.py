"""Decides which cursors with a backlog have their reads from storage cached.

As `ManagedLedgerImpl.checkCursorsToCacheEntries` of Pulsar 4.2.4: once a minute a broker that does
not count expected reads computes the backlog of every durable cursor, in entries from its read
position to the last one. A cursor whose backlog has at least `backlog_entries` caches its reads if
the backlogs of at least `backlog_cursors` others are within `backlog_between` of its own. Example:
with 2 cursors, 1000 entries and 500 between, of backlogs of 2000, 1600, 1200 and 900 the second and
the third cache their reads. 2000 has only 1600 near it, and 900 is too small, though it counts for
1200.

The cursors and entries of a topic change only by its events, so a due check is made at the first
event after its time.
"""

from __future__ import annotations

import numpy as np

from state.entry_cache.layout import (
    FIFO,
    LARGEST,
    NOBODY,
    NULL,
    ONE,
    PROPORTIONAL,
    ZERO,
    Int,
    World,
    compiled,
)

CHECK_NS, MOST_LEDGERS = np.int64(60_000_000_000), np.int64(1000)


@compiled
def take_backlogs(w: World, t: int, now: int) -> None:
    """Compute the backlogs of a topic's cursors and set the time of its next check."""
    k, topic = w.key[0], w.topics[t]
    since = now - k["started_ns"]
    if since < 0 or now > LARGEST - CHECK_NS:
        # more time has passed than 64 bits hold
        topic["check_ns"] = LARGEST
    else:
        periods = max((since + CHECK_NS - ONE) // CHECK_NS, ONE)
        topic["check_ns"] = k["started_ns"] + periods * CHECK_NS
    at = topic["first_cursor"]
    while at >= 0:
        cursor = w.cursors[at]
        cursor["backlog"] = NULL
        if cursor["known"] != 0 and cursor["durable"] != 0 and cursor["has_read"] != 0:
            cursor["backlog"] = entries_from(w, t, cursor["read_ledger"], cursor["read_entry"])
        at = cursor["next"]


@compiled
def entries_from(w: World, t: int, ledger: int, entry: int) -> Int:
    """Known entries of a topic from a position on."""
    topic = w.topics[t]
    if topic["has_persisted"] == 0 or topic["persisted_ledger"] < ledger:
        return ZERO
    before, found = max(entry, ZERO), topic["persisted_entry"] + ONE
    if topic["persisted_ledger"] == ledger:
        return max(found - before, ZERO)
    at = topic["first_ledger"]
    while at >= 0 and w.ledgers[at]["ledger"] > ledger:
        found += w.ledgers[at]["entries"]
        at = w.ledgers[at]["next"]
    if at >= 0 and w.ledgers[at]["ledger"] == ledger:
        found += max(w.ledgers[at]["entries"] - before, ZERO)
    return found


@compiled
def caches_reads(w: World, t: int, c: int, v: int, is_expected: bool, is_replay: bool) -> bool:
    """Whether a cache inserts what a cursor has read from storage.

    As a broker 4.2.4 does (`getNumberOfCursorsAtSamePositionOrBefore` above 0, `isCacheReadEntry`
    without expected reads, a replay never), or as the specification has it: there the record of a
    cursor may state it. Of a reader without a record it is not known.
    """
    cache = w.variants[v]
    is_known = c >= 0 and w.cursors[c]["known"] != 0
    has_keys = cache["backlog_cursors"] >= 1
    if cache["as_broker"] == 0:
        if not is_known or not has_keys or w.cursors[c]["told"] != 0:
            return True
    elif is_replay or (cache["policy"] != FIFO and cache["policy"] != PROPORTIONAL):
        return not is_replay and (is_expected or not is_known)
    elif not is_known or not has_keys:
        return has_keys
    own = w.cursors[c]["backlog"]
    if own == NULL or own < cache["backlog_entries"]:
        return False
    others = ZERO
    at = w.topics[t]["first_cursor"]
    while at >= 0:
        other = w.cursors[at]["backlog"]
        if at != c and other != NULL and abs(own - other) <= cache["backlog_between"]:
            others += ONE
        at = w.cursors[at]["next"]
    return others >= cache["backlog_cursors"]


# -- ledgers that are written no more --------------------------------------------------------


@compiled
def close_ledger(w: World, t: int) -> None:
    """The ledger of the last persisted entry gets no more; of too many the oldest is forgotten."""
    topic = w.topics[t]
    push_ledger(w, t, topic["persisted_ledger"], topic["persisted_entry"] + ONE)
    at, count = topic["first_ledger"], ONE
    while w.ledgers[at]["next"] >= 0:
        at = w.ledgers[at]["next"]
        count += ONE
    if count > MOST_LEDGERS:
        drop_ledger(w, t, w.ledgers[at]["ledger"])


@compiled
def push_ledger(w: World, t: int, ledger: int, entries: int) -> None:
    """Put a ledger before the older ones of its topic; the caller has room."""
    k, topic = w.key[0], w.topics[t]
    at = k["free_ledger"]
    if at >= 0:
        k["free_ledger"] = w.ledgers[at]["next"]
    else:
        at = k["ledgers_top"]
        k["ledgers_top"] += 1
    k["ledgers"] += 1
    element = w.ledgers[at]
    element["ledger"], element["entries"], element["next"] = ledger, entries, topic["first_ledger"]
    topic["first_ledger"] = at


@compiled
def drop_ledger(w: World, t: int, ledger: int) -> None:
    """A ledger has been deleted; the one that is written is not."""
    k, topic = w.key[0], w.topics[t]
    before, at = NOBODY, topic["first_ledger"]
    while at >= 0 and w.ledgers[at]["ledger"] > ledger:
        before, at = at, w.ledgers[at]["next"]
    if at < 0 or w.ledgers[at]["ledger"] != ledger:
        return
    if before >= 0:
        w.ledgers[before]["next"] = w.ledgers[at]["next"]
    else:
        topic["first_ledger"] = w.ledgers[at]["next"]
    w.ledgers[at]["next"] = k["free_ledger"]
    k["free_ledger"] = at
    k["ledgers"] -= 1


@compiled
def forget_ledgers(w: World, t: int) -> None:
    """Forget all ledgers of a topic."""
    while w.topics[t]["first_ledger"] >= 0:
        drop_ledger(w, t, w.ledgers[w.topics[t]["first_ledger"]]["ledger"])
