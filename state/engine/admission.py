"""Order and lateness for jobs on the monotonic clock (event contract, section 2).

Every key has a clock. Records before the clock are judged, the others wait. A new record before the
clock at the beginning of its batch is refused. Records are handled by position until they are
judged, refused or kept waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from state.engine import clocks, cluster_policies, distances, order
from state.engine.clocks import NS_PER_MS, Moment
from state.engine.kernel import NULL, Array, Record
from state.engine.key import Key, Pair
from state.engine.mono_shard import Shard
from state.engine.order import BROKER_STARTED, FIRST
from state.engine.play import play
from state.engine.reach import Reach
from state.engine.records import STILL, Records, after, length, take
from state.engine.refused import Refused
from state.engine.sequence import POLICY
from state.events import DUPLICATE, OUT_OF_RANGE, TOO_LATE

_NOTHING = np.zeros(0, np.int64)


class _Rows(NamedTuple):
    """Records of one key: where they are, their run and time in it, and their columns."""

    at: Array
    run: Array
    time: Array
    mono: Array
    wall: Array

    def picked(self, by: Array) -> _Rows:
        """These records by position, or under a mask."""
        return _Rows(*(column[by] for column in self))


class Admission:
    """The records of one batch of a shard, sorted by key and judged up to the clocks."""

    def __init__(
        self,
        s: Shard[Any],
        records: Records,
        mine: Array,
        reach: Reach,
        lateness_ns: int,
        idle_advance_ms: int,
        clock_skew_ms: int,
        refused: Refused,
    ) -> None:
        """`mine`: the records of single keys (bool); others are passed over."""
        self._s, self._reach, self._refused = s, reach, refused
        self._lateness_ns, self._idle_advance_ms = lateness_ns, idle_advance_ms
        self._clock_skew_ms = clock_skew_ms
        self._moved_ms = 0
        known = length(s.waiting)
        self._r = after(s.waiting, records)
        self._is_new = np.arange(length(self._r)) >= known
        self._mine = np.flatnonzero(np.concatenate([np.ones(known, bool), mine]))

    # -- admission ---------------------------------------------------------------------------

    def admit(self) -> None:
        """Sort new and waiting records by key, refuse late and repeated ones, and judge the rest up
        to the clocks.
        """
        s, left, seen = self._s, [_NOTHING], set()
        for pair, at in self._by_key():
            seen.add(pair)
            b, changed = self._with_its_clock(s.open(pair), at)
            waiting = self._judge_key(b, at, changed)
            if b.key["any"] or b.key["has_clock"] or len(waiting):
                s.keys[pair] = b
            left.append(waiting)
        without = [pair for pair in s.keys if pair not in seen]
        resting = s.resting(self._reach, self._idle_advance_ms) if without else set()
        for pair in without:
            found = s.keys[pair]
            if pair not in resting or isinstance(found, Key) or cluster_policies.pending(s, found):
                self._judge_key(s.open(pair), _NOTHING)
        s.waiting = take(self._r, np.concatenate(left))

    def _by_key(self) -> Iterator[tuple[Pair, Array]]:
        """Keys of the records, and the positions of their records."""
        many = len(self._s.names) + 1
        mine = self._mine
        both = self._r["cluster"][mine] * many + self._r["broker"][mine]
        if not len(both):
            return
        if (both == both[0]).all():
            yield divmod(int(both[0]), many), mine
            return
        keys, key = np.unique(both, return_inverse=True)
        if len(keys) <= np.iinfo(np.int16).max:
            key = key.astype(np.int16)  # numpy sorts these by counting
        starts = np.argsort(key, kind="stable")
        bounds = np.searchsorted(key[starts], np.arange(len(keys) + 1)).tolist()
        for i, one in enumerate(keys.tolist()):
            yield divmod(one, many), mine[starts[bounds[i] : bounds[i + 1]]]

    def _judge_key(self, b: Key, at: Array, changed: bool = False) -> Array:
        """Judge the records of one key; returns those that keep waiting. `changed`: it has begun
        anew."""
        k, r = b.key, self._r
        self._moved_ms = int(self._reach.moved(k, "latest_wall_ms", self._idle_advance_ms))
        for name, value in self._s.parameters.items():
            k[name] = value
        self._s.prepare(b)
        kind, mono, wall = (r[c][at] for c in ("event_type", "ts_mono_ns", "ts_wall_ms"))
        fresh, held = self._is_new[at], r["held"][at] != 0
        starts = kind == BROKER_STARTED
        usable = ~fresh & ~held & (mono != NULL)
        clock, clock_wall = self._begin(k, at, mono, wall, starts, usable)
        if not len(at):
            rows = _Rows(at, at, at, at, at)
            return at if clock is None else self._judge_rows(b, rows, at, at, clock, changed)
        floats = (kind == POLICY) & (mono == NULL)
        by_wall = (wall != NULL) & (wall < clock_wall)
        late = fresh & (floats | starts) & by_wall
        if late.any():
            self._refuse_late(k, at[late])
            at, mono, wall, fresh, held, starts, floats, by_wall = (
                x[~late] for x in (at, mono, wall, fresh, held, starts, floats, by_wall)
            )
        run, time = self._run_and_time(at, mono, starts)
        if clock is not None:
            old = self._of_an_old_run(k, at, wall)
            before = (fresh | held) & ~floats & (clocks.is_before(run, time, clock) | old)
            held = before & ~old & (wall != NULL) & (wall > clock_wall) & (clock_wall != NULL)
            late = before & ~held
        else:
            held = np.zeros(len(at), bool)
            late = fresh & ~floats & by_wall
        r["held"][at] = held
        if late.any():
            self._refuse_late(k, at[late])
        aside, floating = at[held], at[floats]
        rows, normal = _Rows(at, run, time, mono, wall), ~(held | floats | late)
        if not normal.all():
            rows = rows.picked(normal)
        return self._judge_rows(b, rows, floating, aside, clock, changed)

    def _run_and_time(self, at: Array, mono: Array, starts: Array) -> tuple[Array, Array]:
        """The broker's run and the time in it, of the records of one key."""
        zero = np.zeros(len(at), np.int64)
        if not starts.any():
            return zero, mono
        columns = ("event_type", "ts_wall_ms", "has_seq", "seq")
        return (
            order.runs(zero, Records.of({name: self._r[name][at] for name in columns})),
            np.where(starts, FIRST, mono),
        )

    def _begin(
        self, k: Record, at: Array, mono: Array, wall: Array, starts: Array, usable: Array
    ) -> tuple[Moment | None, int]:
        """The key's clock and its wall time at the beginning of the batch."""
        clock, clock_wall = clocks.present(k), int(k["clock_wall_ms"])
        moved_ms = self._moved_ms
        if moved_ms <= 0:
            return clock, clock_wall
        mono, wall = mono[usable], wall[usable]
        run, time = self._run_and_time(at[usable], mono, starts[usable])
        sort = np.lexsort((time, run))
        moved = clocks.by_stream(k, run[sort], mono[sort], wall[sort], moved_ms)
        if moved is not None and (clock is None or moved > clock):
            clock = moved
            clock_wall = max(clock_wall, moved_ms)
        if clock is None:
            clock_wall = max(clock_wall, moved_ms)
        return clock, clock_wall

    def _of_an_old_run(self, k: Record, at: Array, wall: Array) -> Array:
        """Records from before the start of the run that the key is in."""
        if not k["has_run"]:
            return np.zeros(len(at), bool)
        start = k["run_wall_ms"]
        seq = np.where(self._r["has_seq"][at] != 0, self._r["seq"][at], FIRST)
        run_seq = k["run_seq"] if k["run_has_seq"] else FIRST
        return np.where((wall != NULL) & (start != NULL), wall < start, seq < run_seq)

    def _refuse_late(self, k: Record, picked: Array) -> None:
        details = []
        latest, stream = int(k["latest_ns"]), self._moved_ms
        own = latest - self._lateness_ns if latest != NULL else None
        for i in picked:
            wall, mono = int(self._r["ts_wall_ms"][i]), int(self._r["ts_mono_ns"][i])
            by_stream = wall != NULL and stream > wall
            if by_stream and (own is None or mono == NULL or mono >= own):
                needed = stream + self._idle_advance_ms - wall
                details.append(f"idle_advance_ms of {needed} would have kept it")
                self._refused.needs(needed)
            elif own is not None and mono != NULL and mono < own:
                behind = (own - mono + NS_PER_MS - 1) // NS_PER_MS
                details.append(f"{behind} ms before the clock of its key")
            else:
                details.append("before the clock of its key")
        self._refused.add(self._r, picked, TOO_LATE, details)

    def _refuse_strange(self, picked: Array) -> None:
        self._refused.add(
            self._r,
            picked,
            OUT_OF_RANGE,
            [
                f"ts_mono_ns and ts_wall_ms are further from where those of its broker stand than"
                f" clock_skew_ms: {self._clock_skew_ms}"
            ]
            * len(picked),
        )

    def _with_its_clock(self, b: Key, at: Array) -> tuple[Key, bool]:
        """The key under the monotonic clock of most of its records. Where they say that it was
        another and lies behind it, the key begins anew with its documents, as after a gap without
        a beginning; whether it does."""
        r, k = self._r, b.key
        if self._clock_skew_ms >= clocks.ENDLESS_MS:
            return b, False
        kind, mono, wall = (r[c][at] for c in ("event_type", "ts_mono_ns", "ts_wall_ms"))
        known = (mono != NULL) & (wall != NULL)
        if (kind == BROKER_STARTED).any() or not (known & self._is_new[at]).any():
            return b, False
        new = self._is_new[at][known]
        behind = distances.change(k, mono[known], wall[known], new, self._clock_skew_ms)
        if not behind:
            return b, False
        pair = int(k["cluster"]), int(k["broker"])
        fresh = self._s.new_key(pair, b.documents)
        fresh.applied = b.applied
        return fresh, True

    def _note_plan(self, k: Record, at: Array) -> None:
        """Keep the plan of the last batch with a record of the key."""
        new = at[self._is_new[at]]
        if len(new):
            k["plan_ms"] = max(int(k["plan_ms"]), int(self._r["ingest_ms"][new].max()))

    # -- judging -----------------------------------------------------------------------------

    def _judge_rows(
        self,
        b: Key,
        rows: _Rows,
        floating: Array,
        aside: Array,
        clock: Moment | None,
        changed: bool,
    ) -> Array:
        rows = rows.picked(self._ordered(rows.at, rows.run, rows.time))
        floating = self._floating(floating)
        k, still = b.key, self._r["home"][rows.at] & STILL != 0
        if self._clock_skew_ms < clocks.ENDLESS_MS:
            strange = distances.strange(
                k, rows.run, rows.mono, rows.wall, still, self._clock_skew_ms
            )
            strange &= self._is_new[rows.at] | changed
            if strange.any():
                self._refuse_strange(rows.at[strange])
                rows, still = rows.picked(~strange), still[~strange]
            distances.vouch(k, int(np.count_nonzero(self._is_new[rows.at])))
        moving = rows if not still.any() else rows.picked(~still)
        if len(moving.at):
            own = clocks.by_records(k, moving.run, moving.mono, moving.wall, self._lateness_ns)
            clock = own if clock is None else max(clock, own)
            latest = int(moving.mono[-1])
            if moving.run[-1] or latest >= k["latest_ns"]:
                k["latest_ns"], k["latest_wall_ms"] = latest, moving.wall[-1]
        self._note_plan(k, moving.at if len(moving.at) or k["plan_ms"] != NULL else rows.at)
        at, run, time, mono, wall = rows
        if clock is None:
            return np.concatenate([at, floating, aside])
        judged = int(np.count_nonzero(clocks.is_before(run, time, clock)))
        next_ns, next_wall = None, int(NULL)
        if judged < len(at):
            # the monotonic one only within the run of the clock
            next_ns = int(mono[judged]) if run[judged] == clock.run else None
            next_wall = int(wall[judged])
        floating = play(self._s, b, self._r, at[:judged], clock, next_ns, next_wall, floating)
        return np.concatenate([at[judged:], floating, aside])

    def _ordered(self, at: Array, run: Array, time: Array) -> Array:
        """The order of records of one key, without repeated ones."""
        if not (run != run[:1]).any() and (time[1:] > time[:-1]).all():
            return np.arange(len(at))
        r, zero = self._r, np.zeros(len(at), np.int64)
        sort, tied = order.order(zero, run, time, r, at, self._s.names, self._s.form.columns)
        twice = order.repeated(sort, tied, r, at)
        if not len(twice):
            return sort
        self._refused.add(r, at[twice], DUPLICATE, [""] * len(twice))
        return sort[~np.isin(sort, twice)]

    def _floating(self, at: Array) -> Array:
        """Policies that have only a wall time, in order, without repetitions."""
        if len(at) < 2:
            return at
        r = self._r
        levels = ("source_offset", "policy_json", "seq", "has_seq", "ts_wall_ms")
        at = at[np.lexsort([r[name][at] for name in levels])]
        known: set[tuple[int, int, int]] = set()
        twice = np.zeros(len(at), bool)
        for n, i in enumerate(at):
            identity = (int(r["ts_wall_ms"][i]), int(r["seq"][i]), int(r["source_feed"][i]))
            twice[n] = r["has_seq"][i] and identity in known
            known.add(identity)
        if twice.any():
            self._refused.add(r, at[twice], DUPLICATE, [""] * int(twice.sum()))
        return at[~twice]
