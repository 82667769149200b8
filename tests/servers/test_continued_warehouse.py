"""A new warehouse continues one that a run refuses: its archive, then Kafka from where that ends. Every
record comes once, whenever the run is killed, and the rows are those of a run that had no break."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewPartitions
from deltalake import DeltaTable

from app.config.settings import Settings, load_settings
from app.errors import UserError
from app.run.service import run
from app.tables import formats, manifest, succession
from app.tables.run_lock import only_run
from state.jobs import BY_DEFAULT, DECLARED
from tests.crash.service import killed_at
from tests.servers.live import APART_MS, PARTITIONS, Lines, offsets, policies
from tests.support.servers.kafka import Kafka
from tests.support.traces import all_rows, identities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
MORE = PARTITIONS + 1
KILLS = [("planned", 1), ("half-changed", 2)]
ALL_KILLS = [
    ("found", 1),
    ("begins", 1),
    ("planned", 1),
    ("before", 2),
    ("ended", 1),
    ("is-read", 1),
    ("half-changed", 2),
    ("changed", 1),
    ("goes-on", 1),
    ("after", 1),
]


def config_of(folder: Path, kafka: Kafka, topic: str) -> Path:
    """The configuration of both warehouses, which differ in `warehouse` alone: batches are small, so
    that there are several of the archive and of the topic."""
    document: dict[str, Any] = {
        "warehouse": str(folder / "old"),
        "partitions": 2,
        "alerts": None,
        "policies": policies(),
        "idle_advance_ms": APART_MS,
        "source": {
            "format": "kafka",
            "max_records_per_trigger": 6_000,
            "options": {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic},
        },
    }
    path = folder / "weir.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def send(kafka: Kafka, topic: str, records: Lines, partitions: int) -> None:
    """Send the records in their order, those of a broker into one partition."""
    kafka.produce_to(topic, ((broker % partitions, line) for broker, line in records))


def of_another_version(settings: Settings) -> None:
    """The states of a warehouse become those of another release."""
    path = Path(settings.warehouse, formats.NAME)
    found = json.loads(path.read_text("utf-8"))
    states = {job: DECLARED[job].state_version + 1 for job in BY_DEFAULT}
    path.write_text(json.dumps({**found, "weir": "9.0.0", "states": states}), encoding="utf-8")


def archived(settings: Settings) -> set[tuple[str, int]]:
    """The records in the archive."""
    table = DeltaTable(f"{settings.warehouse}/events").to_pyarrow_table(
        columns=["source_partition", "source_offset"]
    )
    return set(zip(*(column.to_pylist() for column in table.columns), strict=True))


def optimize(path: str) -> None:
    """What an analyst may do to a table: its files have the rows in another order."""
    DeltaTable(path).optimize.z_order(["topic", "broker"])


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(KILLS, id="two"),
        pytest.param(ALL_KILLS, id="all", marks=pytest.mark.slow),
    ],
)
def test_the_way_that_a_refusal_names_ends_with_every_record_once(
    kills: list[tuple[str, int]],
    kafka: Kafka,
    spark: SparkSession,
    tmp_path: Path,
    lines: Lines,
    reference: dict[str, list[tuple[object, ...]]],
) -> None:
    topic = f"events-{uuid4().hex}"
    kafka.create_topic(topic, PARTITIONS)
    config, half = config_of(tmp_path, kafka, topic), len(lines) // 2
    old = load_settings(config)
    send(kafka, topic, lines[:half], PARTITIONS)
    assert run(old, available_now=True) == 0
    optimize(f"{old.warehouse}/events")
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.create_partitions([NewPartitions(topic, MORE)])[topic].result()
    send(kafka, topic, lines[half:], MORE)

    of_another_version(old)
    with pytest.raises(UserError) as refused:
        run(old, available_now=True)
    *_, command = str(refused.value).splitlines()
    words = command.split()
    assert words[1:3] == ["run", "--config"]
    new, archive = (words[words.index(each) + 1] for each in ("--warehouse", "--from-archive"))

    config.write_text(config.read_text("utf-8").replace(str(tmp_path / "old"), new), "utf-8")
    settings = load_settings(config)
    with only_run(old.location, ["archive"]), pytest.raises(UserError, match="another run works"):
        run(settings, available_now=True, archive=archive)
    with pytest.raises(UserError, match="--jobs: every job reads the archive"):
        run(settings, available_now=True, jobs=["rate_limits"], archive=archive)
    for step, number in kills:
        killed_at(config, "all", step, number, archive)
    assert run(settings, available_now=True, archive=archive) == 0

    kept = succession.predecessor(settings.location)
    assert kept is not None and kept.is_read
    # What no job can use is in no archive: it stays in the quarantine of the old warehouse.
    refused_then = {*identities(old.warehouse)} - archived(old)
    assert 0 < len(refused_then) < 50
    assert identities(settings.warehouse) == sorted({*offsets(kafka, topic, MORE)} - refused_then)
    rows, expected = all_rows(settings.warehouse), dict(reference)
    assert Counter(expected.pop("quarantine")) >= Counter(rows.pop("quarantine"))
    assert rows == expected
    assert manifest.of_any_layout(settings.location).topics is not None
    with pytest.raises(UserError, match=r"continues .* an archive fills a new warehouse"):
        run(settings, available_now=True, archive=str(tmp_path / "another"))
