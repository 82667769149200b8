"""Checks of the policy documents of the configuration.

`state.policies` defines a valid document, on the stream and here. Because people write
configurations, more is refused here: an unknown or forgotten key, a rate below -1, a fraction of a
message, and a topic that no record of the source can have. The configuration has a level that the
stream lacks, the tenant, and its names of tenants, namespaces, topics and users may be patterns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from app.errors import did_you_mean
from app.terminal.sizes import read_size
from state.engine.globs import DEFAULT_USER, is_pattern, literal, tokens
from state.policies import (
    CLIENT_ID,
    CLIENT_QUOTAS,
    LIMIT_TYPES,
    WITHOUT_EFFECT,
    client_id_problem,
    limit_problem,
    name_problem,
)
from udfs.topics import split_topic

SCOPES: dict[str, dict[str, str]] = {
    scope: LIMIT_TYPES["namespace" if scope == "tenant" else scope]
    for scope in ("broker", "resource_group", "tenant", "namespace", "topic", "user", "client")
}
"""Type of each limit key, by scope; a tenant's are those of its namespaces."""
WITH_PATTERNS = ("tenant", "namespace", "topic", "user")
"""Scopes whose names may be patterns."""
LONGEST_NAME = 1_000
"""Characters of a name or pattern. One of Kafka's topics has 249."""
KEYS = ("scope", "name", "limits")
KNOWN_KEYS = (*KEYS, CLIENT_ID)
FRACTIONS = (
    "producer_ids_rate",
    *CLIENT_QUOTAS,
    "backlogQuotaDefaultLimitGB",
    "managedLedgerCacheSizeMB",
    "managedLedgerCacheEvictionWatermark",
    "cacheEvictionWatermark",
)


def problems(document: Any, kafka_topics: bool = True) -> Iterator[tuple[str, str]]:
    """Every mistake of a policy document as (key, problem).

    `kafka_topics` states that records of the source can have Kafka topics, which are no paths.
    """
    if not isinstance(document, dict):
        yield "", f"{document!r} is not an object with scope, name and limits"
        return
    for key in document:
        if key not in KNOWN_KEYS:
            yield str(key), f"unknown key ({did_you_mean(str(key), KNOWN_KEYS)})"
    missing = [key for key in KEYS if key not in document]
    yield from ((key, "is missing") for key in missing)
    if missing:
        return
    scope, name, limits = (document[key] for key in KEYS)
    if not isinstance(scope, str) or scope not in SCOPES:
        yield "scope", f"{scope!r} is not one of {', '.join(SCOPES)}"
        return
    if not isinstance(name, str) or not name:
        yield "name", f"{name!r} is not a name"
    elif len(name) > LONGEST_NAME:
        yield "name", f"{name[:40]!r}... has more than {LONGEST_NAME} characters"
    elif scope == "user" and _is_almost_default(name):
        yield "name", f"{name!r}: did you mean {DEFAULT_USER}?"
    elif scope in WITH_PATTERNS and (scope == "tenant" or is_pattern(name)):
        if wrong := _pattern_problem(scope, name, kafka_topics):
            yield "name", wrong
    elif wrong := name_problem(scope, _plain(scope, name)) or _never(
        scope, _plain(scope, name), kafka_topics
    ):
        yield "name", wrong.removeprefix("name ")
    if _is_almost_default(document.get(CLIENT_ID)):
        yield CLIENT_ID, f"{document[CLIENT_ID]!r}: did you mean {DEFAULT_USER}?"
    elif CLIENT_ID in document and (wrong := client_id_problem(scope, document[CLIENT_ID])):
        yield CLIENT_ID, wrong.removeprefix(f"{CLIENT_ID} ")
    if not isinstance(limits, dict):
        yield "limits", f"{limits!r} is not an object"
        return
    of_one = [key for key in (CLIENT_ID, *CLIENT_QUOTAS) if key in {**document, **limits}]
    if scope == "user" and isinstance(name, str) and is_pattern(name) and of_one:
        yield "name", f"{name!r} is a pattern, and {of_one[0]} is one of a user or {DEFAULT_USER}"
    for key, value in limits.items():
        if key not in SCOPES[scope]:
            hint = did_you_mean(str(key), tuple(SCOPES[scope]))
            yield f"limits.{key}", f"no limit of scope {scope} ({hint})"
        elif wrong := limit_problem("namespace" if scope == "tenant" else scope, key, value):
            yield f"limits.{key}", wrong + _as_number(str(key), value)
        else:
            yield from ((f"limits.{at}", text) for at, text in _numbers(key, value))


