"""The limits that brokers have, by the `policy` records of a warehouse, as files would have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.config.policies import KNOWN_KEYS, SCOPES, WITH_PATTERNS
from app.config.policy_files import WrittenDocument
from app.errors import UserError
from app.read.last_policies import LastPolicy, last_policies
from app.read.relations import Warehouse
from state.engine.globs import escaped


def limits_in_force(warehouse: Path, cluster: str | None = None) -> list[WrittenDocument]:
    """The latest documents of a cluster that set a limit; UserError where there are several clusters."""
    by_cluster = limits_by_cluster(Warehouse(str(warehouse)), cluster)
    if len(by_cluster) > 1:
        names = ", ".join(sorted(map(str, by_cluster)))
        raise UserError(f"{warehouse}: has the limits of several clusters\n--cluster: {names}")
    return next(iter(by_cluster.values()), [])


def limits_by_cluster(
    warehouse: Warehouse, cluster: str | None = None, feed: str | None = None
) -> dict[str | None, list[WrittenDocument]]:
    """The same of each cluster, or of one; those that a feed has told, or all."""
    return {
        name: [
            WrittenDocument(warehouse.uri, where, document)
            for document, where in map(_document, every.values())
            if document["limits"]
        ]
        for name, every in last_policies(warehouse, cluster=cluster, feed=feed).items()
    }


def _document(last: LastPolicy) -> tuple[dict[str, Any], str]:
    """A document in which the name is a pattern, without keys and limits that files may not have."""
    scope, name = last.document["scope"], last.document["name"]
    written = {
        **{key: value for key, value in last.document.items() if key in KNOWN_KEYS},
        "name": escaped(name) if scope in WITH_PATTERNS else name,
        "limits": {
            key: limit
            for key, limit in (last.document.get("limits") or {}).items()
            if key in SCOPES[scope]
        },
    }
    return written, last.where
