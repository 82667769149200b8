"""The latest policy documents of the stream by cluster, from the archive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.read.relations import Warehouse, connect_once
from app.terminal.moments import instant_of
from state.engine.documents import Source, source_of
from state.policies import parse_document


@dataclass(frozen=True)
class LastPolicy:
    """A document and its place in the archive."""

    document: dict[str, Any]
    where: str


def last_policies(
    warehouse: Warehouse,
    at_ms: int | None = None,
    cluster: str | None = None,
    feed: str | None = None,
) -> dict[str | None, dict[Source, LastPolicy]]:
    """The latest documents up to a moment, by cluster, scope and name; none without an archive.
    `cluster` and `feed` leave out those of others."""
    if warehouse.open("events") is None:
        return {}
    parameters: dict[str, Any] = {}
    # The second leaves out files without documents, by the statistics of the archive.
    wanted = ["event_type = 'policy'", "policy_json IS NOT NULL"]
    for clause, key, value in (
        ("ts_wall_ms <= $at", "at", at_ms),
        ("cluster = $cluster", "cluster", cluster),
        ("source_feed = $feed", "feed", feed),
    ):
        if value is not None:
            wanted.append(clause)
            parameters[key] = value
    sql = (
        "SELECT cluster, policy_json, ts_wall_ms, source_partition, source_offset FROM events"
        f" WHERE {' AND '.join(wanted)} ORDER BY ts_wall_ms, seq"
    )
    with connect_once(warehouse, sql, parameters) as connection:
        rows = connection.execute(sql, parameters).fetchall()
    found: dict[str | None, dict[Source, LastPolicy]] = {}
    for where, text, wall_ms, partition, offset in rows:
        document, _ = parse_document(text)
        if document is None:
            continue
        place = f"stream at {instant_of(wall_ms)}, {partition} offset {offset}"
        found.setdefault(where, {})[source_of(document)] = LastPolicy(document, place)
    return found
