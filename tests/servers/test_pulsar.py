"""Topics of a real Pulsar broker: nothing lost and nothing twice, whatever happens."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import yaml
from deltalake import DeltaTable

from app.errors import UserError
from app.run.service import run
from app.sources.pulsar import planned_ranges, position_range
from app.sources.pulsar.message_positions import START, Position
from app.sources.pulsar.planned_ranges import Planner
from app.sources.pulsar.position_range import Range
from app.sources.pulsar.pulsar_records import stream_plan
from app.sources.pulsar.shares import EARLIEST, positions_of
from app.sources.raw import Document
from tests.crash.service import Service
from tests.servers.live import (
    APART_MS,
    PARTITIONS,
    Lines,
    MakeSettings,
    policies,
    rows_in,
    running,
)
from tests.support.servers.pulsar import KEEPER, Pulsar
from tests.support.traces import all_rows, every_row, identities
from tests.support.waiting import wait_for
from tests.unit.state.trace import START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

Place = tuple[str, int, int, int]
INDEX = 1 << 20


@pytest.fixture(scope="module")
def namespace(pulsar: Pulsar) -> str:
    """A namespace of these tests' own."""
    name = f"acme/events-{uuid4().hex}"
    pulsar.namespace(name)
    return name


@pytest.fixture
def topic(pulsar: Pulsar, namespace: str) -> str:
    """A topic of the test's own, of two partitions."""
    name = f"{namespace}/{uuid4().hex}"
    pulsar.create_topic(name, PARTITIONS)
    return name


def options_of(pulsar: Pulsar, topics: str, **more: str) -> dict[str, str]:
    # A broker that is away is noticed within seconds.
    return {
        "serviceUrl": pulsar.service_url,
        "topics": topics,
        "operationTimeoutMs": "5000",
        **more,
    }


def pulsar_settings(make: MakeSettings, pulsar: Pulsar, topic: str, **more: Any) -> Settings:
    """Settings that read the topic, some thousand records in a batch."""
    source = {
        "format": "pulsar",
        "options": options_of(pulsar, topic),
        "max_records_per_trigger": 6_000,
    }
    return make(source=source, policies=policies(), idle_advance_ms=APART_MS, **more)


def produce(pulsar: Pulsar, topic: str, records: Lines) -> list[Place]:
    """Send the records in their order, those of a broker into one partition."""
    return pulsar.produce_to(topic, ((broker % PARTITIONS, line) for broker, line in records))


def identity(place: Place, topic: str = "") -> tuple[str, int]:
    """The identity of a message in the tables."""
    partition, ledger, entry, index = place
    name = f"{topic}-{partition}" if topic else partition
    return f"{name}:{ledger}", entry * INDEX + max(index, 0)


def subscriptions(pulsar: Pulsar, topic: str) -> dict[str, str]:
    """The subscriptions of a topic and where they are."""
    found = pulsar.ask("GET", f"persistent/{topic}/internalStats")["cursors"]
    return {name: cursor["markDeletePosition"] for name, cursor in found.items()}


def test_a_killed_run_goes_on_and_all_jobs_have_the_rows_of_the_same_records_from_files(
    pulsar: Pulsar,
    topic: str,
    lines: Lines,
    tmp_path: Path,
    reference_warehouse: str,
    make_settings: MakeSettings,
) -> None:
    half = len(lines) // 2
    sent = produce(pulsar, topic, lines[:half])
    settings = pulsar_settings(make_settings, pulsar, topic)
    config = tmp_path / "weir.yaml"
    written = settings.model_dump(include={"warehouse", "idle_advance_ms", "policies"})
    config.write_text(
        yaml.safe_dump(
            {
                **written,
                "partitions": 2,
                "alerts": None,
                "commit_interval_ms": {"events": 0},
                "source": settings.feed.model_dump(
                    include={"format", "options", "max_records_per_trigger"}
                ),
            }
        )
    )
    first = Service(config)
    try:
        first.wait_for_batches(2)
        first.kill()
    finally:
        first.close()
    sent += produce(pulsar, topic, lines[half:])
    assert run(settings, available_now=True) == 0
    assert run(settings, available_now=True) == 0  # there is nothing more

    assert identities(settings.warehouse) == sorted(map(identity, sent))
    assert every_row(settings.warehouse) == every_row(reference_warehouse)


