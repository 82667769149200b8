"""What tests share of backlog reference."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.unit.state.backlog_trace import T0, quota_of, record
from tests.unit.state.recorded import VECTORS as FOLDER

RECORDED = "backlog-precise-4.2.4.jsonl.gz"


def recorded() -> tuple[dict[str, str], list[dict[str, Any]]]:
    with gzip.open(FOLDER / RECORDED, "rt") as lines:
        about, *rows = [json.loads(line) for line in lines]
    return about["namespaces"], rows


ROLES, RUN = recorded()
POLLS = [r for r in RUN if r.get("internal", {}).get("ledgers")]
PHASE_MS = 90
"""How long after full two seconds the broker's passes came; times are shifted by it."""
ENTRY_OVERHEAD = 39
BROKER_QUOTAS = {
    "telemetry": {**quota_of("destination_storage", 10_000_000), **quota_of("message_age", 3600)},
    "size-evict": quota_of("destination_storage", 20_000, "consumer_backlog_eviction"),
    "age-evict": quota_of("message_age", 8, "consumer_backlog_eviction"),
    "size-exception": quota_of("destination_storage", 10_000, "producer_exception"),
}


def events_of_the_run() -> list[dict[str, Any]]:
    """What a poller and an interceptor would have told of the run."""
    found: list[dict[str, Any]] = []
    known: dict[str, tuple[set[int], int]] = {}

    def put(kind: str, at_ms: int, topic: str, **columns: Any) -> None:
        found.append(
            {
                **record(kind, at_ms - PHASE_MS - T0, **columns),
                "source_feed": "pulsar_admin",
                "ts_mono_ns": None,
                "topic": f"persistent://public/{topic}",
            }
        )

    for row in RUN:
        if "pub" in row:
            put(
                "entry_added",
                row["wall_ms"],
                row["pub"] + "/t",
                ledger_id=row["ledger"],
                entry_id=row["entry"],
                entry_bytes=row["size"] + ENTRY_OVERHEAD,
                publish_time_ms=row["wall_ms"] - PHASE_MS,
            )
    for poll in POLLS:
        at, topic, internal, stats = (
            poll["wall_after_ms"],
            poll["topic"],
            poll["internal"],
            poll["stats"],
        )
        gone, producers = known.get(topic, (set(), 0))
        *closed, newest = internal["ledgers"]
        now = {x["ledgerId"] for x in internal["ledgers"]}
        for number in sorted(gone - now):
            put("ledger_deleted", at, topic, ledger_id=number)
        if stats["publishers"] != producers:
            kind = "producer_created" if stats["publishers"] > producers else "producer_closed"
            put(kind, at, topic, cnx_id="c", producer_id=1)
        times = {x["ledgerId"]: x["timestamp"] - PHASE_MS for x in poll["info_ledgers"][:-1]}
        for x in closed:
            put(
                "ledger_state",
                at,
                topic,
                ledger_id=x["ledgerId"],
                ledger_entries=x["entries"],
                ledger_bytes=x["size"],
                ledger_close_ms=times.get(x["ledgerId"]),
            )
        put(
            "ledger_state",
            at,
            topic,
            ledger_id=newest["ledgerId"],
            ledger_entries=internal["currentLedgerEntries"],
            ledger_bytes=internal["currentLedgerSize"],
        )
        for name, c in internal["cursors"].items():
            earliest = stats["subscriptions"][name]["earliestMsgPublishTimeInBacklog"]
            put(
                "cursor_state",
                at,
                topic,
                subscription=name,
                mark_delete=c["markDeletePosition"],
                publish_time_ms=earliest - PHASE_MS if earliest > 0 else None,
            )
        known[topic] = now, stats["publishers"]
    return found
