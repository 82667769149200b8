"""The table definitions: what a stranger's reader relies on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from app.tables.definitions import COMMON_OUTPUT, TABLES, VIEWS
from state import events
from state.jobs import DECLARED

JOB_TABLES = [t for t in TABLES.values() if t.job is not None]


@pytest.mark.parametrize("table", JOB_TABLES, ids=lambda t: t.name)
def test_an_output_table_begins_with_the_common_columns(table):
    assert table.columns[: len(COMMON_OUTPUT)] == COMMON_OUTPUT


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda t: t.name)
def test_every_column_is_named_once_and_explained(table):
    assert len(set(table.names)) == len(table.names)
    assert all(c.meaning and not c.meaning.endswith(".") for c in table.columns)
    assert set(table.partition_by) | set(table.sort_by) <= set(table.names)


def test_the_archive_keeps_the_contract_and_the_identity_of_each_record():
    tail = (
        "payload_bytes",
        "payload_crc32",
        "source_partition",
        "source_offset",
        "ingest_ms",
        "event_date",
    )
    assert TABLES["events"].names == (*(c.name for c in events.COLUMNS), *tail)
    assert TABLES["events"].schema.field("event_date").type == pa.date32()


def test_no_column_raises_the_delta_protocol():
    for table in TABLES.values():
        for field in table.schema:
            assert not pa.types.is_timestamp(field.type), f"{table.name}.{field.name}"


def test_throttle_events_has_the_columns_and_types_of_the_specification():
    own = TABLES["throttle_events"].schema.names[len(COMMON_OUTPUT) :]
    schema = TABLES["throttle_events"].schema
    assert {name: str(schema.field(name).type) for name in own} == {
        "cnx_id": "string",
        "producer_id": "int64",
        "producer_name": "string",
        "topic": "string",
        "action": "string",
        "throttle_type": "string",
        "reason": "string",
        "reason_number": "int32",
        "limiter": "string",
        "transition": "string",
        "reads_paused": "bool",
        "culprit_topic": "string",
        "trigger_topic": "string",
        "limiter_name": "string",
        "collateral_topics": "list<item: string>",
        "balance_msgs": "int64",
        "balance_bytes": "int64",
        "pause_pip_ms": "int64",
        "pause_model_ns": "int64",
        "waiting": "int32",
        "pause_observed_ns": "int64",
        "request_id": "int64",
        "receipt_state": "string",
        "seen_until_ns": "int64",  # of Weir's own kind gap
    }


def test_full_verdicts_are_written_only_when_asked_for():
    assert [t.name for t in DECLARED["rate_limits"].written()] == [
        "throttle_events",
        "topic_throttle_stats",
        "limiter_stats",
        "producer_throttle",
    ]
    asked = DECLARED["rate_limits"].written(("publish_verdicts",))
    assert [t.name for t in asked] == [
        "throttle_events",
        "topic_throttle_stats",
        "limiter_stats",
        "producer_throttle",
        "publish_verdicts",
    ]


def test_every_view_reads_tables_that_exist():
    for view in VIEWS.values():
        assert set(view.reads) <= set(TABLES)
        assert view.name not in TABLES
