"""Single lines of the request log and of dumps, and the join of their producer ids."""

from __future__ import annotations

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from app.sources.kafka import dump_log as dump_log
from app.sources.kafka import request_log as request_log
from app.sources.kafka.dump_log import Dump, DumpedBatch
from app.sources.kafka.log_owners import NOBODY, LogOwners, columns_of
from app.sources.kafka.request_log import Assigned, NotParsedError
from tests.support.broker_log_lines import AT, LOG, batch, completed, header

# -- request log -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "zone", "ms"),
    [
        ("[2026-03-01 12:00:00,125] DEBUG ", "UTC", AT + 125),
        ("[2026-03-01 12:00:00,125] DEBUG ", "Europe/Berlin", AT + 125 - 3_600_000),
        ("[2026-07-01 12:00:00,000] DEBUG ", "Europe/Berlin", AT + (122 * 24 - 2) * 3_600_000),
        ("2026-03-01T12:00:00.125987Z TRACE ", "Europe/Berlin", AT + 125),
        ("[2026-03-01T12:00:00,1+01:00] x ", "UTC", AT + 100 - 3_600_000),
        ("[2026-03-01T12:00:00,125-0130] x ", "UTC", AT + 125 + 5_400_000),
        ("[2026-03-01 12:00:00] INFO ", "UTC", AT),
    ],
)
def test_times_of_the_prefix(prefix: str, zone: str, ms: int) -> None:
    assert request_log.parse(completed(prefix=prefix), ZoneInfo(zone)) == Assigned(
        "User:alice",
        "app",
        7,
        ms,
        ms - 4,  # 3.25 ms before: the millisecond in which it came
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"totalTimeMs": None}, Assigned("User:alice", "app", 7, AT + 125, AT + 125)),
        ({"totalTimeMs": -1}, Assigned("User:alice", "app", 7, AT + 125, AT + 125)),
        ({"principal": None}, Assigned(None, "app", 7, AT + 125, AT + 121)),
        (
            {"requestHeader": {"requestApiKey": 22, "clientId": None}},
            Assigned("User:alice", None, 7, AT + 125, AT + 121),
        ),
        (
            {"requestHeader": header(clientId='"requestApiKey":0} Completed request:')},
            Assigned("User:alice", '"requestApiKey":0} Completed request:', 7, AT + 125, AT + 121),
        ),
        ({"response": {"errorCode": 51, "producerId": -1}}, None),
        ({"response": {"errorCode": 16, "producerId": 5}}, None),
        ({"response": {"errorCode": 0, "producerId": -1}}, None),
        ({"response": ""}, None),
    ],
)
def test_what_a_request_tells(change: dict[str, Any], expected: Assigned | None) -> None:
    assert request_log.parse(completed(**change), UTC) == expected


@pytest.mark.parametrize(
    "line",
    [
        completed(prefix="DEBUG "),
        completed(prefix="[2026-13-01 12:00:00,125] DEBUG "),
        completed()[:-60],
        completed()[:200] + completed(),
        completed(requestHeader=header(requestApiKey=0)),
        completed(response={"errorCode": 0}),
        completed("7"),
        completed(2**63),
        completed(True),
        completed(principal=5),
        completed().replace(b"alice", b"\xff"),
        b"[2026-03-01 12:00:00,125] DEBUG Completed request:" + b"[" * 100_000 + b"}",
        b"[2026-03-01 12:00:00,125] DEBUG Completed request:RequestHeader(apiKey=PRODUCE) -- {}",
    ],
)
def test_lines_that_only_look_like_a_request(line: bytes) -> None:
    assert request_log.candidates(pa.array([line])).to_pylist() == [
        b'"requestApiKey":0' not in line
    ]
    with pytest.raises(NotParsedError):
        request_log.parse(line, UTC)


