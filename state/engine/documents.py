"""Policy documents in force for a key, and those for every broker of a cluster.

A document replaces an earlier one of the same scope and name. Its text is stored as a name of the
shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from state.policies import CLIENT_ID

if TYPE_CHECKING:
    from state.engine.names import Names

_MARK = "version"
"""Scope of the text that records the version of the configuration in a state; no document has it.
"""
Source = tuple[str, str]
"""Scope and name of a document; a topic by its full name, a user with a client id as `USER_CLIENT`
and `pair_name`."""
USER_CLIENT = "user_client"
"""Scope of documents of a user that have a client id; a text has the scope `user`."""


class Policy(NamedTuple):
    """A policy document: what it limits, since when, and the name that has its text."""

    scope: str
    name: str
    limits: dict[str, Any]
    text: int
    wall_ms: int
    document: str
    """The text; empty for a removed document."""

    @property
    def source(self) -> Source:
        """Scope and name; a later document with the same ones replaces it."""
        return self.scope, self.name


class ClusterPolicy(NamedTuple):
    """A policy for every broker of a cluster, with a number that is local to the shard."""

    id: int
    cluster: int
    policy: Policy
    feed: int
    seq: int | None


class Version(NamedTuple):
    """A change of the configuration, and the time of the stream from which it holds."""

    number: int
    """From 1 on; 0 is the configuration that a query began with."""
    since_ms: int
    """Wall time of the stream, later than that of the version before."""
    changed: Mapping[Source, str | None]
    """Documents that differ from those of the version before; None = removed."""


class Configured(tuple[str, ...]):
    """The documents that a query began with, and the later versions."""

    versions: tuple[Version, ...] = ()

    def followed_by(self, versions: Iterable[Version]) -> Configured:
        """The same with these versions, in order."""
        found = Configured(self)
        found.versions = tuple(versions)
        return found

    @property
    def number(self) -> int:
        """The last version."""
        return self.versions[-1].number if self.versions else 0

    @property
    def kept(self) -> tuple[str, ...]:
        """What a state records: the first documents, and the number of the last version."""
        return (*self, _mark(self.number)) if self.versions else tuple(self)

    def after(self, number: int) -> Iterator[Version]:
        """The versions after a number."""
        return (version for version in self.versions if version.number > number)


@lru_cache(maxsize=64)
def _mark(number: int) -> str:
    return json.dumps({"scope": _MARK, "name": str(number), "limits": {}})


def first_and_number(kept: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The documents that a state began with, and the number of its last version."""
    if kept and (found := parsed(kept[-1]))[0] == _MARK:
        return tuple(kept[:-1]), int(found[1])
    return tuple(kept), 0


def full_topic_name(name: str) -> str:
    """Full name of a topic. Pulsar names without a scheme are persistent; other names are
    unchanged.
    """
    return f"persistent://{name}" if "://" not in name and name.count("/") >= 2 else name


def pair_name(user: str, client_id: str) -> str:
    """The name of a user with a client id."""
    return json.dumps([user, client_id])


def pair_of(name: str) -> tuple[str, str]:
    """The user and the client id of a name."""
    user, client_id = json.loads(name)
    return user, client_id


def name_of(document: Mapping[str, Any]) -> str:
    """The name of a document for reading, with its client id."""
    client = f" client {document[CLIENT_ID]}" if CLIENT_ID in document else ""
    return f"{document['name']}{client}"


def source_of(document: Mapping[str, Any]) -> Source:
    """What a document is about."""
    scope, name = document["scope"], document["name"]
    if CLIENT_ID in document:
        return USER_CLIENT, pair_name(name, document[CLIENT_ID])
    return scope, full_topic_name(name) if scope == "topic" else name


@lru_cache(maxsize=4096)
def parsed(text: str) -> tuple[str, str, dict[str, Any]]:
    """Scope, name and limits of a document."""
    document = json.loads(text)
    return *source_of(document), document.get("limits") or {}


def gone(source: Source) -> str:
    """The text that stands for a removed document of the configuration."""
    return json.dumps({"scope": source[0], "name": source[1], "limits": None})


@lru_cache(maxsize=4096)
def is_gone(text: str) -> bool:
    """Whether a text, or None, stands for a removed document. Documents on the stream always have
    an object in `limits`.
    """
    return not text or json.loads(text).get("limits", {}) is None


def policy_of(names: Names, text: int, wall_ms: int) -> Policy:
    """The document of a stored text."""
    document = names.get(text)
    return Policy(*parsed(document), text, wall_ms, document)


def in_force(texts: Iterable[str], numbers: Iterable[int], wall_ms: int) -> dict[Source, Policy]:
    """Documents by their source; `numbers` are the names of the texts."""
    found = {}
    for text, number in zip(texts, numbers, strict=True):
        policy = Policy(*parsed(text), number, wall_ms, text)
        found[policy.source] = policy
    return found


def _by_source(texts: Sequence[str], scopes: frozenset[str] | None = None) -> dict[Source, str]:
    documents = ((parsed(text)[:2], text) for text in texts)
    return {s: text for s, text in documents if scopes is None or s[0] in scopes}


def changes(
    was: Sequence[str], now: Sequence[str], scopes: frozenset[str] | None
) -> dict[Source, str | None]:
    """Configured documents that differ from those before; None = removed.

    Only documents of the `scopes` count, if given.
    """
    if tuple(was) == tuple(now):
        return {}

    before, after = _by_source(was, scopes), _by_source(now, scopes)
    changed: dict[Source, str | None] = {
        source: text for source, text in after.items() if before.get(source) != text
    }
    changed |= {source: None for source in before if source not in after}
    return changed
