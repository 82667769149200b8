"""What the archive counts of each broker and minute, and the view over it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.archive_names import COUNTS, GAPS, POLLS
from app.config.settings import Settings
from app.read.query import query
from app.tables.definitions import TABLES
from app.tables.views import VIEWS
from tests.support import archive
from tests.support.throttle_rows import write

MINUTE = 60_000
T0 = 29_460_360 * MINUTE
BLIND = {"rate_limits": 10_000, "chunks": 120_000}


def line(seq: int | None, at_ms: int | None, broker: str | None = "b1", **columns: Any) -> bytes:
    return json.dumps(
        {
            "event_type": "connection_opened",
            "source_feed": "f",
            "cluster": "c",
            "broker": broker,
            "seq": seq,
            "ts_wall_ms": None if at_ms is None else T0 + at_ms,
            "ts_mono_ns": seq,
            "cnx_id": "x",
            **columns,
        }
    ).encode()


LOST = {
    "event_type": "gap",
    "cnx_id": None,
    "gap_from_wall_ms": T0 + 70_000,
    "gap_from_mono_ns": 3,
    "dropped": 7,
}
LINES = [
    line(1, 0),
    line(2, 59_999),
    line(3, 60_000),
    line(4, 60_000, "b2"),
    line(5, 10, "b2", cnx_id=None),
    line(6, 130_000, **LOST),
    line(7, 240_000),
    # one broker of no name, one for all, one that is no record
    line(8, 0, None),
    line(9, 0, "*", event_type="policy", policy_json='{"scope": "broker", "name": "*"}'),
    b"{",
]
COUNTED = [
    ("b1", 0, 2, 0),
    ("b1", 1, 1, 0),
    ("b1", 2, 1, 0),
    ("b1", 4, 1, 0),
    ("b2", 0, 1, 1),
    ("b2", 1, 1, 0),
]


def archived(parts: Sequence[Sequence[bytes]], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of tables of a task that gets records in these batches."""
    at = 0
    batches = []
    for lines in parts:
        batches.append(
            pa.record_batch(
                {
                    "value": pa.array(lines, pa.binary()),
                    "source_partition": pa.array(["0"] * len(lines)),
                    "source_offset": pa.array(range(at, at + len(lines)), pa.int64()),
                }
            )
        )
        at += len(lines)
    return archive.archived(batches, folder, BLIND)


