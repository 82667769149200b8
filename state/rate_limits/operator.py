"""The stateful operator `rate_limits`: publish throttling with attribution (PIP-385, PIP-322).

Key: (cluster, broker). Clock: monotonic. State: limiters, connections, waiting records, policies.
Timers: release tasks, waits for receipts and window ends, driven by event time. Tables:
`throttle_events`, `topic_throttle_stats`, `limiter_stats`, `producer_throttle`, `publish_verdicts`
and its late or repeated records for `quarantine`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine import order
from state.engine.job import Step
from state.engine.records import Records, concat, empty, length, read_blobs, take
from state.engine.refused import DUPLICATE, TOO_LATE, Refused
from state.rate_limits import bucket, clocks, rows
from state.rate_limits import layout as L
from state.rate_limits import shard as shards
from state.rate_limits.broker import Broker, Policy
from state.rate_limits.clocks import Moment
from state.rate_limits.declaration import COLUMNS, NAME
from state.rate_limits.flow import BROKER_STARTED, POLICY
from state.rate_limits.layout import NEVER, NULL, Array
from state.rate_limits.shard import Shard, Star, policy_of
from state.rate_limits.store import new_world

NS_PER_MS = 1_000_000
SWITCHES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tokenbucket": ("tokenbucket", bucket.VERSIONS),
    "release_condition": ("positive", L.RELEASE_CONDITIONS),
    "throttle_tracker": ("shared", L.TRACKERS),
    "limit_change": ("scheduled", L.LIMIT_CHANGES),
    "protocol": ("protocol", L.PROTOCOLS),
    "receipt_model": ("receipt_model", L.RECEIPT_MODELS),
    "broker_reason": ("broker_waits", L.BROKER_REASONS),
    "pause_rule": ("sends_model", L.PAUSE_RULES),
    "repeat_throttle": ("keeps_later", L.REPEAT_THROTTLES),
    "timeout_rule": ("seen_counts", L.TIMEOUT_RULES),
}
"""Version parameters: the field of the key that holds each, and its values."""


class RateLimits:
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    version = shards.VERSION

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ns = int(params["allowed_lateness_ms"]) * NS_PER_MS
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._idle_ns = int(params["idle_state_ms"]) * NS_PER_MS
        self._window_ms = int(params["stats_window_ms"])
        self._verdicts = "publish_verdicts" in params["extra_outputs"]
        self._policies = tuple(policies)
        self._receipt_wait_ms = int(
            params["throttleProducerReceiptWaitTimeMillis"]
        )
        self._switches = {
            field: values.index(params[name])
            for name, (field, values) in SWITCHES.items()
        }

    def step(self, state: bytes | None, blobs: Sequence[bytes], stream_ms: int) -> Step:
        """Judge a batch of one shard; see `state.engine.job`."""
        s = shards.read(state, self._policies) if state else shards.new(self._policies)
        refused = Refused(NAME)
        records = read_blobs(blobs, s.names, COLUMNS)
        self._change_configured(s)
        records = self._take_stars(s, records, refused)
        self._admit(s, records, stream_ms, refused)
        tables: dict[str, list[pa.Table]] = {}
        for broker in s.brokers.values():
            for name, table in rows.of(broker, s.names).items():
                tables.setdefault(name, []).append(table)
        quarantine = refused.table(s.names)
        if quarantine is not None:
            tables["quarantine"] = [quarantine]
        self._forget_stars(s, stream_ms)
        wake = self._wake(s)
        return Step(
            shards.write(s), {name: pa.concat_tables(t) for name, t in tables.items()}, wake,
            refused.needed_idle_advance_ms,
        )

    # -- policies ----------------------------------------------------------------------------

    def _change_configured(self, s: Shard) -> None:
        """Configured documents that changed since the last run hold from each key's clock on."""
        for source, text in s.changed.items():
            for b in s.brokers.values():
                wall = int(b.key["clock_wall_ms"])
                old = b.documents.get(source)
                wall = max(wall, old.wall_ms if old else wall)
                if text is None:
                    policy = Policy(*source, {}, -1, int(NULL))
                else:
                    policy = policy_of(s.names, s.names.intern_one(text), int(NULL))
                at = int(b.key["clock_ns"]) if b.key["has_clock"] else int(b.key["last_ns"])
                b.documents = {key: p for key, p in b.documents.items() if key != source}
                b.apply(policy, at, wall)
                if text is None:
                    b.documents = {k: p for k, p in b.documents.items() if k != source}

    def _take_stars(self, s: Shard, records: Records, refused: Refused) -> Records:
        """Policies for every broker of a cluster are kept once for all keys of the shard."""
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
                    refused.add(records, np.array([i]), DUPLICATE, [""])
                continue
            known.add((cluster, feed, seq, wall))
            policy = policy_of(s.names, int(records["policy_json"][i]), wall)
            s.stars.append(Star(s.next_star, cluster, policy, feed, seq))
            s.next_star += 1
        return take(records, ~star)

    def _forget_stars(self, s: Shard, stream_ms: int) -> None:
        """A replaced document may go once every key has it behind it and no new key can need
        it."""
        keep = []
        for star in s.stars:
            replaced = any(
                other.cluster == star.cluster and other.policy.source == star.policy.source
                and star.policy.wall_ms < other.policy.wall_ms <= stream_ms
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

    def _pending(self, s: Shard, b: Broker) -> list[Star]:
        cluster = int(b.key["cluster"])
        stars = [x for x in s.stars if x.cluster == cluster and x.id not in b.applied]
        return sorted(stars, key=lambda x: (x.policy.wall_ms, x.seq is not None, x.seq or 0))

    # -- admission ---------------------------------------------------------------------------

    def _admit(self, s: Shard, records: Records, stream_ms: int, refused: Refused) -> None:
        """Sort new and waiting records by key, refuse what is late or repeated, judge the rest."""
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
                b = self._new_broker(s, pair)
            waiting = self._judge_key(
                s, b, take(merged, mine), is_new[mine], stream_ms, refused
            )
            if b.key["any"] or b.key["has_clock"] or length(waiting):
                s.brokers[pair] = b
            left.append(waiting)
        for pair, b in s.brokers.items():
            if pair not in seen:
                self._judge_key(
                    s, b, empty(COLUMNS), np.zeros(0, bool), stream_ms, refused
                )
        s.waiting = concat(left) if left else empty(COLUMNS)

    def _new_broker(self, s: Shard, pair: tuple[int, int]) -> Broker:
        b = Broker(new_world(*pair), s.names, s.documents())
        b.key["window_ms"], b.key["idle_ns"] = self._window_ms, self._idle_ns
        return b

    def _judge_key(
        self, s: Shard, b: Broker, r: Records, is_new: Array, stream_ms: int, refused: Refused
    ) -> Records:
        """One key's batch; returns the records that go on waiting."""
        b.key["verdicts"] = self._verdicts
        b.key["idle_ns"], b.key["window_ms"] = self._idle_ns, self._window_ms
        for field_, value in self._switches.items():
            b.key[field_] = value
        b.receipt_wait_ms = self._receipt_wait_ms
        b.set_receipt_wait()
        clock, clock_wall = self._begin(b, r, is_new, stream_ms)
        floats = (r["event_type"] == POLICY) & (r["ts_mono_ns"] == NULL)
        starts = r["event_type"] == BROKER_STARTED
        late = is_new & (floats | starts) & self._late_by_wall(r, clock_wall)
        r, is_new, floats = self._drop_late(b, r, late, is_new, floats, stream_ms, refused)

        same = np.zeros(length(r), np.int64)
        run = order.runs(same, r)
        time = np.where(r["event_type"] == BROKER_STARTED, order.FIRST, r["ts_mono_ns"])
        old = self._of_an_old_run(b, r)
        late = np.zeros(len(time), bool)
        held = np.zeros(len(time), bool)
        if clock is not None:
            checked = (is_new | (r["held"] != 0)) & ~floats
            before = checked & (clocks.is_before(run, time, clock) | old)
            wall = r["ts_wall_ms"]
            held = before & ~old & (wall != NULL) & (wall > clock_wall) & (clock_wall != NULL)
            late = before & ~held
        else:
            late = is_new & ~floats & self._late_by_wall(r, clock_wall)
        r["held"] = held.astype(np.int8)
        keep = ~late
        picked = np.flatnonzero(late)
        if len(picked):
            self._refuse_late(b, r, picked, stream_ms, refused)
            r, run, time = take(r, keep), run[keep], time[keep]
            floats, held = floats[keep], held[keep]
        aside = take(r, held)
        floating = take(r, floats)
        normal = ~(held | floats)
        if not normal.all():
            r, run, time = take(r, normal), run[normal], time[normal]
        return self._judge_rows(s, b, r, run, time, floating, aside, clock, refused)

    def _begin(
        self, b: Broker, r: Records, is_new: Array, stream_ms: int
    ) -> tuple[Moment | None, int]:
        """The key's clock and its wall time when the batch begins."""
        clock, wall = clocks.present(b), int(b.key["clock_wall_ms"])
        if stream_ms <= 0:
            return clock, wall
        usable = ~is_new & (r["held"] == 0) & (r["ts_mono_ns"] != NULL)
        old = take(r, usable)
        run = order.runs(np.zeros(length(old), np.int64), old)
        time = np.where(old["event_type"] == BROKER_STARTED, order.FIRST, old["ts_mono_ns"])
        sort = np.lexsort((time, run))
        moved = clocks.by_stream(b, take(old, sort), run[sort], stream_ms)
        if moved is not None and (clock is None or moved > clock):
            clock = moved
            wall = max(wall, stream_ms)
        if clock is None:
            wall = max(wall, stream_ms)
        return clock, wall

    def _late_by_wall(self, r: Records, clock_wall: int) -> Array:
        wall = r["ts_wall_ms"]
        return (wall != NULL) & (wall < clock_wall)

    def _of_an_old_run(self, b: Broker, r: Records) -> Array:
        """Records that do not follow the start of the run the key lives in."""
        k = b.key
        if not k["has_run"]:
            return np.zeros(length(r), bool)
        wall, start = r["ts_wall_ms"], k["run_wall_ms"]
        seq = np.where(r["has_seq"] != 0, r["seq"], order.FIRST)
        run_seq = k["run_seq"] if k["run_has_seq"] else order.FIRST
        return np.where((wall != NULL) & (start != NULL), wall < start, seq < run_seq)

    def _drop_late(
        self, b: Broker, r: Records, late: Array, is_new: Array, floats: Array, stream_ms: int,
        refused: Refused,
    ) -> tuple[Records, Array, Array]:
        picked = np.flatnonzero(late)
        if not len(picked):
            return r, is_new, floats
        self._refuse_late(b, r, picked, stream_ms, refused)
        return take(r, ~late), is_new[~late], floats[~late]

    def _refuse_late(
        self, b: Broker, r: Records, picked: Array, stream_ms: int, refused: Refused
    ) -> None:
        details = []
        own = int(b.key["latest_ns"]) - self._lateness_ns if b.key["latest_ns"] != NEVER else None
        for i in picked:
            wall, mono = int(r["ts_wall_ms"][i]), int(r["ts_mono_ns"][i])
            by_stream = wall != NULL and stream_ms > wall
            if by_stream and (own is None or mono == NULL or mono >= own):
                needed = stream_ms + self._idle_advance_ms - wall
                details.append(f"idle_advance_ms of {needed} would have kept it")
                refused.needed_idle_advance_ms = max(refused.needed_idle_advance_ms or 0, needed)
            elif own is not None and mono != NULL and mono < own:
                behind = (own - mono + NS_PER_MS - 1) // NS_PER_MS
                details.append(f"{behind} ms before the clock of its key")
            else:
                details.append("before the clock of its key")
        refused.add(r, picked, TOO_LATE, details)

    # -- judging -----------------------------------------------------------------------------

    def _judge_rows(
        self, s: Shard, b: Broker, r: Records, run: Array, time: Array, floating: Records,
        aside: Records, begun: Moment | None, refused: Refused,
    ) -> Records:
        sort, tied = order.order(
            np.zeros(len(time), np.int64), run, time, r, s.names, COLUMNS
        )
        twice = order.repeated(sort, tied, r)
        if len(twice):
            refused.add(r, twice, DUPLICATE, [""] * len(twice))
            sort = sort[~np.isin(sort, twice)]
        floating = self._floating(floating, refused)
        r, run, time = take(r, sort), run[sort], time[sort]
        clock = begun
        if len(time):
            own = clocks.by_records(b, r, run, time, self._lateness_ns)
            clock = own if clock is None else max(clock, own)
            latest = int(r["ts_mono_ns"][-1])
            b.key["latest_ns"] = max(int(b.key["latest_ns"]), latest) if run[-1] == 0 else latest
        if clock is None:
            return concat([r, floating, aside])
        judged = int(clocks.is_before(run, time, clock).sum())
        floating = self._play(s, b, r, run, judged, clock, floating)
        rest = take(r, np.arange(judged, len(time)))
        return concat([rest, floating, aside])

    def _floating(self, r: Records, refused: Refused) -> Records:
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
            refused.add(r, np.array(twice), DUPLICATE, [""] * len(twice))
        return take(r, sort[~np.isin(sort, twice)])

    def _play(
        self, s: Shard, b: Broker, r: Records, run: Array, judged: int, clock: Moment,
        floating: Records,
    ) -> Records:
        """Judge the first records of a key and move it to its clock; returns the policies that
        wait for their time."""
        rows_ = take(r, np.arange(judged))
        wall = rows_["ts_wall_ms"]
        was_ns, was_wall = int(b.key["clock_ns"]), int(b.key["clock_wall_ms"])
        if not b.key["any"] and judged:
            first = int(wall[0])
            held = {}
            for star in self._pending(s, b):
                if first == NULL or star.policy.wall_ms <= first:
                    held[star.policy.source] = star.policy
                    b.applied.add(star.id)
            b.begin({**b.documents, **held})
        policies = {
            int(i): policy_of(s.names, int(rows_["policy_json"][i]), int(wall[i]))
            for i in np.flatnonzero(rows_["event_type"] == POLICY)
        }
        feed = b.feed(rows_)
        timed: list[tuple[int, Policy, int]] = [
            (star.policy.wall_ms, star.policy, -1 - star.id) for star in self._pending(s, b)
        ]
        timed += [
            (int(w), policy_of(s.names, int(text), int(w)), i)
            for i, (w, text) in enumerate(
                zip(floating["ts_wall_ms"], floating["policy_json"], strict=True)
            )
        ]
        timed.sort(key=lambda x: (x[0], x[1].scope, x[1].name))
        at = 0
        waiting = set(range(length(floating)))
        next_ns, next_wall = self._following(r, run, judged, clock)
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

    def _following(
        self, r: Records, run: Array, judged: int, clock: Moment
    ) -> tuple[int | None, int]:
        """Times of the key's next record; the monotonic one only within the run of the clock."""
        if judged >= length(r):
            return None, int(NULL)
        same = run[judged] == clock.run
        return (
            int(r["ts_mono_ns"][judged]) if same else None,
            int(r["ts_wall_ms"][judged]),
        )

    # -- timers ------------------------------------------------------------------------------

    def _wake(self, s: Shard) -> int | None:
        """The first wall time of the stream at which this shard would do something by itself."""
        times = []
        wall = s.waiting["ts_wall_ms"]
        known = wall[wall != NULL]
        if len(known):
            times.append(int(known.min()))
        for b in s.brokers.values():
            k = b.key
            if not k["any"] or k["last_wall_ms"] == NULL:
                continue
            if k["timers"]:
                after = (int(b.world.timers[0]["due_ns"]) - int(k["last_ns"])) // NS_PER_MS
                times.append(int(k["last_wall_ms"]) + after - 1)
            if k["touched"] or k["paused_cnxs"]:
                times.append(int(k["window_start_ms"]) + int(k["window_ms"]) - 1)
            times += [x.policy.wall_ms for x in self._pending(s, b)]
        return max(min(times), 0) if times else None
