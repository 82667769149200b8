"""Documents of a configuration that stronger documents override for every name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.config.levels import source_of
from app.config.overlaps import covers
from app.config.policy_files import WrittenDocument
from state.engine.documents import Source
from state.engine.globs import LEVELS, NAMESPACES, TENANTS, TOPICS

PUBLISH = ("publishRateInMsgs", "publishRateInBytes")
PER_TOPIC = ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes")
ORDER = ("broker", TENANTS, NAMESPACES, TOPICS)
"""Levels of a topic's limits, the weakest first. A name is a pattern that matches only itself."""


def overridden(
    found: Sequence[WrittenDocument],
) -> Iterator[tuple[WrittenDocument, str, WrittenDocument]]:
    """Limits that stronger documents override for every name: document, key and the stronger
    document.
    """
    for one in found:
        for key, what in _limits(one):
            other = next((b for b in found if _overrides(b, one, what)), None)
            if other is not None:
                yield one, key, other


def _limits(one: WrittenDocument) -> Iterator[tuple[str, str]]:
    """The limits of a document that others may override, and what they limit."""
    limits = one.document["limits"]
    # without a rate above 0 the next level decides
    rates = PUBLISH if any((limits.get(key) or 0) > 0 for key in PUBLISH) else ()
    for key in (*rates, *PER_TOPIC):
        if limits.get(key, -1) != -1:
            yield f"limits.{key}", "rate"
    for kind in limits.get("backlog_quota") or {}:
        yield f"limits.backlog_quota.{kind}", kind
    if limits.get("resource_group"):
        yield "limits.resource_group", "resource_group"


def _overrides(strong: WrittenDocument, weak: WrittenDocument, what: str) -> bool:
    a, b = _level(strong), _level(weak)
    if a is None or b is None or ORDER.index(a[0]) <= ORDER.index(b[0]):
        return False
    if what not in {kind for _, kind in _limits(strong)}:
        return False
    if a[0] != TOPICS and b[0] in (TENANTS, NAMESPACES) and what == "rate":
        # within the level of namespaces it is key by key
        mine, others = strong.document["limits"], weak.document["limits"]
        if any(key in others and key not in mine for key in PUBLISH):
            return False
    return all(
        covers(_topics(*a), topics)
        for topics in (
            [_topics(*b)]
            if b[0] != "broker"
            else ["persistent://*/*/**", "non-persistent://*/*/**"]
        )
    )


def _level(one: WrittenDocument) -> Source | None:
    scope, name = source_of(one.document)
    if scope == "broker":
        return ("broker", name) if name == "*" else None
    scope = LEVELS[scope][-1] if scope in LEVELS else scope
    return (scope, name) if scope in ORDER else None


def _topics(scope: str, name: str) -> str:
    """The pattern of the topics that a document of a level applies to."""
    return {TENANTS: f"**://{name}/*/**", NAMESPACES: f"**://{name}/**"}.get(scope, name)
