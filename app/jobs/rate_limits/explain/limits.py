"""The source of a publish limit: the policy document that held at a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Row
from state.engine.documents import Source, source_of
from state.engine.globs import SCOPES as PATTERNS
from state.policies import parse_document
from state.rate_limits.limits import Limits

CONFIGURATION = "configuration"
"""The table name of a configured document."""


@dataclass(frozen=True)
class Limit:
    """A publish limit per second and the document that sets it."""

    msgs: int
    bytes: int
    document: Row


@dataclass
class DecidedPolicies:
    """The documents of the archive, and those of the configuration for rows decided under it."""

    reader: SnapshotReader
    until_ms: int
    """Later documents are not read."""
    configured: Sequence[Mapping[str, Any]] = ()
    params_hash: str | None = None
    """That of the job under the configuration; other rows were decided without it."""
    _resolved: dict[Any, tuple[Limits, dict[Source, Row]]] = field(default_factory=dict)

    def limit(self, decision: Row, topic: str, at_ms: int) -> Limit | None:
        """The limit of a topic at a moment, by the documents that are known; None without any."""
        limits, documents = self._at(decision, at_ms)
        if not documents:
            return None
        msgs, size, (sources,) = limits.topics([topic])
        if not sources:
            return None
        known = [documents[source] for source in sources if source in documents]
        return Limit(int(msgs[0]), int(size[0]), _together(known))

    def is_configured(self, decision: Row) -> bool:
        """Whether a row was decided under the present configuration."""
        return bool(decision["params_hash"] == self.params_hash)

    def _at(self, decision: Row, at_ms: int) -> tuple[Limits, dict[Source, Row]]:
        cluster, broker = decision["cluster"], decision["broker"]
        known = [] if not self.is_configured(decision) else self.configured
        held = [
            row
            for row in self._records
            if row["ts_wall_ms"] <= at_ms
            and row["cluster"] == cluster
            and row["broker"] in (broker, "*")
        ]
        where = (cluster, broker, bool(known), len(held))
        if where not in self._resolved:
            documents = {
                source_of(document): Row(
                    CONFIGURATION,
                    {
                        "scope": _written(document["scope"]),
                        "name": document["name"],
                    },
                    {**document, **document["limits"]},
                    "",
                )
                for document in known
            }
            for row in held:
                document, _ = parse_document(row["policy_json"])
                if document is not None:
                    document = {"limits": {}, **document}
                    merged = {**row.values, **document, **document["limits"]}
                    documents[source_of(document)] = Row(row.table, row.key, merged, row.sql)
            limits = {source: row["limits"] for source, row in documents.items()}
            self._resolved[where] = Limits(limits, broker), documents
        return self._resolved[where]

    @cached_property
    def _records(self) -> list[Row]:
        """Policy records of the archive up to the requested time, in order of time."""
        return self.reader.rows(
            "events",
            "t.event_type = 'policy' AND t.ts_wall_ms <= $until",
            {"until": self.until_ms},
            "ORDER BY t.ts_wall_ms, t.seq",
        )


def _together(documents: Sequence[Row]) -> Row:
    """The document that gives a limit; of several patterns the strongest, with the limits of all."""
    first, *others = documents
    if not others or _written(first["scope"]) == first["scope"]:
        return first
    values: dict[str, Any] = {}
    for row in reversed(documents):
        values.update(row.values)
    return Row(first.table, first.key, values, first.sql)


def _written(scope: str) -> str:
    """A scope as a configuration has it."""
    return scope[:-1] if scope in PATTERNS else scope
