"""Request log and dump of a real broker: who brought which producer ids, and who brings too many.

A broker with users of its own serves some patient producers of two users and one client that
opens a new producer for every message. What its tools write is all that Weir is given.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from app.config.source import KafkaLogsSettings
from app.contract.event_contract import parse_batch
from app.run.service import run
from app.sources.kafka import broker_logs
from app.tables.small_files import path_in
from app.whatif.replay import replayed
from tests.support.servers.logging_kafka import LoggingKafka
from tests.support.servers.process import serving
from tests.support.waiting import PATIENCE_S
from tests.unit.state.producer_id_trace import numbered, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

pytestmark = pytest.mark.kafka

PATIENT, OFFENDER = {"alice": 4, "bob": 3}, "mallory"
TIMES = {"stamped-by-clients": "CreateTime", "stamped-by-broker": "LogAppendTime"}
MESSAGES = 40
BY_PARTITION = 1 + 6 * 10 + MESSAGES // 4 + 1
"""Messages of the first producer, six patient ones, the offender and a transaction."""
BOUND = 1
"""Per window: with 11 samples a burst of 11 ids, more than the patient users bring together."""
Row = dict[str, Any]


class Told(NamedTuple):
    """What the broker's files tell."""

    valid: list[Row]
    refused: list[tuple[str, str, Row]]
    """Reason, detail and record."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Request log and dump of a broker that has served all of them."""
    home, folder = tmp_path_factory.mktemp("broker"), tmp_path_factory.mktemp("logs")
    with serving(lambda: LoggingKafka(home, [*PATIENT, OFFENDER]), "Kafka broker") as broker:
        traffic(broker)
    broker.request_log.rename(folder / "kafka-request.log.1")
    segments = [segment for topic in TIMES for segment in broker.segments(topic)]
    (folder / "dump.txt").write_text(broker.dump(segments))
    (folder / "dump-with-records.txt").write_text(
        broker.dump(broker.segments("stamped-by-broker")[:1], "--print-data-log")
    )
    yield folder


def traffic(broker: LoggingKafka) -> None:
    """All clients at once: an id takes a client of librdkafka half a second to get."""
    with AdminClient({"bootstrap.servers": broker.servers}) as admin:
        made = admin.create_topics(
            [
                NewTopic(name, 2, 1, config={"message.timestamp.type": time})
                for name, time in TIMES.items()
            ]
        )
        for one in made.values():
            one.result(PATIENCE_S)
    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    def client(user: str, **more: object) -> Producer:
        return Producer(
            {
                **broker.client(user),
                "enable.idempotence": True,
                "client.id": f'{user}\'s "app"',
                "log_level": 2,
                **more,
            }
        )

    def send(producer: Producer, times: int, begin: int = 0) -> None:
        for n in range(begin, begin + times):
            producer.produce(
                list(TIMES)[n % 2],
                b"line\nbaseOffset: 1",
                partition=n // 2 % 2,
                on_delivery=delivered,
            )

    plain = client("alice", **{"enable.idempotence": False})
    send(plain, 1)
    plain.flush(20)
    first = client("alice")
    send(first, 4)
    first.flush(20)  # the coordinator of ids is ready for all that come now
    producers = [first]
    for user, count in PATIENT.items():
        for _ in range(count - (user == "alice")):
            producers.append(client(user))
            send(producers[-1], 40)
    for n in range(MESSAGES):
        producers.append(client(OFFENDER))
        send(producers[-1], 1, n)
    for producer in producers:
        producer.flush(30)
    # a transaction leaves control batches
    paying = client("bob", **{"transactional.id": "payments"})
    paying.init_transactions(30)
    paying.begin_transaction()
    send(paying, 4)
    paying.commit_transaction(30)
    assert not failed


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    """The records of request log and dump, validated by the contract."""
    return records(folder, folder / "kafka-request.log.1", folder / "dump.txt")


def records(folder: Path, *files: Path) -> Told:
    """The records of some files of a source, without Spark."""
    given = iter([pa.record_batch({"path": pa.array([file.as_uri() for file in files])})])
    logs = KafkaLogsSettings(cluster="east", broker="b1")
    valid, refused = [], []
    for batch in broker_logs.unpack(given, str(folder), logs):
        rows = batch.to_pylist()
        parsed = parse_batch(batch, ["producer_ids"])
        valid += [row for row, ok in zip(rows, parsed.valid, strict=True) if ok]
        refused += [
            (one["reason_code"], one["detail"], rows[one["row"]]) for one in parsed.bad.to_pylist()
        ]
    return Told(valid, refused)


def ids(rows: list[Row], kind: str) -> dict[str, set[int]]:
    """Producer ids of each principal in the records of a kind."""
    found: dict[str, set[int]] = {}
    for row in rows:
        if row["event_type"] == kind:
            found.setdefault(row["principal"], set()).add(row["producer_id"])
    return found


def test_each_principal_has_its_producer_ids(told: Told) -> None:
    used = ids(told.valid, "produce_batch")
    assert {user: len(of) for user, of in used.items()} == {
        "User:alice": 4,
        "User:bob": 3 + 1,
        f"User:{OFFENDER}": MESSAGES,
    }
    # A client that waits too long for its id asks again: it is assigned two and uses one.
    assigned = ids(told.valid, "producer_id_assigned")
    assert assigned.keys() == used.keys() and all(used[user] <= assigned[user] for user in used)
    assert len(set().union(*assigned.values())) == sum(map(len, assigned.values()))
    clients = {(row["principal"], row["client_id"]) for row in told.valid}
    assert clients == {(f"User:{u}", f'{u}\'s "app"') for u in (*PATIENT, OFFENDER)}


