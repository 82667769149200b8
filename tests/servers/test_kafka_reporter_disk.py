"""The metrics reporter in a real broker while its disk is full, read-only, emptied or away, and while
the broker is killed: the broker serves all the time, and what is missing is counted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.servers.kafka import VERSION
from tests.support.servers.kafka_reporter import REPORTER, TOPIC, Broker, Json, read, sending
from tests.support.servers.process import serving
from tests.support.servers.pulsar_plugin import records
from tests.support.small_disk import fill, mount, no_mount, read_only, unmount
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.skipif(bool(no_mount()), reason=no_mount())]
WAIT_S = 3.0
BUFFER = 20


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A small disk; the reporter has a folder on it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    assert mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)).returncode == 0
    yield disk / "rates"
    unmount(disk)


@pytest.fixture
def broker(folder: Path, tmp_path: Path) -> Iterator[Broker]:
    """A broker with the reporter."""
    settings = {
        "metric.reporters": REPORTER,
        "weir.directory": folder,
        "weir.file.ms": 300,
        "weir.interval.ms": 200,
        "weir.buffer.records": BUFFER,
    }
    made = partial(Broker, tmp_path / "broker", VERSION, settings)
    with serving(made, "Kafka broker with the reporter") as started:
        started.create_topic(TOPIC)
        assert started.limit({"client-id": None}, {"producer_byte_rate": 1_000_000_000}) == ""
        yield started


def holes(found: list[Json]) -> tuple[int, int]:
    """How many numbers are missing between records, and how many gaps tell. No number comes twice."""
    seqs = [record["seq"] for record in found]
    assert seqs == sorted(set(seqs))
    missing = sum(after - before - 1 for before, after in pairwise(seqs))
    return missing, sum(record.get("dropped") or 0 for record in found)


def test_a_disk_that_fails_costs_the_broker_nothing_and_is_counted(
    broker: Broker, folder: Path, tmp_path: Path
) -> None:
    kept, aside = tmp_path / "kept", folder.with_name("aside")
    kept.mkdir()

    def keep(place: Path) -> None:
        """What is shown survives what happens to its folder."""
        for file in place.glob("*.ndjson*"):
            shutil.copy2(file, kept)

    def goes_on(after_s: float = 0.0) -> None:
        """Records of a time after now are shown, and the client has sent all along."""
        from_ms = time.time() * 1000
        wait_for(lambda: any(r["ts_wall_ms"] > from_ms for r in read(folder)[-BUFFER:]))
        keep(folder)

    with sending(broker, "app") as sent:
        goes_on()
        for disaster in ("full", "read-only", "emptied", "folder", "file"):
            before = sent[0]
            if disaster == "full":
                ballast = fill(folder.parent)
                time.sleep(WAIT_S)
                ballast.unlink()
            elif disaster == "read-only":
                with read_only(folder):
                    time.sleep(WAIT_S)
            elif disaster == "emptied":
                aside.mkdir()
                for file in folder.iterdir():
                    file.rename(aside / file.name)
            else:
                folder.rename(aside)
                if disaster == "file":  # no folder can be made where it is
                    folder.touch()
                    time.sleep(WAIT_S)
                    folder.unlink()
            keep(aside)
            shutil.rmtree(aside, ignore_errors=True)
            time.sleep(1)
            assert sent[0] > before + 3, f"{disaster}: the broker is held up"
            goes_on()
    assert broker.running
    found = records(kept)
    missing, told = holes(found)
    assert missing == told > 0


def test_a_broker_that_is_killed_has_each_record_once_and_a_gap(
    broker: Broker, folder: Path
) -> None:
    with sending(broker, "app"):
        wait_for(lambda: len(read(folder)) > 10)
        broker.kill()
        broker.start()
        wait_for(lambda: len(records(folder, "broker_started")) == 2)
        (_, again) = records(folder, "broker_started")
        wait_for(lambda: read(folder)[-1]["seq"] > again["seq"])
    found = records(folder)
    holes(found)  # none twice
    gap = records(folder, "gap")[-1]
    assert gap["gap_from_wall_ms"] <= gap["ts_wall_ms"]
    assert again["seq"] < gap["seq"]
