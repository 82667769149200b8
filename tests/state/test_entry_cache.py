"""The caches of the job entry_cache against its vectors and the cases of Pulsar's classes."""

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
from state.entry_cache.positions import entry_at, first_from
from state.entry_cache.settings import TRIGGER
from state.entry_cache.world import grow, new_out, new_world, with_cursors, with_topics
from tests.state.recorded import cases, vectors

VECTORS = "entry_cache.json"
QUEUE, MANAGER = "cache-queue-4.2.4.jsonl.gz", "cache-manager-4.2.4.jsonl.gz"
TTL_MAX = "managedLedgerCacheEvictionTimeThresholdMillisMax"
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
        policy = L.POLICIES.index(settings.get("policy", "expected_reads"))
        self.set(
            policy=policy, max_requeue=settings.get("requeue_max", 5),
            extend_recent=settings.get("extend_recently_accessed", True),
            ttl_ns=1000, ttl_max_ns=settings.get(TTL_MAX, 5000), interval_ns=10,
            merge=settings.get(
                "duplicate_insert", "merge" if policy == L.STASHING else "discard"
            ) == "merge",
        )
        self.set_size(settings.get("max_bytes"), settings.get("watermark", 0.9))

    def set(self, **settings: int) -> None:
        for name, value in settings.items():
            self.world.variants[0][name] = value

    def set_size(self, size: int | None, watermark: float) -> None:
        known = 0 if size is None else size
        self.set(max_bytes=int(NULL) if size is None else size, trigger=int(known * TRIGGER),
                 goal=int(known * watermark))

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
            self.world, CACHE, CELL, LEDGER, np.int64(entry), np.int64(size), np.int64(expected),
            NOTHING,
        )
        if found:
            passes.check_size(self.world, self.out, CACHE, np.int64(now), np.int64(now))
        return bool(found)

    def find(self, entry: int) -> int:
        return int(kernel.find(self.world, CELL, LEDGER, np.int64(entry)))

    def entry(self, entry: int) -> Any:
        """The element of a cached entry, None if there is none."""
        x = self.find(entry)
        return self.world.entries[x] if x >= 0 else None

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

    def queue(self, head: str = "head") -> list[list[Any]]:
        """From the head: entry id, bytes, ts, requeue count, accessed, expected."""
        found, x = [], int(self.cache[head])
        while x >= 0:
            e = self.world.entries[x]
            found.append([
                self.number(x), int(e["bytes"]), int(e["ts"]), int(e["requeue_count"]),
                bool(e["accessed"]), int(e["expected"]) if e["counted"] else None,
            ])
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


# -- vectors ---------------------------------------------------------------------------------