def _is_almost_default(name: Any) -> bool:
    """Whether a name was meant to be the word for every user, or client id, without limits of its own."""
    return (
        isinstance(name, str)
        and name != DEFAULT_USER
        and name[:1] + name[-1:] == "<>"
        and bool(get_close_matches(name[:100].lower(), [DEFAULT_USER], cutoff=0.75))
    )


def _as_number(key: str, value: Any) -> str:
    """The number that a text with a unit of bytes stands for, if a limit of bytes has one."""
    size = read_size(value) if isinstance(value, str) and "byte" in key.lower() else None
    return "" if size is None else f" (it counts bytes: {value} is {size})"


def without_effect(document: dict[str, Any]) -> list[str]:
    """Limits of a valid document without effect."""
    return [key for key in document["limits"] if key in WITHOUT_EFFECT]


def _plain(scope: str, name: str) -> str:
    """The name that a pattern without wildcards stands for."""
    return literal(name) if scope in WITH_PATTERNS else name


def _pattern_problem(scope: str, pattern: str, kafka_topics: bool) -> str | None:
    """Why no name of a scope can match a pattern, or None."""
    slashes = sum(part == (True, "/") for part in tokens(pattern))
    deep = (False, "**") in tokens(pattern)
    if scope == "tenant":
        return f"{pattern!r} is not a tenant, nor a pattern of tenants" if slashes else None
    if scope == "namespace" and (slashes > 1 or (slashes < 1 and not deep)):
        return f"{pattern!r} matches no namespace (tenant/namespace, such as acme/*)"
    if scope != "topic":
        return None
    scheme, separator, rest = pattern.partition("://")
    if (topic := split_topic(pattern)) is not None and topic.partition is not None:
        return f"{pattern!r} matches only partitions; a policy holds for the topic"
    if not separator and not slashes and (deep or kafka_topics):
        return None
    enough = 2 if separator and scheme else 0
    if separator and not is_pattern(scheme) and scheme not in ("persistent", "non-persistent"):
        return f"{pattern!r} matches no topic: {scheme} is no scheme of one"
    if slashes - enough >= 2 or (deep and "/" in rest + pattern):
        return None
    return f"{pattern!r} matches no topic ([scheme://]tenant/namespace/name, such as acme/*/orders)"


def _never(scope: str, name: str, kafka_topics: bool) -> str | None:
    """Why no record can have the name of a policy that is valid in its scope."""
    topic = split_topic(name) if scope == "topic" else None
    if scope == "topic" and topic is None and not kafka_topics:
        return (
            f"{name!r} is not a topic of Pulsar (allowed: [scheme://]tenant/namespace/name), and"
            " source.format gives no topics of Kafka"
        )
    if topic is not None and topic.partition is not None:
        whole = name.removesuffix(f"-partition-{topic.partition}")
        return f"{name!r} is one partition; a policy holds for the topic ({whole})"
    return None


def _numbers(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for inner, item in value.items():
            yield from ((f"{key}.{at}", text) for at, text in _numbers(inner, item))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < -1:
            yield key, f"{value} is below -1 (-1 and 0 are off)"
        elif value != math.floor(value) and key not in FRACTIONS:
            yield key, f"{value} is not a whole number"
