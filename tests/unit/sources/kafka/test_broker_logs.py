"""Files of Kafka's own logs as records: both kinds, the join across files, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from app import sources
from app.config.settings import Settings
from app.config.source import KafkaLogsSettings
from app.contract.event_contract import parse_batch
from app.errors import UserError
from app.sources.files.lines import numbered
from app.sources.files.listed import listed
from app.sources.files.open_file import open_file
from app.sources.kafka import broker_logs
from tests.support.broker_log_lines import AT, LOG, batch, completed
from tests.support.broker_logs import LOGS, put, unpack

MakeSettings = Callable[..., Settings]
Row = dict[str, Any]


def rows(batches: list[pa.RecordBatch]) -> list[Row]:
    """The records that are columns."""
    return [row for b in batches if "value" not in b.schema.names for row in b.to_pylist()]


def bad(batches: list[pa.RecordBatch]) -> list[tuple[str, int, bytes]]:
    """File, line and text of what was not parsed."""
    return [
        (r["source_partition"], r["source_offset"], r["value"])
        for b in batches
        if "value" in b.schema.names
        for r in b.to_pylist()
    ]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_both_kinds_of_file_become_records(tmp_path: Path, ending: str) -> None:
    produce = completed(requestHeader={"requestApiKey": 0, "clientId": "app"})
    put(tmp_path / f"requests{ending}", produce, completed(7), b"", completed(8)[:-80])
    put(
        tmp_path / f"day/dump{ending}",
        b"",
        LOG,
        b"Log starting offset: 0",
        batch(),
        batch(isControl="true"),
        batch(baseOffset=13, producerId=-1, baseSequence=-1),
        b"baseOff",
    )
    found = unpack(tmp_path)
    common = {
        "cluster": "east",
        "broker": "b1",
        "producer_id": 7,
        "principal": "User:alice",
        "client_id": "app",
    }
    produced = {
        **common,
        "event_type": "produce_batch",
        "source_feed": "kafka_dump_log",
        "ts_wall_ms": AT,
        "topic": "a.b-c_d",
        "partition": 12,
        "sequence_id": 0,
        "entry_id": 10,
        "entry_bytes": 97,
        "num_messages": 3,
        "source_partition": f"day/dump{ending}",
        "source_offset": 3,
        "line": batch().decode(),
    }
    assigned = {
        **dict.fromkeys(produced),
        **common,
        "event_type": "producer_id_assigned",
        "source_feed": "kafka_request_log",
        "ts_wall_ms": AT + 125,
        "source_partition": f"requests{ending}",
        "source_offset": 1,
        "line": completed(7).decode(),
    }
    plain = {
        **produced,
        "entry_id": 13,
        "producer_id": -1,
        "sequence_id": -1,
        "principal": None,
        "client_id": None,
        "source_offset": 5,
        "line": batch(baseOffset=13, producerId=-1, baseSequence=-1).decode(),
    }
    assert rows(found) == [produced, plain, assigned]
    assert bad(found) == [
        (f"day/dump{ending}", 6, b"baseOff"),
        (f"requests{ending}", 3, completed(8)[:-80]),
    ]


def test_what_the_contract_says_of_them(tmp_path: Path) -> None:
    put(tmp_path / "requests", completed(7), completed(7, principal=None), completed()[:-80])
    put(
        tmp_path / "dump",
        LOG,
        batch(),
        batch(producerId=8),
        batch(count=2**40),
        batch(CreateTime=-1),
        b"Dumping x.log",
        batch(),
    )
    reasons = []
    for records in unpack(tmp_path):
        parsed = parse_batch(records, ["producer_ids"])
        for one in parsed.bad.to_pylist():
            at = records.slice(one["row"], 1).to_pylist()[0]
            reasons.append(
                (at["source_partition"], at["source_offset"], one["reason_code"], one["detail"])
            )
    assert reasons[:-1] == [
        ("dump", 2, "MISSING_REQUIRED", "principal"),
        ("dump", 3, "BAD_TYPE", "num_messages"),
        ("dump", 4, "CLOCK_OUT_OF_RANGE", reasons[2][3]),
        ("dump", 6, "MISSING_REQUIRED", "topic,partition"),
        ("requests", 1, "MISSING_REQUIRED", "principal"),
    ]
    assert reasons[-1][:3] == ("requests", 2, "UNPARSEABLE")


def test_a_line_that_is_an_object_is_never_read_as_a_record(tmp_path: Path) -> None:
    line = b'{"event_type":"broker_started","cluster":"c","message":"Completed request:{}"}'
    put(tmp_path / "requests", line)
    (records,) = unpack(tmp_path)
    assert bad([records]) == [("requests", 0, b"not a line of Kafka: " + line)]
    parsed = parse_batch(records, ["producer_ids"])
    assert [one["reason_code"] for one in parsed.bad.to_pylist()] == ["UNPARSEABLE"]


def test_files_of_neither_kind_show_their_first_line(tmp_path: Path) -> None:
    put(tmp_path / "server.log", b"", b"[2026-03-01 12:00:00,125] INFO started", b"more")
    put(tmp_path / "0000.log", b"\x00" * 5000)
    (tmp_path / "empty").write_bytes(b"")
    put(tmp_path / "only-received", completed().replace(b"Completed", b"Received"))
    assert bad(unpack(tmp_path)) == [
        ("0000.log", 0, b"\x00" * 1000),
        ("only-received", 0, completed().replace(b"Completed", b"Received")[:1000]),
        ("server.log", 1, b"[2026-03-01 12:00:00,125] INFO started"),
    ]


def test_lines_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a", b"[2026] INFO a start", completed(), LOG, batch())
    put(tmp_path / "b", LOG, batch(), completed(8))
    found = unpack(tmp_path)
    assert [r["source_offset"] for r in rows(found)] == [1, 1]
    assert bad(found) == [("a", 2, LOG), ("a", 3, batch()), ("b", 2, completed(8))]


def test_a_kind_is_found_behind_the_first_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = numbered
    monkeypatch.setattr(broker_logs, "numbered", lambda file: real(file, 64))
    put(tmp_path / "requests", *[b"[2026] INFO a start of the log"] * 20, completed())
    put(tmp_path / "dump", *[b"SLF4J: a warning"] * 20, LOG, batch(), batch(baseOffset=13))
    found = unpack(tmp_path)
    assert not bad(found)
    assert [(r["source_offset"], r["principal"]) for r in rows(found)] == [
        (21, "User:alice"),
        (22, "User:alice"),
        (20, "User:alice"),
    ]


# -- the join across files -------------------------------------------------------------------


def test_owners_come_from_every_request_log_of_the_source(tmp_path: Path) -> None:
    dump = put(tmp_path / "in/dump", LOG, batch(), batch(producerId=8), batch(producerId=9))
    put(tmp_path / "in/old/requests.1.gz", completed(8, principal="User:bob"))
    put(tmp_path / "in/requests", completed(7))
    put(tmp_path / "in/.hidden", completed(9))
    put(tmp_path / "in/_hidden/requests", completed(9))
    put(tmp_path / "elsewhere", completed(9))
    found = rows(unpack(tmp_path / "in", dump))
    assert [r["principal"] for r in found] == ["User:alice", "User:bob", None]


def test_a_request_log_is_read_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def watched(name: str) -> pa.NativeFile:
        opened.append(Path(name).name)
        return open_file(name)

    monkeypatch.setattr(broker_logs, "open_file", watched)
    dump = put(tmp_path / "dump", LOG, batch(), batch(producerId=8))
    requests = put(tmp_path / "requests", completed(7))
    assert [r["client_id"] for r in rows(unpack(tmp_path, dump))] == ["app", None]
    assert opened == ["dump", "dump", "requests"]  # the first to be read, the others to be joined
    unpack(tmp_path, dump)
    assert opened[3:] == ["dump"]
    put(tmp_path / "requests-2", completed(8))
    assert [r["client_id"] for r in rows(unpack(tmp_path, dump))] == ["app", "app"]
    assert opened[4:] == ["dump", "requests-2"]
    os.utime(requests, (1, 1))
    unpack(tmp_path, dump)
    assert opened[6:] == ["dump", "requests"]
    requests.unlink()
    assert [r["client_id"] for r in rows(unpack(tmp_path, dump))] == [None, "app"]
    assert opened[8:] == ["dump"]
    other = KafkaLogsSettings(time_zone="Asia/Tokyo")
    assert len(rows(unpack(tmp_path, dump, logs=other))) == 2
    assert opened[9:] == ["dump", "dump", "requests-2"]


def test_the_zone_of_the_log_decides_which_assignment_holds(tmp_path: Path) -> None:
    put(
        tmp_path / "requests",
        completed(7),
        completed(7, prefix="[2026-03-01 10:00:00,000] ", principal="User:bob"),
    )
    dump = put(tmp_path / "dump", LOG, batch(CreateTime=AT + 1000))
    assert rows(unpack(tmp_path, dump))[0]["principal"] == "User:alice"
    west = KafkaLogsSettings(time_zone="America/New_York")
    assert rows(unpack(tmp_path, dump, logs=west))[0]["principal"] == "User:bob"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", ["a.log", "b.log", "c.txt", "d1/x.log", "d2/e/y.log"]),
        ("", ["a.log", "b.log", "c.txt", "d1/x.log", "d2/e/y.log"]),
        ("/", ["a.log", "b.log", "c.txt", "d1/x.log", "d2/e/y.log"]),
        ("*.log", ["a.log", "b.log"]),
        ("*/x.???", ["d1/x.log"]),
        ("d?", ["d1/x.log", "d2/e/y.log"]),
        ("[!a].{log,txt}", ["b.log", "c.txt"]),
        ("[^ab].*", ["c.txt"]),
        ("{a,c}.*", ["a.log", "c.txt"]),
        ("[a-b].log", ["a.log", "b.log"]),
        (r"\a.l?g", ["a.log"]),
        ("c.txt", ["c.txt"]),
        ("?],}.x", ["a],}.x"]),
        ("not-there/*", []),
    ],
)
def test_files_of_a_pattern(tmp_path: Path, pattern: str, names: list[str]) -> None:
    for name in ("a.log", "b.log", "c.txt", "d1/x.log", "d2/e/y.log", ".h/a.log", "_s/a.log"):
        put(tmp_path / name)
    if "]," in pattern:
        put(tmp_path / "a],}.x")
    found = [one.path for one in listed(f"{tmp_path}/{pattern}" if pattern else str(tmp_path))]
    assert found == [f"{tmp_path}/{name}" for name in names]


# -- settings --------------------------------------------------------------------------------


def settings_of(make: MakeSettings, path: object, **logs: str) -> Settings:
    return make(source={"format": "kafka_logs", "path": str(path), "logs": logs})


def checked(settings: Settings) -> None:
    sources.check(settings.feed, settings.location)


def test_what_is_refused_before_the_start(make_settings: MakeSettings, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "*.log"):
        checked(settings_of(make_settings, path))
    for path in (tmp_path / "no", tmp_path / "no/*.log"):
        with pytest.raises(UserError, match=r"source\.path: .* does not exist"):
            checked(settings_of(make_settings, path))
    with pytest.raises(UserError, match="cannot read hdfs: paths"):
        checked(settings_of(make_settings, "hdfs://host/logs"))
    with pytest.raises(UserError, match=r"source\.path: is missing, format kafka_logs needs it"):
        make_settings(source={"format": "kafka_logs"})
    for zone in ("Mars/Olympus", "", "../UTC", "/etc/passwd"):
        with pytest.raises(UserError, match=r"time_zone: .* is not a time zone"):
            settings_of(make_settings, tmp_path, time_zone=zone)
    with pytest.raises(ValidationError):
        KafkaLogsSettings(broker="")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = put(tmp_path / "requests.gz", completed())
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"requests\.gz: cannot be read to its end"):
        unpack(tmp_path)


CASES = Path(__file__).resolve().parents[3] / "data" / "cases"


def test_indented_batches_are_batches() -> None:
    found = rows(unpack(CASES / "kafka-10-indented-dump" / "in", logs=LOGS))
    assert [(r["source_partition"], r["topic"], r["producer_id"]) for r in found] == [
        ("v3.txt", "demo2", 12_001),
        ("v3.txt", "demo2", 12_002),
        ("v3_part.txt", "tx", 15),
        ("v3_part.txt", "tx", 16),
        ("v4.txt", "__transaction_state", -1),
        ("v4.txt", None, 0),
    ]
    assert bad(unpack(CASES / "kafka-10-indented-dump" / "in", logs=LOGS)) == []


def test_reasons_are_those_of_the_lines_parser(tmp_path: Path) -> None:
    put(tmp_path / "dump", LOG, batch(isvalid="false"), b"what is this")
    put(tmp_path / "requests", completed(), completed(prefix="DEBUG "))
    put(tmp_path / "other", b"hello")
    details = []
    for records in unpack(tmp_path):
        parsed = parse_batch(records, ["producer_ids"])
        details += [(one["reason_code"], one["detail"]) for one in parsed.bad.to_pylist()]
    assert details == [
        ("UNPARSEABLE", "the batch is damaged (isvalid: false)"),
        ("UNPARSEABLE", "neither a batch nor a heading"),
        ("UNPARSEABLE", "the file is neither a request log nor a dump of Kafka"),
        ("UNPARSEABLE", "no time before the request"),
    ]


def test_lines_that_a_container_has_wrapped_are_said_once_a_file(tmp_path: Path) -> None:
    wrapped = [
        b'{"log":"' + completed(i).replace(b'"', b'\\"') + b'\\n","stream":"stdout"}'
        for i in range(3)
    ]
    cut = b"2026-03-01T12:00:00.1Z stdout P " + completed(9)[:-50]
    whole = b"2026-03-01T12:00:00.1Z stdout F " + completed(8)
    put(tmp_path / "docker", *wrapped)
    put(tmp_path / "cri", whole, cut, cut)
    found = unpack(tmp_path)
    assert [row["producer_id"] for row in rows(found)] == [8]
    assert [(file, line) for file, line, _ in bad(found)] == [("cri", 1), ("docker", 0)]
    problems = [p for b in found if "value" in b.schema.names for p in b["problem"].to_pylist()]
    assert "join the parts" in problems[0] and "jq -r .log" in problems[1]
