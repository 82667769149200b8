"""Windows of a topic: what was published and what is incomplete at their ends."""

from __future__ import annotations

import numpy as np

from state.chunks.consumer import chunk_of
from state.chunks.layout import NULL, Int, Out, Record, World, inlined
from state.chunks.stored import list_stalled, prune_stored
from state.engine.tables import copy_fields, each

LARGEST = np.int64(2**63 - 1)
ZERO = np.int64(0)


@inlined
def close_window(w: World, o: Out, key: Int, end: Int) -> None:
    """Write the open window of a topic; the next one opens at once while a level is not zero."""
    p, k, n = w.settings[0], w.keys[key], o.used[0]
    is_live, deepest, window = False, ZERO, n.windows
    for consumer in each(w.consumers_of, key):
        e = w.consumers[consumer]
        has_level = e.contexts > 0 or e.counter > 0
        is_live = is_live or has_level
        deepest = max(deepest, e.contexts)
        if has_level or e.touched != 0:
            write_level(w, o, consumer, window)
        e.touched = 0
    behind = list_stalled(w, o, key, end, window)
    prune_stored(w, key, behind > 0)
    row = o.windows[window]
    n.windows += 1
    copy_fields(row, w.timer[0])
    copy_fields(row, k)
    row.row_no, row.start_ms, row.window_ms = 0, k.window, p.window_ms
    row.topic_row = 1 if k.touched != 0 or k.most > 0 or behind + k.behind > 0 else 0
    k.chunks, k.bytes, k.firsts, k.producers = 0, 0, 0, 0
    k.most, k.touched, k.behind = deepest, 0, behind
    waits = w.held_of.first[key] >= 0 or w.stored_of.first[key] >= 0
    k.open = 1 if is_live or waits or behind > 0 else 0
    k.window = end


@inlined
def write_level(w: World, o: Out, consumer: Int, window: Int) -> None:
    """A row about a consumer, and one about each of its contexts, in order of creation."""
    n = o.used[0]
    row = o.levels[n.levels]
    n.levels += 1
    copy_fields(row, w.consumers[consumer])
    row.window, row.consumer = window, consumer
    row.total_chunk_bytes, row.oldest_ms = 0, NULL
    order = ZERO
    for context in each(w.contexts_of, consumer):
        e = w.contexts.rows[context]
        row.total_chunk_bytes += min(e.total_chunk_bytes, LARGEST - row.total_chunk_bytes)
        if row.oldest_ms == NULL or e.first_ms < row.oldest_ms:
            row.oldest_ms = e.first_ms
        m = o.missing[n.missing]
        n.missing += 1
        copy_fields(m, row)
        copy_fields(m, e)
        m.order, m.next_chunk, m.stall_ledger = order, e.last + 1, NULL
        set_positions(w, m, context)
        order += 1


@inlined
def set_positions(w: World, m: Record, context: Int) -> None:
    """Set the first and the last position that a context has."""
    e = w.contexts.rows[context]
    m.first_ledger = m.last_ledger = e.more_ledger
    m.first_entry = m.last_entry = e.more_entry
    if e.last >= 0:
        first, last = chunk_of(w.buffered, context, ZERO), chunk_of(w.buffered, context, e.last)
        m.first_ledger, m.first_entry = first.ledger_id, first.entry_id
        m.last_ledger, m.last_entry = last.ledger_id, last.entry_id
