"""Configured documents with patterns: matched to a name, and merged to one document for it.

A pattern has `*` (any characters but /), `**` (any characters), `?` (one character but /); `[*]`,
`[?]` and `[[]` are the characters themselves. Of the patterns that match a name, one with more
literal characters is more specific: it overrides the others key by key, backlog quotas by type.
Every document of the namespace overrides one of the tenant. A configured document of the name
itself already includes its patterns (`resolved`), so patterns count only for names without a
document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

TENANTS, NAMESPACES, TOPICS, USERS = "tenants", "namespaces", "topics", "users"
"""Scopes of documents with patterns; only the configuration has them."""
LEVELS: dict[str, tuple[str, ...]] = {
    "namespace": (TENANTS, NAMESPACES),
    "topic": (TOPICS,),
    "user": (USERS,),
}
"""By scope of a name, the scopes of patterns that may match it, the weakest first."""
SCOPES = frozenset(scope for scopes in LEVELS.values() for scope in scopes)
DEFAULT_USER = "<default>"
"""The default of users or clients in documents, which no pattern matches."""

Source = tuple[str, str]
Limits = Mapping[str, Any]
_WILD = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\[([*?\[])\]|(\*\*)|([*?])|(.)", re.DOTALL)


def name_text(name: str | None) -> str:
    """A user or client id as documents have it, None for the default. A name that is the text of the
    default is another: `\\<default>`, and `\\\\<default>` is the name of that text.
    """
    if name is None:
        return DEFAULT_USER
    return f"\\{name}" if name.lstrip("\\") == DEFAULT_USER else name


def name_of_text(text: str) -> str | None:
    """Inverse of `name_text`."""
    if text.lstrip("\\") != DEFAULT_USER:
        return text
    return text[1:] if text != DEFAULT_USER else None


def tokens(pattern: str) -> list[tuple[bool, str]]:
    """The parts of a pattern, each with whether it is a literal character."""
    return [
        (not (many or one), escaped or many or one or plain)
        for escaped, many, one, plain in _TOKEN.findall(pattern)
    ]


def is_pattern(name: str) -> bool:
    """Whether a name may match several names."""
    return not all(literal for literal, _ in tokens(name))


def literal(name: str) -> str:
    """The only name that matches a pattern without wildcards."""
    return "".join(text for _, text in tokens(name))


def escaped(name: str) -> str:
    """The pattern that matches one name only."""
    return _WILD.sub(r"[\g<0>]", name)


def literals(pattern: str) -> int:
    """Number of literal characters in a pattern."""
    return sum(is_literal for is_literal, _ in tokens(pattern))


@lru_cache(maxsize=4096)
def expression(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression for whole names."""
    wild = {"*": "[^/]*", "**": ".*", "?": "[^/]"}
    return re.compile(
        "".join(
            re.escape(text) if is_literal else wild[text] for is_literal, text in tokens(pattern)
        ),
        re.DOTALL,
    )


def named(scope: str, name: str) -> str:
    """The part of a name that patterns of a scope are matched with; for patterns of tenants, the
    tenant.
    """
    return name.split("/", 1)[0] if scope == TENANTS else name


def rank(source: Source) -> tuple[int, int, str]:
    """Sort key of documents with patterns, the weakest first."""
    scope, pattern = source
    level = next(scopes.index(scope) for scopes in LEVELS.values() if scope in scopes)
    return level, literals(pattern), pattern


def matching(sources: Iterable[Source], scope: str, name: str) -> list[Source]:
    """The documents whose patterns match a name, the weakest first."""
    levels = LEVELS.get(scope, ())
    if not levels or (scope == "user" and name == DEFAULT_USER):
        return []
    return sorted(
        (s for s in sources if s[0] in levels and expression(s[1]).fullmatch(named(s[0], name))),
        key=rank,
    )


def overlaid(below: Limits, above: Limits) -> dict[str, Any]:
    """Limits overridden by those of a stronger document, backlog quotas by type."""
    found = {**below, **above}
    quotas = [limits.get("backlog_quota") for limits in (below, above)]
    if all(isinstance(quota, dict) for quota in quotas):
        found["backlog_quota"] = {**quotas[0], **quotas[1]}  # type: ignore[dict-item]
    return found


def full_pattern(pattern: str) -> str:
    """The full form of a pattern of topics: without a scheme it matches persistent topics of
    Pulsar; without a slash (or as `**`) topics of Kafka.
    """
    slashes = sum(part == (True, "/") for part in tokens(pattern))
    return pattern if "://" in pattern or not slashes else f"persistent://{pattern}"


class Patterns:
    """Documents with patterns, looked up by name."""

    def __init__(self, documents: Mapping[Source, Limits]) -> None:
        """Documents of other scopes are ignored."""
        self._documents = {s: limits for s, limits in documents.items() if s[0] in SCOPES}
        self.limits = tuple(self._documents.values())
        self._known: dict[Source, tuple[dict[str, Any], tuple[Source, ...]]] = {}

    def __bool__(self) -> bool:
        return bool(self._documents)

    def of(self, scope: str, name: str) -> tuple[dict[str, Any], tuple[Source, ...]]:
        """The limits of a name, and the documents that they come from, the strongest first."""
        found = self._known.get((scope, name))
        if found is None:
            sources = matching(self._documents, scope, name)
            limits: dict[str, Any] = {}
            for source in sources:
                limits = overlaid(limits, self._documents[source])
            found = self._known[scope, name] = limits, tuple(reversed(sources))
        return found


@lru_cache(maxsize=65536)
def known_matching(sources: frozenset[Source], scope: str, name: str) -> tuple[Source, ...]:
    """`matching`, cached."""
    return tuple(matching(sources, scope, name))


def history(
    own: Iterable[int],
    configured: Iterable[int],
    patterns: Mapping[Source, Sequence[int]],
    is_set: Callable[[int], bool],
) -> list[tuple[int, tuple[int, ...]]]:
    """What the configuration says of a name over time: from which document on, and the documents
    whose limits hold then, the weakest first. Documents are given by their ranks in time.

    `own` are those of the stream for the name: patterns do not hold after one. `configured` are
    those of the configuration: one that sets nothing was taken away. `patterns` are those of the
    patterns that match the name, the weakest first.
    """
    events = [
        *((at, 0, None) for at in own),
        *((at, 1, None) for at in configured),
        *((at, 2, source) for source, every in patterns.items() for at in every),
    ]
    now: dict[Source, int] = {}
    by_patterns = True
    found = []
    for at, what, source in sorted(events, key=lambda event: event[0]):
        if source is not None:
            now[source] = at
        else:
            by_patterns = what == 1 and not is_set(at)
        if by_patterns:
            found.append((at, tuple(now[s] for s in patterns if s in now)))
        elif what == 1:
            found.append((at, (at,)))
    return found
