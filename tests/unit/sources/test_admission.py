"""What one micro-batch takes of a flood, for every source, by default and as configured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.config.settings import Settings
from app.config.source import SourceSettings
from app.sources.files.line_files import admission
from app.sources.kafka.kafka_probe import mean_bytes
from app.sources.kafka.kafka_records import stream_options
from tests.support.servers.kafka import Kafka
from tests.unit.sources.any_source import streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
MakeSettings = Callable[..., Settings]


def sizes(batches: list[pa.Table]) -> list[int]:
    return [batch.num_rows for batch in batches if batch.num_rows]


def test_a_flood_in_kafka_is_cut_by_records(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, make_settings: MakeSettings
) -> None:
    """Two of four partitions hold 93 % of it: each gives its share."""
    topic = f"flood-{uuid4().hex}"
    kafka.create_topic(topic, 4)
    shares = (465, 465, 35, 35)
    kafka.produce_to(topic, ((p, b"{}") for p, n in enumerate(shares) for _ in range(n)))
    settings = make_settings(
        source={
            "format": "kafka",
            "max_records_per_trigger": 200,
            "options": {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic},
        }
    )

    taken = sizes(streamed(spark, settings, tmp_path / "checkpoint"))

    assert sum(taken) == 1000
    assert max(taken) <= 200 + 4  # Spark rounds each partition's share


def test_large_records_in_kafka_are_cut_by_bytes(kafka: Kafka, make_settings: MakeSettings) -> None:
    topic = f"large-{uuid4().hex}"
    kafka.create_topic(topic, 2)
    kafka.produce_to(topic, ((n % 2, b"x" * 10_000) for n in range(100)))
    source = {
        "format": "kafka",
        "max_bytes_per_trigger": 200_000,
        "options": {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic},
    }

    bound = stream_options(make_settings(source=source).feed)["maxOffsetsPerTrigger"]
    assert bound == "20"

    source["options"] = {**source["options"], "maxOffsetsPerTrigger": "7"}
    assert stream_options(make_settings(source=source).feed)["maxOffsetsPerTrigger"] == "7"


@pytest.mark.parametrize(
    ("sizes", "mean"),
    [
        ([], None),
        ([400] * 199 + [100_000_000], 400),
        ([400] * 198 + [100_000_000] * 2, 1_000_396),
        ([400] * 10 + [100_000_000], 9_091_272.7),
        ([400] * 100 + [40_000], 40_000 / 101 + 400 * 100 / 101),
    ],
)
def test_one_record_that_outweighs_all_others_does_not_bound_a_batch(
    sizes: list[int], mean: float | None
) -> None:
    assert mean_bytes(sizes) == pytest.approx(mean)


def test_an_empty_topic_is_bounded_by_records(kafka: Kafka, make_settings: MakeSettings) -> None:
    topic = f"empty-{uuid4().hex}"
    kafka.create_topic(topic, 1)
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic}

    bound = stream_options(make_settings(source={"format": "kafka", "options": options}).feed)

    assert bound["maxOffsetsPerTrigger"] == "500000"


def test_a_flood_of_files_is_cut_by_bytes(
    spark: SparkSession, tmp_path: Path, make_settings: MakeSettings
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in range(6):
        (folder / f"{name}.jsonl").write_bytes(b'{"n":%d}\n' % name * 1000)
    settings = make_settings(
        source={"format": "files", "path": str(folder), "max_bytes_per_trigger": 17_000}
    )

    assert sizes(streamed(spark, settings, tmp_path / "checkpoint")) == [2000] * 3


@pytest.mark.parametrize(
    ("names", "path", "most"),
    [
        ([], "", 120_000),
        (["a.jsonl"], "", 120_000),
        (["b/a.ndjson.gz"], "", 10_000),
        (["a.jsonl", "b.gz"], "", 10_000),
        (["a.gz"], "/*.jsonl", 120_000),
        ([], "/*.gz", 10_000),
        (["a.gz"], "/a.gz", 10_000),
    ],
)
def test_gzipped_files_count_with_what_is_in_them(
    names: list[str], path: str, most: int, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    given = f"{tmp_path}{path}"
    source = SourceSettings(format="files", path=given, max_bytes_per_trigger=120_000)
    assert admission(source, given) == {"maxBytesPerTrigger": str(most)}
    chosen = {"maxFilesPerTrigger": "3"}
    assert admission(source.model_copy(update={"options": chosen}), given) == {}


def test_a_flood_in_a_delta_table_is_cut_by_records(
    spark: SparkSession, tmp_path: Path, make_settings: MakeSettings
) -> None:
    rows = {"value": [b"{}"] * 100, "source_partition": ["p"] * 100, "source_offset": range(100)}
    for _ in range(6):
        write_deltalake(str(tmp_path / "t"), pa.table(rows), mode="append")
    settings = make_settings(
        source={"format": "delta", "path": str(tmp_path / "t"), "max_records_per_trigger": 200}
    )

    taken = sizes(streamed(spark, settings, tmp_path / "checkpoint"))

    assert sum(taken) == 600
    assert max(taken) <= 300
