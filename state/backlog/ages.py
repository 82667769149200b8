"""Times of entries in bounded memory, and the cached oldest message of a topic."""

from __future__ import annotations

import numpy as np

from state.backlog import layout as L
from state.backlog.cursors import ANY, first_cursor, hindmost, is_before, slowest, unacked_after
from state.backlog.layout import (
    AT,
    ENTRY,
    ID,
    LEDGERS,
    MS,
    NOBODY,
    NULL,
    SAMPLES,
    SOURCE,
    USED,
    Int,
    Record,
    Store,
    compiled,
)
from state.backlog.ledgers import close_of_oldest, first_after, sum_up, up
from state.backlog.pool import drop, insert, lower

MS_PER_S = np.int64(1000)


@compiled
def entry_time(publish_ms: Int, broker_ms: Int) -> tuple[Int, Int]:
    """Time of an entry by its record (NULL: none), and the source of that time."""
    if broker_ms != NULL:
        return broker_ms, L.BROKER_TIME
    return publish_ms, L.PUBLISH_TIME


@compiled
def age_of(now: Int, timestamp: Int) -> Int:
    """Whole seconds, truncated toward zero."""
    past = now - timestamp
    return past // MS_PER_S if past >= 0 else -(-past // MS_PER_S)


@compiled
def is_older(now: Int, timestamp: Int, seconds: Int) -> bool:
    """Whether more than some seconds, which are not negative, have passed."""
    return bool(now > timestamp and (now - timestamp - 1) // MS_PER_S >= seconds)


# -- samples ---------------------------------------------------------------------------------


@compiled
def _offer(w: Store, key: Int, ledger: Int, entry: Int, time: Int, source: Int, now: Int) -> None:
    """Keep a sample if it differs enough from the last one."""
    k, span = w.keys[key], w.spans[SAMPLES, key]
    second = now // MS_PER_S
    kept = k.kept if second == k.second else np.int64(0)
    end = span[AT] + span[USED]
    if span[USED] > 0:
        apart = time - w.samples[end - 1, MS]
        if -L.SAMPLE_MS < apart < L.SAMPLE_MS or kept >= L.SAMPLES_PER_SECOND:
            return
    at = insert(w.samples, span, w.tops, SAMPLES, end)
    w.samples[at, ID], w.samples[at, ENTRY] = ledger, entry
    w.samples[at, MS], w.samples[at, SOURCE] = time, source
    k.second, k.kept = second, kept + 1


@compiled
def entry_added(w: Store, r: Record) -> None:
    """Sample the time of an entry of a known ledger; the first record that shows the entry gives
    its time.
    """
    k, ledger, entry, now = w.keys[r.key], r.ledger_id, r.entry_id, r.ts_wall_ms
    if k.seen_ledger != NULL and not is_before(k.seen_ledger, k.seen_entry, ledger, entry):
        return
    time, source = entry_time(r.publish_time_ms, r.broker_time_ms)
    _offer(w, r.key, ledger, entry, time if time != NULL else now, source, now)
    k.seen_ledger, k.seen_entry = ledger, entry


@compiled
def ledger_stated(w: Store, key: Int, ledger: Int, entries: Int, close_ms: Int, now: Int) -> None:
    """Sample entries of a ledger that no record has shown before: they are as old as this record,
    or as the end of their ledger.
    """
    k, last = w.keys[key], entries - 1
    if last < 0 or (
        k.seen_ledger != NULL and not is_before(k.seen_ledger, k.seen_entry, ledger, last)
    ):
        return
    first = up(k.seen_entry) if k.seen_ledger == ledger else np.int64(0)
    if 0 < close_ms < now:
        _offer(w, key, ledger, first, close_ms, L.LEDGER_CLOSE, now)
    else:
        _offer(w, key, ledger, first, now, L.SEEN if k.kafka != 0 else L.PUBLISH_TIME, now)
    k.seen_ledger, k.seen_entry = ledger, last


@compiled
def forget_times(w: Store, key: Int) -> None:
    """Forget all known times of entries."""
    k = w.keys[key]
    w.spans[SAMPLES, key, USED] = 0
    k.seen_ledger, k.second, k.kept = NULL, 0, 0


@compiled
def sample_at(w: Store, key: Int, ledger: Int, entry: Int) -> Int:
    """Place of the sample that covers an entry, -1 before all of them."""
    span = w.spans[SAMPLES, key]
    at = lower(w.samples, span, ledger, entry)
    if at < span[AT] + span[USED] and w.samples[at, ID] == ledger and w.samples[at, ENTRY] == entry:
        return at
    return at - 1 if at > span[AT] else NOBODY


@compiled
def trim(w: Store, key: Int) -> None:
    """Forget samples before that of the oldest entry that a cursor may need."""
    k, span = w.keys[key], w.spans[SAMPLES, key]
    if span[USED] < 2:
        return
    ledger, entry = k.seen_ledger, k.seen_entry
    oldest = hindmost(w, key, ANY)
    if oldest >= 0:
        c = w.cursors.rows[oldest]
        at, first = first_after(w, key, c.ledger, c.entry)
        if at >= 0:
            ledger, entry = w.ledgers[at, ID], first
    at = sample_at(w, key, ledger, entry)
    if at > span[AT]:
        drop(span, at - span[AT])


# -- the oldest message ----------------------------------------------------------------------


@compiled
def time_after(w: Store, key: Int, ledger: Int, entry: Int, precise: Int) -> tuple[Int, Int]:
    """Time of the first entry after a mark-delete, if known (else NULL), and its source."""
    if precise != 0:
        j = first_cursor(w, key)
        while j >= 0:
            c = w.cursors.rows[j]
            if c.first_ms != NULL and c.entry == entry and c.ledger == ledger:
                return c.first_ms, c.first_source
            j = w.cursors_of.following[j]
        at, first = first_after(w, key, ledger, entry)
        if at >= 0:
            sample = sample_at(w, key, w.ledgers[at, ID], first)
            if sample >= 0:
                return w.samples[sample, MS], w.samples[sample, SOURCE]
    return close_of_oldest(w, key, ledger, entry), L.LEDGER_CLOSE


@compiled
def _behind(w: Store, key: Int) -> bool:
    """Whether a subscription that is durable has a backlog; sums are up to date."""
    j = first_cursor(w, key)
    while j >= 0:
        c = w.cursors.rows[j]
        is_subscription = c.kind != L.DEDUPLICATION and c.kind != L.REPLICATOR
        if c.durable != 0 and is_subscription and unacked_after(w, key, j, c.ledger, c.entry) > 0:
            return True
        j = w.cursors_of.following[j]
    return False


@compiled
def refresh(w: Store, key: Int, precise: Int) -> tuple[Int, Int]:
    """Bring the cached oldest message up to date; returns the state of the age and its source."""
    k, oldest = w.keys[key], slowest(w, key)
    if oldest < 0:
        k.cached = 0
        return L.NO_DURABLE_CURSOR, L.NO_SOURCE
    sum_up(w, key)
    if not _behind(w, key):
        k.cached = 0
        return L.NO_BACKLOG, L.NO_SOURCE
    c = w.cursors.rows[oldest]
    ledger, entry = c.ledger, c.entry
    if (
        k.cached != 0
        and k.cached_ledger == ledger
        and k.cached_entry == entry
        and (ledger >= w.ledgers[w.spans[LEDGERS, key, AT], ID] or k.cached_version == k.version)
    ):
        k.cached_name, k.cached_version = c.name, k.version
        return L.KNOWN, L.KEPT
    time, source = time_after(w, key, ledger, entry, precise)
    if time != NULL:
        k.cached, k.cached_ledger, k.cached_entry = 1, ledger, entry
        k.cached_ms, k.cached_name, k.cached_version = time, c.name, k.version
        return L.KNOWN, source
    if w.settings[0].keep == 0:
        k.cached = 0
    return L.NO_ESTIMATE, L.KEPT if k.cached != 0 else L.NO_SOURCE


@compiled
def age_at_pass(w: Store, key: Int, limit_s: Int, precise: Int) -> tuple[Int, Int]:
    """The age at a pass: as `refresh`, unless only topics with a time quota have one."""
    if w.settings[0].quota_only == 0 or limit_s > 0:
        return refresh(w, key, precise)
    k = w.keys[key]
    k.cached = 0
    if slowest(w, key) < 0:
        return L.NO_DURABLE_CURSOR, L.NO_SOURCE
    sum_up(w, key)
    return L.NO_ESTIMATE if _behind(w, key) else L.NO_BACKLOG, L.NO_SOURCE
