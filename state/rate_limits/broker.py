"""One broker: judges its records in order, applies its policies and collects its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from state.engine.clocks import NS_PER_MS, wall_at, window_clock
from state.engine.documents import ClusterPolicy, Policy, Source
from state.engine.feed import fed
from state.engine.key import Key
from state.engine.names import Names
from state.engine.records import Records, among, length
from state.engine.structs import picked
from state.engine.tables import in_use, table
from state.rate_limits import flow
from state.rate_limits import layout as L
from state.rate_limits.connection import restart, stop_counting
from state.rate_limits.layout import NEVER, NULL, Array, Instant, Int, Out, RateRecord, World
from state.rate_limits.limiter import change_limits, forget, use
from state.rate_limits.limits import GROUPING, Limits, is_exempt, limits_of
from state.rate_limits.observed import ignore_reports
from state.rate_limits.tracker import corrects, regroup, settle_all
from state.rate_limits.world import NO_OUT, extend, find_producers, grow

CREATES_PRODUCER = among(flow.PUBLISH, flow.PUBLISH_DIGEST, flow.PRODUCER_CREATED)
CREATES_CNX = CREATES_PRODUCER | among(flow.CONNECTION_OPENED)
"""By kind of record, whether it creates a connection or a producer."""
_MOMENT = ("ts_mono_ns", "ts_wall_ms", "source_feed")


@dataclass
class Window:
    """The contents of an ended window: topics, and limiters near their limits."""

    start_ms: int
    end_ns: int
    wall_ms: int
    feed: int
    topics: Array
    limit_msgs: Array
    limit_bytes: Array
    groups: list[str | None]
    """Resource group of each topic."""
    limiters: Array
    cnxs: Array
    threads: Array
    max_in_flight: int
    buffer_share: int


@dataclass
class Broker(Key):
    """State and rows of one key."""

    world: World
    names: Names
    documents: dict[Source, Policy]
    receipt_wait_ms: int
    """Time to wait for a receipt where no policy sets it."""
    out: Out = NO_OUT
    windows: list[Window] = field(default_factory=list)
    applied: set[int] = field(default_factory=set)
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        self._resolve()

    def _resolve(self) -> None:
        broker = self.names.get(int(self.key["broker"]))
        texts = tuple((source, policy.document) for source, policy in self.documents.items())
        self.limits = limits_of(texts, broker)

    def set_receipt_wait(self) -> None:
        """The time to wait for a receipt that is in force."""
        wait = self.limits.receipt_wait_ms(self.receipt_wait_ms)
        self.key["receipt_wait_ns"] = wait * NS_PER_MS

    def begin(self, documents: dict[Source, Policy]) -> None:
        """Apply documents that hold before the key's first record."""
        self.documents = documents
        self._resolve()
        self.key["max_in_flight"] = self.limits.max_in_flight()
        self.key["buffer_share"] = self.limits.buffer_share()
        self.set_receipt_wait()
        limiter = self.world.limiters[0]
        limiter["limit_msgs"], limiter["limit_bytes"], _ = self.limits.broker()
        if len(self.world.topics):
            # topics of records that are about to be judged, limited by earlier documents
            self.world.topics["limiter"] = self.world.topics["group"] = -1
            self.world = self.world._replace(
                limiters=self.world.limiters[:1], buckets=self.world.buckets[:2]
            )
            self._limit_topics(np.arange(len(self.world.topics)))

    def before_first(self, wall: int, stars: Sequence[ClusterPolicy]) -> None:
        """Apply documents for every broker that are not later than the key's first record."""
        held = [x for x in stars if wall == NULL or x.policy.wall_ms <= wall]
        self.applied.update(star.id for star in held)
        self.begin({**self.documents, **{star.policy.source: star.policy for star in held}})

    # -- records -----------------------------------------------------------------------------

    def feed(self, rows: Records) -> Array:
        """Records in the form that the kernel reads; new entities get a place."""
        if not length(rows):
            return fed(RateRecord, rows)
        kind, messages = rows["event_type"], rows["num_messages"]
        create = CREATES_PRODUCER[kind]
        topic = self._places("topics", rows["topic"], create)
        cnx = self._places("cnxs", rows["cnx_id"], CREATES_CNX[kind])
        cnx[(cnx < 0) & (rows["cnx_id"] >= 0)] = L.UNSEEN
        thread = self._threads(rows["io_thread"])
        named = np.zeros(len(self.world.topics), bool)
        named[topic[topic >= 0]] = True
        self._limit_topics(np.flatnonzero(named))
        w, more, producer = self.world, int(np.count_nonzero(create)), np.empty(len(kind), np.int64)
        producers = table(L.ProducerState, w.producers, len(w.producers) + more)
        links = table(L.LinkState, w.links, len(w.links) + more)
        find_producers(producers, links, cnx, topic, rows["producer_id"], create, producer)
        self.world = w._replace(producers=in_use(producers), links=in_use(links))
        return fed(
            RateRecord,
            rows,
            cnx_place=cnx,
            topic_place=topic,
            producer_place=producer,
            io_thread_place=thread,
            num_messages=np.where(messages == NULL, 1, messages),
        )

    def _places(self, part: str, ids: Array, create: Array) -> Array:
        """Positions of named entities, -1 for unknown ones that no record creates."""
        known = getattr(self.world, part)["name"]
        place = np.full(len(self.names) + 1, -1, np.int64)
        place[known] = np.arange(len(known))
        fresh = ids[create & (ids >= 0) & (place[ids] < 0)]
        if len(fresh):
            fresh, first = np.unique(fresh, return_index=True)
            fresh = fresh[np.argsort(first)]
            place[fresh] = len(known) + np.arange(len(fresh))
            more = {part: len(fresh)}
            if part == "topics":
                more["touched"] = len(fresh)
            self.world = extend(self.world, **more)
            getattr(self.world, part)["name"][len(known) :] = fresh
            if part == "topics":
                self.world.topics["exempt"][len(known) :] = [
                    is_exempt(name) for name in self.names.texts(fresh)
                ]
        return place[ids]

    def _threads(self, values: Array) -> Array:
        """Positions of IO threads, -1 without one."""
        place = np.full(len(values), -1, np.int64)
        if (values == NULL).all():
            return place
        known = self.world.threads["name"]
        for i, name in enumerate(known.tolist()):
            place[values == name] = i
        strange = (place < 0) & (values != NULL)
        if strange.any():
            fresh, number = np.unique(values[strange], return_inverse=True)
            place[strange] = len(known) + number
            self.world = extend(self.world, threads=len(fresh))
            self.world.threads["name"][len(known) :] = fresh
        return place

    def _limit_topics(self, topics: Array) -> None:
        """Build the limiters that the documents in force require for the topics of this batch."""
        bare = topics[self.world.topics["limiter"][topics] < 0]
        if len(bare):
            msgs, size = self._rates(bare)
            limited = (msgs > 0) | (size > 0)
            names = self.world.topics["name"][bare]
            self.world.topics["limiter"][bare[limited]] = self._new_limiters(
                L.TOPIC, names[limited], msgs[limited], size[limited]
            )
        bare = topics[self.world.topics["group"][topics] < 0]
        if len(bare) and self.limits.has_groups:
            known = len(self.world.limiters)
            self._group_topics(bare)
            if len(self.world.limiters) > known:
                # a group whose limiter had been dropped: its topics outside this batch share it
                self._group_topics(np.flatnonzero(self.world.topics["group"] < 0))

    def _rates(self, topics: Array) -> tuple[Array, Array]:
        """Message and byte rates of topics without a limiter, 0 = off."""
        if self.limits.by_name:
            msgs, size, _ = self.limits.topics(self.names.texts(self.world.topics["name"][topics]))
            return msgs, size
        limited = self.world.topics["exempt"][topics] == 0
        msgs, size = (np.where(limited, rate, 0) for rate in self.limits.default())
        return msgs, size

    def _group_topics(self, topics: Array) -> None:
        """Assign topics to the limiters of their resource groups, if these have a limit."""
        group, groups = self.limits.groups(self.names.texts(self.world.topics["name"][topics]))
        for i in sorted({*group.tolist()} - {-1}):
            # not in one statement: a new limiter replaces the arrays of the world
            place = self._group(groups[i])
            self.world.topics["group"][topics[group == i]] = place

    def _group(self, name: str) -> int:
        """Position of a group's limiter, -1 if it has no limit and never had one."""
        text = self.names.intern_one(name)
        e = self.world.limiters
        known = np.flatnonzero((e["kind"] == L.RESOURCE_GROUP) & (e["name"] == text))
        if len(known):
            return int(known[0])
        msgs, size = self.limits.group(name)
        if msgs <= 0 and size <= 0:
            return -1
        return int(
            self._new_limiters(
                L.RESOURCE_GROUP, np.array([text]), np.array([msgs]), np.array([size])
            )[0]
        )

    def _new_limiters(self, kind: Int, names: Array, msgs: Array, size: Array) -> Array:
        first = len(self.world.limiters)
        self.world = extend(self.world, limiters=len(names), buckets=2 * len(names))
        new = self.world.limiters[first:]
        new["kind"], new["name"], new["limit_msgs"], new["limit_bytes"] = kind, names, msgs, size
        return first + np.arange(len(names))

    def judge(
        self, f: Array, start: int, end: int, rows: Records, policies: dict[int, Policy]
    ) -> None:
        """Judge records [start, end) of a feed; `policies` has, by record, the policies of the
        stream.
        """
        at = start
        while at < end:
            status, at = flow.run(self.world, self.out, f, at, end)
            if status == flow.ROOM:
                self.world, self.out = grow(self.world, self.out)
            elif status == flow.WINDOW:
                self._end_window(int(rows["ts_mono_ns"][at]), True)
            elif status == flow.ASK:
                when = Instant(*(int(rows[name][at]) for name in _MOMENT))
                if rows["event_type"][at] == flow.BROKER_STARTED:
                    self._restart(when)
                    self.key["run_wall_ms"], self.key["has_run"] = when.wall_ms, 1
                    self.key["run_seq"] = rows["seq"][at]
                    self.key["run_has_seq"] = rows["has_seq"][at]
                elif rows["event_type"][at] == flow.GAP:
                    self._lose_sight(when, int(rows["gap_from_mono_ns"][at]))
                elif at in policies:
                    self.apply(policies[at], when.mono_ns, when.wall_ms)
                at += 1

    # -- time --------------------------------------------------------------------------------

    def advance(self, clock: int, next_mono: int | None, next_wall: int) -> None:
        """Move to a moment before the key's next record: timers and windows up to it."""
        while True:
            status = flow.advance(self.world, self.out, clock, next_wall)
            if status == flow.ROOM:
                self.world, self.out = grow(self.world, self.out)
            elif status == flow.WINDOW:
                self._end_window(next_mono or 0, next_mono is not None)
            else:
                break
        if not self.key["any"]:
            return
        wall = wall_at(self.world.key, clock, next_wall)
        while flow.window_due(self.world, window_clock(clock, wall)):
            self._end_window(next_mono or 0, next_mono is not None)

    def _end_window(self, next_mono: int, known: bool) -> None:
        w, k = self.world, self.key
        end_ns = int(flow.end_window(w, next_mono, known))
        touched = w.touched[: int(k["touched"])]
        topics = picked(w.topics, touched)
        limit_msgs, limit_bytes = (
            w.limiters[field][topics["limiter"]] for field in ("limit_msgs", "limit_bytes")
        )
        # an idle limiter may have been dropped within the window
        bare = np.flatnonzero(topics["limiter"] < 0)
        if len(bare):
            limit_msgs[bare], limit_bytes[bare] = self._rates(touched[bare])
        groups: list[str | None] = [None] * len(topics)
        if self.limits.has_groups:
            group, of = self.limits.groups(self.names.texts(topics["name"]))
            groups = [of[i] if i >= 0 else None for i in group]
        start = int(k["window_start_ms"])
        end = start + int(k["window_ms"])
        wall = int(NULL) if k["last_wall_ms"] == NULL else end
        self.windows.append(
            Window(
                start,
                end_ns,
                wall,
                int(k["last_feed"]),
                topics,
                limit_msgs,
                limit_bytes,
                groups,
                *self._counted(),
                int(k["max_in_flight"]),
                int(k["buffer_share"]),
            )
        )
        flow.begin_window(w)

    def _counted(self) -> tuple[Array, Array, Array]:
        """Limiters, connections and IO threads with counts in the open window."""
        w = self.world
        limited = (w.limiters["limit_msgs"] > 0) | (w.limiters["limit_bytes"] > 0)
        used = (w.limiters["charged"] != 0) | (w.limiters["most_waiting"] > 0)
        cnxs, threads = (
            (part[level] > 0) | (part["throttles"] > 0) | (part["observed_pauses"] > 0)
            for part, level in ((w.cnxs, "most_in_flight"), (w.threads, "most_pending"))
        )
        return picked(w.limiters, limited & used), picked(w.cnxs, cnxs), w.threads[threads]

    def _restart(self, at: Instant) -> None:
        k = self.key
        if k["any"]:
            before = max(self.mono_at(at.wall_ms), int(k["last_ns"]))
            self.advance(before, None, at.wall_ms)
            self._reserve()
            self._begin_anew(at, before, L.CONNECTION_CLOSED)
        else:
            clock_ms = window_clock(at.mono_ns, at.wall_ms)
            k["any"], k["window_start_ms"] = 1, clock_ms // k["window_ms"] * k["window_ms"]
            self._begin_run(at)

    def _lose_sight(self, at: Instant, from_ns: int) -> None:
        """Records from `from_ns` (NULL: from the beginning) up to now are missing, so the state
        of connections and buckets is unknown. They are reset as after a start, but the run
        continues.
        """
        k = self.key
        seen = int(k["acted_ns"] if k["acted"] else k["last_ns"])
        self._reserve()
        if from_ns != NULL:
            seen = max(seen, min(from_ns, at.mono_ns))
        self._begin_anew(at, seen, L.LOST_SIGHT)

    def _begin_anew(self, at: Instant, settle_ns: int, rule: Int) -> None:
        """Close every connection and empty every limiter."""
        restart(self.world, self.out, at, settle_ns, rule)
        for limiter in range(len(self.world.limiters)):
            forget(self.world, limiter)
        self._begin_run(at)

    def _begin_run(self, at: Instant) -> None:
        k = self.key
        k["last_ns"], k["last_wall_ms"], k["last_feed"] = at
        k["acted"] = 0
        use(self.world, L.BROKER_LIMITER, at.mono_ns)

    def _reserve(self) -> None:
        """Make room for a step outside the kernel, which writes at most one row per place and mark."""
        while flow.no_room(self.world, self.out, len(self.world.limiters)) or (
            self.key["timers"] + len(self.world.limiters) + len(self.world.cnxs) + 1
            > len(self.world.timers)
        ):
            self.world, self.out = grow(self.world, self.out)

    def follow_reports(self) -> None:
        """Leave the reports of the feed where the parameters ignore them."""
        if corrects(self.world) or not self.world.cnxs["observed"].any():
            return
        self._reserve()
        k = self.key
        at = Instant(int(k["last_ns"]), int(k["last_wall_ms"]), int(k["last_feed"]))
        ignore_reports(self.world, self.out, at)

    # -- policies ----------------------------------------------------------------------------

    def apply(self, policy: Policy, now: int, wall: int) -> None:
        """Apply a document, which replaces the one of its scope and name; rebuild the limiters that
        it affects.
        """
        if self.key["any"]:
            self.key["acted"], self.key["acted_ns"] = 1, now
        old = self.documents.get(policy.source)
        if old is not None and policy.wall_ms < old.wall_ms:
            return
        before = self.limits
        self.documents = {**self.documents, policy.source: policy}
        self._resolve()
        if not self.key["any"]:
            self.begin(self.documents)
            return
        self._reserve()
        self._change_topics(before, policy.source, now)
        self._change_groups(policy.source, now)
        msgs, size, sources = self.limits.broker()
        if policy.source in sources or policy.source in before.broker()[2]:
            change_limits(self.world, L.BROKER_LIMITER, msgs, size, now, True)
        self._reserve()
        k = self.key
        k["max_in_flight"] = self.limits.max_in_flight()
        k["buffer_share"] = self.limits.buffer_share()
        self.set_receipt_wait()
        for kind, old_limit, limit in (
            (L.CONNECTION, before.max_in_flight(), k["max_in_flight"]),
            (L.IO_THREAD, before.buffer_share(), k["buffer_share"]),
        ):
            if old_limit > 0 and limit <= 0:
                at = Instant(now, wall, int(k["last_feed"]))
                stop_counting(self.world, self.out, at, kind)

    def _seen(self, topics: Array, now: int) -> Array:
        used = self.world.topics["used_ns"][topics]
        return (used != NEVER) & (now - used < self.key["idle_ns"])

    def _change_topics(self, before: Limits, source: Source, now: int) -> None:
        every = np.arange(len(self.world.topics))
        if not len(every):
            return
        names = self.names.texts(self.world.topics["name"])
        was = before.topics(names)[2]
        msgs, size, sources = self.limits.topics(names)
        changed = np.array(
            [source in a or source in b or a != b for a, b in zip(was, sources, strict=True)], bool
        )
        bare = changed & (self.world.topics["limiter"] < 0) & ((msgs > 0) | (size > 0))
        self.world.topics["limiter"][bare] = self._new_limiters(
            L.TOPIC, self.world.topics["name"][bare], msgs[bare], size[bare]
        )
        self._reserve()
        seen = self._seen(every, now)
        limited = np.flatnonzero(changed & (self.world.topics["limiter"] >= 0))
        # in the order of names: places depend on what has been dropped and come back
        for t in sorted(limited.tolist(), key=lambda t: names[t].encode()):
            limiter = int(self.world.topics["limiter"][t])
            change_limits(self.world, limiter, int(msgs[t]), int(size[t]), now, bool(seen[t]))

    def _change_groups(self, source: Source, now: int) -> None:
        if source[0] not in GROUPING or not len(self.world.topics):
            return
        names = self.names.texts(self.world.topics["name"])
        group, groups = self.limits.groups(names)
        places = np.array([self._group(name) for name in groups] + [-1], np.int64)
        settle_all(self.world, np.int64(now))
        self.world.topics["group"] = places[group]
        regroup(self.world)
        if source[0] != "resource_group":
            return
        text = self.names.intern_one(source[1])
        e = self.world.limiters
        for limiter in np.flatnonzero((e["kind"] == L.RESOURCE_GROUP) & (e["name"] == text)):
            members = np.flatnonzero(self.world.topics["group"] == limiter)
            seen = bool(self._seen(members, now).any())
            self._reserve()
            change_limits(self.world, int(limiter), *self.limits.group(source[1]), now, seen)
