"""What the states of the jobs know: by names, in one order, free of where it lies in the arrays and
of what nothing can notice any more. Two states that know the same go on alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from state.backlog import layout as L
from state.chunks import shard as chunk_shard
from state.client_quotas import shard as client_quota_shard
from state.client_quotas.operator import ClientQuotas
from state.entry_cache.operator import EntryCache
from state.entry_cache.store import pack
from state.producer_ids import shard as producer_id_shard
from tests.reference.words import words
from tests.unit.state.canonical import canonical
from tests.unit.state.contract import awake
from tests.unit.state.shipping import Row, params_of


def rate_limits(state: bytes, params: Row, policies: Sequence[str]) -> Any:
    """Everything of the brokers that a later call could notice."""
    return canonical(state, tuple(policies))


def chunks(state: bytes, params: Row, policies: Sequence[str]) -> dict[Any, Any]:
    """What a state says of its consumers, free of places and of what is as good as forgotten."""
    s = chunk_shard.read(state)
    p = s.parts

    def text(i: int) -> str | None:
        return s.names.get(int(i)) if i >= 0 else None

    found: dict[Any, Any] = {}
    for i, e in enumerate(p["consumers"]):
        sub = p["subs"][e["sub"]]
        place = text(p["keys"][e["key"]]["topic"]), text(sub["name"]), text(e["name"])
        contexts = []
        for c in [c for c in range(len(p["contexts"])) if p["contexts"][c]["consumer"] == i]:
            x = p["contexts"][c]
            mine = p["buffered"][p["buffered"]["context"] == c]
            contexts.append(
                (
                    text(x["uuid"]),
                    int(x["last"]),
                    int(x["first_ms"]),
                    int(x["buffered"]),
                    [(int(n["ledger_id"]), int(n["entry_id"])) for n in mine],
                    int(x["more_ledger"]),
                )
            )
        if contexts or e["counter"]:
            found[place] = (
                int(e["counter"]),
                int(e["lost"]),
                int(e["start_ms"]),
                int(e["open"]),
                contexts,
                [int(x["hash"]) for x in p["fifo"] if x["consumer"] == i],
            )
    return found


def producer_ids(state: bytes, params: Row, policies: Sequence[str]) -> dict[Any, Any]:
    """What a state says of its users, free of places and of what is as good as forgotten."""
    s = producer_id_shard.read(state)
    p = s.parts
    sizes = [
        1 if s.shape[2] else (s.shape[0] + 63) // 64 if f["dense"] else int(f["items"])
        for f in p["filters"]
    ]
    at = ids = samples = 0
    filters: dict[int, list[Any]] = {i: [] for i in range(len(p["keys"]))}
    for f, size in zip(p["filters"], sizes, strict=True):
        items = int(f["items"])
        members = sorted(p["ids"][ids : ids + items].tolist())
        content = p["words"][at : at + size].tolist() if not s.shape[2] else members
        filters[int(f["key"])].append((int(f["created_ms"]), items, int(f["set"]), content))
        at, ids = at + size * (not s.shape[2]), ids + items * s.shape[2]
    found: dict[Any, Any] = {}
    for i, k in enumerate(p["keys"]):
        n = int(k["used"])
        mine = slice(samples, samples + n)
        samples += n
        counted = sorted(
            (int(c["pid"]), int(c["at_ms"])) for c in p["counted"][p["counted"]["owner"] == i]
        )
        who = tuple(s.names.get(int(k[f])) for f in ("cluster", "broker", "user"))
        found[who] = (
            float(k["tokens"]),
            int(k["refilled_ms"]),
            int(k["recorded_ms"]),
            int(k["current"]),
            [p[f"sample_{x}"][mine].tolist() for x in ("start", "last", "total")],
            filters[i],
            counted,
            int(k["clock_ms"]),
            int(k["open"]),
            (int(k["window_ms"]), int(k["seen"]), int(k["rejected"])) if k["open"] else None,
        )
    return found


def client_quotas(state: bytes, params: Row, policies: Sequence[str]) -> dict[Any, Any]:
    """What a state says of its brokers, free of places and of what is as good as forgotten."""
    s = awake.client_quotas(state)
    core = ClientQuotas(params_of("client_quotas", **params), policies)
    w = core.world(s, s.parts["keys"], np.zeros((0, 3), np.int64))
    p = client_quota_shard.pack(w)

    def text(i: Any) -> str | None:
        return s.names.get(int(i)) if i >= 0 else None

    brokers = [(text(k["cluster"]), text(k["broker"])) for k in p["keys"]]
    found: dict[Any, Any] = {
        place: (int(k["clock_ms"]), int(k["began"]), int(k["kinds"]) if k["began"] else None)
        for place, k in zip(brokers, p["keys"], strict=True)
    }
    at = 0
    for e in p["sensors"]:
        mine = slice(at, at + int(e["held"]))
        at += int(e["held"])
        found[brokers[e["key"]], int(e["type"]), text(e["user"]), text(e["client"])] = (
            [
                e[name].item()
                for name in ("tokens", "refilled_ms", "recorded_ms", "used", "current")
            ],
            [p[f"sample_{x}"][mine].tolist() for x in ("start", "last", "total")],
        )
    for part, texts in (
        ("stats", ("user", "client", "feed")),
        ("usage", ("api", "principal", "client", "topic", "feed")),
    ):
        for e in p[part]:
            values = {
                name: text(e[name]) if name in texts else e[name].item()
                for name in e.dtype.names
                if name != "key"
            }
            who = tuple(values[name] for name in e.dtype.names[1:6])
            found[brokers[e["key"]], part, who] = str(values)
    return found


def backlog(state: bytes, params: Row, policies: Sequence[str]) -> dict[Any, Any]:
    """What a state says of its topics, free of places and of what nobody can see."""
    s = awake.backlog(state)
    p, at = s.parts, {"ledgers": 0, "samples": 0, "ranges": 0}

    def block(name: str, count: int) -> list[Any]:
        begin = at[name]
        at[name] += int(count)
        return p[name][:, begin : at[name]].T.tolist()

    def text(name: Any) -> str | None:
        return None if name < 0 else s.names.get(int(name))

    found: dict[Any, Any] = {}
    for i, k in enumerate(p["keys"]):
        ledgers, samples = p["counts"][:, i]
        producers = p["producers"][p["producers"]["key"] == i]
        about: dict[str, Any] = {
            "ledgers": block("ledgers", ledgers),
            "samples": block("samples", samples),
            "producers": sorted((text(x["connection"]), int(x["producer"])) for x in producers),
            "clock": int(k["clock_ms"]),
            "was": int(k["was"]),
            "state": int(k["has_state"]),
            "last": (int(k["last_ms"]), int(k["last_ns"]), text(k["broker"]), text(k["feed"])),
        }
        if k["seen_ledger"] != L.NULL:
            about["seen"] = [int(k[f]) for f in ("seen_ledger", "seen_entry", "second", "kept")]
        if k["cached"]:
            about["cached"] = (
                [int(k[f]) for f in ("cached_ledger", "cached_entry", "cached_ms")],
                text(k["cached_name"]),
                bool(k["cached_version"] == k["version"]),
            )
        for j in np.flatnonzero(p["cursors"]["key"] == i):
            c, n = p["cursors"][j], int(p["cursors"][j]["checks"])
            consumed = p["seen_consumed"][j]
            about[f"cursor {text(c['name'])}"] = (
                [
                    int(c[f])
                    for f in words(
                        "durable ledger entry first_ms was checks floor_ledger before_ledger"
                    )
                ],
                int(c["first_source"]) if c["first_ms"] != L.NULL else None,
                int(c["floor_entry"]) if c["floor_ledger"] != L.NULL else None,
                int(c["before_entry"]) if c["before_ledger"] != L.NULL else None,
                block("ranges", p["range_count"][j]),
                [
                    x[len(x) - n :].tolist()
                    for x in (p["passes"][i], p["seen_bytes"][j], consumed - consumed[-1])
                ],
            )
        found[text(k["cluster"]), text(k["topic"])] = about
    return found


def entry_cache(state: bytes, params: Row, policies: Sequence[str]) -> dict[Any, Any]:
    """What a state says of each broker, by names."""
    shard = EntryCache(params_of("entry_cache", **params), policies).shard_of(state)

    def text(name: Any) -> str:
        return shard.names.get(int(name))

    found = {}
    for b in shard.brokers.values():
        parts = pack(b.world)
        cursors = [
            (
                text(c["name"]),
                *(
                    int(c[f])
                    for f in words("topic known active has_read has_mark told durable backlog")
                ),
                *(int(c[f]) for f in ("read_ledger", "read_entry") if c["has_read"]),
            )
            for c in parts["cursors"]
        ]
        flags = sorted(
            (cursors[int(f["cursor"])][:2], int(f["ledger"]), int(f["entry"]))
            for f in parts["flags"]
        )
        levels = ("used", "count", "wanted", "bare", "held", "hits", "inserted", "extended")
        caches = words(
            "policy used wanted aside topics passed_ns hits entries_visited max_used most_used"
            " most_wanted passes work"
        )
        key = words(
            "clock_ns last_ns window_start_ms started_ns touched entries eviction_ns eviction_no"
            " read_ns read_no pages"
        )
        found[text(b.key["broker"])] = {
            "key": [int(b.key[f]) for f in key],
            "topics": [
                (
                    text(t["name"]),
                    *(
                        int(t[f])
                        for f in words(
                            "cursors active flags seen_ns left_ns has_persisted event check_ns"
                        )
                    ),
                )
                for t in parts["topics"]
            ],
            "cells": [[int(c[f]) for f in levels] for c in parts["cells"]],
            "caches": [[int(c[f]) for f in caches] for c in parts["variants"]],
            "ledgers": parts["ledgers"].tolist(),
            "entries": parts["entries"].tolist(),
            "cursors": sorted(cursors),
            "flags": flags,
        }
    return found
