"""Large messages: what was planted is what the core of `chunks` finds, whatever the seed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generator.generate_command import generate
from benchmarks.generator.large_scripts import EVICTED, NAMES
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.generator.write import write_files
from tests.support import planned as every
from tests.support.large_messages import expected
from tests.unit.bench.generator.large_messages import (
    Record,
    assert_core_agrees,
    found_by_core,
)
from tests.unit.bench.generator.model import applied_records, parsed_lines

EVENTS = 20_000
SEEDS = (1, 2, 3, 7)
LATENESS_MS = 500


planned = partial(every.planned, "large-messages", events=EVENTS)
arrived = partial(every.arrived, "large-messages", events=EVENTS)
slices = partial(every.slices, "large-messages", events=EVENTS)
changed = partial(every.changed, "large-messages", "large")


def chunks_of(seed: int, kind: str) -> list[Record]:
    """Records of chunks of one kind, in order of true time, each once."""
    return [
        r for r in applied_records(arrived(seed)) if r["event_type"] == kind and "chunk_id" in r
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_core_finds_what_was_planted(seed: int) -> None:
    assert_core_agrees(planned(seed), arrived(seed))


@pytest.mark.parametrize(
    "large",
    [
        {"chunks": [2, 2], "chunk_bytes": [1, 3]},
        {"chunks": [30, 60], "producers": [6, 6], "crowd": [30, 40], "shared_consumers": 2},
        {
            "fates": {name: 1 / 11 for name in NAMES if name not in ("complete", "consumer_closed")}
            | {"consumer_closed": 0}
        },
        {"crowded_share": 0.9, "handover_share": 0.05, "fates": {"consumer_closed": 0.5}},
    ],
)
def test_core_finds_what_was_planted_in_other_scenarios(large: dict[str, Any]) -> None:
    trace = plan_trace(changed(**large), 60_000, 5)
    assert_core_agrees(trace, [every.decoded(r) for r in parsed_lines(trace.slices())])


OUTCOMES = {
    "complete": {"COMPLETE"},
    "restarted": {"RESTART_CORRUPTED", "COMPLETE"},
    "resent": {"COMPLETE"},
    "never_finished": {"EXPIRED"},
    "repeated": {"DUP_ACKED", "COMPLETE"},
    "oversized": {"GIVEN_UP_OVERFLOW", "NO_FIRST_CHUNK"},
    "undersized": {"COMPLETE"},
    "lost_chunk": {"GAP", "NO_FIRST_CHUNK"},
    "duplicate": {"DUP_SAME_ID", "COMPLETE"},
    "redelivered": {"RESTART_REDELIVERY", "COMPLETE"},
    "redelivered_unacked": {"COMPLETE"},
    "redelivered_acked": {"COMPLETE", "ALREADY_ACKED"},
    "consumer_closed": {"RESTART_REDELIVERY", "COMPLETE", "EXPIRED"},
    EVICTED: {"EVICTED", "NO_FIRST_CHUNK"},
}


def test_every_fate_has_the_outcomes_that_it_is_named_after() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for seed in SEEDS:
        trace = planned(seed)
        assert trace.large is not None
        planted = {
            (e["topic"], e["subscription"], e["uuid"]): e["planted"] for e in expected(trace)
        }
        for row in found_by_core(trace, arrived(seed))["chunk_events"]:
            found[planted[row["topic"], row["subscription"], row["uuid"]]].add(row["outcome"])
        assert set(trace.large.planted) == {*NAMES, EVICTED}
    assert found == OUTCOMES


def test_records_belong_to_the_broker_of_their_topic() -> None:
    brokers: dict[str, set[str]] = defaultdict(set)
    for part in slices(7):
        for line, broker, bad in zip(part.lines(), part.brokers, part.malformed, strict=True):
            if not bad and b"/large-" in line:
                record = json.loads(line)
                assert record["broker"] == planned(7).fleet.brokers[broker]
                brokers[record["topic"]].add(record["broker"])
    assert len(brokers) == 12
    assert all(len(own) == 1 for own in brokers.values())
    assert len(set.union(*brokers.values())) == 2


@pytest.mark.parametrize("events", [EVENTS, 200_000])
def test_trace_has_its_share_of_records(events: int) -> None:
    large = plan_trace(load_scenario("large-messages"), events, 3).large
    assert large is not None
    assert large.records == pytest.approx(0.85 * events, rel=0.03)


def test_kinds_and_types_are_all_there_and_plain_messages_between_chunks() -> None:
    own = [r for r in arrived(7) if "/large-" in r.get("topic", "")]
    assert {r["event_type"] for r in own} == {
        "producer_created",
        "producer_closed",
        "consumer_created",
        "consumer_closed",
        "publish",
        "entry_added",
        "dispatch",
        "ack",
    }
    types = {r["sub_type"] for r in own if "sub_type" in r}
    assert types == {"exclusive", "failover", "shared"}
    plain = Counter(r["event_type"] for r in own if "chunk_id" not in r)
    assert plain["dispatch"] > 500


def test_producers_interleave_their_messages() -> None:
    live: dict[tuple[str, str], set[str]] = defaultdict(set)
    most = 0
    for r in chunks_of(7, "dispatch"):
        here = live[r["topic"], r["subscription"]]
        here.add(r["uuid"])
        most = max(most, len(here))
        if r["chunk_id"] == r["num_chunks"] - 1:
            here.discard(r["uuid"])
    assert most > 10


def test_entries_have_positions_of_their_own_and_deliveries_have_theirs() -> None:
    entries: dict[tuple[str, int, int], Record] = {}
    for r in chunks_of(7, "entry_added"):
        key = r["topic"], r["ledger_id"], r["entry_id"]
        assert key not in entries
        entries[key] = r
    same = (
        "producer_name",
        "sequence_id",
        "uuid",
        "chunk_id",
        "num_chunks",
        "total_chunk_bytes",
        "publish_time_ms",
        "broker_time_ms",
        "broker",
    )
    delivered = chunks_of(7, "dispatch")
    for r in delivered:
        entry = entries[r["topic"], r["ledger_id"], r["entry_id"]]
        assert [r[c] for c in same] == [entry[c] for c in same]
        assert r["entry_bytes"] == len(r["payload"]) < entry["entry_bytes"]
        assert r["ts_wall_ms"] > entry["ts_wall_ms"]
        assert r["uuid"] == f"{r['producer_name']}-{r['sequence_id']}"
    times = Counter(
        (r["topic"], r["subscription"], r["ledger_id"], r["entry_id"]) for r in delivered
    )
    assert max(times.values()) == 2


def test_each_chunk_of_an_assembled_message_is_acknowledged_and_no_other() -> None:
    trace = planned(7)
    uuids = {
        (r["topic"], r["ledger_id"], r["entry_id"]): r["uuid"] for r in chunks_of(7, "entry_added")
    }
    acks: Counter[tuple[str, str, str]] = Counter()
    for r in applied_records(arrived(7)):
        uuid = uuids.get((r.get("topic"), r.get("ledger_id"), r.get("entry_id")))
        if r["event_type"] == "ack" and uuid is not None:
            acks[r["topic"], r["subscription"], uuid] += 1
    for wanted in expected(trace):
        once = wanted["num_chunks"] if wanted["assembled"] else 0
        sets = 2 if wanted["planted"] == "resent" else 1
        assert acks[wanted["topic"], wanted["subscription"], wanted["uuid"]] == once * sets, wanted


def test_deliveries_go_to_consumers_that_are_there() -> None:
    there: set[tuple[str | None, ...]] = set()
    closed = 0
    for r in applied_records(arrived(7)):
        if "/large-" not in r.get("topic", ""):
            continue
        who = r["topic"], r.get("subscription"), r.get("consumer")
        if r["event_type"] == "consumer_created":
            assert who not in there
            there.add(who)
        elif r["event_type"] == "consumer_closed":
            there.remove(who)
            closed += 1
        elif r["event_type"] == "dispatch":
            assert who in there, r
    assert closed > 0


def test_chunks_arrive_out_of_order_within_the_lateness_and_some_twice() -> None:
    newest: dict[str, int] = defaultdict(int)
    late, seen, twice = 0, set(), 0
    for r in arrived(7):
        behind = newest[r["broker"]] - r["ts_wall_ms"]
        newest[r["broker"]] = max(newest[r["broker"]], r["ts_wall_ms"])
        if "chunk_id" in r:
            assert behind < LATENESS_MS
            late += behind > 0
            identity = r["broker"], r["source_feed"], r["seq"]
            twice += identity in seen
            seen.add(identity)
    assert late > 100
    assert twice > 0


def test_payload_sizes_follow_the_scenario() -> None:
    spec = planned(7).scenario.large
    assert spec is not None
    sizes = [len(r["payload"]) for r in chunks_of(7, "dispatch")]
    assert max(sizes) <= spec.chunk_bytes[1]
    assert sum(sizes) / len(sizes) == pytest.approx(1050, rel=0.3)
    trace = plan_trace(changed(chunk_bytes=[1_000_000, 1_048_576], chunks=[2, 5]), 9000, 7)
    part = next(p for p in trace.slices() if b'"payload"' in p.data.tobytes())
    big = max(len(every.decoded(r)["payload"]) for r in parsed_lines([part]) if "payload" in r)
    assert 1_000_000 <= big <= 1_048_576


def test_command_prints_what_is_planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate("large-messages", EVENTS, 7, out=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events", "policies.yaml", "weir.yaml"]
    keys = [(e["topic"], e["subscription"], e["uuid"]) for e in expected(planned(7))]
    assert len(set(keys)) == len(keys)
    assert "never_finished" in capsys.readouterr().out


def test_files_hold_the_slices(tmp_path: Path) -> None:
    write_files(planned(7), tmp_path / "events")
    found = [f.read_bytes() for f in sorted((tmp_path / "events").iterdir())]
    assert found == [p.data.tobytes() for p in slices(7)]
