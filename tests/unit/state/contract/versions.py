"""What tests share of versions."""

from __future__ import annotations

import random

from app.config.levels import compiled
from tests.unit.state.contract.jobs import Job
from tests.unit.state.contract.patterns import LIMITS, patterns, texts

SIZES = (0, 1, 7)


def documents(job: Job, names: dict[str, list[str]], order: random.Random) -> tuple[str, ...]:
    """What a configuration has of some names, and of patterns."""
    if job.name == "entry_cache":
        found = [
            {
                "scope": "broker",
                "name": order.choice(("*", "b1")),
                "limits": {"managedLedgerCacheSizeMB": order.choice(SIZES)},
            }
        ]
        return tuple(texts(found[: order.randrange(2)]))
    scopes = [s for s in ("user", "topic", "namespace") if names[s]]
    scopes = [s for s in scopes if (s == "user") == (job.name == "producer_ids")]
    exact = {}
    for _ in range(order.randrange(3)):
        scope = order.choice(scopes) if scopes else "namespace"
        name = order.choice(names[scope] or ["a/b"])
        limits = order.choice([x for x in LIMITS[job.name] if "resource_group" not in x])
        exact[scope, name] = {"scope": scope, "name": name, "limits": limits}
    many = patterns(job, names, order) if scopes and order.random() < 0.5 else []
    return tuple(texts(compiled([*many, *exact.values()])))
