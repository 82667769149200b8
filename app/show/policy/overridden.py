"""Documents of a configuration that stronger documents override for every name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from app.config.overlaps import begin_and_end, covers
from app.config.policy_files import WrittenDocument
from state.engine.globs import LEVELS, NAMESPACES, TENANTS, TOPICS

PUBLISH = ("publishRateInMsgs", "publishRateInBytes")
PER_TOPIC = ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes")
ORDER = ("broker", TENANTS, NAMESPACES, TOPICS)
"""Levels of a topic's limits, the weakest first. A name is a pattern that matches only itself."""
MOST_PAIRS = 50_000
"""Pairs of patterns that are compared, for some seconds."""


def overridden(
    found: Sequence[WrittenDocument],
) -> Iterator[tuple[WrittenDocument, str, WrittenDocument | None]]:
    """Limits that stronger documents override for every name: document, key and the stronger
    document. None, at the end, if there is more to compare.
    """
    places = [(each, *_place(each)) for each in found]
    by_begin = defaultdict(list)
    for by, level, wide in places:
        by_begin[level, begin_and_end(wide)[0]].append((wide, by))
    left = iter(range(MOST_PAIRS))
    for one, level, namespaces in places:
        limits = list(_limits(one)) if level else []
        for stronger in ORDER[ORDER.index(level) + 1 :] if limits else ():
            narrow = f"**://{namespaces}/**" if stronger == TOPICS else namespaces
            begin, end = begin_and_end(narrow)
            for length in range(len(begin) + 1):
                for wide, by in by_begin[stronger, begin[:length]]:
                    keys = [key for key, what in limits if _sets(by, one, what)]
                    if not keys or not end.endswith(begin_and_end(wide)[1]):
                        continue
                    if next(left, None) is None:
                        yield one, limits[0][0], None
                        return
                    if covers(wide, narrow):
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
    by_key = what == "rate" and weak.document["scope"] != "broker"
    if by_key and strong.document["scope"] != "topic":  # within the level of namespaces
        mine, others = strong.document["limits"], weak.document["limits"]
        if any(key in others and key not in mine for key in PUBLISH):
            return False
    return what in {kind for _, kind in _limits(strong)}


def _place(one: WrittenDocument) -> tuple[str, str]:
    """The level of a document, empty for other limits, and the pattern of the topics or namespaces
    that it applies to."""
    scope, name = one.source
    scope = LEVELS[scope][-1] if scope in LEVELS else scope
    level = scope if scope in ORDER and (scope != "broker" or name == "*") else ""
    return level, {TENANTS: f"{name}/*", "broker": "*/*"}.get(scope, name)