def test_every_message_is_in_a_batch_and_nothing_else_is(told: Told) -> None:
    everything = [*told.valid, *(row for _, _, row in told.refused)]
    sent = Counter({(topic, p): 0 for topic in TIMES for p in range(2)})
    for row in everything:
        if row["event_type"] == "produce_batch":
            assert row["entry_bytes"] > 60 and row["entry_id"] >= 0
            sent[row["topic"], row["partition"]] += row["num_messages"]
    assert sent.pop(("stamped-by-clients", 0)) == BY_PARTITION + 1  # one without idempotence
    assert set(sent.values()) == {BY_PARTITION} and len(sent) == 3
    times = [row["ts_wall_ms"] for row in everything]
    assert max(times) - min(times) < 60_000  # both files in one clock


def test_only_a_producer_without_an_id_has_no_principal(told: Told) -> None:
    ((reason, detail, row),) = told.refused
    assert (reason, detail) == ("MISSING_REQUIRED", "principal")
    assert (row["producer_id"], row["topic"]) == (-1, "stamped-by-clients")
    assert row["line"].startswith("baseOffset: 0 ")


def test_records_that_are_printed_too_change_nothing(folder: Path, told: Told) -> None:
    found = records(folder, folder / "dump-with-records.txt")
    text = [row["value"] for _, _, row in found.refused]
    assert text == [b"baseOffset: 1"] * BY_PARTITION  # of the messages; it looks like a batch
    left_out = ("source_partition", "source_offset")
    assert [{k: v for k, v in row.items() if k not in left_out} for row in found.valid] == [
        {k: v for k, v in row.items() if k not in left_out}
        for row in told.valid
        if (row["topic"], row["partition"]) == ("stamped-by-broker", 0)
    ]


def test_the_core_rejects_the_offender_and_nobody_else(told: Told) -> None:
    policy = {"scope": "user", "name": "<default>", "limits": {"producer_ids_rate": BOUND}}
    # Clients stamp their messages before they have an id: the clock of a user must wait for them.
    rows = play(
        [numbered(told.valid)],
        {"allowed_lateness_ms": 60_000},
        [json.dumps(policy)],
        until_ms=max(row["ts_wall_ms"] for row in told.valid) + 120_000,
    )
    verdicts = Counter((r["user"], r["verdict"]) for r in rows["producer_id_decisions"])
    rejected = {user for user, verdict in verdicts if verdict == "rejected"}
    assert rejected == {OFFENDER}
    assert verdicts["alice", "counted"] == 4 and verdicts["bob", "counted"] == 4
    assert verdicts[OFFENDER, "counted"] == 11 * BOUND + 1  # one overshoot is let through
    owners = {(f"User:{r['user']}", r["producer_id"]) for r in rows["producer_id_owners"]}
    assigned = ids(told.valid, "producer_id_assigned")
    assert owners == {(user, each) for user, of in assigned.items() for each in of}
    assert not rows.get("quarantine")


def test_a_run_finds_the_offender(
    folder: Path, spark: SparkSession, make_settings: Callable[..., Settings]
) -> None:
    source = folder / "source"
    source.mkdir()
    for name in ("kafka-request.log.1", "dump.txt"):
        shutil.copy(folder / name, source / name)
    with (source / "kafka-request.log.1").open("a") as log:
        log.write('[2026-11-21 10:00:00,000] DEBUG Completed request:{"requestHeader": (k.r.l)\n')
    config = make_settings(
        source={
            "format": "kafka_logs",
            "path": str(source),
            "logs": {"cluster": "east", "broker": "b1"},
        },
        allowed_lateness_ms=60_000,
        idle_advance_ms=60_000,
        policies=[{"scope": "user", "name": "<default>", "limits": {"producer_ids_rate": BOUND}}],
    )
    assert run(config, available_now=True) == 0

    def table(name: str) -> list[Row]:
        rows: list[Row] = DeltaTable(path_in(config.location, name)).to_pyarrow_table().to_pylist()
        return rows

    # The clock of each user stands at its last record, less the lateness: all but those are judged.
    rejected = {r["user"] for r in table("producer_id_decisions") if r["verdict"] == "rejected"}
    assert rejected <= {OFFENDER}
    refused = {(r["reason_code"], r["source_partition"]) for r in table("quarantine")}
    assert ("UNPARSEABLE", "kafka-request.log.1") in refused
    bad = next(r for r in table("quarantine") if r["reason_code"] == "UNPARSEABLE")
    lines = (source / "kafka-request.log.1").read_text().splitlines()
    assert lines[bad["source_offset"]] == bad["raw"]
    archived = table("events")
    assert {r["principal"] for r in archived} == {f"User:{user}" for user in (*PATIENT, OFFENDER)}
    rows = replayed(
        config.model_copy(update={"allowed_lateness_ms": 0, "idle_advance_ms": 1}), ["producer_ids"]
    )
    found = Counter(
        r["user"] for r in rows["producer_id_decisions"].to_pylist() if r["verdict"] == "rejected"
    )
    assert set(found) == {OFFENDER}
