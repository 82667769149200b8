"""Records of polls: what those of all feeds have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from state.events import EVERY_BROKER

Record = dict[str, Any]


def common(feed: str, cluster: str, broker: str, at_ms: int) -> Record:
    """The columns of every record of a poll, besides its kind."""
    return {"source_feed": feed, "cluster": cluster, "broker": broker, "ts_wall_ms": at_ms}


def plain(record: Record) -> Record:
    """The record without columns that have no value."""
    return {name: value for name, value in record.items() if value is not None}


def policy_key(scope: str, name: str) -> str:
    """Scope and name of a policy as one text, in the memory of a spool."""
    return f"{scope} {name}"


def policy_text(document: Mapping[str, Any]) -> str:
    """A policy document in one form, however its keys are ordered."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def policy_record(
    feed: str, cluster: str, at_ms: int, text: str, broker: str = EVERY_BROKER
) -> Record:
    """A policy that holds from a poll on."""
    return {"event_type": "policy", **common(feed, cluster, broker, at_ms), "policy_json": text}
