"""What tests share of patterns."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

from state.backlog.declaration import NAME as BACKLOG
from state.producer_ids.declaration import NAME as PRODUCER_IDS
from state.rate_limits.declaration import NAME as RATE_LIMITS
from tests.reference.policies import full_name, namespace_of, without_partition
from tests.unit.state.contract.jobs import JOBS, Job

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


def texts(documents: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(d, sort_keys=True) for d in documents)
