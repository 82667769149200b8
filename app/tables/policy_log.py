"""The configured policies that a query has judged by, version by version.

The log is in the query's checkpoint, and a version is written before any batch judges by it. So a
repeated batch, a restart and a replay take the same documents at the same time of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.tables import checkpoints
from app.tables.json_documents import Document
from app.tables.small_files import Damaged, path_in
from state.engine.documents import Version, changes

if TYPE_CHECKING:
    from app.config.location import Location

Policies = list[dict[str, Any]]
"""Documents as the jobs have them."""


@dataclass(frozen=True)
class TakenVersion:
    """A version that a query judges by."""

    number: int
    batch: int
    """First batch that judges by it."""
    since_ms: int | None
    """Event time from which it holds (ms); None for the beginning."""
    read_ms: int
    policy_hash: str
    author: str | None
    changed: list[tuple[str, str, str | None]]
    """Scope, name and text of the documents that differ from the version before; the text is None
    for a removed one.
    """
    hashes: dict[str, str]
    """`params_hash` by job."""

    @property
    def version(self) -> Version:
        """The version in the form that jobs take."""
        changed = {(scope, name): text for scope, name, text in self.changed}
        return Version(self.number, self.since_ms or 0, changed)


@dataclass(frozen=True)
class PolicyLog:
    """The versions of a query."""

    first: Policies
    """The version at the beginning of the query."""
    last: Policies
    """The newest version."""
    taken: list[TakenVersion] = field(default_factory=list)
    """All versions, the first included."""

    @property
    def versions(self) -> list[Version]:
        """The versions after the first."""
        return [one.version for one in self.taken[1:]]

    def hashes(self, job: str, last_hash: str) -> list[tuple[int, str]]:
        """The `params_hash` values of a job's rows, each with the event time (ms) from which it
        holds; that of the newest version is of the parameters as they are now.
        """
        found = [(one.since_ms or 0, one.hashes.get(job, "")) for one in self.taken[:-1]]
        last = self.taken[-1].since_ms or 0
        return [*found, (last, last_hash)]

    def with_next(
        self,
        policies: Policies,
        hashes: dict[str, str],
        batch: int,
        since_ms: int,
        read_ms: int,
        author: str | None,
    ) -> PolicyLog:
        """The log with one more version, which holds from an event time at least 1 ms after the
        last.
        """
        from app.config.settings import digest

        before = self.taken[-1]
        since_ms = max(since_ms, (before.since_ms or 0) + 1)
        changed = changes(texts(self.last), texts(policies), None)
        found = TakenVersion(
            before.number + 1,
            batch,
            since_ms,
            read_ms,
            digest(policies),
            author,
            [(*source, text) for source, text in changed.items()],
            hashes,
        )
        return PolicyLog(self.first, policies, [*self.taken, found])


def texts(policies: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Documents in the form that jobs take."""
    return tuple(sorted(json.dumps(document, sort_keys=True) for document in policies))


def begun(
    policies: Policies, hashes: dict[str, str], batch: int, read_ms: int, author: str | None
) -> PolicyLog:
    """The log of a query that begins with these documents; `hashes` has the `params_hash` by job."""
    from app.config.settings import digest

    first = TakenVersion(0, batch, None, read_ms, digest(policies), author, [], hashes)
    return PolicyLog(policies, policies, [first])


@dataclass(frozen=True)
class ShadowLog:
    """The versions that a query has judged by under a shadow."""

    batch: int
    """First batch with the shadow; two shadows of one name differ in it."""
    log: PolicyLog
    """Its versions. Up to that batch they are the live ones."""


@dataclass(frozen=True, kw_only=True)
class KeptLog(PolicyLog):
    """The file in the checkpoint: a batch has taken the logs of a query and its shadows, or none."""

    application: str
    """Application id of the query."""
    shadows: dict[str, ShadowLog] = field(default_factory=dict)

    @property
    def log(self) -> PolicyLog:
        """The log of the query alone."""
        return PolicyLog(self.first, self.last, self.taken)


DOCUMENT: Document[KeptLog] = Document(KeptLog)


def load(warehouse: Location, query: str) -> KeptLog | None:
    """The logs of a query and its shadows; None if there are none. Damaged for logs that do not
    have the documents that their hashes are of, and for those of another query.
    """
    name = file_of(query)
    found = DOCUMENT.load(warehouse, name)
    if found is None:
        return None
    if not all(_whole(log) for log in (found, *(own.log for own in found.shadows.values()))):
        raise Damaged(path_in(warehouse, name), "is damaged (its hashes are of other documents)")
    whose = checkpoints.identity(warehouse, query)
    foreign = whose is not None and found.application not in whose.applications
    if foreign:
        raise Damaged(path_in(warehouse, name), "is of another query or warehouse")
    return found


def _whole(log: PolicyLog) -> bool:
    from app.config.settings import digest

    if not log.taken:
        return False
    hashes = log.taken[0].policy_hash, log.taken[-1].policy_hash
    return hashes == (digest(log.first), digest(log.last))


def keep(warehouse: Location, query: str, log: PolicyLog, shadows: Mapping[str, ShadowLog]) -> None:
    """Write the logs of a query and its shadows."""
    application = checkpoints.application_id(warehouse, query)
    DOCUMENT.keep(
        warehouse,
        file_of(query),
        KeptLog(**vars(log), application=application, shadows=dict(shadows)),
    )


def file_of(query: str) -> str:
    """The file with the logs of a query."""
    return f"{checkpoints.FOLDER}/{query}/{checkpoints.POLICIES}"
