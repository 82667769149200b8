"""One key of `rate_limits`, record by record: sections 2, 4, 5, 9 and 10 of the specification."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.reference.connection import (
    BROKER,
    BUFFER,
    GROUP,
    IN_FLIGHT,
    LIMITERS,
    NUMBERS,
    REASONS,
    TOPIC,
    Connection,
    Producer,
    TopicStats,
)
from tests.reference.limiter import Limiter, Place
from tests.reference.order import Record
from tests.reference.policies import Policies, source_of

NS_PER_MS = 1_000_000
Row = dict[str, Any]


class Broker:
    """State of one (cluster, broker); `rows` is what it has written, by table."""

    def __init__(self, cluster: str, broker: str, params: Mapping[str, Any]) -> None:
        self._names = {"cluster": cluster, "broker": broker}
        self._window_ms = params["stats_window_ms"]
        self._idle_ns = params["idle_state_ms"] * NS_PER_MS
        self._verdicts = "publish_verdicts" in params["extra_outputs"]
        self.rows: dict[str, list[Row]] = {
            "throttle_events": [], "topic_throttle_stats": [], "publish_verdicts": [],
        }
        self._numbers: dict[str, tuple[int, int]] = {}
        self.policies = Policies(broker)
        self.last: Record | None = None
        self._window_start = 0
        self._stats: dict[str, TopicStats] = {}
        self._names_of: dict[Producer, str | None] = {}
        self._marks = 0
        self._new_run()

    def _new_run(self) -> None:
        self._limiters: dict[tuple[str, str], Limiter] = {}
        self._topic_used: dict[str, int] = {}
        self._cnxs: dict[str, Connection] = {}
        self._flights: list[tuple[str, str]] = []
        self._limited_threads: set[int] = set()
        self._tasks: list[tuple[int, int, Limiter]] = []
        self._tasks_made = 0

    # -- time --------------------------------------------------------------------------------

    def wall_at(self, ns: int, next_record: Record | None) -> int | None:
        """Wall time of a moment after the last record, not beyond the next record's."""
        if self.last is None or self.last["ts_wall_ms"] is None:
            return None
        wall = self.last["ts_wall_ms"] + (ns - self.last["ts_mono_ns"]) // NS_PER_MS
        limit = next_record["ts_wall_ms"] if next_record else None
        return wall if limit is None else min(wall, limit)

    def ns_at(self, wall: int) -> int:
        """Monotonic time of a wall time after the last record."""
        assert self.last is not None
        if self.last["ts_wall_ms"] is None:
            return int(self.last["ts_mono_ns"])
        return int(self.last["ts_mono_ns"]) + (wall - self.last["ts_wall_ms"]) * NS_PER_MS

    def advance(self, to_ns: int, next_record: Record | None) -> None:
        """Release tasks that are due before a moment, windows that end up to it."""
        while True:
            due = min((t for t in self._tasks if t[0] < to_ns), key=lambda t: t[:2], default=None)
            if due is None:
                break
            at = due[0] + 1
            wall = self.wall_at(at, next_record)
            self._end_windows(at, wall, next_record)
            self._tasks.remove(due)
            self._release(due[2], at, wall)
        if self.last is not None:
            self._end_windows(to_ns, self.wall_at(to_ns, next_record), next_record)

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
            paused = any(cnx.tracker.active for cnx in self._cnxs.values())
            self._stats = {}
            if paused:
                self._window_start = end
            else:
                self._window_start = max(end, clock // self._window_ms * self._window_ms)

    def _window_row(self, topic: str, s: TopicStats, ns: int, wall: int | None, no: int) -> None:
        assert self.last is not None
        (msgs, size), _ = self.policies.topic(topic)
        self.rows["topic_throttle_stats"].append({
            **self._names, "ts_mono_ns": ns, "ts_wall_ms": wall,
            "source_feed": self.last["source_feed"], "row_no": no, "rule": "window",
            "topic": topic, "window_start_ms": self._window_start, "window_ms": self._window_ms,
            "limited_times": sum(s.limited.values()), "culprit_times": s.culprit_times,
            "collateral_times": s.collateral_times, "culprit_ns": s.culprit_ns,
            "collateral_ns": s.collateral_ns, "by_reason": sorted(s.by_reason.items()),
            "messages": s.messages, "bytes": s.bytes,
            "limit_msgs": float(msgs) if msgs > 0 else None,
            "limit_bytes": float(size) if size > 0 else None,
            "limited_by_limiter": sorted(s.limited.items()),
        })

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
        self.last = record
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

    def _on_connection_opened(self, r: Record, ns: int, wall: int | None) -> None:
        self._cnxs.setdefault(r["cnx_id"], Connection(r["cnx_id"])).thread = r.get("io_thread")

    def _on_connection_closed(self, r: Record, ns: int, wall: int | None) -> None:
        if r["cnx_id"] in self._cnxs:
            self._close(r["cnx_id"], ns, ns, wall, r["source_feed"])

    def _on_producer_created(self, r: Record, ns: int, wall: int | None) -> None:
        self._open_producer(r, ns)
        self._stats.setdefault(r["topic"], TopicStats())
        for limiter in self._limiters_of(r["topic"]):
            limiter.use(ns)

    def _on_producer_closed(self, r: Record, ns: int, wall: int | None) -> None:
        cnx = self._cnxs.get(r["cnx_id"])
        p = Producer(r["cnx_id"], r["topic"], r["producer_id"])
        if cnx is not None and p in cnx.producers:
            cnx.settle(ns, self._stats)
            del cnx.producers[p]
            self._stats.setdefault(r["topic"], TopicStats())

    def _on_publish(self, r: Record, ns: int, wall: int | None) -> None:
        p = self._open_producer(r, ns)
        messages = 1 if r.get("num_messages") is None else r["num_messages"]
        size = r["entry_bytes"]
        s = self._stats.setdefault(p.topic, TopicStats())
        s.messages += messages
        s.bytes += size
        self._start_request(p, size, ns, wall, r["source_feed"])
        of_topic, of_group = self._limiters_of(p.topic)
        for limiter in (of_topic, self._limiter("broker", ""), of_group):
            if limiter is not None and any(rate > 0 for rate in limiter.rates):
                self._charge(limiter, p, messages, size, ns, wall, r["source_feed"])
            elif limiter is not None and limiter.kind != BROKER:
                limiter.use(ns)

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
            self._end_flag(cnx, IN_FLIGHT, "in_flight_half", ns, ns, wall, r["source_feed"])
        self._look_at_thread(cnx.thread, ns, wall, r["source_feed"])

    def _on_reads_paused(self, r: Record, ns: int, wall: int | None) -> None:
        if cnx := self._cnxs.get(r["cnx_id"]):
            cnx.seen_paused, cnx.seen_resumed = ns, None

    def _on_reads_resumed(self, r: Record, ns: int, wall: int | None) -> None:
        cnx = self._cnxs.get(r["cnx_id"])
        if cnx is not None and cnx.seen_paused is not None:
            cnx.seen_resumed = ns

    # -- connections -------------------------------------------------------------------------

    def _open_producer(self, r: Record, ns: int) -> Producer:
        cnx = self._cnxs.setdefault(r["cnx_id"], Connection(r["cnx_id"]))
        p = Producer(r["cnx_id"], r["topic"], r["producer_id"])
        cnx.settle(ns, self._stats)
        if p not in cnx.producers:
            self._names_of[p] = None
        cnx.producers[p] = None
        if r.get("producer_name") is not None:
            self._names_of[p] = r["producer_name"]
        self._topic_used[p.topic] = ns
        return p

    def _start_request(
        self, p: Producer, size: int, ns: int, wall: int | None, feed: str
    ) -> None:
        limit, share = self.policies.in_flight(), self.policies.buffer_share()
        if limit <= 0 and share <= 0:
            return
        cnx = self._cnxs[p.cnx]
        self._flights.append((p.cnx, p.topic))
        cnx.in_flight += 1
        cnx.buffered += size
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

    def _look_at_thread(self, thread: int | None, ns: int, wall: int | None, feed: str) -> None:
        if thread not in self._limited_threads or thread is None:
            return
        if self._buffered(thread) > self.policies.buffer_share() // 2:
            return
        self._limited_threads.remove(thread)
        for cnx in list(self._cnxs.values()):
            if cnx.thread == thread and BUFFER in cnx.flags:
                self._end_flag(cnx, BUFFER, "buffer_half", ns, ns, wall, feed)

    def _flag(
        self, cnx: Connection, kind: str, rule: str, p: Producer | None, culprit: str, ns: int,
        wall: int | None, feed: str,
    ) -> None:
        transition = cnx.mark(kind, culprit, ns, self._stats)
        if transition != "Dropped":
            cnx.flags[kind] = (p, culprit)
        self._event(cnx, p, "mark", kind, transition, rule, culprit, ns, wall, feed)

    def _end_flag(
        self, cnx: Connection, kind: str, rule: str, ns: int, settle_ns: int, wall: int | None,
        feed: str,
    ) -> None:
        p, culprit = cnx.flags.pop(kind)
        transition, observed = cnx.unmark(kind, settle_ns, self._stats)
        self._event(
            cnx, p, "unmark", kind, transition, rule, culprit, ns, wall, feed, observed=observed
        )

    def _close(self, name: str, ns: int, settle_ns: int, wall: int | None, feed: str) -> None:
        cnx = self._cnxs[name]
        cnx.settle(settle_ns, self._stats)
        for kind in (IN_FLIGHT, BUFFER):
            if kind in cnx.flags:
                self._end_flag(cnx, kind, "connection_closed", ns, settle_ns, wall, feed)
        places = [
            (place, limiter)
            for limiter in self._limiters.values()
            for place in limiter.queue
            if place.producer.cnx == name
        ]
        for place, limiter in sorted(places, key=lambda x: x[0].number):
            limiter.queue.remove(place)
            balances = limiter.peek(settle_ns)
            self._unmark(
                limiter, place, balances, "connection_closed", ns, settle_ns, wall, feed
            )
        del self._cnxs[name]
        self._flights = [f for f in self._flights if f[0] != name]
        self._look_at_thread(cnx.thread, ns, wall, feed)

    # -- limiters ----------------------------------------------------------------------------

    def _limiter(self, kind: str, name: str) -> Limiter:
        """The limiter of a topic, of a group or of the broker (without a name)."""
        found = self._limiters.get((kind, name))
        if found is None:
            if kind == "topic":
                found = Limiter(TOPIC, self._idle_ns, self.policies.topic(name)[0])
            elif kind == "group":
                found = Limiter(GROUP, self._idle_ns, self.policies.group(name))
            else:
                found = Limiter(BROKER, self._idle_ns, self.policies.broker()[0])
            self._limiters[kind, name] = found
        return found

    def _limiters_of(self, topic: str) -> tuple[Limiter, ...]:
        group = self.policies.group_of(topic)
        of_group = self._limiter("group", group) if group is not None else Limiter(GROUP, 0)
        return self._limiter("topic", topic), of_group

    def _charge(
        self, limiter: Limiter, p: Producer, messages: int, size: int, ns: int,
        wall: int | None, feed: str,
    ) -> None:
        balances = limiter.charge(messages, size, ns)
        fine = [balance is None or balance > 0 for balance in balances]
        pause = limiter.pause(balances)
        if self._verdicts:
            self.rows["publish_verdicts"].append({
                **self._common("publish_verdicts", ns, wall, feed),
                "rule": "passed" if all(fine) else "bucket_empty",
                "limiter": LIMITERS[limiter.kind], "topic": p.topic, "messages": messages,
                "bytes": size, "messages_ok": fine[0], "bytes_ok": fine[1],
                "balance_msgs": balances[0], "balance_bytes": balances[1],
                "pause_model_ns": pause,
            })
        if all(fine):
            return
        self._marks += 1
        limiter.queue.append(Place(p, p.topic, self._marks))
        limiter.throttled_before = True
        cnx = self._cnxs[p.cnx]
        transition = cnx.mark(limiter.kind, p.topic, ns, self._stats)
        self._event(
            cnx, p, "mark", limiter.kind, transition, "bucket_empty", p.topic, ns, wall, feed,
            limiter=limiter, balances=balances,
        )
        if len(limiter.queue) == 1:
            self._schedule(limiter, ns + pause)

    def _schedule(self, limiter: Limiter, due: int) -> None:
        self._tasks_made += 1
        self._tasks.append((min(due, 2**63 - 1), self._tasks_made, limiter))

    def _release(self, limiter: Limiter, ns: int, wall: int | None) -> None:
        assert self.last is not None
        while True:
            balances = limiter.read(ns)
            pause = limiter.pause(balances)
            if pause != 0 or not limiter.queue:
                break
            place = limiter.queue.pop(0)
            rule = "released" if any(limiter.buckets) else "limit_removed"
            self._unmark(limiter, place, balances, rule, ns, ns, wall, self.last["source_feed"])
        if limiter.queue:
            self._schedule(limiter, ns + pause)

    def _unmark(
        self, limiter: Limiter, place: Place, balances: list[int | None], rule: str, ns: int,
        settle_ns: int, wall: int | None, feed: str,
    ) -> None:
        cnx = self._cnxs[place.producer.cnx]
        transition, observed = cnx.unmark(limiter.kind, settle_ns, self._stats)
        self._event(
            cnx, place.producer, "unmark", limiter.kind, transition, rule, place.culprit, ns,
            wall, feed, limiter=limiter, balances=balances, observed=observed,
        )

    # -- rows --------------------------------------------------------------------------------

    def _common(self, table: str, ns: int, wall: int | None, feed: str) -> Row:
        last_ns, no = self._numbers.get(table, (None, -1))
        no = no + 1 if last_ns == ns else 0
        self._numbers[table] = (ns, no)
        return {
            **self._names, "ts_mono_ns": ns, "ts_wall_ms": wall, "source_feed": feed, "row_no": no
        }

    def _event(
        self, cnx: Connection, p: Producer | None, action: str, kind: str, transition: str,
        rule: str, culprit: str, ns: int, wall: int | None, feed: str, *,
        limiter: Limiter | None = None, balances: Sequence[int | None] = (None, None),
        observed: int | None = None,
    ) -> None:
        topic = p.topic if p is not None else None
        paused = cnx.tracker.active
        pip = None
        if action == "mark" and wall is not None:
            pip = 1000 - wall % 1000 if kind in (TOPIC, GROUP) else 0
        self.rows["throttle_events"].append({
            **self._common("throttle_events", ns, wall, feed), "rule": rule,
            "cnx_id": cnx.name, "producer_id": p.id if p is not None else None,
            "producer_name": self._names_of.get(p) if p is not None else None, "topic": topic,
            "action": action, "throttle_type": kind, "reason": REASONS[kind],
            "reason_number": NUMBERS[kind], "limiter": LIMITERS[kind], "transition": transition,
            "reads_paused": paused, "culprit_topic": culprit,
            "collateral_topics": [t for t in cnx.topics if t != topic] if paused else [],
            "balance_msgs": balances[0], "balance_bytes": balances[1], "pause_pip_ms": pip,
            "pause_model_ns": limiter.pause(list(balances)) if limiter is not None else None,
            "waiting": len(limiter.queue) if limiter is not None else None,
            "pause_observed_ns": observed, "request_id": None, "receipt_state": None,
        })

    # -- policies ----------------------------------------------------------------------------

    def apply(
        self, document: Mapping[str, Any], ns: int | None, wall: int | None,
        record: Record | None = None,
    ) -> None:
        """A document takes effect; before the first record it only holds (`ns` None)."""
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
            if limiter.change(self.policies.broker()[0], ns, True):
                self._schedule(limiter, ns)
        self._switch_off(before, ns, wall, feed)

    def _change(
        self, limiter: Limiter, rates: tuple[int, int], ns: int, topics: Sequence[str]
    ) -> None:
        seen = any(
            t in self._topic_used and ns - self._topic_used[t] < self._idle_ns for t in topics
        )
        if limiter.change(rates, ns, seen):
            self._schedule(limiter, ns)

    def _switch_off(self, before: Policies, ns: int, wall: int | None, feed: str) -> None:
        """Marks of a connection or IO-thread limit that is no more end at once."""
        in_flight, share = self.policies.in_flight(), self.policies.buffer_share()
        for kind, old, new in (
            (IN_FLIGHT, before.in_flight(), in_flight), (BUFFER, before.buffer_share(), share)
        ):
            if old <= 0 or new > 0:
                continue
            for cnx in self._cnxs.values():
                if kind in cnx.flags:
                    self._end_flag(cnx, kind, "limit_removed", ns, ns, wall, feed)
            if kind == BUFFER:
                self._limited_threads = set()
        if in_flight <= 0 and share <= 0:
            self._flights = []
            for cnx in self._cnxs.values():
                cnx.in_flight = cnx.buffered = 0