def counted(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    assert {row["cluster"] for row in rows} == {"c"}
    return sorted(
        (r["broker"], (r["minute_ms"] - T0) // MINUTE, r["received"], r["quarantined"])
        for r in rows
    )


def test_records_are_counted_by_broker_and_minute(tmp_path: Path) -> None:
    found = archived([LINES], tmp_path)
    assert counted(found[COUNTS]) == COUNTED
    gap = {
        "cluster": "c",
        "broker": "b1",
        "source_feed": "f",
        "seq": 6,
        "ts_wall_ms": T0 + 130_000,
        "ts_mono_ns": 6,
        "gap_from_wall_ms": T0 + 70_000,
        "gap_from_mono_ns": 3,
        "dropped": 7,
    }
    assert found[GAPS] == [
        {**gap, "job": "rate_limits", "blind_until_ms": T0 + 140_000},
        {**gap, "job": "chunks", "blind_until_ms": T0 + 250_000},
    ]


def test_polls_have_a_row_each_and_count_for_no_broker(tmp_path: Path) -> None:
    about = {"event_type": "poll", "source_feed": "kafka_groups", "cluster": "c", "broker": "*"}
    whole = {**about, "seq": 1, "ts_wall_ms": T0 + 9, "gap_from_wall_ms": T0, "dropped": 0}
    failed = {
        **about,
        "seq": 2,
        "ts_wall_ms": T0 + 99,
        "gap_from_wall_ms": T0 + 60,
        "problem": "no",
    }
    found = archived([[json.dumps(each).encode() for each in (whole, failed)]], tmp_path)
    assert not found.get(COUNTS) and not found.get("quarantine")
    columns = TABLES[POLLS].schema.names
    assert found[POLLS] == [{name: each.get(name) for name in columns} for each in (whole, failed)]


def test_any_cut_into_batches_counts_the_same(tmp_path: Path) -> None:
    order = random.Random(7)
    for n in range(20):
        lines, parts = order.sample(LINES, len(LINES)), []
        while lines:
            size = order.randint(1, 4)
            parts.append(lines[:size])
            lines = lines[size:]
        assert counted(archived(parts, tmp_path / str(n))[COUNTS]) == COUNTED


def test_records_without_a_time_that_can_be_count_in_no_minute(tmp_path: Path) -> None:
    lines = [line(1, None), line(2, None, ts_wall_ms=2**63 - 1), line(3, None, ts_wall_ms=-1)]
    assert archived([lines], tmp_path)[COUNTS] == [
        {
            "cluster": "c",
            "broker": "b1",
            "minute_ms": 0,
            "received": 3,
            "quarantined": 1,
            "unsized": 0,
        }
    ]


def test_requests_without_a_size_are_counted(tmp_path: Path) -> None:
    def request(seq: int, api: str, **columns: Any) -> bytes:
        kind = {"event_type": "client_request", "ts_mono_ns": None, "api": api}
        return line(seq, 0, **kind, **columns)

    lines = [
        request(1, "PRODUCE"),
        request(2, "PRODUCE", charged_bytes=0),
        request(3, "FETCH", throttle_ms=0),
        request(4, "FETCH", throttle_ms=9),
        request(5, "METADATA"),
        request(6, "FETCH", throttle_ms=-9),  # refused
        request(7, "SHARE_FETCH"),
        request(8, "SHARE_FETCH", throttle_ms=9),
    ]
    (found,) = archived([lines], tmp_path)[COUNTS]
    assert (found["received"], found["quarantined"], found["unsized"]) == (8, 1, 3)


# -- the view --------------------------------------------------------------------------------

COVERAGE = """
SELECT broker, (minute_ms - {T0}) / 60000 AS minute, received, repeated, late, quarantined, gaps,
  dropped, blind_jobs
FROM coverage ORDER BY broker, minute
""".replace("{T0}", str(T0))
COLUMNS = (
    "broker",
    "minute",
    "received",
    "repeated",
    "late",
    "quarantined",
    "gaps",
    "dropped",
    "blind_jobs",
)
EXPECTED = [
    ("b1", 0, 2, 0, 1, 0, 0, 0, None),
    ("b1", 1, 1, 1, 0, 0, 0, 0, ["chunks", "rate_limits"]),
    ("b1", 2, 2, 0, 0, 0, 1, 7, ["chunks", "rate_limits"]),
    ("b1", 4, 1, 0, 0, 0, 0, 0, ["chunks"]),
    ("b2", 0, 1, 0, 0, 1, 0, 0, None),
    ("b2", 1, 1, 0, 0, 0, 0, 0, None),
]


def refused(reason: str, at_ms: int, offset: int, job: str) -> dict[str, Any]:
    return {
        "reason_code": reason,
        "job": job,
        "cluster": "c",
        "broker": "b1",
        "source_partition": "0",
        "source_offset": offset,
        "ts_wall_ms": T0 + at_ms,
    }


REFUSED = [
    refused("TOO_LATE", 10, 1, "chunks"),
    refused("TOO_LATE", 10, 1, "backlog"),
    refused("DUPLICATE_RECORD", 60_001, 2, "chunks"),
    refused("BAD_TYPE", 0, 3, "chunks"),
]


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """Of two tasks; the gap comes twice."""
    first = archived([LINES[:1]], tmp_path / "1")
    then = archived([LINES[1:], [line(6, 130_000, **LOST)]], tmp_path / "2")
    found = {name: [*first[name], *then[name]] for name in (COUNTS, GAPS)}
    return {**found, "quarantine": REFUSED}


def test_the_view_adds_up_what_was_counted(
    rows: dict[str, Any], make_settings: Any, tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, found in rows.items():
        write(tmp_warehouse, name, found)
    settings: Settings = make_settings()
    assert query(settings, COVERAGE, "json") == 0
    got = json.loads(capsys.readouterr().out)
    assert [tuple(row[name] for name in COLUMNS) for row in got] == EXPECTED


def test_spark_says_the_same(rows: dict[str, Any], spark: Any) -> None:
    for name, found in rows.items():
        whole = [{**dict.fromkeys(TABLES[name].names), **row} for row in found]
        table = pa.Table.from_pylist(whole, TABLES[name].schema)
        spark.createDataFrame(table).createOrReplaceTempView(name)
    polls = pa.table({f.name: pa.array([], f.type) for f in TABLES[POLLS].schema})
    spark.createDataFrame(polls).createOrReplaceTempView(POLLS)
    spark.sql(VIEWS["coverage"].sql).createOrReplaceTempView("coverage")
    assert [tuple(row) for row in spark.sql(COVERAGE).collect()] == EXPECTED
