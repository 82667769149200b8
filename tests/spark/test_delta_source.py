"""Delta tables as sources: rows of the contract become JSON, and every row has an identity."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake

from app import sources
from app.config.settings import Settings
from app.sources.files.parquet_rows import numbered
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


def test_a_file_of_several_row_groups_is_numbered_through_however_it_is_split(
    spark: SparkSession, make_settings: MakeSettings, tmp_path: Path
) -> None:
    values = [b"%08d" % n + b"x" * 50 for n in range(30_000)]
    write_deltalake(
        str(tmp_path / "t"),
        pa.table({"value": values}),
        writer_properties=WriterProperties(max_row_group_size=4_000, compression="UNCOMPRESSED"),
    )
    settings = make_settings(source={"format": "delta", "path": str(tmp_path / "t")})
    kept = spark.conf.get("spark.sql.files.maxPartitionBytes")
    found = []
    for size in ("300000", "1000000", str(kept)):
        spark.conf.set("spark.sql.files.maxPartitionBytes", size)
        try:
            found.append(sorted(read(spark, settings)))
        finally:
            spark.conf.set("spark.sql.files.maxPartitionBytes", str(kept))
    (name,) = {row[1] for row in found[0]}
    assert name.endswith(".parquet")
    assert found == [[(value, name, n) for n, value in enumerate(values)]] * 3


def test_rows_count_from_the_row_groups_before_their_block(tmp_path: Path) -> None:
    path = tmp_path / "a b.parquet"
    pq.write_table(pa.table({"value": [b"%d" % n for n in range(10)]}), path, row_group_size=4)
    footer = pq.ParquetFile(path).metadata
    second = footer.row_group(1).column(0)
    start = second.dictionary_page_offset or second.data_page_offset

    def batch(values: list[bytes], begin: int) -> pa.RecordBatch:
        url = f"file://{tmp_path}/a%20b.parquet"
        columns = [
            pa.array(values),
            pa.array([url] * len(values)),
            pa.array([begin] * len(values), pa.int64()),
        ]
        return pa.record_batch(columns, ["value", "input_file_name()", "start"])

    batches = [
        batch([b"4", b"5"], start),
        batch([b"6"], start),
        batch([b"0", b"1"], 0),
        batch([b"2", b"3"], 0),
        batch([], 0),
    ]
    rows = [tuple(r.values()) for b in numbered(iter(batches), NAMES) for r in b.to_pylist()]
    assert rows == [(b"%d" % n, "a b.parquet", n) for n in (4, 5, 6, 0, 1, 2, 3)]
