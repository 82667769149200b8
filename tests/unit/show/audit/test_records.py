"""The audit of the tables that belong to no job: each damage is named."""

from __future__ import annotations

import zlib
from datetime import date

import pytest

from app.show.audit.suites import SUITES
from tests.support.throttle_rows import START_MS
from tests.unit.show.audit.evaluated import failures

SET, NULL = "expect_column_values_to_be_in_set", "expect_column_values_to_not_be_null"
RANGE = "expect_column_values_to_be_between"
DAY = "event_date is the day of the record, or of its arrival"
PAYLOAD = "a payload has the length and the sum of its row"
TEXT = "late and repeated records belong to a job and come without their text"
PLACE = {"source_partition": "0", "source_offset": 1}
SOUND = {
    "events": [
        {
            **PLACE,
            "event_type": "publish",
            "ts_wall_ms": START_MS,
            "ingest_ms": START_MS,
            "event_date": date(2023, 11, 14),
            "payload": b"abc",
            "payload_bytes": 3,
            "payload_crc32": zlib.crc32(b"abc"),
        },
        {**PLACE, "event_type": "ack", "ingest_ms": 86_400_000, "event_date": date(1970, 1, 2)},
        {
            **PLACE,
            "event_type": "ack",
            "ingest_ms": 1,
            "ts_wall_ms": -1,
            "event_date": date(1969, 12, 31),
        },
    ],
    "quarantine": [
        {**PLACE, "reason_code": "UNPARSEABLE", "raw": "{"},
        {**PLACE, "reason_code": "TOO_LATE", "job": "chunks"},
        {**PLACE, "reason_code": "DUPLICATE_RECORD", "job": "rate_limits"},
    ],
    "chunk_payloads": [
        {"cluster": "c", "topic": "t", "ledger_id": 1, "entry_id": 2, "payload": b""}
    ],
    "chunk_payload_releases": [{"file": "f", "rows": 1}],
    "reconciliation": [
        {
            "compared_ms": 2,
            "cluster": "c",
            "broker": "b",
            "measure": "bytes_in",
            "compared_job": "rate_limits",
            "window_start_ms": 0,
            "window_ms": 1,
            "broker_value": 5,
            "weir_value": 3,
            "difference": 2,
            "bound": 0,
        }
    ],
    "forecasts": [
        {
            "made_ms": 9,
            "known_ms": 2,
            "kind": "topic_msgs",
            "cluster": "c",
            "broker": None,
            "entity": "t",
            "limit": 9.0,
            "used": 1.0,
            "p50": 0.1,
            "p95": 0.1,
            "highest": 0.1,
            "breached": False,
            "for_ms": 5,
            "predicted": 1.5,
            "breach_ms": 3,
            "mean_error": 0.25,
            "tests": 4,
            "reason": None,
        }
    ],
    "quality_results": [
        {
            "run_id": "r",
            "checked_ms": 1,
            "table": "t",
            "expectation": "e",
            "success": False,
            "unexpected_count": 1,
        }
    ],
}
DAMAGE = [
    ("events", {"event_type": "sneeze"}, (SET, "event_type")),
    ("events", {"source_offset": None}, (NULL, "source_offset")),
    ("events", {"event_date": date(2023, 11, 15)}, (DAY, None)),
    ("events", {"payload_bytes": 2}, (PAYLOAD, None)),
    ("events", {"payload_crc32": 1}, (PAYLOAD, None)),
    ("quarantine", {"reason_code": "ODD"}, (SET, "reason_code")),
    ("quarantine", {"job": "cooking"}, (SET, "job")),
    ("quarantine", {"reason_code": "TOO_LATE", "job": "backlog"}, (TEXT, None)),
    ("quarantine", {"reason_code": "DUPLICATE_RECORD", "raw": None}, (TEXT, None)),
    ("chunk_payloads", {"payload": None}, (NULL, "payload")),
    ("chunk_payload_releases", {"rows": 0}, (RANGE, "rows")),
    ("reconciliation", {"compared_job": "cooking"}, (SET, "compared_job")),
    ("reconciliation", {"bound": -1}, (RANGE, "bound")),
    ("reconciliation", {"difference": 1}, ("a difference is that of the two numbers", None)),
    (
        "reconciliation",
        {"broker_value": None, "difference": None},
        ("a number that is missing has a reason", None),
    ),
    ("forecasts", {"entity": None}, (NULL, "entity")),
    ("forecasts", {"limit": -1.0}, (RANGE, "limit")),
    (
        "forecasts",
        {"mean_error": None},
        ("a forecast has a day, a number and an error, or a reason why there is none", None),
    ),
    (
        "forecasts",
        {"reason": "OUT_OF_RANGE"},
        ("a forecast has a day, a number and an error, or a reason why there is none", None),
    ),
    (
        "forecasts",
        {"breach_ms": 5},
        ("a breach lies between what is known and what is predicted", None),
    ),
    ("quality_results", {"success": True}, ("what holds has no unexpected rows", None)),
]


@pytest.mark.parametrize("table", SOUND)
def test_sound_rows_pass_and_damage_is_named(table):
    assert failures(table, SOUND[table], SUITES[table]) == {}
    for name, changes, found in DAMAGE:
        if name == table:
            first, *rest = SOUND[table]
            assert failures(table, [{**first, **changes}, *rest], SUITES[table]) == {found: 1}
