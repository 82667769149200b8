"""Order, lateness and policies of jobs on the monotonic clock, whose key is (cluster, broker).

Every key has a clock; records before it are judged, the rest waits, what is before it when its
batch begins is refused (event contract, section 2). A job adds what a key does with its records.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from state.engine import order
from state.engine.records import Records, concat, empty, length, take
from state.engine.refused import DUPLICATE, TOO_LATE, Refused
from state.entry_cache.broker import Broker
from state.entry_cache.declaration import COLUMNS
from state.entry_cache.flow import BROKER_STARTED, POLICY
from state.entry_cache.layout import NULL, Array
from state.entry_cache.settings import NS_PER_MS
from state.entry_cache.shard import Shard
from state.rate_limits import clocks
from state.rate_limits.broker import Policy
from state.rate_limits.clocks import Moment
from state.rate_limits.shard import Star, policy_of


class Admission:
    """What one batch brings to a shard, sorted by key and judged as far as the clocks let."""

    def __init__(
        self, shard: Shard, stream_ms: int, lateness_ns: int, idle_advance_ms: int,
        refused: Refused,
    ) -> None:
        self._s, self._stream_ms, self._refused = shard, stream_ms, refused
        self._lateness_ns, self._idle_advance_ms = lateness_ns, idle_advance_ms

    # -- policies ----------------------------------------------------------------------------

    def change_configured(self) -> None:
        """Configured documents that changed since the last run hold from each key's clock on."""
        s = self._s
        for source, text in s.changed.items():
            for b in s.brokers.values():
                k = b.key
                at = int(k["clock_ns"]) if k["has_clock"] else int(k["last_ns"])
                b.documents = {key: p for key, p in b.documents.items() if key != source}
                if text is None:
                    policy = Policy(*source, {}, -1, int(NULL))
                else:
                    policy = policy_of(s.names, s.names.intern_one(text), int(NULL))
                b.apply(policy, at, int(NULL))
                b.fresh.discard(source)
                if text is None:
                    b.documents = {key: p for key, p in b.documents.items() if key != source}
                b.resolve()

    def take_stars(self, records: Records) -> Records:
        """Policies for every broker of a cluster are kept once for all keys of the shard."""
        s = self._s
        everywhere = s.names.intern_one("*")
        star = (records["event_type"] == POLICY) & (records["broker"] == everywhere)
        if not star.any():
            return records
        known = {(x.cluster, x.feed, x.seq, x.policy.wall_ms) for x in s.stars}
        at = np.flatnonzero(star)
        for i in at[np.lexsort((records["source_offset"][at], records["policy_json"][at]))]:
            wall = int(records["ts_wall_ms"][i])
            seq = int(records["seq"][i]) if records["has_seq"][i] else None
            feed, cluster = int(records["source_feed"][i]), int(records["cluster"][i])
            if seq is not None and (cluster, feed, seq, wall) in known:
                if records["home"][i]:
                    self._refused.add(records, np.array([i]), DUPLICATE, [""])
                continue
            known.add((cluster, feed, seq, wall))
            policy = policy_of(s.names, int(records["policy_json"][i]), wall)
            s.stars.append(Star(s.next_star, cluster, policy, feed, seq))
            s.next_star += 1
        return take(records, ~star)

    def forget_stars(self) -> None:
        """A replaced document may go once every key has it behind it and no new key can need
        it."""
        s = self._s
        keep = []
        for star in s.stars:
            replaced = any(
                other.cluster == star.cluster and other.policy.source == star.policy.source
                and star.policy.wall_ms < other.policy.wall_ms <= self._stream_ms
                for other in s.stars
            )
            behind = all(
                star.id in b.applied
                for (cluster, _), b in s.brokers.items()
                if cluster == star.cluster
            )
            if not (replaced and behind):
                keep.append(star)
        s.stars = keep
        ids = {star.id for star in keep}
        for b in s.brokers.values():
            b.applied &= ids

    def pending(self, b: Broker) -> list[Star]:
        """Policies for every broker that a key has not taken yet."""
        cluster = int(b.key["cluster"])
        stars = [x for x in self._s.stars if x.cluster == cluster and x.id not in b.applied]
        return sorted(stars, key=lambda x: (x.policy.wall_ms, x.seq is not None, x.seq or 0))

    # -- admission ---------------------------------------------------------------------------

    def admit(self, records: Records) -> None:
        """Sort new and waiting records by key, refuse what is late or repeated, judge the rest."""
        s = self._s
        fresh = length(records)
        merged = concat([s.waiting, records])
        n = length(merged)
        is_new = np.zeros(n, bool)
        is_new[n - fresh :] = True
        many = np.int64(len(s.names) + 1)
        keys, key = np.unique(merged["cluster"] * many + merged["broker"], return_inverse=True)
        if len(keys) <= np.iinfo(np.int16).max:
            key = key.astype(np.int16)  # numpy sorts these by counting
        left: list[Records] = []
        seen: set[tuple[int, int]] = set()
        starts = np.argsort(key, kind="stable")
        bounds = np.searchsorted(key[starts], np.arange(len(keys) + 1))
        for i, both in enumerate(keys.tolist()):
            pair = (both // int(many), both % int(many))
            seen.add(pair)
            mine = starts[bounds[i] : bounds[i + 1]]
            b = s.brokers.get(pair)
            if b is None:
                b = self.prepare(s.new_broker(*pair))
            waiting = self._judge_key(b, take(merged, mine), is_new[mine])
            if b.key["any"] or b.key["has_clock"] or length(waiting):
                s.brokers[pair] = b
            left.append(waiting)
        for pair, b in s.brokers.items():
            if pair not in seen:
                self._judge_key(b, empty(COLUMNS), np.zeros(0, bool))
        s.waiting = concat(left) if left else empty(COLUMNS)

    def prepare(self, b: Broker) -> Broker:
        """A key before it judges anything in this batch."""
        return b

    def _judge_key(self, b: Broker, r: Records, is_new: Array) -> Records:
        """One key's batch; returns the records that go on waiting."""
        clock, clock_wall = self._begin(b, r, is_new)
        floats = (r["event_type"] == POLICY) & (r["ts_mono_ns"] == NULL)
        starts = r["event_type"] == BROKER_STARTED
        late = is_new & (floats | starts) & _late_by_wall(r, clock_wall)
        if late.any():
            self._refuse_late(b, r, np.flatnonzero(late))
            r, is_new, floats = take(r, ~late), is_new[~late], floats[~late]
        run = order.runs(np.zeros(length(r), np.int64), r)
        time = np.where(r["event_type"] == BROKER_STARTED, order.FIRST, r["ts_mono_ns"])
        old = _of_an_old_run(b, r)
        late = np.zeros(len(time), bool)
        held = np.zeros(len(time), bool)
        if clock is not None:
            checked = (is_new | (r["held"] != 0)) & ~floats
            before = checked & (clocks.is_before(run, time, clock) | old)
            wall = r["ts_wall_ms"]
            held = before & ~old & (wall != NULL) & (wall > clock_wall) & (clock_wall != NULL)
            late = before & ~held
        else:
            late = is_new & ~floats & _late_by_wall(r, clock_wall)
        r["held"] = held.astype(np.int8)
        if late.any():
            self._refuse_late(b, r, np.flatnonzero(late))
            r, run, time = take(r, ~late), run[~late], time[~late]
            floats, held = floats[~late], held[~late]
        aside = take(r, held)
        floating = take(r, floats)
        normal = ~(held | floats)
        if not normal.all():
            r, run, time = take(r, normal), run[normal], time[normal]
        return self._judge_rows(b, r, run, time, floating, aside, clock)

    def _begin(self, b: Broker, r: Records, is_new: Array) -> tuple[Moment | None, int]:
        """The key's clock and its wall time when the batch begins."""
        base: Any = b
        clock, wall = clocks.present(base), int(b.key["clock_wall_ms"])
        if self._stream_ms <= 0:
            return clock, wall
        usable = ~is_new & (r["held"] == 0) & (r["ts_mono_ns"] != NULL)
        old = take(r, usable)
        run = order.runs(np.zeros(length(old), np.int64), old)
        time = np.where(old["event_type"] == BROKER_STARTED, order.FIRST, old["ts_mono_ns"])
        sort = np.lexsort((time, run))
        moved = clocks.by_stream(base, take(old, sort), run[sort], self._stream_ms)
        if moved is not None and (clock is None or moved > clock):
            clock = moved
            wall = max(wall, self._stream_ms)
        if clock is None:
            wall = max(wall, self._stream_ms)
        return clock, wall

    def _refuse_late(self, b: Broker, r: Records, picked: Array) -> None:
        details = []
        latest, stream = int(b.key["latest_ns"]), self._stream_ms
        own = latest - self._lateness_ns if latest != NULL else None
        for i in picked:
            wall, mono = int(r["ts_wall_ms"][i]), int(r["ts_mono_ns"][i])
            by_stream = wall != NULL and stream > wall
            if by_stream and (own is None or mono == NULL or mono >= own):
                needed = stream + self._idle_advance_ms - wall
                details.append(f"idle_advance_ms of {needed} would have kept it")
                self._refused.needed_idle_advance_ms = max(
                    self._refused.needed_idle_advance_ms or 0, needed
                )
            elif own is not None and mono != NULL and mono < own:
                behind = (own - mono + NS_PER_MS - 1) // NS_PER_MS
                details.append(f"{behind} ms before the clock of its key")
            else:
                details.append("before the clock of its key")
        self._refused.add(r, picked, TOO_LATE, details)

    # -- judging -----------------------------------------------------------------------------

    def _judge_rows(
        self, b: Broker, r: Records, run: Array, time: Array, floating: Records, aside: Records,
        begun: Moment | None,
    ) -> Records:
        sort, tied = order.order(
            np.zeros(len(time), np.int64), run, time, r, self._s.names, COLUMNS
        )
        twice = order.repeated(sort, tied, r)
        if len(twice):
            self._refused.add(r, twice, DUPLICATE, [""] * len(twice))
            sort = sort[~np.isin(sort, twice)]
        floating = self._floating(floating)
        r, run, time = take(r, sort), run[sort], time[sort]
        clock = begun
        if len(time):
            base: Any = b
            own = clocks.by_records(base, r, run, time, self._lateness_ns)
            clock = own if clock is None else max(clock, own)
            latest = int(r["ts_mono_ns"][-1])
            b.key["latest_ns"] = max(int(b.key["latest_ns"]), latest) if run[-1] == 0 else latest
        if clock is None:
            return concat([r, floating, aside])
        judged = int(clocks.is_before(run, time, clock).sum())
        floating = self._play(b, r, run, judged, clock, floating)
        rest = take(r, np.arange(judged, len(time)))
        return concat([rest, floating, aside])

    def _floating(self, r: Records) -> Records:
        """Policies that have only a wall time, in order, without repetitions."""
        n = length(r)
        if n < 2:
            return r
        sort = np.lexsort(
            (r["source_offset"], r["policy_json"], r["seq"], r["has_seq"], r["ts_wall_ms"])
        )
        known: set[tuple[int, int, int]] = set()
        twice = []
        for i in sort:
            identity = (int(r["ts_wall_ms"][i]), int(r["seq"][i]), int(r["source_feed"][i]))
            if r["has_seq"][i] and identity in known:
                twice.append(i)
            known.add(identity)
        if twice:
            self._refused.add(r, np.array(twice), DUPLICATE, [""] * len(twice))
        return take(r, sort[~np.isin(sort, twice)])

    def _play(
        self, b: Broker, r: Records, run: Array, judged: int, clock: Moment, floating: Records
    ) -> Records:
        """Judge the first records of a key and move it to its clock; returns the policies that
        wait for their time."""
        names = self._s.names
        rows_ = take(r, np.arange(judged))
        wall = rows_["ts_wall_ms"]
        was_ns, was_wall = int(b.key["clock_ns"]), int(b.key["clock_wall_ms"])
        policies = {
            int(i): policy_of(names, int(rows_["policy_json"][i]), int(wall[i]))
            for i in np.flatnonzero(rows_["event_type"] == POLICY)
        }
        feed = b.feed(rows_)
        timed: list[tuple[int, Policy, int]] = [
            (star.policy.wall_ms, star.policy, -1 - star.id) for star in self.pending(b)
        ]
        timed += [
            (int(w), policy_of(names, int(text), int(w)), i)
            for i, (w, text) in enumerate(
                zip(floating["ts_wall_ms"], floating["policy_json"], strict=True)
            )
        ]
        timed.sort(key=lambda x: (x[0], x[1].scope, x[1].name))
        at = 0
        waiting = set(range(length(floating)))
        next_ns, next_wall = _following(r, run, judged, clock)
        for due, policy, origin in timed:
            done = False
            if not b.key["any"] and not judged:
                continue
            later = np.flatnonzero((wall[at:] != NULL) & (wall[at:] >= due))
            last_wall = int(b.key["last_wall_ms"]) if b.key["any"] else int(NULL)
            if b.key["any"] and at == 0 and last_wall != NULL and last_wall >= due:
                b.apply(policy, max(was_ns, int(b.key["last_ns"])), max(was_wall, last_wall))
                done = True
            elif len(later):
                stop = at + int(later[0])
                b.judge(feed, at, stop, rows_, policies)
                at = stop
                ns = int(feed.mono[stop])
                if b.key["any"] and feed.kind[stop] != BROKER_STARTED:
                    ns = max(min(b.mono_at(due), ns), int(b.key["last_ns"]))
                    b.advance(ns, int(feed.mono[stop]), int(wall[stop]))
                elif b.key["any"]:
                    ns = max(b.mono_at(due), int(b.key["last_ns"]))
                    b.advance(ns, None, int(wall[stop]))
                b.apply(policy, ns, due)
                done = True
            else:
                b.judge(feed, at, judged, rows_, policies)
                at = judged
                ns = b.mono_at(due)
                if next_ns is not None:
                    ns = min(ns, next_ns)
                if b.key["last_wall_ms"] != NULL and ns < clock.ns:
                    ns = max(ns, int(b.key["last_ns"]))
                    b.advance(ns, next_ns, next_wall)
                    b.apply(policy, ns, due)
                    done = True
            if done and origin < 0:
                b.applied.add(-1 - origin)
            elif done:
                waiting.discard(origin)
        b.judge(feed, at, judged, rows_, policies)
        k = b.key
        k["has_clock"], k["clock_ns"] = 1, clock.ns
        if k["any"]:
            # a clock just behind a broker start is no time of its run
            ns = max(clock.ns, int(k["last_ns"]))
            b.advance(ns, next_ns, next_wall)
            k["clock_wall_ms"] = max(int(k["clock_wall_ms"]), b.wall_at(ns, next_wall))
        return take(floating, np.array(sorted(waiting), np.int64))


def _late_by_wall(r: Records, clock_wall: int) -> Array:
    wall = r["ts_wall_ms"]
    return (wall != NULL) & (wall < clock_wall)


def _of_an_old_run(b: Broker, r: Records) -> Array:
    """Records that do not follow the start of the run the key lives in."""
    k = b.key
    if not k["has_run"]:
        return np.zeros(length(r), bool)
    wall, start = r["ts_wall_ms"], k["run_wall_ms"]
    seq = np.where(r["has_seq"] != 0, r["seq"], order.FIRST)
    run_seq = k["run_seq"] if k["run_has_seq"] else order.FIRST
    return np.where((wall != NULL) & (start != NULL), wall < start, seq < run_seq)


def _following(r: Records, run: Array, judged: int, clock: Moment) -> tuple[int | None, int]:
    """Times of the key's next record; the monotonic one only within the run of the clock."""
    if judged >= length(r):
        return None, int(NULL)
    return (
        int(r["ts_mono_ns"][judged]) if run[judged] == clock.run else None,
        int(r["ts_wall_ms"][judged]),
    )
