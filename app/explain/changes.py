"""Policies that came into force around a moment, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.explain.ask import Ask
from app.explain.limits import Policies
from app.explain.saying import Sentence, say
from state.policies import parse_document
from state.rate_limits.limits import full_topic_name

RULE = "policy"
"""What stands in place of a rule: a document holds from its time on."""


def sentences(ask: Ask, policies: Policies) -> list[Sentence]:
    """The documents of the archive that came in the time asked for and may concern the entity."""
    said = []
    for number, row in enumerate(policies.records):
        if not ask.lo_ms <= row["ts_wall_ms"] < ask.hi_ms:
            continue
        if any(asked not in (None, row[name], "*") and row[name] != "*"
               for name, asked in (("cluster", ask.cluster), ("broker", ask.broker))):
            continue
        document, _ = parse_document(row["policy_json"])
        if document is not None and _concerns(ask, document):
            text = "A policy comes into force on {policy.cluster}: {policy.policy_json}."
            said.append(say(row["ts_wall_ms"], RULE, text, (number,), policy=row))
    return said


def _concerns(ask: Ask, document: Mapping[str, Any]) -> bool:
    """Whether a document can set a limit of the entity."""
    scope, name = document["scope"], document["name"]
    if ask.kind == "principal":
        return bool(scope == "user" and name in (*ask.names, "<default>"))
    if ask.kind == "connection":
        return bool(scope == "broker")
    if ask.kind == "message":
        return False
    of_topic = {"topic": full_topic_name(name), "namespace": f"persistent://{name}/"}.get(scope)
    return bool(scope == "broker") or any(
        of_topic is not None and full_topic_name(topic).startswith(of_topic) for topic in ask.names
    )
