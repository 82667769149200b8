"""The policies of the configuration that a query has judged by, version after version.

They lie in the query's checkpoint and are written before any batch judges by them, so a batch that
is run again, a restart and a replay take the same documents at the same time of the stream.
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
    """A version that a query has taken."""

    number: int
    batch: int
    """The first that judges by it."""
    since_ms: int | None
    """Event time from which it holds; None: from the beginning."""
    read_ms: int
    policy_hash: str
    author: str | None
    changed: list[tuple[str, str, str | None]]
    """Scope, name and text of documents that differ from those before; None = taken away."""
    hashes: dict[str, str]
    """`params_hash` by job."""

    @property
    def version(self) -> Version:
        """What the jobs get of it."""
        changed = {(scope, name): text for scope, name, text in self.changed}
        return Version(self.number, self.since_ms or 0, changed)


@dataclass(frozen=True)
class PolicyLog:
    """The versions of a query."""

    first: Policies
    """What the query began with."""
    last: Policies
    """What it judges by since the last version."""
    taken: list[Taken] = field(default_factory=list)
    """The first of them is what it began with."""

    @property
    def versions(self) -> list[Version]:
        """The versions after what the query began with."""
        return [one.version for one in self.taken[1:]]

    def hashes(self, settings: Settings, job: str) -> list[tuple[int, str]]:
        """`params_hash` of the rows of a job, and from which event time on (ms)."""
        found = [(one.since_ms or 0, one.hashes.get(job, "")) for one in self.taken[:-1]]
        last = self.taken[-1].since_ms or 0
        return [*found, (last, settings.params_hash(job, self.last))]

    def with_next(
        self, settings: Settings, policies: Policies, batch: int, since_ms: int, read_ms: int,
        author: str | None,
    ) -> PolicyLog:
        """The log with a version that holds from an event time on, at least 1 ms after the last."""
        before = self.taken[-1]
        since_ms = max(since_ms, (before.since_ms or 0) + 1)
        changed = changes(texts(self.last), texts(policies), None)
        found = _taken(
            settings, policies, before.number + 1, batch, since_ms, read_ms, author,
            [(*source, text) for source, text in changed.items()],
        )
        return PolicyLog(self.first, policies, [*self.taken, found])


def texts(policies: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Documents as the jobs take them."""
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
    """The log of a query; None where none is kept."""
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
    """The first in which there was the shadow; two of one name differ in it."""
    log: PolicyLog
    """Up to that batch the versions are the live ones."""


def load_shadows(settings: Settings, query: str) -> dict[str, ShadowLog]:
    """The logs of the shadows of a query, by name."""
    found = (checkpoints.policies(settings, query) or {}).get("shadows", {})
    return {name: ShadowLog(one["batch"], _log(one["log"])) for name, one in found.items()}


def keep(
    settings: Settings, query: str, log: PolicyLog, shadows: Mapping[str, ShadowLog]
) -> None:
    """Write the logs of a query and its shadows, together: a batch has taken all or none."""
    checkpoints.keep_policies(settings, query, {
        **asdict(log), "shadows": {name: asdict(one) for name, one in shadows.items()},
    })
