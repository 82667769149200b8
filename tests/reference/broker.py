"""One key of `rate_limits`, record by record: sections 2, 4 to 6, 9 and 10 of the specification."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.reference.bucket import BUCKETS, LARGEST, RESOLUTION_NS
from tests.reference.client import Client, Command
from tests.reference.connection import (
    BROKER,
    BUFFER,
    CLASSES,
    GROUP,
    IN_FLIGHT,
    LIMITERS,
    NUMBERS,
    REASONS,
    TOPIC,
    UNKNOWN,
    Connection,
    Mark,
    Producer,
    TopicStats,
)
from tests.reference.exchange import (
    NOT_SUPPORTED,
    RECEIVED,
    TIMED_OUT,
    WAITING,
    blocks_reads,
    state_at_mark,
    waits_for_receipt,
)
from tests.reference.limiter import Balances, Limiter, Place
from tests.reference.order import Record
from tests.reference.policies import Policies, is_the_brokers, partition_of, source_of
from tests.reference.switches import switches
from tests.reference.tracker import TRACKERS
from tests.reference.two_clocks import NS_PER_MS, TwoClocks
from tests.reference.usage import Name, Usage, columns, order

NONE: tuple[None, None] = (None, None)
Row = dict[str, Any]
Action = Callable[[int, int | None], bool | None]
"""What a timer does, called with both clocks; False if it has done nothing."""


class Broker(TwoClocks):
    """State of one (cluster, broker); `rows` is what it has written, by table."""

    def __init__(self, cluster: str, broker: str, params: Mapping[str, Any]) -> None:
        self._names = {"cluster": cluster, "broker": broker}
        self._window_ms = params["stats_window_ms"]
        self._switches = switches(params)
        self._bucket_kind = BUCKETS[self._switches["tokenbucket"]]
        self._corrects = (
            self._switches["observed_pauses"] == "correct" and self._switches["protocol"] == "none"
        )
        self._observed_wait_ns = params["observed_wait_ms"] * NS_PER_MS
        self._forget_ns = params["idle_state_ms"] * NS_PER_MS
        self._idle_ns: int | None = None
        if self._switches["tokenbucket"] == "saturating":
            self._idle_ns = self._forget_ns
        self._verdicts = "publish_verdicts" in params["extra_outputs"]
        self.rows: dict[str, list[Row]] = {
            "throttle_events": [],
            "topic_throttle_stats": [],
            "limiter_stats": [],
            "producer_throttle": [],
            "publish_verdicts": [],
        }
        self._numbers: dict[str, tuple[int, int]] = {}
        self.policies = Policies(broker)
        self._window_start = 0
        self._stats: dict[str, TopicStats] = {}
        self._usage: dict[tuple[str, Name], Usage] = {}
        self._openings = 0
        self._names_of: dict[Producer, str | None] = {}
        self._marks = 0
        self._new_run()

    def _new_run(self) -> None:
        self._limiters: dict[tuple[str, str], Limiter] = {}
        self._topic_used: dict[str, int] = {}
        self._cnxs: dict[str, Connection] = {}
        self._flights: list[tuple[str, str]] = []
        self._limited_threads: set[int] = set()
        self._timers: list[tuple[int, int, Action]] = []
        self._timers_made = 0
        self._acted: int | None = None
        """When a timer or a policy did something after the last record."""

    # -- time --------------------------------------------------------------------------------

    def advance(self, to_ns: int, next_record: Record | None) -> None:
        """Timers that are due before a moment, windows that end up to it."""
        while True:
            due = min((t for t in self._timers if t[0] < to_ns), key=lambda t: t[:2], default=None)
            if due is None:
                break
            at = due[0] + 1
            wall = self.wall_at(at, next_record)
            self._end_windows(at, wall, next_record)
            self._timers.remove(due)
            if due[2](at, wall) is not False:
                self._acted = at
        if self.last is not None:
            self._end_windows(to_ns, self.wall_at(to_ns, next_record), next_record)

    def _set_timer(self, due: int, action: Action) -> None:
        self._timers_made += 1
        self._timers.append((min(due, LARGEST), self._timers_made, action))

    def _end_windows(self, ns: int, wall: int | None, next_record: Record | None) -> None:
        clock = ns // NS_PER_MS if wall is None else wall
        while clock >= self._window_start + self._window_ms:
            end = self._window_start + self._window_ms
            assert self.last is not None
            at = end * NS_PER_MS if self.last["ts_wall_ms"] is None else self.ns_at(end)
            if next_record is not None:
                at = min(at, next_record["ts_mono_ns"])
            for cnx in self._cnxs.values():
                cnx.settle(at, self._stats)
            shown = None if self.last["ts_wall_ms"] is None else end
            for no, topic in enumerate(sorted(self._stats, key=str.encode)):
                self._window_row(topic, self._stats[topic], at, shown, no)
            paused = any(cnx.paused for cnx in self._cnxs.values())
            if self._stats or paused:
                self._usage_rows(at, shown)
            self._stats = {}
            self._begin_usage()
            if paused:
                self._window_start = end
            else:
                self._window_start = max(end, clock // self._window_ms * self._window_ms)

    def _window_row(self, topic: str, s: TopicStats, ns: int, wall: int | None, no: int) -> None:
        assert self.last is not None
        (msgs, size), _ = self.policies.topic(topic)
        self.rows["topic_throttle_stats"].append(
            {
                **self._names,
                "ts_mono_ns": ns,
                "ts_wall_ms": wall,
                "source_feed": self.last["source_feed"],
                "row_no": no,
                "rule": "window",
                "topic": topic,
                "window_start_ms": self._window_start,
                "window_ms": self._window_ms,
                "limited_times": sum(s.limited.values()),
                **{f"{kind}_times": s.times[kind] for kind in CLASSES},
                **{f"{kind}_ns": s.paused_ns[kind] for kind in CLASSES},
                "by_reason": sorted(s.by_reason.items()),
                "messages": s.messages,
                "bytes": s.bytes,
                "limit_msgs": float(msgs) if msgs > 0 else None,
                "limit_bytes": float(size) if size > 0 else None,
                "limited_by_limiter": sorted(s.limited.items()),
                "resource_group": self.policies.group_of(topic),
            }
        )

    # -- use of limiters ---------------------------------------------------------------------

    def _usage_of(self, limiter: str, name: Name) -> Usage:
        return self._usage.setdefault((limiter, name), Usage())

    def _begin_usage(self) -> None:
        """A window begins with the producers that wait and the levels that are there."""
        self._usage = {}
        for limiter in self._limiters.values():
            if limiter.queue:
                self._usage_of(LIMITERS[limiter.kind], limiter.name).wait(len(limiter.queue))
        for cnx in self._cnxs.values():
            self._note_levels(cnx)

    def _note_levels(self, cnx: Connection) -> None:
        self._usage_of("connection", cnx.name).level(cnx.in_flight)
        self._note_thread(cnx.thread)

    def _note_thread(self, thread: int | None) -> None:
        if thread is not None:
            self._usage_of("io_thread", thread).level(self._buffered(thread))

    def _limits_of(self, limiter: str, name: Name) -> tuple[tuple[int, int], int]:
        """Rates and level limit by the policies in force."""
        if limiter == "topic":
            return self.policies.topic(str(name))[0], 0
        if limiter == "resource_group":
            return self.policies.group(str(name)), 0
        if limiter == "broker":
            return self.policies.broker()[0], 0
        if limiter == "connection":
            return (0, 0), self.policies.in_flight()
        return (0, 0), self.policies.buffer_share()

    def _usage_rows(self, ns: int, wall: int | None) -> None:
        assert self.last is not None
        no = 0
        for limiter, name in sorted(self._usage, key=lambda key: order(*key)):
            usage = self._usage[limiter, name]
            rates, level = self._limits_of(limiter, name)
            if not usage.is_shown or not (level > 0 or any(rate > 0 for rate in rates)):
                continue
            self.rows["limiter_stats"].append(
                {
                    **self._names,
                    "ts_mono_ns": ns,
                    "ts_wall_ms": wall,
                    "source_feed": self.last["source_feed"],
                    "row_no": no,
                    "rule": "window",
                    "window_start_ms": self._window_start,
                    "window_ms": self._window_ms,
                    "limiter": limiter,
                    "limiter_name": str(name),
                    **columns(limiter, usage, rates, level, self._window_ms),
                }
            )
            no += 1

    # -- records -----------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """Carry out the next record of the key."""
        ns, wall = record["ts_mono_ns"], record["ts_wall_ms"]
        if record["event_type"] == "broker_started":
            self._restart(record)
            return
        if self.last is None:
            self._begin(record)
        else:
            self.advance(ns, record)
            self._end_windows(ns, wall, record)
        before, self.last = self.last, record
        if record["event_type"] != "gap":
            self._acted = None
        if record["event_type"] == "gap":
            self._lose_sight(record, before)
            return
        if record["event_type"] == "policy":
            self.apply(json.loads(record["policy_json"]), ns, wall, record)
            return
        handle = getattr(self, "_on_" + record["event_type"], None)
        if handle is not None:
            handle(record, ns, wall)

    def _begin(self, record: Record) -> None:
        ns, wall = record["ts_mono_ns"], record["ts_wall_ms"]
        clock = ns // NS_PER_MS if wall is None else wall
        self._window_start = clock // self._window_ms * self._window_ms
        self._limiter("broker", "").use(ns)

    def _restart(self, record: Record) -> None:
        ns, wall = record["ts_mono_ns"], record["ts_wall_ms"]
        if self.last is None:
            self._begin(record)
        else:
            before = self.last["ts_mono_ns"]
            if wall is not None:
                before = max(before, self.ns_at(wall))
            cap = {**record, "ts_mono_ns": before}
            self.advance(before, cap)
            for name in list(self._cnxs):
                self._close(name, ns, before, wall, record["source_feed"])
            self._new_run()
            self._limiter("broker", "").use(ns)
        self.last = record

    def _lose_sight(self, record: Record, before: Record | None) -> None:
        """The connections may be others, the buckets may have any balance: all begin anew. Marks
        were seen until the first record that is missing."""
        ns = seen = record["ts_mono_ns"]
        if before is not None:
            began = record.get("gap_from_mono_ns")
            seen = before["ts_mono_ns"] if self._acted is None else self._acted
            seen = seen if began is None else max(seen, min(began, ns))
        self._seen_until = seen
        for name in list(self._cnxs):
            self._close(name, ns, seen, record["ts_wall_ms"], record["source_feed"], "gap")
        self._new_run()
        self._limiter("broker", "").use(ns)

    def _on_connection_opened(self, r: Record, ns: int, wall: int | None) -> None:
        cnx = self._connect(r["cnx_id"])
        before, cnx.thread = cnx.thread, r.get("io_thread")
        cnx.supports_throttle = bool(r.get("supports_throttle"))
        self._note_thread(before)
        self._note_levels(cnx)
        if r.get("reports_pauses") and self._corrects and not cnx.paused:
            self._observe(cnx)

    def _on_connection_closed(self, r: Record, ns: int, wall: int | None) -> None:
        if r["cnx_id"] in self._cnxs:
            self._close(r["cnx_id"], ns, ns, wall, r["source_feed"])

    def _on_producer_created(self, r: Record, ns: int, wall: int | None) -> None:
        self._open_producer(r, ns)
        self._stats.setdefault(r["topic"], TopicStats())
        for limiter in self._limiters_of(r["topic"]):
            if limiter is not None:
                limiter.use(ns)

    def _on_producer_closed(self, r: Record, ns: int, wall: int | None) -> None:
        cnx = self._cnxs.get(r["cnx_id"])
        p = Producer(r["cnx_id"], r["topic"], r["producer_id"])
        if cnx is not None and p in cnx.producers:
            cnx.settle(ns, self._stats)
            del cnx.producers[p]
            if p.topic not in cnx.topics:
                cnx.charged.pop(p.topic, None)
            self._stats.setdefault(r["topic"], TopicStats())

    def _on_publish(self, r: Record, ns: int, wall: int | None) -> None:
        p = self._open_producer(r, ns)
        messages = 1 if r.get("num_messages") is None else r["num_messages"]
        size = r["entry_bytes"]
        s = self._stats.setdefault(p.topic, TopicStats())
        s.messages += messages
        s.bytes += size
        cnx = self._cnxs[p.cnx]
        cnx.publishes += 1
        cnx.charged[p.topic] = cnx.publishes, p
        self._start_request(p, size, ns, wall, r["source_feed"])
        of_topic, of_group = self._limiters_of(p.topic)
        of_broker = None if is_the_brokers(p.topic) else self._limiter("broker", "")
        for limiter in (of_topic, of_broker, of_group):
            if limiter is not None and limiter.has_limit:
                self._charge(limiter, p, messages, size, ns, wall, r["source_feed"])
            elif limiter is not None and limiter.kind != BROKER:
                limiter.use(ns)

    def _on_publish_digest(self, r: Record, ns: int, wall: int | None) -> None:
        """Charged at its end, where no limiter acts; nothing is in flight."""
        p = self._open_producer(r, ns)
        amounts = r["num_messages"], r["entry_bytes"]
        s = self._stats.setdefault(p.topic, TopicStats())
        s.messages += amounts[0]
        s.bytes += amounts[1]
        cnx = self._cnxs[p.cnx]
        cnx.publishes += 1
        cnx.charged[p.topic] = cnx.publishes, p
        of_topic, of_group = self._limiters_of(p.topic)
        of_broker = None if is_the_brokers(p.topic) else self._limiter("broker", "")
        for limiter in (of_topic, of_broker, of_group):
            if limiter is not None:
                limiter.charge(*amounts, ns)
                if limiter.has_limit:
                    self._usage_of(LIMITERS[limiter.kind], limiter.name).charge(*amounts, NONE)

    def _on_entry_added(self, r: Record, ns: int, wall: int | None) -> None:
        named = r.get("cnx_id")
        found = next(
            (f for f in self._flights if f[1] == r["topic"] and named in (None, f[0])), None
        )
        if found is None:
            return
        self._flights.remove(found)
        cnx = self._cnxs[found[0]]
        cnx.in_flight -= 1
        cnx.buffered -= r["entry_bytes"]
        if IN_FLIGHT in cnx.flags and cnx.in_flight <= cnx.resume_at:
            self._model_end(cnx, IN_FLIGHT, "in_flight_half", ns, ns, wall, r["source_feed"])
        self._look_at_thread(cnx.thread, ns, ns, wall, r["source_feed"])

    def _on_reads_paused(self, r: Record, ns: int, wall: int | None) -> None:
        cnx = self._cnxs.get(r["cnx_id"])
        if cnx is None:
            return
        if not self._corrects:
            cnx.seen_paused, cnx.seen_resumed = ns, None
            return
        self._observe(cnx)
        if cnx.stopped:
            cnx.seen_paused = ns if cnx.seen_paused is None else cnx.seen_paused
        elif cnx.stop(ns, self._stats):
            self._join(cnx, ns, wall, r["source_feed"])
        else:
            self._mark_nearest(cnx, ns, wall, r["source_feed"])

    # -- observed pauses: section 8a ---------------------------------------------------------

    def _observe(self, cnx: Connection) -> None:
        """Its pauses are reported from now on; one of the model may last."""
        if not cnx.observed:
            stopped = cnx.paused
            cnx.observed, cnx.stopped = True, stopped
            cnx.seen_paused = cnx.seen_resumed = None

    def _join(self, cnx: Connection, ns: int, wall: int | None, feed: str) -> None:
        """Rule 2: the marks since the last resume; a row for each limiter."""
        first = cnx.marks[0]
        usage = self._usage_of_mark(cnx, first)
        usage.observed += 1
        usage.predicted += 1
        done = set()
        for mark in cnx.marks:
            if (mark.kind, mark.limiter_name) not in done:
                done.add((mark.kind, mark.limiter_name))
                change = "ConnectionStateChanged" if mark is first else "TypeStateChanged"
                limiter = next(
                    (
                        x
                        for x in self._limiters.values()
                        if (x.kind, x.name) == (mark.kind, mark.limiter_name)
                    ),
                    None,
                )
                balances, pause = limiter.peek(ns) if limiter is not None else (NONE, None)
                self._event(
                    cnx,
                    mark,
                    "pause",
                    change,
                    "mark_observed",
                    ns,
                    wall,
                    feed,
                    limiter=limiter,
                    balances=balances,
                    pause=pause,
                )

    def _usage_of_mark(self, cnx: Connection, mark: Mark) -> Usage:
        name: Name | None = cnx.thread if mark.kind == BUFFER else mark.limiter_name
        assert name is not None
        return self._usage_of(LIMITERS[mark.kind], name)

    def _mark_nearest(self, cnx: Connection, ns: int, wall: int | None, feed: str) -> None:
        """Rule 3: of what was charged since the last resume, what is nearest to acting."""
        found: list[tuple[float, int, int, Producer, str, Limiter | None, int]] = []
        in_flight, share = self.policies.in_flight(), self.policies.buffer_share()
        for topic, (number, p) in cnx.charged.items():
            if in_flight > 0:
                room = 1.0 - cnx.in_flight / in_flight
                found.append((room, 0, -number, p, IN_FLIGHT, None, 0))
            if cnx.thread is not None and share > 0:
                room = 1.0 - self._buffered(cnx.thread) / share
                found.append((room, 1, -number, p, BUFFER, None, 0))
            of_topic, of_group = self._limiters_of(topic)
            of_broker = None if is_the_brokers(topic) else self._limiter("broker", "")
            for rank, limiter in enumerate((of_topic, of_broker, of_group), 2):
                if limiter is None or not limiter.has_bucket or limiter.used is None:
                    continue
                if ns - limiter.used < self._forget_ns:
                    room, bucket = limiter.room(ns)
                    found.append((room, rank, -number, p, limiter.kind, limiter, bucket))
        if not found:
            unknown = Mark(UNKNOWN, None, None, None)
            self._mark(cnx, unknown, "observed_pause", ns, wall, feed)
            return
        _, _, _, p, kind, limiter, bucket = min(found, key=lambda x: x[:3])
        if limiter is None:
            if kind == IN_FLIGHT:
                cnx.resume_at = in_flight // 2
            self._flag(cnx, kind, "observed_pause", p, p.topic, ns, wall, feed)
            self._usage_of_mark(cnx, cnx.flags[kind]).observed += 1
            return
        balances = [b.read_for_pause(ns) if b is not None else None for b in limiter.buckets]
        emptied = limiter.buckets[bucket]
        assert emptied is not None and balances[bucket] is not None
        emptied.tokens -= balances[bucket]
        balances[bucket] = 0
        self._queue(limiter, p, "observed_pause", balances, ns, wall, feed)
        self._usage_of(LIMITERS[kind], limiter.name).observed += 1

    def _resume(self, cnx: Connection, ns: int, wall: int | None, feed: str) -> None:
        """Rule 1: all marks end; a release has found what it waits for."""
        least = (
            1
            if (
                self._switches["release_condition"] == "positive"
                or self._switches["tokenbucket"] == "per_tick"
            )
            else None
        )
        for kind in (IN_FLIGHT, BUFFER, UNKNOWN):
            if kind in cnx.flags:
                self._end_flag(cnx, kind, "observed_resume", ns, ns, wall, feed)
        for place, limiter in self._places_of(cnx):
            limiter.read_for_pause(ns)
            balances = limiter.give(least, ns)
            limiter.queue.remove(place)
            self._unmark(limiter, place.mark, balances, "observed_resume", ns, ns, wall, feed)
        cnx.stopped, cnx.seen_paused, cnx.charged = False, None, {}

    def _is_overdue(self, cnx: Connection, mark: Mark, ns: int) -> bool:
        """No pause was reported for a mark in the time for it."""
        return not cnx.stopped and ns > mark.ns + self._observed_wait_ns

    def _await_pause(self, cnx: Connection, ns: int) -> None:
        """One look at a time: at the first mark whose time has not come."""
        cnx.looks += 1
        cnx.awaits_look = True
        self._set_timer(ns + self._observed_wait_ns, partial(self._look, cnx, cnx.looks))

    def _look(self, cnx: Connection, number: int, ns: int, wall: int | None) -> bool:
        """Rule 4."""
        if cnx.closed or number != cnx.looks:
            return False
        cnx.awaits_look = False
        if cnx.stopped:
            return False
        assert self.last is not None
        feed, acted = self.last["source_feed"], False
        later = []
        for kind in (IN_FLIGHT, BUFFER):
            if kind not in cnx.flags:
                continue
            if not self._is_overdue(cnx, cnx.flags[kind], ns):
                later.append(cnx.flags[kind].ns)
            elif self._has_ended(cnx, kind):
                acted = True
                self._end_flag(cnx, kind, "not_observed", ns, ns, wall, feed)
        for place, limiter in self._places_of(cnx):
            if not self._is_overdue(cnx, place.mark, ns):
                later.append(place.mark.ns)
            elif place.ended:
                acted = True
                balances = limiter.give(1, ns)
                limiter.queue.remove(place)
                self._unmark(limiter, place.mark, balances, "not_observed", ns, ns, wall, feed)
        if later:
            self._await_pause(cnx, min(later))
        return acted

    def _has_ended(self, cnx: Connection, kind: str) -> bool:
        """The model would have ended a flag by now."""
        if kind == IN_FLIGHT:
            return self.policies.in_flight() <= 0 or cnx.in_flight <= cnx.resume_at
        return int(str(cnx.flags[kind].limiter_name)) not in self._limited_threads

    def _places_of(self, cnx: Connection) -> list[tuple[Place, Limiter]]:
        """Its places in all FIFOs, in the order of their marks."""
        found = [
            (place, limiter)
            for limiter in self._limiters.values()
            for place in limiter.queue
            if place.mark.producer is not None and place.mark.producer.cnx == cnx.name
        ]
        return sorted(found, key=lambda x: x[0].number)

    def _on_reads_resumed(self, r: Record, ns: int, wall: int | None) -> None:
        cnx = self._cnxs.get(r["cnx_id"])
        if cnx is not None and self._corrects:
            self._observe(cnx)
            self._resume(cnx, ns, wall, r["source_feed"])
        elif cnx is not None and cnx.seen_paused is not None:
            cnx.seen_resumed = ns

    def _on_throttle_receipt(self, r: Record, ns: int, wall: int | None) -> None:
        cnx = self._cnxs.get(r["cnx_id"])
        for mark in cnx.marks if cnx is not None else []:
            waits = mark.wait_ends_ns is not None and ns <= mark.wait_ends_ns
            if waits and mark.request_id == r["request_id"]:
                assert cnx is not None
                mark.receipt, mark.wait_ends_ns = RECEIVED, None
                self._receipt_row(cnx, mark, "receipt_in_time", False, ns, wall, r["source_feed"])

    def _on_send_timeout(self, r: Record, ns: int, wall: int | None) -> None:
        if self._switches["protocol"] == "none":
            return
        p = self._sender(r)
        found = None
        if p is not None:
            at_ms = ns // NS_PER_MS if wall is None else wall
            found = (
                self._cnxs[p.cnx]
                .producers[p]
                .explains(at_ms, r.get("publish_time_ms"), self._switches["timeout_rule"])
            )
        interval: Row = {"start_ms": None, "pause_ms": None, "end_ms": None}
        if found is not None:
            interval = dict(found.shown())
        self.rows["producer_throttle"].append(
            {
                **self._common("producer_throttle", ns, wall, r["source_feed"]),
                "rule": "send_timeout",
                "cnx_id": p.cnx if p is not None else r.get("cnx_id"),
                "producer_id": r["producer_id"],
                "producer_name": self._names_of.get(p) if p is not None else None,
                "topic": r["topic"],
                "partition": partition_of(r["topic"]),
                "reason": found.reason if found is not None else None,
                **interval,
                "request_id": found.request_id if found is not None else None,
                "throttled_ms_total": None,
                "sequence_id": r["sequence_id"],
                "exception": "TimeoutException" if found is None else "ProducerThrottledException",
            }
        )

    def _sender(self, r: Record) -> Producer | None:
        """The open producer of a `send_timeout`; without a connection the one opened last."""
        named = r.get("cnx_id")
        same = [
            (client.opened, p)
            for cnx in self._cnxs.values()
            for p, client in cnx.producers.items()
            if (p.topic, p.id) == (r["topic"], r["producer_id"]) and named in (None, p.cnx)
        ]
        return max(same, key=lambda x: x[0])[1] if same else None

    # -- connections -------------------------------------------------------------------------

    def _connect(self, name: str) -> Connection:
        if name not in self._cnxs:
            tracker = TRACKERS[self._switches["throttle_tracker"]]()
            self._cnxs[name] = Connection(name, tracker, self.policies.group_of)
        return self._cnxs[name]

    def _open_producer(self, r: Record, ns: int) -> Producer:
        cnx = self._connect(r["cnx_id"])
        p = Producer(r["cnx_id"], r["topic"], r["producer_id"])
        cnx.settle(ns, self._stats)
        if p not in cnx.producers:
            self._names_of[p] = None
            if p.topic not in cnx.topics:
                cnx.forget_pauses(p.topic)
            self._openings += 1
            cnx.producers[p] = Client(self._openings)
        if r.get("producer_name") is not None:
            self._names_of[p] = r["producer_name"]
        self._topic_used[p.topic] = ns
        return p

    def _start_request(self, p: Producer, size: int, ns: int, wall: int | None, feed: str) -> None:
        limit, share = self.policies.in_flight(), self.policies.buffer_share()
        if limit <= 0 and share <= 0:
            return
        cnx = self._cnxs[p.cnx]
        self._flights.append((p.cnx, p.topic))
        cnx.in_flight += 1
        cnx.buffered += size
        self._note_levels(cnx)
        if limit > 0 and cnx.in_flight == limit:
            cnx.resume_at = limit // 2
            self._flag(cnx, IN_FLIGHT, "in_flight_limit", p, p.topic, ns, wall, feed)
        t = cnx.thread
        if t is None or share <= 0 or t in self._limited_threads or self._buffered(t) <= share:
            return
        self._limited_threads.add(t)
        self._flag(cnx, BUFFER, "buffer_limit", p, p.topic, ns, wall, feed)
        for other in list(self._cnxs.values()):
            if other.thread == t and other is not cnx:
                self._flag(other, BUFFER, "buffer_limit", None, p.topic, ns, wall, feed)

    def _buffered(self, thread: int) -> int:
        return sum(cnx.buffered for cnx in self._cnxs.values() if cnx.thread == thread)

    def _look_at_thread(
        self,
        thread: int | None,
        ns: int,
        settle_ns: int,
        wall: int | None,
        feed: str,
        rule: str = "buffer_half",
    ) -> None:
        if thread not in self._limited_threads or thread is None:
            return
        if self._buffered(thread) > self.policies.buffer_share() // 2:
            return
        self._limited_threads.remove(thread)
        for cnx in list(self._cnxs.values()):
            if cnx.thread == thread and BUFFER in cnx.flags:
                self._model_end(cnx, BUFFER, rule, ns, settle_ns, wall, feed)

    def _model_end(
        self,
        cnx: Connection,
        kind: str,
        rule: str,
        ns: int,
        settle_ns: int,
        wall: int | None,
        feed: str,
    ) -> None:
        """The model ends a flag: not on an observed connection, unless no pause was reported."""
        if not cnx.observed:
            self._end_flag(cnx, kind, rule, ns, settle_ns, wall, feed)
        elif self._is_overdue(cnx, cnx.flags[kind], ns):
            self._end_flag(cnx, kind, "not_observed", ns, settle_ns, wall, feed)

    def _flag(
        self,
        cnx: Connection,
        kind: str,
        rule: str,
        p: Producer | None,
        trigger: str,
        ns: int,
        wall: int | None,
        feed: str,
    ) -> None:
        name = cnx.thread if kind == BUFFER else cnx.name
        self._mark(cnx, Mark(kind, p, trigger, str(name)), rule, ns, wall, feed)

    def _mark(
        self,
        cnx: Connection,
        mark: Mark,
        rule: str,
        ns: int,
        wall: int | None,
        feed: str,
        *,
        limiter: Limiter | None = None,
        balances: Sequence[int | None] = NONE,
        pause: int | None = None,
    ) -> None:
        mark.ns = ns
        name: Name | None = cnx.thread if mark.kind == BUFFER else cnx.name
        if limiter is not None:
            name = limiter.name
        assert name is not None
        if mark.kind != UNKNOWN:
            self._usage_of(LIMITERS[mark.kind], name).marks += 1
        transition = cnx.tracker.mark(mark.kind)
        if transition != "Dropped":
            if self._switches["protocol"] == "pip385":
                self._announce(cnx, mark, rule, ns, wall, feed, pause)
            cnx.add(mark, ns, self._stats)
            if cnx.observed and not cnx.stopped and not cnx.awaits_look:
                self._await_pause(cnx, ns)
        self._event(
            cnx,
            mark,
            "mark",
            transition,
            rule,
            ns,
            wall,
            feed,
            limiter=limiter,
            balances=balances,
            pause=pause,
            exchange=mark,
        )

    def _end_flag(
        self,
        cnx: Connection,
        kind: str,
        rule: str,
        ns: int,
        settle_ns: int,
        wall: int | None,
        feed: str,
    ) -> None:
        mark = cnx.flags[kind]
        transition, ended, observed = cnx.unmark(kind, mark, settle_ns, self._stats)
        self._event(
            cnx, mark, "unmark", transition, rule, ns, wall, feed, observed=observed, exchange=ended
        )

    def _close(
        self,
        name: str,
        ns: int,
        settle_ns: int,
        wall: int | None,
        feed: str,
        rule: str = "connection_closed",
    ) -> None:
        cnx = self._cnxs[name]
        cnx.settle(settle_ns, self._stats)
        cnx.closed = True
        for kind in (IN_FLIGHT, BUFFER, UNKNOWN):
            if kind in cnx.flags:
                self._end_flag(cnx, kind, rule, ns, settle_ns, wall, feed)
        for place, limiter in self._places_of(cnx):
            limiter.queue.remove(place)
            balances, _ = limiter.peek(settle_ns)
            self._unmark(limiter, place.mark, balances, rule, ns, settle_ns, wall, feed)
        del self._cnxs[name]
        self._flights = [f for f in self._flights if f[0] != name]
        self._note_thread(cnx.thread)
        resumed = "buffer_half" if rule == "connection_closed" else rule
        self._look_at_thread(cnx.thread, ns, settle_ns, wall, feed, resumed)

    # -- limiters ----------------------------------------------------------------------------

    def _limiter(self, kind: str, name: str) -> Limiter:
        """The limiter of a topic, of a group or of the broker (without a name)."""
        found = self._limiters.get((kind, name))
        if found is None:
            if kind == "topic":
                of_kind, rates = TOPIC, self.policies.topic(name)[0]
            elif kind == "group":
                of_kind, rates = GROUP, self.policies.group(name)
            else:
                of_kind, rates = BROKER, self.policies.broker()[0]
            shown = self._names["broker"] if of_kind == BROKER else name
            found = Limiter(of_kind, shown, rates, self._bucket_kind, self._idle_ns)
            self._limiters[kind, name] = found
        return found

    def _limiters_of(self, topic: str) -> tuple[Limiter, Limiter | None]:
        group = self.policies.group_of(topic)
        of_group = self._limiter("group", group) if group is not None else None
        return self._limiter("topic", topic), of_group

    def _charge(
        self,
        limiter: Limiter,
        p: Producer,
        messages: int,
        size: int,
        ns: int,
        wall: int | None,
        feed: str,
    ) -> None:
        balances = limiter.charge(messages, size, ns)
        fine = [balance is None or balance > 0 for balance in balances]
        _, pause = limiter.peek(ns)
        usage = self._usage_of(LIMITERS[limiter.kind], limiter.name)
        usage.charge(messages, size, balances)
        if self._verdicts:
            self.rows["publish_verdicts"].append(
                {
                    **self._common("publish_verdicts", ns, wall, feed),
                    "rule": "passed" if all(fine) else "bucket_empty",
                    "limiter": LIMITERS[limiter.kind],
                    "topic": p.topic,
                    "messages": messages,
                    "bytes": size,
                    "messages_ok": fine[0],
                    "bytes_ok": fine[1],
                    "balance_msgs": balances[0],
                    "balance_bytes": balances[1],
                    "pause_model_ns": pause,
                }
            )
        if not all(fine):
            self._queue(limiter, p, "bucket_empty", balances, ns, wall, feed)

    def _queue(
        self,
        limiter: Limiter,
        p: Producer,
        rule: str,
        balances: Balances,
        ns: int,
        wall: int | None,
        feed: str,
    ) -> None:
        """Throttle a producer."""
        _, pause = limiter.peek(ns)
        usage = self._usage_of(LIMITERS[limiter.kind], limiter.name)
        self._marks += 1
        mark = Mark(limiter.kind, p, p.topic, limiter.name)
        limiter.queue.append(Place(mark, self._marks))
        limiter.throttled_before = True
        usage.wait(len(limiter.queue))
        self._mark(
            self._cnxs[p.cnx],
            mark,
            rule,
            ns,
            wall,
            feed,
            limiter=limiter,
            balances=balances,
            pause=pause,
        )
        if len(limiter.queue) == 1 or limiter.tasks == 0:
            _, pause = limiter.read_for_pause(ns)
            self._schedule(limiter, ns, pause)

    def _schedule(self, limiter: Limiter, ns: int, pause: int) -> None:
        """A release task after the pause, or one resolution where its product wrapped below 0."""
        limiter.tasks += 1
        self._set_timer(
            ns + (pause if pause >= 0 else RESOLUTION_NS), partial(self._release, limiter)
        )

    def _release(self, limiter: Limiter, ns: int, wall: int | None) -> None:
        assert self.last is not None
        limiter.tasks -= 1
        balances, pause = limiter.read_for_pause(ns)
        may_leave = pause == 0
        if self._switches["release_condition"] == "positive":
            balances = limiter.read(ns)
            may_leave = all(balance is None or balance > 0 for balance in balances)
        if not may_leave:
            if limiter.queue:
                self._schedule(limiter, ns, pause)
            return
        for place in list(limiter.queue):
            place.ended = True
            assert place.mark.producer is not None
            cnx = self._cnxs[place.mark.producer.cnx]
            rule = "released" if limiter.has_bucket else "limit_removed"
            if cnx.observed:
                rule = "not_observed"
                if not self._is_overdue(cnx, place.mark, ns):
                    continue
            limiter.queue.remove(place)
            feed = self.last["source_feed"]
            self._unmark(limiter, place.mark, balances, rule, ns, ns, wall, feed)

    def _unmark(
        self,
        limiter: Limiter,
        mark: Mark,
        balances: Balances,
        rule: str,
        ns: int,
        settle_ns: int,
        wall: int | None,
        feed: str,
    ) -> None:
        assert mark.producer is not None
        cnx = self._cnxs[mark.producer.cnx]
        transition, ended, observed = cnx.unmark(limiter.kind, mark, settle_ns, self._stats)
        _, pause = limiter.peek(settle_ns)
        self._event(
            cnx,
            mark,
            "unmark",
            transition,
            rule,
            ns,
            wall,
            feed,
            limiter=limiter,
            balances=balances,
            pause=pause,
            observed=observed,
            exchange=ended,
        )

    # -- the exchange ------------------------------------------------------------------------

    def _announce(
        self,
        cnx: Connection,
        mark: Mark,
        rule: str,
        ns: int,
        wall: int | None,
        feed: str,
        pause: int | None,
    ) -> None:
        """The broker would pause the channel: rules 1 to 3 of section 6."""
        mark.receipt = state_at_mark(self._switches, mark.kind, cnx.supports_throttle)
        mark.blocks = blocks_reads(mark.receipt)
        if mark.receipt == NOT_SUPPORTED:
            self._send_nothing(cnx, mark, ns, wall, feed)
            return
        if waits_for_receipt(self._switches, mark.kind):
            assert mark.producer is not None
            mark.request_id = self._command(
                cnx, mark.producer, mark.kind, rule, ns, wall, feed, pause
            )
        else:
            ids = {
                p: self._command(cnx, p, mark.kind, "informed_only", ns, wall, feed, pause)
                for p in sorted(cnx.producers, key=lambda p: p.id)
            }
            first = min(ids.values(), default=None)
            mark.request_id = first if mark.producer is None else ids.get(mark.producer, first)
        if mark.receipt is WAITING:
            mark.wait_ends_ns = ns + self.policies.receipt_wait_ms() * NS_PER_MS
            self._set_timer(mark.wait_ends_ns, partial(self._time_out, cnx, mark))

    def _command(
        self,
        cnx: Connection,
        p: Producer,
        kind: str,
        rule: str,
        ns: int,
        wall: int | None,
        feed: str,
        pause: int | None,
    ) -> int:
        """One command to one producer; answers its request id."""
        cnx.requests += 1
        at_ms, lasts_ms = ns // NS_PER_MS, 0
        if wall is not None:
            at_ms = wall
            if self._switches["pause_rule"] == "pip":
                lasts_ms = self._pause_pip(kind, wall)
            elif pause is not None:
                lasts_ms = max(pause, 0) // NS_PER_MS
        command = Command(cnx.requests, REASONS[kind], at_ms, lasts_ms, wall is not None)
        cnx.producers[p].take(command, self._switches["repeat_throttle"])
        cnx.throttled_ms[p.topic, command.reason] += lasts_ms
        self.rows["producer_throttle"].append(
            {
                **self._common("producer_throttle", ns, wall, feed),
                "rule": rule,
                "cnx_id": cnx.name,
                "producer_id": p.id,
                "producer_name": self._names_of.get(p),
                "topic": p.topic,
                "partition": partition_of(p.topic),
                "reason": command.reason,
                **command.shown(),
                "request_id": command.request_id,
                "throttled_ms_total": cnx.throttled_ms[p.topic, command.reason],
                "sequence_id": None,
                "exception": None,
            }
        )
        return command.request_id

    def _send_nothing(
        self, cnx: Connection, mark: Mark, ns: int, wall: int | None, feed: str
    ) -> None:
        """Rule 1: who would have had a command if the client knew it."""
        if waits_for_receipt(self._switches, mark.kind):
            assert mark.producer is not None
            told = [mark.producer]
        else:
            told = sorted(cnx.producers, key=lambda p: p.id)
        for p in told:
            self.rows["producer_throttle"].append(
                {
                    **self._common("producer_throttle", ns, wall, feed),
                    "rule": "client_unsupported",
                    "cnx_id": cnx.name,
                    "producer_id": p.id,
                    "producer_name": self._names_of.get(p),
                    "topic": p.topic,
                    "partition": partition_of(p.topic),
                    "reason": REASONS[mark.kind],
                    "start_ms": None,
                    "pause_ms": None,
                    "end_ms": None,
                    "request_id": None,
                    "throttled_ms_total": None,
                    "sequence_id": None,
                    "exception": None,
                }
            )

    @staticmethod
    def _pause_pip(kind: str, wall: int) -> int:
        """The rest of the second, or 0 = unknown."""
        return 1000 - wall % 1000 if kind in (TOPIC, GROUP) else 0

    def _time_out(self, cnx: Connection, mark: Mark, ns: int, wall: int | None) -> None:
        if not mark.active or mark.wait_ends_ns is None:
            return
        assert self.last is not None
        mark.receipt, mark.wait_ends_ns = TIMED_OUT, None
        pauses = cnx.time_out(mark, ns, self._stats)
        feed = self.last["source_feed"]
        self._receipt_row(cnx, mark, "receipt_timeout", pauses, ns, wall, feed)

    def _receipt_row(
        self,
        cnx: Connection,
        mark: Mark,
        rule: str,
        pauses: bool,
        ns: int,
        wall: int | None,
        feed: str,
    ) -> None:
        transition = "ConnectionStateChanged" if pauses else "TypeStateChanged"
        self._event(cnx, mark, "receipt", transition, rule, ns, wall, feed, exchange=mark)

    # -- rows --------------------------------------------------------------------------------

    def _common(self, table: str, ns: int, wall: int | None, feed: str) -> Row:
        last_ns, no = self._numbers.get(table, (None, -1))
        no = no + 1 if last_ns == ns else 0
        self._numbers[table] = (ns, no)
        return {
            **self._names,
            "ts_mono_ns": ns,
            "ts_wall_ms": wall,
            "source_feed": feed,
            "row_no": no,
        }

    def _event(
        self,
        cnx: Connection,
        mark: Mark,
        action: str,
        transition: str,
        rule: str,
        ns: int,
        wall: int | None,
        feed: str,
        *,
        limiter: Limiter | None = None,
        balances: Sequence[int | None] = NONE,
        pause: int | None = None,
        observed: int | None = None,
        exchange: Mark | None = None,
    ) -> None:
        """A row of `throttle_events`; `exchange` is the mark whose receipt it shows."""
        p, kind = mark.producer, mark.kind
        topic = p.topic if p is not None else None
        pip = None
        if action == "mark" and wall is not None:
            pip = self._pause_pip(kind, wall)
        self.rows["throttle_events"].append(
            {
                **self._common("throttle_events", ns, wall, feed),
                "rule": rule,
                "cnx_id": cnx.name,
                "producer_id": p.id if p is not None else None,
                "producer_name": self._names_of.get(p) if p is not None else None,
                "topic": topic,
                "action": action,
                "throttle_type": kind,
                "reason": REASONS[kind],
                "reason_number": NUMBERS[kind],
                "limiter": LIMITERS[kind],
                "transition": transition,
                "reads_paused": cnx.paused,
                "culprit_topic": mark.culprit,
                "trigger_topic": mark.trigger,
                "limiter_name": mark.limiter_name,
                "collateral_topics": [t for t in cnx.topics if t != topic] if cnx.paused else [],
                "balance_msgs": balances[0],
                "balance_bytes": balances[1],
                "pause_pip_ms": pip,
                "pause_model_ns": pause,
                "waiting": len(limiter.queue) if limiter is not None else None,
                "pause_observed_ns": observed,
                "seen_until_ns": self._seen_until if rule == "gap" else None,
                "request_id": exchange.request_id if exchange is not None else None,
                "receipt_state": exchange.receipt if exchange is not None else None,
            }
        )

    # -- policies ----------------------------------------------------------------------------

    def take_floating(self, policy: Record, ns: int | None) -> None:
        self.apply(json.loads(policy["policy_json"]), ns, policy["ts_wall_ms"])

    def apply(
        self,
        document: Mapping[str, Any],
        ns: int | None,
        wall: int | None,
        record: Record | None = None,
    ) -> None:
        """A document takes effect; before the first record it only holds (`ns` None)."""
        if ns is not None:
            self._acted = ns
            # topics may change their group in the middle of a pause
            for cnx in self._cnxs.values():
                cnx.settle(ns, self._stats)
        before = self.policies.copy()
        if not self.policies.put(document, wall) or ns is None:
            return
        source = source_of(document)
        feed = (record or self.last or {}).get("source_feed", "")
        for topic in sorted(set(self._topic_used) | {n for k, n in self._limiters if k == "topic"}):
            if source in before.topic(topic)[1] | self.policies.topic(topic)[1]:
                self._change(
                    self._limiter("topic", topic), self.policies.topic(topic)[0], ns, [topic]
                )
        if source[0] == "resource_group":
            members = [t for t in self._topic_used if self.policies.group_of(t) == source[1]]
            if members or ("group", source[1]) in self._limiters:
                self._change(
                    self._limiter("group", source[1]), self.policies.group(source[1]), ns, members
                )
        if source in before.broker()[1] | self.policies.broker()[1]:
            limiter = self._limiter("broker", "")
            self._change_limiter(limiter, self.policies.broker()[0], ns, True)
        self._switch_off(before, ns, wall, feed)

    def _change(
        self, limiter: Limiter, rates: tuple[int, int], ns: int, topics: Sequence[str]
    ) -> None:
        used = [self._topic_used[t] for t in topics if t in self._topic_used]
        seen = any(ns - at < self._forget_ns for at in used)
        self._change_limiter(limiter, rates, ns, seen)

    def _change_limiter(
        self, limiter: Limiter, rates: tuple[int, int], ns: int, seen: bool
    ) -> None:
        task = limiter.change(rates, ns, seen)
        if task and self._switches["limit_change"] == "immediate":
            self._schedule(limiter, ns, 0)

    def _switch_off(self, before: Policies, ns: int, wall: int | None, feed: str) -> None:
        """Marks of a connection or IO-thread limit that is no more end at once."""
        in_flight, share = self.policies.in_flight(), self.policies.buffer_share()
        for kind, old, new in (
            (IN_FLIGHT, before.in_flight(), in_flight),
            (BUFFER, before.buffer_share(), share),
        ):
            if old <= 0 or new > 0:
                continue
            for cnx in self._cnxs.values():
                if kind in cnx.flags:
                    self._model_end(cnx, kind, "limit_removed", ns, ns, wall, feed)
            if kind == BUFFER:
                self._limited_threads = set()
        if in_flight <= 0 and share <= 0:
            self._flights = []
            for cnx in self._cnxs.values():
                cnx.in_flight = cnx.buffered = 0
