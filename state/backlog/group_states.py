"""Kafka: the state of a group at a check. The rules have the numbers of docs/semantics/backlog.md,
"State"; the first one that holds decides.
"""

from __future__ import annotations

from state.backlog.groups import (
    KNOWN,
    KNOWN_WITHOUT,
    PENDING,
    WAITS,
    WITH_LOG,
    end_of,
    unread_of,
)
from state.backlog.layout import NOBODY, NULL, Int, Record, Store, compiled


@compiled
def _is_over(c: Record) -> bool:
    """1. `known`: the state that a poll has stated has ended."""
    return c.ended == KNOWN or c.ended == KNOWN_WITHOUT


@compiled
def _is_without_log(k: Record, c: Record) -> bool:
    """2. `gone`: the log was deleted, or the group is followed no longer."""
    return k.log_gone != 0 or c.ended == WITH_LOG


@compiled
def _has_expired(c: Record, end: Int, left: Int) -> bool:
    """3. `offsets_expired`: its offset was deleted while there were unread records."""
    return c.ended != 0 and end != NULL and left > 0


@compiled
def _is_deleted(c: Record) -> bool:
    """4. `gone`: its offset was deleted."""
    return c.ended != 0


@compiled
def _is_stated(c: Record) -> bool:
    """5. The state that a poll has stated in place of an offset."""
    return c.stated >= 0


@compiled
def _is_unknown(c: Record, end: Int) -> bool:
    """6. None: its log or its offset is not known."""
    return end == NULL or c.ledger == NULL


@compiled
def _is_ahead(c: Record, end: Int) -> bool:
    """7. `ahead`: its offset is beyond the end."""
    return c.entry + 1 > end


@compiled
def _waits_for(c: Record, end: Int, waits: Int) -> bool:
    """8. `pending_offsets`, 9. `open_transaction`: below the end a transaction holds it."""
    return c.entry + 1 < end and c.waits == waits


@compiled
def state_of(w: Store, key: Int, c: Record) -> Int:
    """The state of a group at a check: that of the first rule that holds, `committed` if none does;
    NOBODY while it is unknown."""
    p, k, end = w.settings[0], w.keys[key], end_of(w, key)
    if _is_over(c):
        return p.known
    if _is_without_log(k, c):
        return p.gone
    if _has_expired(c, end, unread_of(w, key, c)):
        return p.expired
    if _is_deleted(c):
        return p.gone
    if _is_stated(c):
        return c.stated
    if _is_unknown(c, end):
        return NOBODY
    if _is_ahead(c, end):
        return p.ahead
    if _waits_for(c, end, PENDING):
        return p.pending
    if _waits_for(c, end, WAITS):
        return p.open
    return p.committed