class Named(Core):
    """Entries by name."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(**params)
        self.names: list[str] = []

    def id(self, step: dict[str, Any]) -> int:
        name = step.get("name", step.get("position", "x"))
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def add(self, step: dict[str, Any]) -> bool:
        expected = step.get("active_cursors", step.get("expected", 0))
        return self.insert(self.id(step), step.get("bytes", 10), expected, step.get("ts", 0))

    def shown(self, head: str = "head") -> list[dict[str, Any]]:
        return [
            {"name": self.names[e[0]], "requeue_count": e[3], "accessed": e[4], "ts": e[2]}
            for e in self.queue(head)
        ]


@pytest.mark.parametrize("vector", vectors(VECTORS, "removal_queue"), ids=lambda v: v["id"])
def test_removal_queue(vector: dict[str, Any]) -> None:
    core = Named(vector["params"])
    for step in vector["steps"]:
        expect = step["expect"]
        if step["op"] == "add":
            assert core.add(step)
            core.entry(core.id(step))["accessed"] = step.get("accessed", False)
            continue
        if expect.get("error"):
            with pytest.raises(ValueError, match="size pass"):
                core.size_pass(step["need_bytes"], step["now"])
            continue
        before = int(core.cache["used"])
        if step["op"] == "size_pass":
            core.size_pass(step["need_bytes"], step["now"])
        else:
            core.time_pass(step["threshold"], step["now"])
        assert [core.names[i] for i in core.removed()] == expect["removed"]
        assert before - core.cache["used"] == expect["freed"]
        if "stash" in expect:
            assert [e["name"] for e in core.shown("stash_head")] == expect["stash"]
            assert [e["name"] for e in core.shown()] == expect["queue"]
        else:
            assert core.shown() == expect["queue"]


@pytest.mark.parametrize("vector", vectors(VECTORS, "thresholds"), ids=lambda v: v["id"])
def test_thresholds(vector: dict[str, Any]) -> None:
    core = Core(**vector["params"], **vector["given"])

    def need(used: int) -> int:
        core.cache["used"] = used
        return int(passes.need_of(core.world, CACHE))

    trigger = int(core.cache["trigger"])
    assert vector["expect"] == {
        "trigger_bytes": trigger, "goal_bytes": core.cache["goal"],
        "at_trigger_evict": need(trigger), "at_trigger_plus_1_evict": need(trigger + 1),
    }


@pytest.mark.parametrize(
    "vector", vectors(VECTORS, "read_count") + vectors(VECTORS, "insert"), ids=lambda v: v["id"]
)
def test_counts(vector: dict[str, Any]) -> None:
    core = Named(vector["params"])
    for step in vector["steps"]:
        name, shown = core.id(step), {}
        if step["op"] in ("add", "insert"):
            shown["inserted"] = core.add(step)
        elif step["op"] in ("release", "replay"):
            core.change(name, -1 if step["op"] == "release" else 1)
        elif step["op"] == "mark_evicted":
            core.invalidate_before(1000)
        elif step["op"] == "increment":
            shown["accepted"] = core.change(name, step["by"])
        else:
            core.time_pass(1, 1001)
            shown["removed"] = core.find(name) < 0
        e = core.entry(name)
        shown |= {
            "expected": 0 if e is None else e["expected"], "evicted": e is None,
            "has_counter": e is not None and bool(e["counted"]),
            "has_expected_reads": e is not None and bool(e["expected"] > 0),
            "used_bytes": core.cache["used"], "wanted_bytes": core.cache["wanted"],
            "non_evictable_bytes": core.cache["wanted"] + core.world.cells[0]["bare"],
        }
        assert step["expect"] == {key: shown[key] for key in step["expect"]}


@pytest.mark.parametrize("vector", vectors(VECTORS, "cursor_count"), ids=lambda v: v["id"])
def test_cursor_count(vector: dict[str, Any]) -> None:
    positions = vector["given"]["read_positions"]
    zeros = np.zeros(len(positions), np.int64)
    w = with_cursors(Core().world, zeros, zeros)
    w.cursors["known"] = w.cursors["active"] = w.cursors["has_read"] = 1
    w.cursors["read_entry"] = positions
    counts = [
        1 + others_before(w, np.int64(0), np.int64(i), LEDGER, np.int64(p))
        for i, p in enumerate(positions)
    ]
    assert vector["expect"] == {"counts": counts}


@pytest.mark.parametrize("vector", vectors(VECTORS, "size_trigger"), ids=lambda v: v["id"])
def test_size_trigger(vector: dict[str, Any]) -> None:
    core = Named(vector["params"])
    for step in vector["steps"]:
        assert core.add(step)
        assert step["expect"] == {
            "used_bytes": core.cache["used"], "queue": [e["name"] for e in core.shown()]
        }


# -- recorded cases --------------------------------------------------------------------------


class Recorded(Core):
    """The operations of the recorded cases; times in nanoseconds."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(
            requeue_max=case["max_requeue"], extend_recently_accessed=case["extend_recent"],
            max_bytes=case.get("max_size"), watermark=case.get("watermark", 0.9),
        )
        self.watermark = case.get("watermark", 0.9)
        self.set(ttl_ns=1000 * 10**6, ttl_max_ns=5000 * 10**6, interval_ns=10 * 10**6)
        self.time = 0

    def answer(self, op: list[Any]) -> list[Any]:
        found = self.do(*op)
        queue = [[*e[:2], e[2] // 10**6, *e[3:]] for e in self.queue()]
        assert sorted(e[0] for e in queue) == self.positions()
        return [found, self.cache["used"], queue]

    def do(self, kind: str, *args: Any) -> Any:
        self.at(self.time)
        if kind == "put":
            return self.insert(*args, self.time)
        if kind in ("read", "get", "replay"):
            return self.do_read(kind, args[0])
        if kind == "range":
            return [i for i in range(args[0], args[1] + 1) if self.read(i)]
        if kind == "nonev":
            kept = [e for e in self.queue() if e[5] is None or e[5] > 0]
            return [len(kept), self.cache["wanted"] + self.world.cells[0]["bare"]]
        if kind in ("time", "size", "rm", "clear"):
            return self.do_remove(kind, *args)
        if kind == "inval":
            self.invalidate_before(args[0])
        elif kind == "+":
            self.time += args[0] * 10**6
        elif kind == "pass":
            self.periodic_pass(self.time)
        elif kind == "max":
            self.set_size(args[0], self.watermark)
        else:
            assert kind == "cfg"
            self.set(max_requeue=args[0], extend_recent=args[1])
        return None

    def do_read(self, kind: str, entry: int) -> str:
        if not self.read(entry):
            return "miss"
        if kind == "read":
            self.change(entry, -1)
        if kind == "replay" and not self.change(entry, 1):
            return "no-handler"
        return "hit"

    def do_remove(self, kind: str, *args: Any) -> Any:
        used = int(self.cache["used"])
        if kind == "time":
            self.time_pass(args[0] * 10**6, self.time)
        elif kind == "size":
            try:
                self.size_pass(args[0], self.time)
            except ValueError:
                return "throws IllegalArgumentException"
        elif kind == "rm":
            low, high, whole = args
            for entry in range(low, high + (1 if whole else 0)):
                if (x := self.find(entry)) >= 0:
                    kernel.remove(self.world, self.out, CACHE, np.int64(x), L.INVALIDATED)
        else:
            kernel.invalidate_all(self.world, self.out, CACHE, CELL)
        return [len(self.removed()), used - self.cache["used"]]


@pytest.mark.parametrize("case", cases(QUEUE) + cases(MANAGER), ids=lambda c: c["id"])
def test_released_classes(case: dict[str, Any]) -> None:
    recorded = Recorded(case)
    for i, (op, out) in enumerate(zip(case["ops"], case["out"], strict=True)):
        assert recorded.answer(op) == out, f"operation {i}: {op}"
