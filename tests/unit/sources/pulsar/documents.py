"""Documents of a topic, as a broker answers them, and what is compared in tests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from app.contract.event_contract import parse
from app.sources.pulsar.admin_documents import MappedTopic, PolledTopic, map_poll
from app.sources.pulsar.admin_policies import PollNames

VECTORS = Path(__file__).resolve().parents[3] / "data" / "vectors"
TOPIC = "persistent://public/n1/t"
NAMES = PollNames("standalone")
AT = 1_795_213_060_000

Json = dict[str, Any]


def recorded(name: str) -> Json:
    """A complete document recorded from a broker: `stats` or `internal`."""
    file = {"stats": "topic-stats", "internal": "topic-internal-stats"}[name]
    document: Json = json.loads((VECTORS / f"{file}-full-precise-4.2.4.json").read_text())
    return document


def recorded_polls() -> list[Json]:
    """The polls of the recorded run, with our names for the documents."""
    polls = []
    with gzip.open(VECTORS / "backlog-precise-4.2.4.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            # Publishers were counted there, not listed.
            if "internal" in row and row["internal"]["ledgers"]:
                stats = {k: v for k, v in row["stats"].items() if k != "publishers"}
                polls.append(
                    {
                        "polled_ms": row["wall_after_ms"],
                        "topic": f"public/{row['topic']}",
                        "stats": stats,
                        "internal": row["internal"],
                        "info": {"ledgers": row["info_ledgers"]},
                    }
                )
    return polls


def poll(at: int = AT, topic: str = TOPIC, **documents: Any) -> Json:
    """A poll with the given documents, those of a small topic otherwise."""
    return {
        "polled_ms": at,
        "topic": topic,
        "internal": internal(),
        "info": info(),
        "stats": stats(),
        **documents,
    }


def internal(**changes: Any) -> Json:
    """The document internalStats: ledgers 3 (closed) and 5 (open), cursors fast and slow."""
    return {
        "currentLedgerEntries": 4,
        "currentLedgerSize": 400,
        "state": "LedgerOpened",
        "ledgers": [
            {"ledgerId": 3, "entries": 10, "size": 1000},
            {"ledgerId": 5, "entries": 0, "size": 0},
        ],
        "cursors": {
            "fast": {"markDeletePosition": "5:3", "readPosition": "5:4", "active": True},
            "slow": {"markDeletePosition": "3:2", "readPosition": "3:7", "active": False},
        },
        **changes,
    }


def info(**changes: Any) -> Json:
    """The document internal-info of the same topic; ledger 5 shows the time of the request."""
    return {
        "ledgers": [
            {"ledgerId": 3, "entries": 10, "size": 1000, "timestamp": AT - 5000},
            {"ledgerId": 5, "timestamp": AT},
        ],
        **changes,
    }


def stats(**changes: Any) -> Json:
    """The document stats of the same topic, with one producer."""
    return {
        "ownerBroker": "b1:8080",
        "publishers": [publisher("/10.0.0.1:500", 0, "p")],
        "subscriptions": {
            "fast": {"isDurable": True, "earliestMsgPublishTimeInBacklog": -1},
            "slow": {"isDurable": True, "earliestMsgPublishTimeInBacklog": AT - 9000},
        },
        **changes,
    }


def publisher(address: str, number: int, name: str | None = None) -> Json:
    """An element of publishers[]."""
    return {"address": address, "producerId": number, "producerName": name}


def mapped(
    document: Json, before: PolledTopic | None = None, names: PollNames = NAMES
) -> MappedTopic:
    """The mapping of a poll with nothing known of policies; its records must be valid."""
    done = map_poll(document, before, {}, names)
    valid(done.records)
    return done


def valid(records: list[Json]) -> None:
    """Fail unless every record is one that the contract takes, for every job; one about a bad
    document is refused by its own rule alone.
    """
    lines = pa.array([json.dumps(record).encode() for record in records], pa.binary())
    jobs = ("rate_limits", "chunks", "producer_ids", "backlog", "entry_cache")
    bad = parse(lines, jobs).bad.to_pylist()
    about = [i for i, record in enumerate(records) if record["event_type"] == "bad_document"]
    assert [(row["row"], row["reason_code"], row["detail"]) for row in bad] == [
        (i, "BAD_DOCUMENT", records[i]["problem"]) for i in about
    ]


def kinds(done: MappedTopic) -> list[str]:
    """The kinds of the records in their order."""
    return [record["event_type"] for record in done.records]


def of_kind(done: MappedTopic, kind: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the records of a kind."""
    return [
        tuple(record.get(column) for column in columns)
        for record in done.records
        if record["event_type"] == kind
    ]
