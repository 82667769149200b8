"""Lines of a request log as requests of clients: sizes, times, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.config.source import KafkaLogsSettings
from app.contract.event_contract import parse_batch
from app.errors import UserError
from app.sources.kafka import broker_logs
from app.sources.kafka.client_requests import ClientRequest, parse
from app.sources.kafka.request_log import NotParsedError
from tests.support.broker_log_lines import AT, LOG, completed
from tests.support.broker_logs import LOGS, put

Row = dict[str, Any]
LEADER = {"nodeId": 1, "host": "kafk", "port": 9092, "rack": None}
TIMES = {"localTimeMs": 1.25, "responseQueueTimeMs": 0.5, "sendTimeMs": 3.75, "throttleTimeMs": 0}


def line(key: int, name: str, version: int, client: str | None = "app", **change: Any) -> bytes:
    header = {
        "requestApiKey": key,
        "requestApiVersion": version,
        "correlationId": 1,
        "clientId": client,
        "requestApiKeyName": name,
    }
    return completed(**{"requestHeader": header, **TIMES, **change})


def produce(version: int, *topics: Row, client: str | None = "app", **change: Any) -> bytes:
    """A PRODUCE; `of` changes its request."""
    request = {"transactionalId": None, "acks": -1, "timeoutMs": 1, "topicData": list(topics)}
    request |= change.pop("of", {})
    given = {"request": request, "response": {"responses": []}, **change}
    return line(0, "PRODUCE", version, client, **given)


def fetch(version: int, *topics: Row, **change: Any) -> bytes:
    request = {"replicaId": -1} if version < 15 else {}
    answer = {"throttleTimeMs": 0, "responses": list(topics)}
    change = {"request": request, "response": answer, **change}
    return line(1, "FETCH", version, **change)


def elsewhere(*leaders: Row) -> Row:
    """An answer that tells who leads what it has not."""
    return {"throttleTimeMs": 0, "responses": [], "nodeEndpoints": list(leaders)}


def sent(size: int | None, *more: int, **name: str) -> Row:
    parts = [{"index": i, "recordsSizeInBytes": n} for i, n in enumerate((size, *more))]
    return {**(name or {"name": "orders"}), "partitionData": parts}


def fetched(size: int, name: Row, **more: Any) -> Row:
    partition = {"partitionIndex": 0, "abortedTransactions": None, "recordsSizeInBytes": size}
    return {**name, "partitions": [{**partition, **more}]}


def read(
    given: bytes, names: Mapping[str, str] | None = None, logged: bool = False
) -> ClientRequest:
    return parse(given, UTC, logged, lambda: names or {})


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (produce(3, sent(100)), (10 + 3) + 2 + 6 + 4 + (2 + 6) + 4 + (4 + 4 + 100)),
        (produce(2, sent(100)), (10 + 3) + 6 + 4 + (2 + 6) + 4 + (4 + 4 + 100)),
        (produce(8, sent(100, 7)), (10 + 3) + 2 + 6 + 4 + 8 + 4 + 108 + 15),
        (produce(10, sent(100)), (11 + 3) + 1 + 6 + 1 + (1 + 6) + 1 + 1 + (4 + 1 + 100 + 1) + 1),
        (produce(10, sent(127)), (11 + 3) + 1 + 6 + 1 + (1 + 6) + 1 + 1 + (4 + 2 + 127 + 1) + 1),
        (produce(10, sent(5), client=None), 11 + 1 + 6 + 1 + 7 + 2 + (4 + 1 + 5 + 1) + 1),
        (produce(10, sent(5), client="ü€"), 16 + 1 + 6 + 1 + 7 + 2 + (4 + 1 + 5 + 1) + 1),
        (produce(10, of={"transactionalId": "t€"}), (11 + 3) + (1 + 4) + 6 + 1 + 1),
        (produce(13, sent(100, topicId="T")), (11 + 3) + 1 + 6 + 1 + 16 + 1 + 1 + 106 + 1),
        (produce(14, sent(100)), None),
        (produce(10, sent(None)), None),
        (produce(10, request=""), None),
        (fetch(4), 4 + 4 + 4),
        (fetch(4, fetched(9, {"topic": "t"})), 12 + 3 + 4 + (4 + 2 + 8 + 8 + 4 + 4 + 9)),
        (fetch(11, fetched(9, {"topic": "t"})), 18 + 3 + 4 + (4 + 2 + 24 + 4 + 4 + 4 + 9)),
        (fetch(12, fetched(9, {"topic": "t"})), 16 + 2 + 2 + (4 + 2 + 24 + 1 + 4 + 1 + 9 + 1)),
        (fetch(17, fetched(9, {"topicId": "T"})), 16 + 16 + 2 + (4 + 2 + 24 + 1 + 4 + 1 + 9 + 1)),
        (
            fetch(16, fetched(0, {"topicId": "T"}, currentLeader={}, abortedTransactions=[{}])),
            16 + 16 + 2 + (4 + 2 + 24 + (1 + 17) + 4 + 1 + 1 + 11),
        ),
        (fetch(16, response=elsewhere(LEADER)), 16 + 2 + 1 + (4 + 5 + 4 + 1 + 1)),
        (
            fetch(16, response=elsewhere(*[LEADER | {"rack": "r" * 130}] * 2)),
            16 + (1 + 2 + 1 + 2 * (4 + 5 + 4 + (2 + 130) + 1)),
        ),
        (fetch(19), None),
        (fetch(12, throttleTimeMs=70), None),
        (fetch(12, response=""), None),
    ],
)
def test_sizes_by_version(given: bytes, size: int | None) -> None:
    assert read(given).charged_bytes == size


def test_a_whole_request() -> None:
    given = produce(10, sent(100, 20), sent(7, name="paid"), throttleTimeMs=250)
    expected = ClientRequest(
        ts_wall_ms=AT + 125 - 5,  # 4.25 ms before, in whole ms
        principal="User:alice",
        client_id="app",
        api="PRODUCE",
        charged_bytes=14 + 8 + (9 + 106 + 26) + (7 + 13) + 1,
        handler_time_ns=1_250_000,
        mutations=None,
        throttle_ms=250,
        exempt=False,
        topic_bytes='{"orders":120,"paid":7}',
        api_version=10,
    )
    assert read(given) == expected
    assert read(given, logged=True) == expected._replace(ts_wall_ms=AT + 125)


@pytest.mark.parametrize(
    ("digits", "ms"), [(b"125", 120), (b"125300", 121), (b"125300999", 121), (b"1", 95)]
)
def test_a_time_counts_with_the_digits_that_it_has(digits: bytes, ms: int) -> None:
    given = produce(10, sent(100))
    assert given.count(b",125]") == 1
    assert read(given.replace(b",125]", b"," + digits + b"]")).ts_wall_ms == AT + ms


def test_what_the_request_quota_does_not_charge() -> None:
    assert read(produce(10, of={"acks": 0})).exempt
    assert read(fetch(12, request={"replicaId": 2})).exempt
    assert read(fetch(17, request={"replicaState": {"replicaId": 2}})).exempt
    assert read(line(27, "WRITE_TXN_MARKERS", 1)).exempt
    assert not read(line(3, "METADATA", 12)).exempt


def test_a_share_fetch_has_no_size_and_its_throttle_time() -> None:
    """As Kafka 4.4.0 logs it: the records are an empty text, whatever they are."""
    partition = {"partitionIndex": 0, "records": "", "acquiredRecords": [{"firstOffset": 0}]}
    answer = {"throttleTimeMs": 70, "responses": [{"topicId": "T", "partitions": [partition]}]}
    found = read(line(78, "SHARE_FETCH", 2, response=answer, throttleTimeMs=70))
    assert (found.charged_bytes, found.topic_bytes, found.exempt) == (None, None, False)
    assert (found.throttle_ms, found.handler_time_ns, found.api_version) == (70, 1_250_000, 2)


def test_topics_by_id_have_their_names_where_the_log_has_them() -> None:
    given = produce(13, sent(5, topicId="A"), sent(6, topicId="B"))
    assert read(given, {"A": "orders"}).topic_bytes == '{"orders":5,"B":6}'


def test_many_topics_are_the_largest_and_the_others() -> None:
    topics = [sent(n, name=f"t{n}") for n in range(1, 71)]
    found = json.loads(str(read(produce(10, *topics)).topic_bytes))
    assert found == {f"t{n}": n for n in range(7, 71)} | {"": 21}


@pytest.mark.parametrize(
    ("api", "topic", "answer", "mutations"),
    [
        ((19, "CREATE_TOPICS"), {"numPartitions": 3}, {"errorCode": 0}, 3),
        ((19, "CREATE_TOPICS"), {"numPartitions": -1}, {"errorCode": 0, "numPartitions": 4}, 4),
        ((19, "CREATE_TOPICS"), {"numPartitions": -1, "assignments": [{}, {}]}, {}, 2),
        ((19, "CREATE_TOPICS"), {"numPartitions": 3}, {"errorCode": 89, "numPartitions": -1}, 3),
        ((19, "CREATE_TOPICS"), {"numPartitions": 3}, {"errorCode": 36}, None),
        ((19, "CREATE_TOPICS"), {"numPartitions": -1}, {"errorCode": 0}, None),
        ((37, "CREATE_PARTITIONS"), {"count": 9, "assignments": [{}]}, {}, 1),
        ((37, "CREATE_PARTITIONS"), {"count": 9, "assignments": None}, {}, None),
        ((20, "DELETE_TOPICS"), {}, {}, None),
    ],
)
def test_mutations_are_in_the_line_of_the_controller(
    api: tuple[int, str], topic: Row, answer: Row, mutations: int | None
) -> None:
    answers = "results" if api[0] == 37 else "topics"
    both = {
        "request": {"topics": [{"name": "t", **topic}]},
        "response": {"throttleTimeMs": 40, answers: [{"name": "t", **answer}]},
    }
    of_broker = read(line(*api, 7, **both))
    assert (of_broker.mutations, of_broker.handler_time_ns) == (None, 1_250_000)
    of_controller = read(line(*api, 7, **both, isForwarded=True))
    assert (of_controller.mutations, of_controller.handler_time_ns) == (mutations, None)
    assert of_broker.throttle_ms == of_controller.throttle_ms == 40


@pytest.mark.parametrize(
    ("errors", "mutations"),
    [((0, 0, 89), 3), ((0, 36, 89), 1), ((36, 89, 89), 6), ((36, 36, 36), None)],
)
def test_topics_that_a_request_did_not_create_are_not_charged_with_the_others(
    errors: tuple[int, ...], mutations: int | None
) -> None:
    """Three topics of 1, 2 and 4 partitions; 36: it exists, 89: over the limit."""
    topics = [{"name": f"t{n}", "numPartitions": n} for n in (1, 2, 4)]
    answers = [
        {"name": topic["name"], "errorCode": error, "numPartitions": -1}
        for topic, error in zip(topics, errors, strict=True)
    ]
    for only in (False, True):
        given = {"request": {"topics": topics, "validateOnly": only}, "isForwarded": True}
        found = line(19, "CREATE_TOPICS", 7, response={"topics": answers}, **given)
        assert read(found).mutations == mutations


@pytest.mark.parametrize(
    "given",
    [
        produce(10, sent(5))[:-40],
        produce(10, sent(5)).replace(b"Completed request:", b"Completed request: of x"),
        produce(10, {"name": "t"}),
        produce(10, sent(5)) + completed(),
        produce(10, prefix="DEBUG "),
        produce(10, localTimeMs=1e300),
        produce(10, localTimeMs="1"),
        produce(10, sendTimeMs=1e12),
        produce(10, sent(2**70)),
        fetch(12, fetched(9, {"topic": "t"}), responses=[]).replace(b'"partitions"', b'"parts"'),
        line(18, "API_VERSIONS", 3).replace(b'"clientId":"app"', b'"clientId":"\xff"'),
        b"[2026-03-01 12:00:00,125] DEBUG Completed request:RequestHeader(apiKey=PRODUCE) -- {}",
        LOG,
    ],
)
def test_malformed_lines_are_refused(given: bytes) -> None:
    with pytest.raises(NotParsedError):
        read(given)


def test_names_of_clients_forge_nothing() -> None:
    name = '"requestApiKey":22,"} Completed request:{"requestHeader":{"requestApiKey":1}}' * 1000
    assert read(produce(10, client=name)).client_id == name
    assert read(produce(10, client=name)).charged_bytes == 14 + 8 + len(name) - 3 + 1


# -- files -----------------------------------------------------------------------------------


def unpack(path: Path, requests: bool, logs: KafkaLogsSettings = LOGS) -> list[pa.RecordBatch]:
    given = iter([pa.record_batch({"path": [path.as_uri()]})])
    return list(broker_logs.unpack(given, str(path.parent), logs, requests))


def test_every_line_is_a_request_and_ids_of_producers_stay(tmp_path: Path) -> None:
    metadata = {"topics": [{"name": "orders", "topicId": "A", "errorCode": 0}]}
    docker = b'{"log":"' + produce(10).replace(b'"', b'\\"') + b'"}'
    file = put(
        tmp_path / "requests",
        produce(13, sent(5, topicId="A")),
        b"\tat java.base/java.lang.Thread.run(Thread.java:840)",
        completed(),
        line(3, "METADATA", 12, response=metadata),
        produce(10)[:-60],
        docker,
        docker,
    )
    found = unpack(file, True)
    rows = [row for b in found if "value" not in b.schema.names for row in b.to_pylist()]
    kinds = [(row["event_type"], row["source_offset"], row.get("api")) for row in rows]
    assert kinds == [
        ("producer_id_assigned", 2, None),
        ("client_request", 0, "PRODUCE"),
        ("client_request", 2, "INIT_PRODUCER_ID"),
        ("client_request", 3, "METADATA"),
    ]
    assert {(r["cluster"], r["broker"], r["source_feed"]) for r in rows} == {
        ("east", "b1", "kafka_request_log")
    }
    assert rows[1]["topic_bytes"] == '{"orders":5}' and rows[1]["principal"] == "User:alice"
    bad = [b for b in found if "value" in b.schema.names]
    assert [n for b in bad for n in b["source_offset"].to_pylist()] == [4, 5]
    for batch in found:
        refused = parse_batch(batch, ["client_quotas", "producer_ids"]).bad.to_pylist()
        assert {one["reason_code"] for one in refused} <= {"UNPARSEABLE"}


def test_without_a_job_on_requests_only_ids_of_producers_are_read(tmp_path: Path) -> None:
    file = put(tmp_path / "requests", produce(10), produce(10)[:-60], completed())
    (found,) = unpack(file, False)
    assert found["event_type"].to_pylist() == ["producer_id_assigned"]
    logged = KafkaLogsSettings(charge_time="logged")
    times = [unpack(file, True, logs)[1]["ts_wall_ms"][0].as_py() for logs in (LOGS, logged)]
    assert times == [AT + 120, AT + 125]


def test_brokers_by_the_folders_of_their_files(tmp_path: Path) -> None:
    logs = KafkaLogsSettings(cluster="east", broker="<folder>")
    files = [put(tmp_path / name / "day" / "requests", produce(10)) for name in ("1", "2")]
    given = iter([pa.record_batch({"path": [file.as_uri() for file in files]})])
    found = [b["broker"].to_pylist() for b in broker_logs.unpack(given, str(tmp_path), logs, True)]
    assert found == [["1"], ["2"]]
    with pytest.raises(UserError, match="requests: is in no folder"):
        unpack(put(tmp_path / "requests", produce(10)), True, logs)