def test_a_broker_that_goes_away_and_comes_back_loses_and_doubles_nothing(
    pulsar: Pulsar,
    topic: str,
    spark: SparkSession,
    make_settings: MakeSettings,
    lines: Lines,
    reference: dict[str, list[tuple[object, ...]]],
) -> None:
    settings = pulsar_settings(make_settings, pulsar, topic)
    third = len(lines) // 3
    with running(spark, settings):
        sent = produce(pulsar, topic, lines[:third])
        wait_for(lambda: rows_in(settings) > 0)
        pulsar.stop()  # batches are under way
        time.sleep(12)  # longer than every time-out of the client
        pulsar.start()
        sent += produce(pulsar, topic, lines[third : 2 * third])
        wait_for(lambda: rows_in(settings) > third)
    sent += produce(pulsar, topic, lines[2 * third :])
    assert run(settings, available_now=True) == 0

    assert identities(settings.warehouse) == sorted(map(identity, sent))
    assert all_rows(settings.warehouse) == reference


def numbered(first: int, count: int) -> list[bytes]:
    """Records with numbers of their own."""
    same = {
        "event_type": "publish",
        "source_feed": "t",
        "cluster": "c",
        "broker": "b",
        "cnx_id": "10.0.0.1:1",
        "topic": "t/n/x",
        "producer_id": 1,
        "entry_bytes": 100,
    }
    return [
        json.dumps(
            {**same, "seq": n, "ts_mono_ns": n * 1_000_000, "ts_wall_ms": START_MS + n}
        ).encode()
        for n in range(first, first + count)
    ]


def test_a_message_id_is_the_identity_whatever_the_topic_and_the_batch(
    pulsar: Pulsar, namespace: str, make_settings: MakeSettings, tmp_path: Path
) -> None:
    plain, parted = (f"{namespace}/{uuid4().hex}" for _ in range(2))
    pulsar.create_topic(plain)
    pulsar.create_topic(parted, 2)
    sent: list[tuple[tuple[str, int], int]] = []
    for batch in (1, 7):
        lines = [(0, line) for line in numbered(len(sent), 40)]
        places = pulsar.produce_to(plain, lines, batch=batch, partitioned=False)
        sent += [
            (identity(place, f"persistent://{plain}"), n)
            for n, place in enumerate(places, len(sent))
        ]
    places = pulsar.produce_to(parted, [(1, line) for line in numbered(len(sent), 9)])
    sent += [
        (identity(place, f"persistent://{parted}"), n) for n, place in enumerate(places, len(sent))
    ]
    options = options_of(pulsar, f"{plain}, persistent://{parted}")
    for number in range(2):
        settings = make_settings(
            warehouse=str(tmp_path / f"{number}"), source={"format": "pulsar", "options": options}
        )
        assert run(settings, available_now=True) == 0
        columns = ["source_partition", "source_offset", "seq"]
        rows = DeltaTable(f"{settings.warehouse}/events").to_pyarrow_table(columns=columns)
        found = [
            ((p, offset), seq) for p, offset, seq in zip(*rows.to_pydict().values(), strict=True)
        ]
        assert sorted(found) == sorted(sent)


def test_a_record_in_chunks_is_read_wherever_a_batch_ends(
    pulsar: Pulsar, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position_range, "SILENCE_S", 1.0)
    name = f"{namespace}/{uuid4().hex}"
    pulsar.create_topic(name)
    lines = [line for n in range(2) for line in (b"small", b"%d" % n * 250_000)]
    sent = pulsar.produce_to(
        name, [(0, line) for line in lines], batch=1, partitioned=False, chunking_enabled=True
    )
    _, ledger, last, _ = sent[-1]
    assert last == 7  # three chunks each
    options, topic = options_of(pulsar, name), f"persistent://{name}"
    for cut in range(last):
        found = [
            value.as_py()
            for begin, end in (
                (str(START), f"{ledger}:{cut}"),
                (f"{ledger}:{cut}", f"{ledger}:{last}:-1"),
            )
            for batch in position_range.read(options, Range(topic, "0", begin, end, 10))
            for value in batch.column("value")
        ]
        assert sorted(found) == sorted(lines), cut