def test_only_lines_that_matter_are_parsed() -> None:
    produce = completed(
        requestHeader={
            "requestApiKey": 0,
            "clientId": '"requestApiKey":22,',
            "requestApiKeyName": "PRODUCE",
        }
    )
    received = completed().replace(b"Completed request:", b"Processor 0 received request: ")
    lines = {
        completed(): True,
        completed()[:-60]: True,
        produce: False,
        produce[:-60]: False,
        produce[:-60] + completed(): True,
        received: False,
        b"[2026-03-01 12:00:00,125] WARN other (kafka.request.logger)": False,
        b"\tat java.base/java.lang.Thread.run(Thread.java:840)": False,
        completed()[:75]: True,  # cut before it says what it is
        completed(requestHeader={"requestApiKey": 221}): False,
    }
    assert request_log.candidates(pa.array(list(lines), pa.binary())).to_pylist() == list(
        lines.values()
    )


# -- dumps -----------------------------------------------------------------------------------

EXPECTED = DumpedBatch("a.b-c_d", 12, 10, 3, 0, 7, AT, 97)


@pytest.mark.parametrize(
    ("heading", "topic", "partition"),
    [
        (LOG, "a.b-c_d", 12),
        (LOG + b"\r", "a.b-c_d", 12),
        (b"Dumping t-0/00.log", "t", 0),
        (rb"Dumping C:\kafka\t-0\00.log", "t", 0),
        (b"Dumping /k/t-3.0123456789abcdef0123456789abcdef-future/00.log", "t", 3),
        (b"Dumping 00000000000000000000.log", None, None),
        (b"Dumping /var/orders/00000000000000000000.log", None, None),
    ],
)
def test_topic_and_partition_are_the_folder_of_the_segment(
    heading: bytes, topic: str | None, partition: int | None
) -> None:
    dump = Dump()
    assert dump.parse(heading) is None
    assert dump.parse(batch()) == EXPECTED._replace(topic=topic, partition=partition)


@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime", "NoTimestampType"])
def test_every_kind_of_time(time: str) -> None:
    dump = Dump()
    dump.parse(LOG)
    assert dump.parse(batch(time=time) + b"\r") == EXPECTED


def test_batches_that_are_no_data_and_those_without_idempotence() -> None:
    dump = Dump()
    dump.parse(LOG)
    assert dump.parse(batch(isControl="true", producerId=9)) is None
    found = dump.parse(batch(producerId=-1, baseSequence=-1, isControl=None))
    assert found == EXPECTED._replace(producer_id=-1, base_sequence=-1)


def test_lines_between_the_batches() -> None:
    dump = Dump()
    assert dump.parse(b"anything before the first segment") is None
    for quiet in (
        LOG,
        b"Log starting offset: 0",
        b"Starting offset: 0",
        b"Found 12 invalid bytes at the end",
        b"Non-consecutive offsets in x.log",
        b"  3 is followed by 5",
        b"[2026-03-01] WARN a log",
        b"\tat kafka.tools.DumpLogSegments",
    ):
        assert dump.parse(quiet) is None
    with pytest.raises(NotParsedError):
        dump.parse(b"Exception in thread main")
    dump.parse(b"| offset: 0 CreateTime: 1 keySize: -1 valueSize: 3 sequence: 0 payload: one")
    assert dump.parse(b"second line of the payload") is None
    dump.parse(b"Dumping /var/kafka/t-0/00000000000000000000.index")
    assert dump.parse(b"offset: 5 position: 4096") is None
    dump.parse(LOG)
    with pytest.raises(NotParsedError):  # a batch of the old formats, without a producer id
        dump.parse(b"offset: 5 position: 0 CreateTime: 1 size: 50 magic: 1 isvalid: true")


@pytest.mark.parametrize(
    "line",
    [
        batch(producerId=None),
        batch(CreateTime=None),
        batch(size=None),
        batch(producerId="x"),
        batch(producerId=2**63),
        batch(size="null"),
        batch(isvalid="false"),
        batch()[:60],
        b"baseOff",
        b"[2026-03-01 12:00:00] DEBUG Completed request:{}",
    ],
)
def test_lines_that_only_look_like_a_batch(line: bytes) -> None:
    dump = Dump()
    dump.parse(LOG)
    with pytest.raises(NotParsedError):
        dump.parse(line)
    assert dump.parse(batch()) == EXPECTED


