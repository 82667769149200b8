"""Recorded polls become lines of the contract: in time order, once, whoever recorded them how."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.config.pulsar_admin import PulsarAdminSettings
from app.errors import UserError
from tests.support.recorded_polls import convert
from tests.unit.sources.pulsar.documents import (
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
        for file in sorted((folder / "polls").iterdir())
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]
    valid(found)
    assert [record["seq"] for record in found] == list(range(len(found)))
    times = [r["ts_wall_ms"] for r in found if "ts_wall_ms" in r]
    assert times == sorted(times)
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
    said = [text.split(": ", 1)[1] for text in done.problems]
    assert said == [
        "polled_ms: 'soon' is not a time in milliseconds",
        "is not JSON: no JSON",
        "is not a poll: []",
        "is not JSON: " + 200 * "[",
        "topic: None is not [persistent://]tenant/namespace/name",
        "stats: is not an object",
        "stats.subscriptions: has no durability of fast, slow; left out",
    ]
    assert done.text().splitlines() == [
        "pulsar_admin: 3 recorded polls, 7 problems, which quarantine has as BAD_DOCUMENT:",
        *(f"  {text}" for text in done.problems),
    ]
    kept = [record for record in records(tmp_path / "out") if "problem" in record]
    assert [record["problem"].split(": ", 1)[1] for record in kept] == said
    assert [record.get("topic") for record in kept] == [*[None] * 5, *[poll()["topic"]] * 2]
    assert convert(tmp_path / "in", tmp_path / "out", SETTINGS).problems == []
    assert [record["event_type"] for record in records(tmp_path / "out")].count("ledger_state") == 4


def test_a_file_with_any_name_is_reported_once(tmp_path: Path) -> None:
    write(tmp_path / "in" / os.fsdecode(b"a\xff.jsonl"), [poll(AT), {"polled_ms": -1}])
    problems = [convert(tmp_path / "in", tmp_path / "out", SETTINGS).problems for _ in range(2)]
    assert problems[0][0].startswith(r"a\udcff.jsonl, byte ") and problems[1] == []


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


def test_a_packed_recording_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = b"".join(json.dumps(poll(AT + i)).encode() + b"\n" for i in range(300))
    (tmp_path / "in").mkdir()
    packed = gzip.compress(text)
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    write(tmp_path / "in" / "b.jsonl", [poll(AT + 1000)])
    done = convert(tmp_path / "in", tmp_path / "out", SETTINGS)
    assert 1 < done.polls < 300
    assert any("a.jsonl.gz: cannot be read to its end" in text for text in done.problems)


ANSWERS: dict[str, object] = {
    "HTML": "<html><body>502 Bad Gateway</body></html>",
    "a list": [1, 2],
    "a number": 1e300,
    "a huge number": 10**40,
    "deep": [[[[{}]]]],
    "an error": {"reason": "Namespace not found"},
    "wrong types": {
        "ledgers": {"0": {}},
        "cursors": ["s"],
        "subscriptions": [],
        "publishers": {},
        "state": 7,
        "publishRate": "fast",
        "backlogQuotaMap": [1],
        "messageTTL": "soon",
        "clusterName": 5,
        "backlog_quota_map": "none",
        "publishMaxMessageRate": ["standalone"],
        "message_ttl_in_seconds": {"value": 5},
        "publishRateInMsgs": "7",
        "ttlDurationDefaultInSeconds": "soon",
    },
    "wrong parts": {
        "ledgers": [None, {"ledgerId": -1}, {"ledgerId": "4"}, {"ledgerId": 2**70}],
        "cursors": {
            "s": None,
            "t": {"markDeletePosition": 5},
            "u": {"markDeletePosition": "a:b"},
            "v%zz": {"markDeletePosition": "1:1", "individuallyDeletedMessages": "[(1:"},
            "\ud800": {"markDeletePosition": "1:2"},
        },
        "subscriptions": {"s": 5, "t": {"isDurable": "yes"}},
        "publishers": [None, {"address": 5}, {"address": "a", "producerId": 2**70}],
        "backlog_quota_map": {"message_age": 5, "destination_storage": {"limitSize": "1 GB"}},
        "message_ttl_in_seconds": 2**70,
        "messageTTL": [5],
        "publishRate": {"publishThrottlingRateInMsg": "many"},
        "publishRateInBytes": [],
        "backlogQuotaMap": {"message_age": {"limitTime": 5, "policy": "drop"}},
        "resource_group_name": {"a": 1},
        "clusterName": "",
        "preciseTimeBasedBacklogQuotaCheck": "perhaps",
        "ttlDurationDefaultInSeconds": "1e999",
    },
}
KINDS = ("stats", "internal", "info", "policies", "namespace", "topic", "broker", "resource_group")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_every_damaged_document_is_said_and_the_rest_goes_on(
    tmp_path: Path, kind: str, answer: object
) -> None:
    damaged = (
        {kind: answer}
        if kind in KINDS[:4]
        else {"policies": {kind: {"g": answer} if kind == "resource_group" else answer}}
    )
    write(tmp_path / "in" / "1.jsonl", [poll(AT), {**poll(AT + 1), **damaged}, poll(AT + 2)])
    done = convert(tmp_path / "in", tmp_path / "out", SETTINGS)
    assert done.polls == 3
    found = records(tmp_path / "out")
    valid(found)
    if kind != "policies" or not isinstance(answer, dict):
        assert done.problems, (kind, answer)
    assert len(done.problems) == sum(r["event_type"] == "bad_document" for r in found)
    last = [r for r in found if r.get("ts_wall_ms") == AT + 2]
    whole = [r for r in last if r["event_type"] == "cursor_state"]
    assert sorted(r["subscription"] for r in whole) == ["fast", "slow"]


def test_a_line_cut_anywhere_is_said(tmp_path: Path) -> None:
    text = json.dumps(poll(AT + 1))
    cuts = range(1, len(text), 97)
    lines = [json.dumps(poll(AT)), *(text[:cut] for cut in cuts), json.dumps(poll(AT + 2))]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text("\n".join(lines))
    done = convert(tmp_path / "in", tmp_path / "out", SETTINGS)
    assert (done.polls, len(done.problems)) == (2, len(cuts))
    valid(records(tmp_path / "out"))
