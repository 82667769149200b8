"""Delta tables as sources: rows of the contract become JSON, and every row has an identity."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

from app import sources
from app.config.settings import Settings
from state.events import SCHEMA
from tests.unit.sources.any_source import at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeSettings = Callable[..., Settings]
NAMES = ("value", "source_partition", "source_offset")


def read(spark: SparkSession, settings: Settings) -> list[tuple[bytes, str, int]]:
    """(value, source_partition, source_offset) of every record."""
    table = at_once(spark, settings)
    return list(zip(*(table.column(name).to_pylist() for name in NAMES), strict=True))


def test_a_row_of_the_contract_is_the_json_it_stands_for(
    spark: SparkSession, make_settings: MakeSettings, tmp_path: Path
) -> None:
    event = {
        "event_type": "dispatch",
        "source_feed": "contract",
        "cluster": "c",
        "broker": "b",
        "seq": 2**63 - 1,
        "ts_mono_ns": -(2**63),
        "ts_wall_ms": 9_007_199_254_740_993,
        "topic": "a/b/grüße",
        "payload": b"\x00\xff",
        "marker_ids": ["1:2", "3:4"],
        "durable": False,
        "partition": 3,
    }
    row = {**event, "source_partition": "x.jsonl", "source_offset": 7, "ingest_ms": 1}
    schema = pa.schema(
        [
            *SCHEMA,
            ("source_partition", pa.string()),
            ("source_offset", pa.int64()),
            ("ingest_ms", pa.int64()),
        ]
    )
    write_deltalake(str(tmp_path / "t"), pa.Table.from_pylist([row], schema))
    settings = make_settings(source={"format": "delta", "path": str(tmp_path / "t")})
    sources.check(settings.feed, settings.location)
    ((value, partition, offset),) = read(spark, settings)
    assert json.loads(value) == {**event, "payload": base64.b64encode(b"\x00\xff").decode()}
    assert (partition, offset) == ("x.jsonl", 7)


def test_a_table_filled_from_kafka_keeps_kafkas_identities(
    spark: SparkSession, make_settings: MakeSettings, tmp_path: Path
) -> None:
    rows = {"value": [b"{}", None], "topic": ["t", "t"], "partition": [0, 1], "offset": [5, 5]}
    write_deltalake(str(tmp_path / "t"), pa.table(rows))
    settings = make_settings(source={"format": "delta", "path": str(tmp_path / "t")})
    assert sorted(read(spark, settings), key=str) == [(None, "t-1", 5), (b"{}", "t-0", 5)]