def test_how_a_dump_looks() -> None:
    lines = [LOG, batch(), b"Log starting offset: 0", b"| offset: 0", completed()]
    assert dump_log.looks_like(pa.array(lines)).to_pylist() == [True, True, False, False, False]


# -- the join --------------------------------------------------------------------------------


def owners(*parts: list[tuple[int, int, str]]) -> LogOwners:
    """Parts of (producer id, time, who)."""
    return LogOwners(
        [
            columns_of(Assigned(f"User:{who}", who, pid, at + 2, at) for pid, at, who in part)
            for part in parts
        ]
    )


def test_the_newest_assignment_before_a_batch_holds_and_before_the_first_one_the_first() -> None:
    found = owners([(7, 300, "c"), (7, 100, "a"), (8, 50, "x")], [(7, 200, "b"), (7, 300, "d")])
    asked = {0: "a", 99: "a", 100: "a", 199: "a", 200: "b", 299: "b", 300: "d", 10_000: "d"}
    assert [p for p, _ in found.of([7] * len(asked), list(asked))] == [
        f"User:{who}" for who in asked.values()
    ]
    assert found.of([8, 9, -1], [0, 0, 0]) == [("User:x", "x"), NOBODY, NOBODY]


def test_no_assignment_at_all() -> None:
    assert owners().of([1, -1], [0, 0]) == [NOBODY, NOBODY]
    assert owners([], []).of([], []) == []


OLD = (
    "baseOffset: 5 lastOffset: 7 baseSequence: 3 lastSequence: 5 producerId: 9 producerEpoch: 0 "
    "partitionLeaderEpoch: 0 isTransactional: false position: 0 CreateTime: 1500000000000 "
    "isvalid: true size: 120 magic: 2 compresscodec: NONE crc: 1"
)
RECORD = (
    "offset: 6 position: 0 CreateTime: 1500000000001 isvalid: true keysize: -1 valuesize: 3 "
    "magic: 2 compresscodec: NONE producerId: 9 producerEpoch: 0 sequence: 4 "
    "isTransactional: false headerKeys: []"
)


def test_batches_of_releases_before_1_1() -> None:
    dump = Dump()
    dump.parse(LOG)
    assert dump.parse(OLD.encode()) == ("a.b-c_d", 12, 5, 3, 3, 9, 1_500_000_000_000, 120)
    control = OLD.replace("baseSequence: 3", "baseSequence: -1").replace("false", "true")
    assert dump.parse(control.encode()) is None
    plain = OLD.replace("baseSequence: 3", "baseSequence: -1").replace("Id: 9", "Id: -1")
    assert dump.parse(plain.encode()) is not None
    with pytest.raises(NotParsedError, match="lastOffset"):
        dump.parse(OLD.replace("lastOffset: 7", "lastOffset: 4").encode())


def test_records_of_releases_before_1_1_are_batches_of_one() -> None:
    dump = Dump()
    dump.parse(LOG)
    assert dump.parse(RECORD.encode()) == ("a.b-c_d", 12, 6, 1, 4, 9, 1_500_000_000_001, None)
    assert dump.parse(RECORD.encode() + b" endTxnMarker: COMMIT coordinatorEpoch: 0") is None
    for line in (
        RECORD.replace("magic: 2", "magic: 1"),
        RECORD[:60],
        "offset: 3 position: 0 NoTimestampType: -1 isvalid: true payloadsize: 5 magic: 0",
    ):
        with pytest.raises(NotParsedError):
            dump.parse(line.encode())


def test_offsets_of_an_index_are_no_records() -> None:
    dump = Dump()
    dump.parse(b"Dumping /data/orders-3/00000000000000000000.index")
    assert dump.parse(b"offset: 5 position: 4096") is None


def test_indented_lines_of_a_payload_are_no_batches() -> None:
    dump = Dump()
    for line in (LOG, batch(), b"| offset: 0 payload: first"):
        dump.parse(line)
    assert dump.parse(b"  " + batch()) is None
    indented = Dump()
    for line in (b" " + LOG, b" " + batch(), b" | offset: 0 payload: first"):
        indented.parse(line)
    assert indented.parse(b" " + batch()) is not None