def planner_of(settings: Settings) -> Planner:
    """What plans the batches of the query govern."""
    return Planner(stream_plan(settings.feed, settings.location, "govern", ending=False))


def test_only_what_has_been_processed_is_let_go(
    pulsar: Pulsar, topic: str, make_settings: MakeSettings
) -> None:
    name = f"{topic}-partition-0"
    pulsar.ask("DELETE", f"persistent/{name}/subscription/{KEEPER}")
    settings = pulsar_settings(make_settings, pulsar, topic)
    planner = planner_of(settings)
    try:
        assert planner.next(EARLIEST) == EARLIEST  # empty, but from now on it is kept
        sent = pulsar.produce_to(topic, [(0, b"%d" % n) for n in range(60)], batch=1)
        one = planner.next(EARLIEST)
        ranges = planner.ranges(EARLIEST, one)
        assert [r.name for r in ranges] == ["0"]
        (mine,) = subscriptions(pulsar, name)
        held = subscriptions(pulsar, name)[mine]
        assert held.endswith(":-1")
        two = planner.next(one)  # the first batch has ended
        wait_for(lambda: subscriptions(pulsar, name)[mine] != held, 20)
        assert positions_of(two)["persistent://" + topic, "0"].place >= sent[-1][1:3] or two["more"]
    finally:
        planner.close()


def test_new_partitions_are_read_from_their_beginning(
    pulsar: Pulsar, topic: str, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_ranges, "PARTITIONS_S", 0.0)
    planner = planner_of(pulsar_settings(make_settings, pulsar, topic))
    try:
        pulsar.produce_to(topic, [(0, b"a")])
        one = planner.next(EARLIEST)
        pulsar.ask("POST", f"persistent/{topic}/partitions", 4)
        pulsar.produce_to(topic, [(3, b"b")])
        found = planner.ranges(one, planner.next(one))
        assert [(r.name, r.begin) for r in found] == [("3", str(START))]
    finally:
        planner.close()


@pytest.mark.parametrize("again", [False, True], ids=["trimmed", "created again"])
def test_records_that_are_gone_are_noticed(
    pulsar: Pulsar, namespace: str, make_settings: MakeSettings, again: bool
) -> None:
    name = f"{namespace}/{uuid4().hex}"
    pulsar.create_topic(name)
    settings = pulsar_settings(make_settings, pulsar, name)
    pulsar.produce_to(name, [(0, b"x")] * 40, batch=1, partitioned=False)
    planner = planner_of(settings)
    ended = planner.next(EARLIEST)
    planner.ranges(EARLIEST, ended)
    planner.close()
    pulsar.produce_to(name, [(0, b"y")] * 70, batch=1, partitioned=False)
    if again:
        pulsar.ask("DELETE", f"persistent/{name}?force=true")
        pulsar.create_topic(name)
        pulsar.produce_to(name, [(0, b"z")] * 10, batch=1, partitioned=False)
    else:
        for subscription in subscriptions(pulsar, name):
            pulsar.ask("POST", f"persistent/{name}/subscription/{subscription}/skip/90")
        old = position(ended, name).ledger
        wait_for(lambda: oldest_ledger(pulsar, name) > old, 30)
    plan = replace(
        stream_plan(settings.feed, settings.location, "govern", ending=False),
        planned=ended,
        ended=ended,
    )
    planner = Planner(plan)
    with pytest.raises(UserError) as refused:
        planner.next(ended)
    planner.close()
    first, second = str(refused.value).splitlines()
    assert first.startswith(f"records of source.options.topics are gone: of persistent://{name}")
    assert "take a new warehouse" in second and "failOnDataLoss false" in second
    loose = replace(plan, options={**plan.options, "failOnDataLoss": "false"})
    planner = Planner(loose)
    try:
        (left,) = planner.ranges(ended, planner.next(ended))
        assert sum(b.num_rows for b in position_range.read(plan.options, left)) > 0
    finally:
        planner.close()


def position(document: Document, topic: str) -> Position:
    """The position in a topic that is not partitioned."""
    return positions_of(document)[f"persistent://{topic}", "0"]


def oldest_ledger(pulsar: Pulsar, topic: str) -> int:
    """The oldest ledger of a topic."""
    ledgers = pulsar.ask("GET", f"persistent/{topic}/internalStats")["ledgers"]
    return int(ledgers[0]["ledgerId"])
