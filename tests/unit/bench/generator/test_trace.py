"""What holds for every trace: same seed same bytes, clocks, numbering, order, kinds, size."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from app.errors import UserError
from benchmarks.generator.scenario import load_scenario, names
from benchmarks.generator.trace import ArrivalSlice, Trace, plan_trace
from state.events import KIND_INDEX
from tests.unit.bench.generator.model import crowded_connection

Records = list[dict[str, Any]]
LATENESS_MS = 500
DEMO_KINDS = {
    "broker_started",
    "connection_opened",
    "connection_closed",
    "producer_created",
    "producer_closed",
    "consumer_created",
    "publish",
    "entry_added",
    "dispatch",
    "ack",
    "cursor_state",
    "ledger_state",
    "policy",
}


@pytest.mark.parametrize(
    "scenario", ["small", "demo", "backlog", "cache-catch-up", "large-messages"]
)
def test_same_seed_gives_the_same_bytes_and_another_seed_others(scenario: str) -> None:
    def planned(seed: int) -> Trace:
        return plan_trace(load_scenario(scenario), 26_000, seed)

    def read(trace: Trace) -> bytes:
        return b"".join(part.data.tobytes() for part in trace.slices())

    trace = planned(7)
    assert read(trace) == read(trace) == read(planned(7)) != read(planned(8))


@pytest.mark.parametrize(
    ("scenario", "events"),
    [("small", 20_000), ("demo", 60_000), ("backlog", 26_000), ("large-messages", 200_000)],
)
def test_trace_has_about_as_many_records_as_asked_for(scenario: str, events: int) -> None:
    trace = plan_trace(load_scenario(scenario), events, 3)
    written = sum(part.ends.size for part in trace.slices())
    assert written == pytest.approx(events, rel=0.02)


def test_every_kind_of_the_demo_is_there(applied: Records) -> None:
    assert {r["event_type"] for r in applied} == DEMO_KINDS
    assert set(KIND_INDEX) >= DEMO_KINDS


def test_line_ends_mark_whole_lines(slices: list[ArrivalSlice]) -> None:
    for part in slices:
        assert part.data[part.ends - 1].tobytes() == b"\n" * part.ends.size
        assert part.data.tobytes().count(b"\n") == part.ends.size == part.brokers.size


def test_clocks_agree_within_a_broker_run(small: Trace, applied: Records) -> None:
    start_ms, offsets = small.scenario.start_ms, defaultdict(set)
    restarted = {b: (start_ms + up // 10**6, up) for b, _, up in small.plan.down}
    for record in applied:
        if "ts_mono_ns" not in record:
            assert record["source_feed"] == "pulsar_admin"
            continue
        broker = small.fleet.brokers.index(record["broker"])
        since_ms, since_ns = restarted.get(broker, (1 << 62, 0))
        later = record["ts_wall_ms"] >= since_ms
        at = record["ts_mono_ns"] - int(small.fleet.origins[broker, int(later)])
        at += since_ns if later else 0
        assert start_ms + at // 10**6 == record["ts_wall_ms"]
        offsets[broker, later].add(record["ts_mono_ns"] > 2**53)
    assert all(offsets[broker, False] == {True} for broker in range(len(small.fleet.brokers)))


def test_restart_begins_a_new_run_and_opens_the_connections_again(
    small: Trace, applied: Records
) -> None:
    ((broker, down, up),) = small.plan.down
    name, start = small.fleet.brokers[broker], small.scenario.start_ms
    own = [r for r in applied if r["broker"] == name and "ts_mono_ns" in r]
    silent = [r for r in own if start + down // 10**6 < r["ts_wall_ms"] < start + up // 10**6]
    assert silent == []
    before = [r for r in own if r["ts_wall_ms"] <= start + down // 10**6]
    after = [r for r in own if r["ts_wall_ms"] >= start + up // 10**6]
    assert after[0]["event_type"] == "broker_started"
    assert after[0]["ts_mono_ns"] < before[-1]["ts_mono_ns"]
    opened = {r["cnx_id"] for r in after if r["event_type"] == "connection_opened"}
    assert {r["cnx_id"] for r in after if r["event_type"] == "publish"} <= opened
    assert not opened & {r["cnx_id"] for r in before if "cnx_id" in r}


def test_feed_numbers_each_broker_in_order_of_time_without_a_gap(
    slices: list[ArrivalSlice],
) -> None:
    seen: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for part in slices:
        for line in part.lines():
            head = line.replace(b'"', b"").strip(b"{}").split(b",")[:7]
            fields = dict(piece.split(b":", 1) for piece in head)
            key = fields[b"source_feed"].decode(), fields[b"broker"].decode()
            seen[key][int(fields[b"seq"])] = int(fields.get(b"ts_wall_ms", b"0"))
    for numbers in seen.values():
        assert sorted(numbers) == list(range(len(numbers)))


def test_numbering_follows_time(applied: Records) -> None:
    last: dict[tuple[str, str], tuple[int, int]] = {}
    for record in sorted(applied, key=lambda r: (r["source_feed"], r["broker"], r["seq"])):
        key = record["source_feed"], record["broker"]
        assert last.get(key, (0, -1)) < (record["ts_wall_ms"], record["seq"])
        last[key] = record["ts_wall_ms"], record["seq"]


def test_order_of_arrival_is_broken_only_within_the_lateness_or_far_beyond_it(
    small: Trace, slices: list[ArrivalSlice], arrived: Records
) -> None:
    newest: dict[str, int] = defaultdict(int)
    behind = Counter()
    for record in arrived:
        late = newest[record["broker"]] - record["ts_wall_ms"]
        newest[record["broker"]] = max(newest[record["broker"]], record["ts_wall_ms"])
        behind["shuffled" if 0 < late < LATENESS_MS else "late" if late > 0 else "in order"] += 1
        assert late < LATENESS_MS or 1000 * small.scenario.disorder.too_late_s[0] <= late + 500
    planted = sum((part.planted for part in slices), Counter())
    assert behind["late"] == planted["TOO_LATE"] > 0
    assert 0.02 < behind["shuffled"] / len(arrived) < 0.15


def test_repeated_records_are_the_same_line_within_the_lateness(
    slices: list[ArrivalSlice], arrived: Records
) -> None:
    lines = [line for part in slices for line in part.lines()]
    repeats = sum(count - 1 for count in Counter(lines).values())
    planted = sum((part.planted for part in slices), Counter())
    assert repeats == planted["DUPLICATE_RECORD"] > 0
    first: dict[tuple[Any, ...], int] = {}
    newest: dict[str, int] = defaultdict(int)
    for record in arrived:
        key = record["source_feed"], record["broker"], record["seq"]
        newest[record["broker"]] = max(newest[record["broker"]], record["ts_wall_ms"])
        if key in first:
            assert newest[record["broker"]] - record["ts_wall_ms"] < LATENESS_MS
        first[key] = record["ts_wall_ms"]


def test_slices_advance_in_time(small: Trace, slices: list[ArrivalSlice]) -> None:
    assert [part.name for part in slices] == sorted(part.name for part in slices)
    assert [part.wall_ms for part in slices] == [
        small.scenario.start_ms + small.scenario.slice_s * 1000 * (i + 1)
        for i in range(len(slices))
    ]


def test_each_publish_is_stored_by_an_entry_of_the_same_connection_and_size(
    small: Trace, applied: Records
) -> None:
    def keyed(kind: str) -> dict[tuple[str, int], dict[str, Any]]:
        return {
            (r["producer_name"], r["sequence_id"]): r for r in applied if r["event_type"] == kind
        }

    publishes, entries = keyed("publish"), keyed("entry_added")
    assert set(entries) <= set(publishes)
    assert len(publishes) - len(entries) <= 20  # those of a broker that went down
    slow = crowded_connection(small)
    for key, entry in entries.items():
        publish = publishes[key]
        for column in ("cnx_id", "topic", "entry_bytes", "num_messages"):
            assert entry[column] == publish[column]
        after_ms = (entry["ts_mono_ns"] - publish["ts_mono_ns"]) / 1e6
        assert 1 <= after_ms <= 20 or publish["cnx_id"] == slow


def test_entries_are_numbered_in_the_order_of_their_publishes(applied: Records) -> None:
    ledgers = defaultdict(list)
    publishes = {
        (r["producer_name"], r["sequence_id"]): r["ts_wall_ms"]
        for r in applied
        if r["event_type"] == "publish"
    }
    for r in applied:
        if r["event_type"] == "entry_added":
            ledgers[r["topic"], r.get("partition"), r["ledger_id"]].append(r)
    assert len({key[2] for key in ledgers}) == len(ledgers)
    for own in ledgers.values():
        own.sort(key=lambda r: r["entry_id"])
        times = [publishes[r["producer_name"], r["sequence_id"]] for r in own]
        assert len({r["entry_id"] for r in own}) == len(own)
        assert times == sorted(times)


def test_too_few_events_are_refused_with_the_least_number() -> None:
    with pytest.raises(UserError, match=r"--events 100: this scenario needs at least \d+"):
        plan_trace(load_scenario("demo"), 100, 7)
    with pytest.raises(UserError) as refused:
        plan_trace(load_scenario("demo"), 100, 7)
    least = int(str(refused.value).rsplit(" ", 1)[1])
    plan_trace(load_scenario("demo"), least + 50, 7)


@pytest.mark.parametrize("name", ["nothing", "", "demo.yaml", "../policies/default", "/etc/passwd"])
def test_only_known_scenarios_are_taken(name: str) -> None:
    assert {"demo", "large-messages", "cache-rolling-restart"} <= set(names())
    with pytest.raises(UserError) as refused:
        load_scenario(name)
    assert str(refused.value) == f"--scenario {name}: is not one of {', '.join(names())}"
