"""Caches of the core and of the reference against the vectors and the cases of Pulsar's classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from state.entry_cache import cache as kernel
from state.entry_cache import layout as L
from state.entry_cache import passes
from state.entry_cache.cursors import others_before
from state.entry_cache.flow import begin_run
from state.entry_cache.layout import NULL
from state.entry_cache.outputs import POLICIES
from state.entry_cache.positions import entry_at, first_from
from state.entry_cache.settings import TRIGGER
from state.entry_cache.world import grow, new_out, new_world, with_cursors, with_topics
from tests.reference.entry_cache import REQUEUES, STASHES, Cache, Settings, at_or_before
from tests.unit.state.recorded import cases, vectors

VECTORS = "entry_cache.json"
QUEUE, MANAGER = "cache-queue-4.2.4.jsonl.gz", "cache-manager-4.2.4.jsonl.gz"
TTL_MAX = "managedLedgerCacheEvictionTimeThresholdMillisMax"
TOPIC = "persistent://t/ns/a"
CELL, CACHE, LEDGER = np.int64(0), np.int64(0), np.int64(0)
NOTHING = L.NEVER_READ


class Core:
    """One cache of one topic, operation by operation; times in any unit."""

    def __init__(self, **settings: Any) -> None:
        w = with_topics(new_world(0, 0, 1), np.zeros(1, np.int64))
        self.world, self.out = w._replace(by_rank=np.zeros(1, np.int64)), new_out()
        begin_run(self.world, np.int64(0))
        self.key, self.now = w.key[0], 0
        self.key["with_evictions"] = 1
        policy = POLICIES.index(settings.get("policy", "expected_reads"))
        self.set(
            policy=policy,
            max_requeue=settings.get("requeue_max", 5),
            extend_recent=settings.get("extend_recently_accessed", True),
            ttl_ns=1000,
            ttl_max_ns=settings.get(TTL_MAX, 5000),
            interval_ns=10,
            merge=settings.get("duplicate_insert", "merge" if policy == L.STASHING else "discard")
            == "merge",
        )
        self.set_size(settings.get("max_bytes"), settings.get("watermark", 0.9))

    def set(self, **settings: int) -> None:
        for name, value in settings.items():
            self.world.variants[0][name] = value

    def set_size(self, size: int | None, watermark: float) -> None:
        known = 0 if size is None else size
        self.set(
            max_bytes=int(NULL) if size is None else size,
            trigger=int(known * TRIGGER),
            goal=int(known * watermark),
        )

    @property
    def used(self) -> int:
        return int(self.cache["used"])

    @property
    def wanted(self) -> int:
        return int(self.cache["wanted"])

    @property
    def non_evictable(self) -> int:
        return self.wanted + int(self.world.cells[0]["bare"])

    @property
    def limits(self) -> tuple[int, int]:
        """The levels at which a size pass begins and ends."""
        return int(self.cache["trigger"]), int(self.cache["goal"])

    def need(self, used: int) -> int:
        """How much a size pass at this level has to free."""
        self.cache["used"] = used
        return int(passes.need_of(self.world, CACHE))

    @property
    def cache(self) -> Any:
        return self.world.variants[0]

    def at(self, now: int) -> None:
        """Room for the next operation, which happens now."""
        self.key["evictions"] = 0
        self.world, self.out = grow(self.world, self.out)
        self.key["now_ns"] = self.now = now

    def insert(self, entry: int, size: int, expected: int, now: int) -> bool:
        self.at(now)
        found = kernel.insert(
            self.world,
            CACHE,
            CELL,
            LEDGER,
            np.int64(entry),
            np.int64(size),
            np.int64(expected),
            NOTHING,
        )
        if found:
            passes.check_size(self.world, self.out, CACHE, np.int64(now), np.int64(now))
        return bool(found)

    def find(self, entry: int) -> int:
        return int(kernel.find(self.world, CELL, LEDGER, np.int64(entry)))

    def look(self, entry: int) -> tuple[bool, int] | None:
        """Whether a cached entry has a counter, and what is expected; None if it is not cached."""
        x = self.find(entry)
        e = self.world.entries[x]
        return (bool(e["counted"]), int(e["expected"])) if x >= 0 else None

    def set_accessed(self, entry: int, accessed: bool) -> None:
        self.world.entries[self.find(entry)]["accessed"] = accessed

    def remove(self, low: int, high: int) -> None:
        """Remove the entries of a range."""
        for entry in range(low, high):
            if (x := self.find(entry)) >= 0:
                kernel.remove(self.world, self.out, CACHE, np.int64(x), L.INVALIDATED)

    def invalidate_all(self) -> None:
        kernel.invalidate_all(self.world, self.out, CACHE, CELL)

    def counts(self, positions: list[int]) -> list[int]:
        """How many of some cursors, which stand at these positions, are at or before each."""
        zeros = np.zeros(len(positions), np.int64)
        w = with_cursors(self.world, zeros, zeros)
        w.cursors["known"] = w.cursors["active"] = w.cursors["has_read"] = 1
        w.cursors["read_entry"] = positions
        return [
            1 + others_before(w, np.int64(0), np.int64(i), L.Position(LEDGER, np.int64(p)))
            for i, p in enumerate(positions)
        ]

    def read(self, entry: int) -> bool:
        x = self.find(entry)
        if x >= 0:
            kernel.hit(self.world, CACHE, np.int64(x), NOTHING)
        return x >= 0

    def change(self, entry: int, by: int) -> bool:
        """Whether there is a counter that could change."""
        x = self.find(entry)
        if x >= 0:
            kernel.change(self.world, CACHE, np.int64(x), np.int64(by))
        return x >= 0 and bool(self.world.entries[x]["counted"])

    def time_pass(self, threshold: int, now: int) -> None:
        self.at(now)
        w, o = self.world, self.out
        passes.time_pass(w, o, CACHE, np.int64(threshold), np.int64(now), np.int64(now))

    def size_pass(self, need: int, now: int) -> None:
        self.at(now)
        w, o = self.world, self.out
        passes.size_pass(w, o, CACHE, np.int64(need), np.int64(now), np.int64(now))

    def periodic_pass(self, due: int) -> None:
        self.at(due + 1)
        passes.periodic_pass(self.world, self.out, CACHE, np.int64(due))

    def invalidate_before(self, entry: int) -> None:
        self.at(self.now)
        kernel.invalidate_before(self.world, self.out, CACHE, CELL, LEDGER, np.int64(entry))

    def removed(self) -> list[int]:
        """Entry ids that the last operation removed, in order."""
        return self.out.evictions["entry"][: int(self.key["evictions"])].tolist()  # type: ignore[no-any-return]

    def number(self, x: int) -> int:
        e = self.world.entries[x]
        return int(entry_at(self.world, np.int64(e["page"]), np.int64(e["slot"])))

    def queue(self, stash: bool = False) -> list[list[Any]]:
        """From the head: entry id, bytes, ts, requeue count, accessed, expected."""
        found, x = [], int(self.cache["stash_head" if stash else "head"])
        while x >= 0:
            e = self.world.entries[x]
            found.append(
                [
                    self.number(x),
                    int(e["bytes"]),
                    int(e["ts"]),
                    int(e["requeue_count"]),
                    bool(e["accessed"]),
                    int(e["expected"]) if e["counted"] else None,
                ]
            )
            x = int(e["next"])
        return found

    def positions(self) -> list[int]:
        """Entry ids through the index, in order."""
        w, found = self.world, []
        p = int(first_from(w, w.sets[0], LEDGER, NULL))
        while p >= 0:
            bits = int(w.pages[p]["bits"])
            found += [int(entry_at(w, p, i)) for i in range(int(L.BLOCK)) if bits >> i & 1]
            p = int(w.pages[p]["next"])
        return found


class Reference:
    """The same of the reference."""

    def __init__(self, **settings: Any) -> None:
        policy = settings.get("policy", REQUEUES)
        self.cache = Cache(
            Settings(
                policy=policy,
                max_bytes=settings.get("max_bytes"),
                watermark=settings.get("watermark", 0.9),
                ttl=1000,
                ttl_max=settings.get(TTL_MAX, 5000),
                max_requeue=settings.get("requeue_max", 5),
                extend_recent=settings.get("extend_recently_accessed", True),
                duplicate_insert=settings.get(
                    "duplicate_insert", "merge" if policy == STASHES else "discard"
                ),
            )
        )
        self.now = 0

    def set(self, **changed: int) -> None:
        s = self.cache.settings
        for name, value in changed.items():
            setattr(
                s,
                {"ttl_ns": "ttl", "ttl_max_ns": "ttl_max", "interval_ns": "interval"}.get(
                    name, name
                ),
                value,
            )

    def set_size(self, size: int | None, watermark: float) -> None:
        self.cache.settings.max_bytes, self.cache.settings.watermark = size, watermark

    used = property(lambda self: self.cache.used)
    wanted = property(lambda self: self.cache.wanted_bytes)
    non_evictable = property(lambda self: self.cache.non_evictable_bytes)
    limits = property(lambda self: (self.cache.settings.trigger, self.cache.settings.goal))

    def need(self, used: int) -> int:
        return self.cache.settings.need(used)

    def at(self, now: int) -> None:
        self.cache.removed.clear()
        self.now = now

    def insert(self, entry: int, size: int, expected: int, now: int) -> bool:
        self.at(now)
        return self.cache.insert(TOPIC, (0, entry), size, expected, now)

    def look(self, entry: int) -> tuple[bool, int] | None:
        e = self.cache.find(TOPIC, (0, entry))
        return None if e is None else (e.expected is not None, e.expected or 0)

    def set_accessed(self, entry: int, accessed: bool) -> None:
        found = self.cache.find(TOPIC, (0, entry))
        assert found is not None
        found.accessed = accessed

    def read(self, entry: int) -> bool:
        return self.cache.read(TOPIC, (0, entry), self.now) is not None

    def change(self, entry: int, by: int) -> bool:
        found = self.cache.find(TOPIC, (0, entry))
        if by == -1 and found is not None:
            self.cache.release(TOPIC, (0, entry))
        elif by == 1:
            return self.cache.replay_queued(TOPIC, (0, entry))
        elif found is not None:
            return found.change(by)
        return found is not None and found.expected is not None

    def time_pass(self, threshold: int, now: int) -> None:
        self.at(now)
        self.cache.time_pass(threshold, now)

    def size_pass(self, need: int, now: int) -> None:
        self.at(now)
        self.cache.size_pass(need, now)

    def periodic_pass(self, due: int) -> None:
        self.at(due)
        self.cache.periodic_pass(due)

    def invalidate_before(self, entry: int) -> None:
        self.cache.invalidate(TOPIC, lambda p: p < (0, entry))

    def invalidate_all(self) -> None:
        self.cache.invalidate(TOPIC, lambda _: True)

    def remove(self, low: int, high: int) -> None:
        self.cache.invalidate(TOPIC, lambda p: low <= p[1] < high)

    def counts(self, positions: list[int]) -> list[int]:
        return [at_or_before(positions, p) for p in positions]

    def removed(self) -> list[int]:
        return [r.entry.position[1] for r in self.cache.removed]

    def queue(self, stash: bool = False) -> list[list[Any]]:
        return [
            [e.position[1], e.bytes, e.ts, e.requeue_count, e.accessed, e.expected]
            for e in (self.cache.stash if stash else self.cache.queue)
        ]

    def positions(self) -> list[int]:
        return sorted(e.position[1] for e in self.cache.entries)


Made = type[Core] | type[Reference]


@pytest.fixture(params=[Core, Reference], ids=["core", "reference"])
def make(request: pytest.FixtureRequest) -> Made:
    """Both implementations answer alike."""
    return request.param


# -- vectors ---------------------------------------------------------------------------------


class Named:
    """A cache whose entries have names."""

    def __init__(self, make: Made, params: dict[str, Any]) -> None:
        self.cache = make(**params)
        self.names: list[str] = []

    def id(self, step: dict[str, Any]) -> int:
        name = step.get("name", step.get("position", "x"))
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def add(self, step: dict[str, Any]) -> bool:
        expected = step.get("active_cursors", step.get("expected", 0))
        return self.cache.insert(self.id(step), step.get("bytes", 10), expected, step.get("ts", 0))

    def shown(self, stash: bool = False) -> list[dict[str, Any]]:
        return [
            {"name": self.names[e[0]], "requeue_count": e[3], "accessed": e[4], "ts": e[2]}
            for e in self.cache.queue(stash)
        ]


@pytest.mark.parametrize("vector", vectors(VECTORS, "removal_queue"), ids=lambda v: v["id"])
def test_removal_queue(vector: dict[str, Any], make: Made) -> None:
    named = Named(make, vector["params"])
    cache = named.cache
    for step in vector["steps"]:
        expect = step["expect"]
        if step["op"] == "add":
            assert named.add(step)
            cache.set_accessed(named.id(step), step.get("accessed", False))
            continue
        if expect.get("error"):
            with pytest.raises(ValueError, match="size pass"):
                cache.size_pass(step["need_bytes"], step["now"])
            continue
        before = cache.used
        if step["op"] == "size_pass":
            cache.size_pass(step["need_bytes"], step["now"])
        else:
            cache.time_pass(step["threshold"], step["now"])
        assert [named.names[i] for i in cache.removed()] == expect["removed"]
        assert before - cache.used == expect["freed"]
        if "stash" in expect:
            assert [e["name"] for e in named.shown(stash=True)] == expect["stash"]
            assert [e["name"] for e in named.shown()] == expect["queue"]
        else:
            assert named.shown() == expect["queue"]


@pytest.mark.parametrize("vector", vectors(VECTORS, "thresholds"), ids=lambda v: v["id"])
def test_thresholds(vector: dict[str, Any], make: Made) -> None:
    cache = make(**vector["params"], **vector["given"])
    trigger, goal = cache.limits
    assert vector["expect"] == {
        "trigger_bytes": trigger,
        "goal_bytes": goal,
        "at_trigger_evict": cache.need(trigger),
        "at_trigger_plus_1_evict": cache.need(trigger + 1),
    }


@pytest.mark.parametrize(
    "vector", vectors(VECTORS, "read_count") + vectors(VECTORS, "insert"), ids=lambda v: v["id"]
)
def test_counts(vector: dict[str, Any], make: Made) -> None:
    named = Named(make, vector["params"])
    cache = named.cache
    for step in vector["steps"]:
        name, shown = named.id(step), {}
        if step["op"] in ("add", "insert"):
            shown["inserted"] = named.add(step)
        elif step["op"] in ("release", "replay"):
            cache.change(name, -1 if step["op"] == "release" else 1)
        elif step["op"] == "mark_evicted":
            cache.invalidate_before(1000)
        elif step["op"] == "increment":
            shown["accepted"] = cache.change(name, step["by"])
        else:
            cache.time_pass(1, 1001)
            shown["removed"] = cache.look(name) is None
        counted, expected = cache.look(name) or (False, 0)
        shown |= {
            "expected": expected,
            "evicted": cache.look(name) is None,
            "has_counter": counted,
            "has_expected_reads": expected > 0,
            "used_bytes": cache.used,
            "wanted_bytes": cache.wanted,
            "non_evictable_bytes": cache.non_evictable,
        }
        assert step["expect"] == {key: shown[key] for key in step["expect"]}


@pytest.mark.parametrize("vector", vectors(VECTORS, "cursor_count"), ids=lambda v: v["id"])
def test_cursor_count(vector: dict[str, Any], make: Made) -> None:
    assert vector["expect"] == {"counts": make().counts(vector["given"]["read_positions"])}


@pytest.mark.parametrize("vector", vectors(VECTORS, "size_trigger"), ids=lambda v: v["id"])
def test_size_trigger(vector: dict[str, Any], make: Made) -> None:
    named = Named(make, vector["params"])
    for step in vector["steps"]:
        assert named.add(step)
        assert step["expect"] == {
            "used_bytes": named.cache.used,
            "queue": [e["name"] for e in named.shown()],
        }


# -- recorded cases --------------------------------------------------------------------------


class Recorded:
    """The operations of the recorded cases; times in nanoseconds."""

    def __init__(self, make: Made, case: dict[str, Any]) -> None:
        self.watermark = case.get("watermark", 0.9)
        self.cache = make(
            requeue_max=case["max_requeue"],
            extend_recently_accessed=case["extend_recent"],
            max_bytes=case.get("max_size"),
            watermark=self.watermark,
        )
        self.cache.set(ttl_ns=1000 * 10**6, ttl_max_ns=5000 * 10**6, interval_ns=10 * 10**6)
        self.time = 0

    def answer(self, op: list[Any]) -> list[Any]:
        found = self.do(*op)
        queue = [[*e[:2], e[2] // 10**6, *e[3:]] for e in self.cache.queue()]
        assert sorted(e[0] for e in queue) == self.cache.positions()
        return [found, self.cache.used, queue]

    def do(self, kind: str, *args: Any) -> Any:
        cache = self.cache
        cache.at(self.time)
        if kind == "put":
            return cache.insert(*args, self.time)
        if kind in ("read", "get", "replay"):
            return self.do_read(kind, args[0])
        if kind == "range":
            return [i for i in range(args[0], args[1] + 1) if cache.read(i)]
        if kind == "nonev":
            kept = [e for e in cache.queue() if e[5] is None or e[5] > 0]
            return [len(kept), cache.non_evictable]
        if kind in ("time", "size", "rm", "clear"):
            return self.do_remove(kind, *args)
        if kind == "inval":
            cache.invalidate_before(args[0])
        elif kind == "+":
            self.time += args[0] * 10**6
        elif kind == "pass":
            cache.periodic_pass(self.time)
        elif kind == "max":
            cache.set_size(args[0], self.watermark)
        else:
            assert kind == "cfg"
            cache.set(max_requeue=args[0], extend_recent=args[1])
        return None

    def do_read(self, kind: str, entry: int) -> str:
        if not self.cache.read(entry):
            return "miss"
        if kind == "read":
            self.cache.change(entry, -1)
        if kind == "replay" and not self.cache.change(entry, 1):
            return "no-handler"
        return "hit"

    def do_remove(self, kind: str, *args: Any) -> Any:
        used = self.cache.used
        if kind == "time":
            self.cache.time_pass(args[0] * 10**6, self.time)
        elif kind == "size":
            try:
                self.cache.size_pass(args[0], self.time)
            except ValueError:
                return "throws IllegalArgumentException"
        elif kind == "rm":
            low, high, whole = args
            self.cache.remove(low, high + (1 if whole else 0))
        else:
            self.cache.invalidate_all()
        return [len(self.cache.removed()), used - self.cache.used]


@pytest.mark.parametrize("case", cases(QUEUE) + cases(MANAGER), ids=lambda c: c["id"])
def test_released_classes(case: dict[str, Any], make: Made) -> None:
    recorded = Recorded(make, case)
    for i, (op, out) in enumerate(zip(case["ops"], case["out"], strict=True)):
        assert recorded.answer(op) == out, f"operation {i}: {op}"
