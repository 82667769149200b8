"""What every source promises: the same records, whole, each with an identity that stays."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app import sources
from app.config.settings import Settings
from tests.support.servers.kafka import Kafka
from tests.unit.sources.any_source import at_once, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

RECORDS = [
    b'{"event_type":"publish","seq":9007199254740993}',
    '{"event_type":"publish","topic":"tenant/ns/grüße"}'.encode(),
    b'{"event_type":"publish","topic":"not utf-8: \xff\xfe\x00"}',
    b"not JSON at all",
    b' {"spaces":"around"} ',
    b'{"event_type":"publish"}',
    b'{"event_type":"publish"}',  # twice the same text: two records
    b'{"payload":"' + b"x" * 300_000 + b'"}',
    *(b'{"n":%d}' % n for n in range(2_000)),
]
MakeSettings = Callable[..., Settings]


def files(folder: Path, _: Kafka) -> dict[str, object]:
    """Two files of lines; the second has no newline at its end."""
    (folder / "in" / "day").mkdir(parents=True)
    for name, part in (("a.jsonl", RECORDS[:900]), ("day/b.json", RECORDS[900:])):
        (folder / "in" / name).write_bytes(b"\n".join(part))
    return {"format": "files", "path": str(folder / "in")}


def gzip_files(folder: Path, _: Kafka) -> dict[str, object]:
    """A pattern that matches one gzip file of two members."""
    packed = b"".join(gzip.compress(b"\n".join(part) + b"\n") for part in halves())
    (folder / "events.gz").write_bytes(packed)
    (folder / "other.txt").write_bytes(b"not taken")
    return {"format": "files", "path": f"{folder}/*.gz"}


def kafka_topic(_: Path, kafka: Kafka) -> dict[str, object]:
    """A topic of three partitions."""
    topic = f"source-{uuid4().hex}"
    kafka.create_topic(topic, 3)
    kafka.produce(topic, RECORDS, key=lambda line: line[-2:])
    return {
        "format": "kafka",
        "options": {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic},
    }


def delta_table(folder: Path, _: Kafka) -> dict[str, object]:
    """A table with a column `value`, written in two commits."""
    for number, part in enumerate(halves()):
        rows = {
            "value": part,
            "source_partition": [f"p{number}"] * len(part),
            "source_offset": range(len(part)),
        }
        write_deltalake(str(folder / "t"), pa.table(rows), mode="append")
    return {"format": "delta", "path": str(folder / "t")}


def halves() -> tuple[list[bytes], list[bytes]]:
    """The records in two parts."""
    return RECORDS[:700], RECORDS[700:]


def rows_of(table: pa.Table) -> list[tuple[bytes, str, int]]:
    """(value, source_partition, source_offset) of every record, in the order of their identity."""
    columns = table.select(["value", "source_partition", "source_offset"])
    return sorted(zip(*(c.to_pylist() for c in columns.columns), strict=True), key=lambda r: r[1:])


@pytest.mark.parametrize("source", [files, gzip_files, kafka_topic, delta_table])
def test_a_source_gives_every_record_once_with_an_identity_that_stays(
    source: Callable[[Path, Kafka], dict[str, object]],
    spark: SparkSession,
    kafka: Kafka,
    tmp_path: Path,
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(source=source(tmp_path, kafka))
    sources.check(settings.feed, settings.location)

    first = rows_of(at_once(spark, settings))
    assert Counter(row[0] for row in first) == Counter(RECORDS)
    assert len({row[1:] for row in first}) == len(RECORDS)

    assert rows_of(at_once(spark, settings)) == first  # for another query, with its checkpoint


def test_lines_of_files_are_numbered_from_0_below_the_source_folder(
    spark: SparkSession, tmp_path: Path, make_settings: MakeSettings
) -> None:
    inside = tmp_path / "in" / "broker 1"
    inside.mkdir(parents=True)
    (inside / "x.jsonl").write_bytes(b"\xef\xbb\xbfzero\n\n\r\nthree\r\nfour")
    settings = make_settings(source={"format": "files", "path": str(tmp_path / "in")})
    assert rows_of(at_once(spark, settings)) == [
        (b"zero", "broker 1/x.jsonl", 0),
        (b"three\r", "broker 1/x.jsonl", 3),
        (b"four", "broker 1/x.jsonl", 4),
    ]


def test_a_stream_takes_new_files_in_order_of_time_and_none_twice(
    spark: SparkSession, tmp_path: Path, make_settings: MakeSettings
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()

    def put(name: str, time_s: int) -> None:
        (folder / f".{name}").write_bytes(name.encode())
        os.utime(folder / f".{name}", (time_s, time_s))
        (folder / f".{name}").rename(folder / name)

    settings = make_settings(
        source={"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": 1}}
    )
    put("b.jsonl", 1_700_000_000)
    put("a.jsonl", 1_700_000_001)
    first = streamed(spark, settings, tmp_path / "checkpoint")
    assert [t["value"].to_pylist() for t in first] == [[b"b.jsonl"], [b"a.jsonl"]]

    put("c.jsonl", 1_000_000_000)  # twenty years older than the newest: still a new file
    second = streamed(spark, settings, tmp_path / "checkpoint")
    assert [t["value"].to_pylist() for t in second if t.num_rows] == [[b"c.jsonl"]]


def test_a_file_is_cut_into_the_same_lines_whatever_the_cores(
    spark: SparkSession, tmp_path: Path, make_settings: MakeSettings
) -> None:
    (tmp_path / "in").mkdir()
    lines = [b"%07d" % n + b"x" * 100 for n in range(20_000)]
    (tmp_path / "in" / "big.jsonl").write_bytes(b"\n".join(lines))
    settings = make_settings(source={"format": "files", "path": str(tmp_path / "in")})
    kept = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "100000")
    try:
        rows = rows_of(at_once(spark, settings))
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", kept)
    assert rows == [(line, "big.jsonl", n) for n, line in enumerate(lines)]


def test_a_damaged_gzip_file_is_named(
    spark: SparkSession, tmp_path: Path, make_settings: MakeSettings
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 1000)[:-9])
    settings = make_settings(source={"format": "files", "path": str(tmp_path / "in")})
    with pytest.raises(Exception, match=r"UserError: .*cut\.jsonl\.gz: cannot be read to its end"):
        at_once(spark, settings)
