"""Which positions a subscription has acknowledged, one by one or all up to one."""

from __future__ import annotations

import numpy as np

from state.chunks.layout import Int, Rows, before, compiled
from state.engine.tables import Indexed, find


@compiled
def acknowledged(subs: Rows, acks: Indexed, acked: Rows, sub: Int, ledger: Int, entry: Int) -> bool:
    """Whether a position has been acknowledged in the subscription's present epoch: in this call or,
    by the ranges `acked`, before it."""
    s = subs[sub]
    if not before(s.cumulative_ledger, s.cumulative_entry, ledger, entry):
        return True
    if find(acks, (sub, s.epoch, ledger, entry)) >= 0:
        return True
    low, high = np.int64(0), np.int64(len(acked))
    while low < high:
        middle = (low + high) >> 1
        r = acked[middle]
        if r.sub < sub or (r.sub == sub and before(r.ledger, r.last, ledger, entry)):
            low = middle + 1
        else:
            high = middle
    if low == len(acked):
        return False
    r = acked[low]
    return bool(
        r.sub == sub and r.epoch == s.epoch and r.ledger == ledger and r.first <= entry <= r.last
    )
