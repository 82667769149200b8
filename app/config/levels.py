"""The levels of configured policies: how documents with patterns are passed to the jobs.

A document of a single name is merged, key by key, with the patterns that match it, so its own text
is everything that the configuration has for it. Patterns are also passed to the jobs, for names
that only the stream brings (`state.engine.globs`). Which level overrides another is the broker's
rule, which the jobs apply; only the tenant, which brokers do not have, belongs to the level of the
namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.config.policies import WITH_PATTERNS
from state.engine import documents
from state.engine.documents import Source, full_topic_name
from state.engine.globs import SCOPES, full_pattern, is_pattern, literal, matching, overlaid
from state.policies import CLIENT_ID

Document = Mapping[str, Any]


def source_of(document: Document) -> Source:
    """Scope and name of a document for the jobs; patterns have scopes of their own."""
    scope, name = document["scope"], document["name"]
    if scope not in WITH_PATTERNS:
        return scope, name
    if CLIENT_ID in document:
        return documents.source_of({**document, "name": literal(name)})
    if scope != "tenant" and not is_pattern(name):
        name = literal(name)
        return scope, full_topic_name(name) if scope == "topic" else name
    return f"{scope}s", full_pattern(name) if scope == "topic" else name


def for_many(every: Sequence[Document]) -> dict[Source, Document]:
    """The documents with patterns, by scope and pattern."""
    found = {source_of(document): document for document in every}
    return {source: document for source, document in found.items() if source[0] in SCOPES}


def compiled(every: Sequence[Document]) -> list[dict[str, Any]]:
    """The documents in the form that jobs take, in order."""
    patterns = for_many(every)
    found = []
    for document in every:
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
