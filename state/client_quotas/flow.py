"""Requests, measured rates and changes of limits of a shard, in their order."""

from __future__ import annotations

import numpy as np

from state.client_quotas import layout as L
from state.client_quotas.layout import NULL, Array, Int, Out, Record, World, compiled, inlined
from state.client_quotas.levels import kinds_of, remember_kinds
from state.client_quotas.rules import take_rate, take_request
from state.client_quotas.sensors import new_sensor
from state.client_quotas.shared import STARTS, USED
from state.engine.broker_changes import rank_at
from state.engine.names import NONE
from state.engine.tables import is_short

DONE = np.int64(-1)
NEW = np.int64(2)
"""Most sensors, and most windows, that one record adds: of bytes or mutations, and of time."""
_ZERO, _ONE = np.int64(0), np.int64(1)
_NO_NAME = np.int64(NONE)


# -- shared records --------------------------------------------------------------------------


@compiled
def _holds(w: World, key: Int, rank: Int) -> bool:
    """Whether a shared record is one of a broker: its own, of all of its cluster, or configured."""
    k, cluster, broker = w.keys[key], w.cluster[rank], w.broker[rank]
    if cluster != k["cluster"]:
        return bool(cluster == _NO_NAME)
    return bool(broker == k["broker"] or broker == w.settings[0]["everywhere"])


@compiled
def _put_document(w: World, key: Int, rank: Int) -> None:
    """Apply a document to a broker."""
    d, entity = w.documents[rank], w.entity[rank]
    in_stream = w.cluster[rank] != _NO_NAME
    sets = False
    for t in range(L.TYPES):
        bound = _bound_of(d, np.int64(t))
        sets = sets or bound == bound
        if in_stream:
            w.stream[key, entity, t] = bound
        else:
            w.configured[key, entity, t] = bound
    if in_stream:
        w.from_stream[key, entity] = 1 if sets else 0
    w.links[key]["version"] += 1


@compiled
def _bound_of(d: Record, type_: Int) -> float:
    if type_ == L.PRODUCE:
        return d["produce"]
    if type_ == L.FETCH:
        return d["fetch"]
    if type_ == L.REQUEST:
        return d["request"]
    return d["mutation"]


@compiled
def _start_anew(w: World, key: Int) -> None:
    """The broker has started: no sensor has a history, and limits are read again."""
    for s in range(w.sensors.used[0]):
        if w.sensors.rows[s].key == key:
            new_sensor(w, np.int64(s))
    if w.keys[key]["began"] != 0:
        remember_kinds(w, key, _ONE)


@compiled
def _forgets(w: World, key: Int, rank: Int) -> bool:
    """Apply a document; returns whether the broker forgets a kind of limits because of it."""
    before = kinds_of(w, key, w.entity[rank])
    _put_document(w, key, rank)
    kinds = w.documents[rank]["kinds"]
    forgets = kinds if kinds >= 0 else w.settings[0]["forgets"]
    return forgets != 0 and before & ~kinds_of(w, key, w.entity[rank]) != 0


@compiled
def take_shared(w: World, key: Int) -> None:
    """Apply the next shared record to a broker."""
    rank = w.links[key]["next"]
    w.links[key]["next"] = rank + 1
    if not _holds(w, key, rank):
        return
    what = w.documents[rank]["what"]
    if what == STARTS:
        _start_anew(w, key)
    elif what >= USED and w.entity[rank] >= 0:
        if _forgets(w, key, rank):
            remember_kinds(w, key, w.keys[key]["began"])
        w.keys[key]["kinds"] |= kinds_of(w, key, w.entity[rank])


@compiled
def prepare(w: World, begin_ms: Array) -> None:
    """Move every broker past the shared records before its clock at the beginning of the call (NULL:
    none).

    Those that came with this call hold from the clock on. A start among them that is not newer than
    one that the broker has had is ignored.
    """
    for k in range(len(w.keys)):
        key, begin = np.int64(k), begin_ms[k]
        had_ms, starts, forgets, rank = NULL, False, False, _ZERO
        while rank < len(w.documents):
            at_ms, d = w.shared_ms[rank], w.documents[rank]
            if at_ms != NULL and (begin == NULL or at_ms >= begin):
                break
            if _holds(w, key, rank):
                if d["what"] == STARTS:
                    if d["fresh"] == 0:
                        had_ms, starts = at_ms, False
                    elif at_ms > had_ms:
                        starts = True
                elif d["what"] >= USED and w.entity[rank] >= 0:
                    gone = _forgets(w, key, rank)
                    if d["fresh"] != 0:
                        forgets = forgets or gone
                        w.keys[key]["kinds"] |= kinds_of(w, key, w.entity[rank])
            rank += 1
        w.links[key]["next"] = rank
        if starts:
            _start_anew(w, key)
        elif forgets:
            remember_kinds(w, key, w.keys[key]["began"])


@inlined
def _reach(w: World, key: Int, rank: Int) -> None:
    """Move a broker past the shared records before a rank."""
    while w.links[key]["next"] < rank:
        take_shared(w, key)


# -- records ---------------------------------------------------------------------------------


@inlined
def lacks_room(w: World, r: Record) -> bool:
    """Whether what one more record adds may not fit."""
    topics = r.topics_end - r.topics_begin + 1
    return bool(is_short(w.sensors, NEW) or is_short(w.stats, NEW) or is_short(w.usage, topics))


@compiled
def judge(w: World, o: Out, records: Array, begin: Int) -> Int:
    """Judge records from `begin` on; returns the first that there was no room for, or DONE."""
    for i in range(begin, len(records)):
        r = records[i]
        if lacks_room(w, r):
            return i
        _reach(w, r.key, r.rank)
        if r.is_rate != 0:
            take_rate(w, r)
        else:
            take_request(w, o, r)
    return DONE


@compiled
def move_on(w: World) -> None:
    """Move every broker past the shared records before its clock."""
    for key in range(len(w.keys)):
        if w.keys[key]["has_clock"] != 0:
            _reach(w, np.int64(key), rank_at(w.shared_ms, w.keys[key]["clock_ms"]))
