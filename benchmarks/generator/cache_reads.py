"""When each entry is read, released, queued for replay and read again, in one compiled loop.

A reader takes entries in order: one is read when it is there and the reader has come to it, at
least a step after the one before. Whoever was away reads from behind, a step apart, until it has
caught up. A slow consumer behind a reader takes its part of the entries at its own pace; what it
cannot take at once is queued for replay, the delivered copy is released, and it is read again when
its turn comes.
"""

from __future__ import annotations

import numba
import numpy as np

from benchmarks.generator.cache_fleet import TELLS_START, TELLS_STOP, UP_NS

ADDED, READ, RELEASED, QUEUED, STOPPED, STARTED, DELETED, INVALIDATED = range(8)
AT, KIND, WHO, LEDGER, ENTRY, BYTES, COLUMNS = range(7)
"""What a step of a trace is: its time, kind, reader (of `ADDED`, `DELETED` and `INVALIDATED` the
topic), position and size."""
PER_READ = 7
"""Steps that one read of an entry can bring at most."""
PER_ENTRY = 3
_QUEUED_NS = 200_000
_REPLAY_NS = 1_000_000
_RETURN_NS = 1_000_000
_TRIM_NS = 5_000_000
_NEVER = np.iinfo(np.int64).max


@numba.njit(cache=True)
def _put(out, n, at, kind, who, ledger, entry, size):  # type: ignore[no-untyped-def]
    out[n, AT], out[n, KIND], out[n, WHO] = at, kind, who
    out[n, LEDGER], out[n, ENTRY], out[n, BYTES] = ledger, entry, size
    return n + 1


@numba.njit(cache=True, inline="always")
def _between(pair, part):  # type: ignore[no-untyped-def]
    return pair[0] + np.int64(part * (pair[1] - pair[0]))


@numba.njit(cache=True)
def _past(at, spans, first, end, place):  # type: ignore[no-untyped-def]
    """The time `at`, or that at which it is past the spans it falls in; the first one after it."""
    while first + place < end and at >= spans[first + place, 0]:
        if at < spans[first + place, 1]:
            at = spans[first + place, 1] + _RETURN_NS
        place += 1
    return at, place


@numba.njit(cache=True)
def steps_of(at, topic, sizes, draws, t, r, now, out):  # type: ignore[no-untyped-def]
    """Writes the steps that entries in order of time bring; answers how many.

    `t` are arrays by topic, `r` by reader, as `CacheReads` names them; `now` is the begin of the
    slice, before which nothing can be reported any more.
    """
    (ledger, entries, length, first_reader, each, retained, rolls, reopens) = t
    (
        last,
        step,
        lag,
        delay,
        trip,
        first_absence,
        absences,
        absence,
        slow_share,
        slow_step,
        slow_last,
        first_stall,
        stalls,
        stall,
        state,
        told_at,
        tells_every,
    ) = r
    n = 0
    for i in range(at.size):
        own = topic[i]
        if at[i] >= rolls[own] or at[i] >= reopens[own]:
            if at[i] >= reopens[own]:
                reopens[own] = _NEVER
            while rolls[own] <= at[i]:
                rolls[own] += length
            gone = at[i]
            for reader in range(first_reader[own], first_reader[own] + each):
                gone = max(gone, last[reader], slow_last[reader])
            gone += retained + _TRIM_NS
            n = _put(out, n, gone - _TRIM_NS, INVALIDATED, own, ledger[own], -1, 0)
            n = _put(out, n, gone, DELETED, own, ledger[own], -1, 0)
            ledger[own] += 1
            entries[own] = 0
        ledger_id, entry_id = ledger[own], entries[own]
        entries[own] += 1
        n = _put(out, n, at[i], ADDED, own, ledger_id, entry_id, sizes[i])
        for k in range(each):
            reader = first_reader[own] + k
            due = at[i] + lag[reader] + _between(delay[reader], draws[i * each + k, 0])
            due = max(due, last[reader] + step[reader], np.int64(UP_NS + _RETURN_NS))
            a, b = first_absence[reader], first_absence[reader + 1]
            seen = absence[reader]
            back, absence[reader] = _past(due, absences, a, b, seen)
            told = np.int64(-1 if state[reader] else UP_NS)
            for x in range(a + seen, a + absence[reader]):
                if absences[x, 2] & TELLS_STOP and due < absences[x, 1]:
                    n = _put(
                        out, n, max(absences[x, 0], now), STOPPED, reader, ledger_id, entry_id, 0
                    )
                if absences[x, 2] & TELLS_START:
                    told = max(absences[x, 1], np.int64(UP_NS))
            due = back
            if told < 0 and due >= told_at[reader] + tells_every:
                told = due - 1000
            if told >= 0:
                n = _put(out, n, max(told, now), STARTED, reader, ledger_id, entry_id, 0)
                state[reader], told_at[reader] = 1, max(told, now)
            last[reader] = due
            n = _put(out, n, due, READ, reader, ledger_id, entry_id, sizes[i])
            done = due + _between(trip[reader], draws[i * each + k, 1])
            if draws[i * each + k, 2] < slow_share[reader]:
                turn, stall[reader] = _past(
                    max(due, slow_last[reader]),
                    stalls,
                    first_stall[reader],
                    first_stall[reader + 1],
                    stall[reader],
                )
                slow_last[reader] = turn + slow_step[reader]
                if turn > due + _REPLAY_NS:
                    n = _put(out, n, due + _QUEUED_NS, QUEUED, reader, ledger_id, entry_id, 0)
                    n = _put(out, n, due + 2 * _QUEUED_NS, RELEASED, reader, ledger_id, entry_id, 0)
                    n = _put(out, n, turn, READ, reader, ledger_id, entry_id, sizes[i])
                    done += turn - due
            n = _put(out, n, done, RELEASED, reader, ledger_id, entry_id, 0)
    return n
