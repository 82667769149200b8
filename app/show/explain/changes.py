"""Sentences about policies that came into force around a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.show.explain.ask import IN_WINDOW, Ask
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Sentence
from state.engine.documents import full_topic_name
from state.engine.globs import DEFAULT_USER, name_text
from state.policies import CLIENT_ID, parse_document

RULE = "policy"
"""The rule of these sentences: a document holds from its time on."""


def sentences(reader: SnapshotReader, ask: Ask) -> list[Sentence]:
    """The documents of the archive within the requested time that may concern the entity."""
    if ask.kind == "message":
        return []
    # A document for the broker * is one for all.
    places = [f"t.{name} IN (${name}, '*')" for name in ("cluster", "broker") if getattr(ask, name)]
    where = " AND ".join(["t.event_type = 'policy'", IN_WINDOW, *places])
    result: list[Sentence] = []
    for row in reader.rows("events", where, ask.params, "ORDER BY t.ts_wall_ms, t.seq"):
        document, _ = parse_document(row["policy_json"])
        if document is not None and _concerns(ask, document):
            draft = Draft({"policy": row})
            text = f"A policy comes into force on {row['cluster']}: {row['policy_json']}"
            result.append(draft.sentence(text, (len(result),), rule=RULE))
    return result


def _concerns(ask: Ask, document: Mapping[str, Any]) -> bool:
    """Whether a document can set a limit of the entity."""
    scope, name = document["scope"], document["name"]
    is_user = scope == "user" and name in (*map(name_text, ask.names), DEFAULT_USER)
    if ask.kind == "principal":
        return is_user
    if ask.kind == "client":
        client_id = name if scope == "client" else document.get(CLIENT_ID)
        clients = None, DEFAULT_USER, ask.client_id and name_text(ask.client_id)
        return (scope == "client" or is_user) and (ask.client_id is None or client_id in clients)
    if ask.kind == "connection":
        return bool(scope == "broker")
    of_topic = {"topic": full_topic_name(name), "namespace": f"persistent://{name}/"}.get(scope)
    return bool(scope == "broker") or any(
        of_topic is not None and full_topic_name(topic).startswith(of_topic) for topic in ask.names
    )
