"""Policy documents that are in force for a key, and those that came for every broker of a cluster.

A document replaces an earlier one of its scope and name. Its text is a name of the shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from state.engine.names import Names

Source = tuple[str, str]
"""Scope and name of a document; a topic by its full name."""


class Policy(NamedTuple):
    """A policy document: what it limits, since when, and where its text is kept."""

    scope: str
    name: str
    limits: dict[str, Any]
    text: int
    wall_ms: int
    document: str
    """The text itself; empty for a document that was taken away."""

    @property
    def source(self) -> Source:
        """The place that a later document replaces."""
        return self.scope, self.name


class Star(NamedTuple):
    """A policy for every broker of a cluster, by a number that only this shard knows."""

    id: int
    cluster: int
    policy: Policy
    feed: int
    seq: int | None


def full_topic_name(name: str) -> str:
    """Pulsar names without a scheme are persistent; other names stay as they are."""
    return f"persistent://{name}" if "://" not in name and name.count("/") >= 2 else name


@lru_cache(maxsize=4096)
def parsed(text: str) -> tuple[str, str, dict[str, Any]]:
    """Scope, name and limits of a document."""
    document = json.loads(text)
    scope, name = document["scope"], document["name"]
    if scope == "topic":
        name = full_topic_name(name)
    return scope, name, document.get("limits") or {}


def policy_of(names: Names, text: int, wall_ms: int) -> Policy:
    """The document behind a kept text."""
    document = names.get(text)
    return Policy(*parsed(document), text, wall_ms, document)


def in_force(texts: Iterable[str], numbers: Iterable[int], wall_ms: int) -> dict[Source, Policy]:
    """Documents by their source; `numbers` are the names of the texts."""
    found = {}
    for text, number in zip(texts, numbers, strict=True):
        policy = Policy(*parsed(text), number, wall_ms, text)
        found[policy.source] = policy
    return found


def changes(
    was: Sequence[str], now: Sequence[str], scopes: frozenset[str] | None
) -> dict[Source, str | None]:
    """Configured documents that differ from those before; None = taken away.

    Only documents of the `scopes` count, if given.
    """
    if tuple(was) == tuple(now):
        return {}

    def by_source(texts: Sequence[str]) -> dict[Source, str]:
        documents = ((parsed(text)[:2], text) for text in texts)
        return {s: text for s, text in documents if scopes is None or s[0] in scopes}

    before, after = by_source(was), by_source(now)
    changed: dict[Source, str | None] = {
        source: text for source, text in after.items() if before.get(source) != text
    }
    changed |= {source: None for source in before if source not in after}
    return changed
