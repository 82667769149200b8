"""What tests share of large messages."""

from __future__ import annotations

import zlib
from collections import defaultdict
from typing import Any

from benchmarks.generator.trace import Trace
from tests.support.large_messages import expected
from tests.unit.state.chunk_trace import numbered, play

Record = dict[str, Any]


def found_by_core(trace: Trace, records: list[Record]) -> dict[str, list[Record]]:
    """Rows of the core under the default parameters, two expiries after the end."""
    own = [r for r in records if "/large-" in r.get("topic", "")]
    end = trace.scenario.start_ms + trace.scenario.duration_s * 1000 + 130_000
    return play([numbered(own)], {"assemble_payload": True}, until_ms=end)


def assert_core_agrees(trace: Trace, records: list[Record]) -> None:
    """Every message and subscription, and no other, as often and as it was sent."""
    rows = found_by_core(trace, records)
    found: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for row in rows["chunk_messages"]:
        found[row["topic"], row["subscription"], row["uuid"]].append(row)
    for wanted in expected(trace):
        key = wanted["topic"], wanted["subscription"], wanted["uuid"]
        got = found.pop(key, [])
        assert len(got) == wanted["times"] and wanted["assembled"] == bool(got), wanted
        for row in got:
            assert row["checksum"] == wanted["checksum"] == zlib.crc32(row["payload"]), wanted
            assert row["assembled_bytes"] == wanted["bytes"], wanted
            assert row["declared_bytes"] == wanted["declared_bytes"], wanted
            assert row["num_chunks"] == wanted["num_chunks"], wanted
            assert row["producer_name"] == wanted["producer_name"], wanted
            assert row["sequence_id"] == wanted["sequence_id"], wanted
            whole = "short" if wanted["planted"] == "undersized" else "exact"
            assert row["integrity"] == whole, wanted
    assert not found
