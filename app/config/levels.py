"""The levels of the policies of a configuration: what the jobs get of documents for many names.

A document of a single name gets what the patterns that match it say, key by key, so its own text is
all that holds of the configuration. Patterns themselves go to the jobs, for names that only the
stream brings (`state.engine.globs`). What one level says over another is the broker's rule, which
the jobs know; only the tenant, which no broker has, is a part of the level of the namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.config.policies import WITH_PATTERNS
from state.engine.documents import Source, full_topic_name
from state.engine.globs import SCOPES, is_pattern, literal, matching, overlaid, tokens

Document = Mapping[str, Any]


def source_of(document: Document) -> Source:
    """Scope and name of a document as the jobs have them; patterns have scopes of their own."""
    scope, name = document["scope"], document["name"]
    if scope not in WITH_PATTERNS:
        return scope, name
    if scope != "tenant" and not is_pattern(name):
        name = literal(name)
        return scope, full_topic_name(name) if scope == "topic" else name
    return f"{scope}s", full_pattern(name) if scope == "topic" else name


def full_pattern(pattern: str) -> str:
    """Patterns of Pulsar topics without a scheme are of persistent ones; one without a slash is of
    topics of Kafka, or `**`."""
    slashes = sum(part == (True, "/") for part in tokens(pattern))
    return pattern if "://" in pattern or not slashes else f"persistent://{pattern}"


def for_many(documents: Sequence[Document]) -> dict[Source, Document]:
    """The documents for many names, by scope and pattern."""
    found = {source_of(document): document for document in documents}
    return {source: document for source, document in found.items() if source[0] in SCOPES}


def compiled(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """The documents as the jobs get them, in their order."""
    patterns = for_many(documents)
    found = []
    for document in documents:
        scope, name = source_of(document)
        if scope in SCOPES:
            found.append({**document, "scope": scope, "name": name})
            continue
        limits: dict[str, Any] = {}
        for source in matching(patterns, scope, name):
            limits = overlaid(limits, patterns[source]["limits"])
        plain = literal(document["name"]) if scope in WITH_PATTERNS else document["name"]
        merged = overlaid(limits, document["limits"]) if limits else document["limits"]
        found.append({**document, "name": plain, "limits": merged})
    return found
