"""The configured policies that a query has judged by, version by version.

The log is in the query's checkpoint, and a version is written before any batch judges by it. So a
repeated batch, a restart and a replay take the same documents at the same time of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from app.warehouse import checkpoints
from state.engine.documents import Version, changes

if TYPE_CHECKING:
    from app.config.settings import Settings

Policies = list[dict[str, Any]]
"""Documents as the jobs have them."""


@dataclass(frozen=True)
class Taken:
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
    taken: list[Taken] = field(default_factory=list)
    """All versions, the first included."""

    @property
    def versions(self) -> list[Version]:
        """The versions after the first."""
        return [one.version for one in self.taken[1:]]

    def hashes(self, settings: Settings, job: str) -> list[tuple[int, str]]:
        """The `params_hash` values of a job's rows, each with the event time (ms) from which it
        holds.
        """
        found = [(one.since_ms or 0, one.hashes.get(job, "")) for one in self.taken[:-1]]
        last = self.taken[-1].since_ms or 0
        return [*found, (last, settings.params_hash(job, self.last))]

    def with_next(
        self, settings: Settings, policies: Policies, batch: int, since_ms: int, read_ms: int,
        author: str | None,
    ) -> PolicyLog:
        """The log with one more version, which holds from an event time at least 1 ms after the
        last.
        """
        before = self.taken[-1]
        since_ms = max(since_ms, (before.since_ms or 0) + 1)
        changed = changes(texts(self.last), texts(policies), None)
        found = _taken(
            settings, policies, before.number + 1, batch, since_ms, read_ms, author,
            [(*source, text) for source, text in changed.items()],
        )
        return PolicyLog(self.first, policies, [*self.taken, found])


def texts(policies: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Documents in the form that jobs take."""
    return tuple(sorted(json.dumps(document, sort_keys=True) for document in policies))


def begun(
    settings: Settings, policies: Policies, batch: int, read_ms: int, author: str | None
) -> PolicyLog:
    """The log of a query that begins with these documents."""
    first = _taken(settings, policies, 0, batch, None, read_ms, author, [])
    return PolicyLog(policies, policies, [first])


def _taken(
    settings: Settings, policies: Policies, number: int, batch: int, since_ms: int | None,
    read_ms: int, author: str | None, changed: list[tuple[str, str, str | None]],
) -> Taken:
    hashes = {job: settings.params_hash(job, policies) for job in settings.jobs}
    from app.config.settings import digest

    return Taken(number, batch, since_ms, read_ms, digest(policies), author, changed, hashes)


def load(settings: Settings, query: str) -> PolicyLog | None:
    """The log of a query; None if there is none."""
    found = checkpoints.policies(settings, query)
    return None if found is None else _log(found)


def _log(found: Mapping[str, Any]) -> PolicyLog:
    taken = [
        Taken(**{**one, "changed": [tuple(changed) for changed in one["changed"]]})
        for one in found["taken"]
    ]
    return PolicyLog(found["first"], found["last"], taken)


@dataclass(frozen=True)
class ShadowLog:
    """The versions that a query has judged by under a shadow."""

    batch: int
    """First batch with the shadow; two shadows of one name differ in it."""
    log: PolicyLog
    """Its versions. Up to that batch they are the live ones."""


def load_shadows(settings: Settings, query: str) -> dict[str, ShadowLog]:
    """The logs of the shadows of a query, by name."""
    found = (checkpoints.policies(settings, query) or {}).get("shadows", {})
    return {name: ShadowLog(one["batch"], _log(one["log"])) for name, one in found.items()}


def keep(
    settings: Settings, query: str, log: PolicyLog, shadows: Mapping[str, ShadowLog]
) -> None:
    """Write the logs of a query and its shadows together: a batch has taken all of them or none."""
    checkpoints.keep_policies(settings, query, {
        **asdict(log), "shadows": {name: asdict(one) for name, one in shadows.items()},
    })
