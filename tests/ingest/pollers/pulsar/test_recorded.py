"""Recorded polls become lines of the contract: in time order, once, whoever recorded them how."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.config.pulsar_admin import PulsarAdminSettings
from app.errors import UserError
from app.ingest.pollers.pulsar.recorded import convert
from tests.ingest.pollers.pulsar.documents import (
    AT,
    info,
    internal,
    poll,
    recorded_polls,
    stats,
    valid,
)

SETTINGS = PulsarAdminSettings(cluster="standalone")
Json = dict[str, Any]


def write(file: Path, polls: list[Json]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(each) + "\n" for each in polls).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)


def records(folder: Path) -> list[Json]:
    found = [
        json.loads(line)
        for file in sorted((folder / "polls").iterdir()) for line in file.read_text().splitlines()
    ]
    valid(found)
    assert [record["seq"] for record in found] == list(range(len(found)))
    assert [r["ts_wall_ms"] for r in found] == sorted(r["ts_wall_ms"] for r in found)
    return found


def test_files_in_any_form_give_the_same(tmp_path: Path) -> None:
    polls = recorded_polls()
    write(tmp_path / "one" / "all.jsonl", polls)
    for each in reversed(polls):
        topic = each["topic"].replace("/", "_")
        file = tmp_path / "many" / topic / "polls.ndjson.gz"
        text = gzip.decompress(file.read_bytes()) if file.exists() else b""
        before = [json.loads(line) for line in text.splitlines()]
        write(file, [*before, each])
    found = []
    for name in ("one", "many"):
        done = convert(tmp_path / name, tmp_path / f"{name}_out", SETTINGS)
        assert done.polls == len(polls)
        found.append(records(tmp_path / f"{name}_out"))
    assert found[0] == found[1]
    counts = Counter(record["event_type"] for record in found[0])
    assert counts["ledger_deleted"] == 4
    assert counts["cursor_state"] == sum(len(each["internal"]["cursors"]) for each in polls)


def test_a_folder_that_grows(tmp_path: Path) -> None:
    write(tmp_path / "in" / "1.jsonl", [poll(AT)])
    assert convert(tmp_path / "in", tmp_path / "out", SETTINGS).polls == 1
    assert convert(tmp_path / "in", tmp_path / "out", SETTINGS).path is None
    gone = {"polled_ms": AT + 9, "topic": poll()["topic"], "gone": True}
    write(tmp_path / "in" / "2.jsonl", [gone, poll(AT - 5)])
    done = convert(tmp_path / "in", tmp_path / "out", SETTINGS)
    assert (done.polls, done.earlier) == (1, 2)
    told = [record["event_type"] for record in records(tmp_path / "out")]
    assert told.count("ledger_state") == told.count("ledger_deleted") == 2


def test_what_is_no_poll_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "in" / "polls.jsonl"
    good = [poll(AT, stats="broken"), poll(AT + 1)]
    write(file, good)
    with file.open("a") as out:
        out.write('\n{"polled_ms": "soon"}\nno JSON\n[]\n{"polled_ms": 5}\n' + "[" * 99_999)
    write(tmp_path / "in" / "notes.txt", [{"a": 1}])
    done = convert(tmp_path / "in", tmp_path / "out", SETTINGS)
    assert done.polls == 3
    assert sum("is not a poll" in text for text in done.problems) == 4
    assert sum("stats: is not an object" in text for text in done.problems) == 1
    assert [record["event_type"] for record in records(tmp_path / "out")].count("ledger_state") == 4


def test_policies_that_were_recorded(tmp_path: Path) -> None:
    policies = {"topic": {"backlogQuotaMap": {"message_age": {"limitTime": 5}}}}
    told = poll(AT, policies=policies)
    write(tmp_path / "in" / "a.json", [told, {**told, "polled_ms": AT + 1}])
    convert(tmp_path / "in", tmp_path / "out", SETTINGS)
    found = records(tmp_path / "out")
    assert [record["event_type"] for record in found].count("policy") == 1
    assert {"stats": stats(), "internal": internal(), "info": info()}.items() <= told.items()


def test_recordings_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        convert(tmp_path / "in", tmp_path / "out", SETTINGS)
    (tmp_path / "in").mkdir()
    assert convert(tmp_path / "in", tmp_path / "out", SETTINGS).path is None
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(b"{}" * 999)[:20])
    with pytest.raises(UserError, match=r"a\.jsonl\.gz: cannot be read to its end"):
        convert(tmp_path / "in", tmp_path / "out", SETTINGS)
