"""Documents for many names: rows are those of a document for each name that they match."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.levels import compiled
from state.backlog.declaration import NAME as BACKLOG
from state.engine.globs import SCOPES
from state.producer_ids.declaration import NAME as PRODUCER_IDS
from state.rate_limits.declaration import NAME as RATE_LIMITS
from tests.reference.policies import full_name, namespace_of, without_partition
from tests.support.effort import drawn
from tests.unit.state.contract.jobs import JOBS, Job, Sample, assert_same, cut, with_walls
from tests.unit.state.contract.test_traces import SEEDS

RATES = (
    {"publishRateInMsgs": 2},
    {"publishRateInBytes": 64},
    {"publishRateInMsgs": -1},
    {"publishRateInMsgs": 7, "publishRateInBytes": 200},
)
QUOTAS = tuple(
    {"backlog_quota": quota}
    for quota in (
        {"destination_storage": {"limitSize": 300, "policy": "producer_exception"}},
        {"message_age": {"limitTime": 2, "policy": "consumer_backlog_eviction"}},
        {"destination_storage": {"limitSize": -1}},
    )
)
LIMITS = {
    RATE_LIMITS: (*RATES, {"resource_group": "g"}, {"resource_group": "g2", **RATES[0]}),
    BACKLOG: QUOTAS,
    PRODUCER_IDS: ({"producer_ids_rate": 1}, {"producer_ids_rate": 4}, {"producer_ids_rate": -1}),
}
KINDS = [(JOBS[name], kind) for name in LIMITS for kind in JOBS[name].traces]


def names_of(records: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """All names of the records by the scope that documents have for them."""
    topics = {without_partition(full_name(r["topic"])) for r in records if r.get("topic")}
    users = {r["principal"].split(":", 1)[-1] for r in records if r.get("principal")}
    namespaces = {name for name in map(namespace_of, topics) if name}
    return {
        "topic": sorted(topics),
        "namespace": sorted(namespaces),
        "user": sorted(users),
        "tenant": sorted({name.split("/")[0] for name in namespaces}),
    }


def patterns(job: Job, names: dict[str, list[str]], order: random.Random) -> list[dict[str, Any]]:
    """Some documents for many names, each matching some of the names."""
    scopes = [
        scope
        for scope in (["user"] if job.name == PRODUCER_IDS else ["topic", "namespace", "tenant"])
        if names[scope]
    ]
    found = {}
    for _ in range(order.randrange(1, 6)):
        scope = order.choice(scopes)
        name = order.choice(names[scope])
        keep = order.randrange(len(name) + 1)
        pattern = order.choice((name[:keep] + "**", "**" + name[keep:], name[:-1] + "?", "**"))
        limits = order.choice(
            [
                limits
                for limits in LIMITS[job.name]
                if scope != "topic" or "resource_group" not in limits
            ]
        )
        pattern = pattern if scope != "tenant" else order.choice((name, "*", name[:1] + "*"))
        found[scope, pattern] = {"scope": scope, "name": pattern, "limits": limits}
    return list(found.values())


@pytest.mark.parametrize(
    ("judge", "traces"), KINDS, ids=lambda x: getattr(x, "name", x).replace(" ", "-")
)
def test_patterns_judge_as_a_document_for_each_name(judge: Job, traces: str) -> None:
    job = judge

    @drawn(40)
    @given(job.traces[traces], SEEDS, st.booleans())
    def check(trace: Any, seed: int, in_pieces: bool) -> None:
        order, by = random.Random(seed), job.sample(trace)
        names = names_of(by.records)
        many = patterns(job, names, order) if any(names.values()) else []
        exact = [json.loads(text) for text in by.policies]
        said = {(d["scope"], full_name(d["name"])) for d in exact}
        blank = [
            {"scope": scope, "name": name, "limits": {}}
            for scope in ("topic", "namespace", "user")
            for name in names[scope]
            if (scope, full_name(name)) not in said
        ]
        config = texts(compiled([*many, *exact]))
        resolved = texts(d for d in compiled([*many, *exact, *blank]) if d["scope"] not in SCOPES)
        batches = cut(with_walls(by.records), order) if in_pieces else [by.records]
        rows = [
            job.play(batches, Sample((), by.params, policies, by.until_ms))
            for policies in (config, resolved)
        ]
        assert_same(*rows)

    check()


def texts(documents: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(d, sort_keys=True) for d in documents)
