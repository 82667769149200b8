"""Documents of a configuration that stronger documents override for every name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from app.config.levels import source_of
from app.config.overlaps import begin_and_end, covers
from app.config.policy_files import WrittenDocument
from state.engine.documents import Source
from state.engine.globs import LEVELS, NAMESPACES, TENANTS, TOPICS

PUBLISH = ("publishRateInMsgs", "publishRateInBytes")
PER_TOPIC = ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes")
ORDER = ("broker", TENANTS, NAMESPACES, TOPICS)
"""Levels of a topic's limits, the weakest first. A name is a pattern that matches only itself."""


MOST_PLACES = 100_000
"""Pairs of places in patterns that are looked at, for some seconds."""


def overridden(
    found: Sequence[WrittenDocument],
) -> Iterator[tuple[WrittenDocument, str, WrittenDocument | None]]:
    """Limits that stronger documents override for every name: document, key and the stronger
    document. None, at the end, if there is more to compare.
    """
    levels = [(each, level) for each in found if (level := _level(each)) is not None]
    by_begin = defaultdict(list)
    for each, level in levels:
        wide = _wide(*level)
        by_begin[level[0], begin_and_end(wide)[0]].append((wide, each))
    left = MOST_PLACES
    for one, level in levels:
        limits, stronger = list(_limits(one)), ORDER[ORDER.index(level[0]) + 1 :]
        for scope in stronger if limits else ():
            narrow = _narrow(*level, scope == TOPICS)
            begin, end = begin_and_end(narrow[0])
            for length in range(len(begin) + 1):
                for wide, by in by_begin[scope, begin[:length]]:
                    keys = [key for key, what in limits if _sets(by, one, what)]
                    if not keys or not end.endswith(begin_and_end(wide)[1]):
                        continue
                    if left <= 0:
                        yield one, limits[0][0], None
                        return
                    every = [covers(wide, each) for each in narrow]
                    left -= sum(places for _, places in every)
                    if all(is_covered for is_covered, _ in every):
                        yield from ((one, key, by) for key in keys)
                        limits = [limit for limit in limits if limit[0] not in keys]


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


def _sets(strong: WrittenDocument, weak: WrittenDocument, what: str) -> bool:
    """Whether a document decides what a weaker one limits, for names that match both."""
    if what not in {kind for _, kind in _limits(strong)}:
        return False
    scopes = weak.document["scope"], strong.document["scope"]
    if what != "rate" or scopes[0] == "broker" or scopes[1] == "topic":
        return True
    # within the level of namespaces it is key by key
    mine, others = strong.document["limits"], weak.document["limits"]
    return not any(key in others and key not in mine for key in PUBLISH)


def _level(one: WrittenDocument) -> Source | None:
    scope, name = source_of(one.document)
    if scope == "broker":
        return ("broker", name) if name == "*" else None
    scope = LEVELS[scope][-1] if scope in LEVELS else scope
    return (scope, name) if scope in ORDER else None


def _wide(scope: str, name: str) -> str:
    """The pattern of what a document of a level applies to: of topics, or of namespaces."""
    return f"{name}/*" if scope == TENANTS else name


def _narrow(scope: str, name: str, of_topics: bool) -> list[str]:
    """The patterns of topics, or of namespaces, that a document of a level applies to."""
    if scope == "broker":
        kinds = ("persistent://*/*/**", "non-persistent://*/*/**")
        return list(kinds) if of_topics else ["*/*"]
    return [f"**://{_wide(scope, name)}/**" if of_topics else _wide(scope, name)]
