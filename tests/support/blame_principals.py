"""What tests share of blame principals."""

from __future__ import annotations

import datetime
from typing import Any

from tests.support.throttle_rows import START_MS, TOPIC, event

Json = dict[str, Any]
OFFSETS = iter(range(10**6))


def archived(at_ms: int, kind: str, cnx_id: str | None, **changes: Any) -> Json:
    """A record `at_ms` after the start, on both clocks."""
    at = START_MS + at_ms
    return {
        "event_type": kind,
        "source_feed": "contract",
        "cluster": "east",
        "broker": "b1",
        "ts_wall_ms": at,
        "ts_mono_ns": at_ms * 1_000_000,
        "cnx_id": cnx_id,
        "source_partition": "p",
        "source_offset": next(OFFSETS),
        "ingest_ms": at,
        "event_date": datetime.datetime.fromtimestamp(at / 1000, datetime.UTC).date(),
        **changes,
    }


def opened(at_ms: int, cnx_id: str, principal: str | None, **changes: Any) -> Json:
    return archived(at_ms, "connection_opened", cnx_id, principal=principal, **changes)


def published(at_ms: int, cnx_id: str, messages: int, size: int = 0, **changes: Any) -> Json:
    return archived(
        at_ms,
        "publish",
        cnx_id,
        **{
            "topic": TOPIC,
            "producer_id": 1,
            "num_messages": messages,
            "entry_bytes": size,
            **changes,
        },
    )


def pause(at_ms: int, until_ms: int, cnx_id: str, **changes: Any) -> list[Json]:
    """A pause of a connection by the limit of TOPIC, whose bucket of messages is empty."""
    return [
        event(at_ms, "mark", cnx_id=cnx_id, **changes),
        event(until_ms, "unmark", cnx_id=cnx_id, **changes),
    ]


ALICE, BOB = opened(-5000, "c1", "User:alice"), opened(-5000, "c2", "app:bob")
PAIR = {
    "cluster": "east",
    "culprit": "User:alice",
    "victim": "app:bob",
    "topic": TOPIC,
    "pauses": 1,
    "paused_s": 1.0,
    "share_of_victims_pauses": 1.0,
    "reason": "TopicProduceQuotaExceeded",
    "culprit_share": 0.75,
    "victim_share": 0.25,
    "culprit_team": None,
    "culprit_contact": None,
    "victim_team": None,
    "first_pause": "2023-11-14T22:14:00.200Z",
    "last_pause": "2023-11-14T22:14:00.200Z",
}
USED = [published(100, "c1", 75), published(200, "c2", 25)]
