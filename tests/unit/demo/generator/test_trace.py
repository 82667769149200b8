"""What holds for every trace: same seed same bytes, clocks, numbering, order, kinds, size."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.demo.generator.scenario import SHIPPED, load_scenario
from app.demo.generator.trace import ArrivalSlice, Trace, plan_trace
from app.errors import UserError
from state.events import KIND_INDEX
from tests.unit.demo.generator.model import crowded_connection

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


def _as_durations(key: str, value: Any) -> Any:
    """A part of a scenario with its seconds and milliseconds written as durations."""
    if isinstance(value, dict):
        return {inner: _as_durations(inner, each) for inner, each in value.items()}
    if isinstance(value, list):
        return [_as_durations(key, each) for each in value]
    unit_ms = {"_s": 1000, "ms": 1}.get(key[-2:])
    if unit_ms is None or key.endswith("_per_s") or not isinstance(value, int | float):
        return value
    ms = round(unit_ms * value)
    return f"{ms // 60_000}m{ms % 60_000}ms" if ms >= 60_000 else f"{ms}ms"


@pytest.mark.parametrize("name", ["demo", "small", "backlog", "cache-rolling-restart"])
def test_times_of_a_scenario_may_be_durations(name: str, tmp_path: Path) -> None:
    document = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(_as_durations("", document)))
    assert "ms\n" in path.read_text()
    assert load_scenario(str(path)) == load_scenario(name)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("duration_s", "1500ms", "duration_s: 1.5 is not a whole number of seconds"),
        (
            "quiet_s",
            "a minute",
            "quiet_s: 'a minute' is not a whole number of seconds, nor a duration",
        ),
        (
            "incidents",
            [{"name": "burst", "at_s": "soon"}],
            "incidents[0].at_s: 'soon' is not a number of seconds, nor a duration such as 10s",
        ),
    ],
)
def test_what_is_no_time_in_a_scenario_is_named(
    key: str, value: Any, says: str, tmp_path: Path
) -> None:
    document = yaml.safe_load((SHIPPED / "small.yaml").read_text())
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({**document, key: value}))
    with pytest.raises(UserError) as refused:
        load_scenario(str(path))
    assert str(refused.value).startswith(f"{path}: {says}")


@pytest.mark.parametrize(
    ("scenario", "part", "keys", "said"),
    [
        ("large-messages", "large", {"producers": [1, 7]}, "large.producers"),
        ("large-messages", "large", {"chunks": [1, 4]}, "large.chunks"),
        ("large-messages", "large", {"chunk_bytes": [9, 4]}, "large.chunk_bytes"),
        ("large-messages", "large", {"fates": {"resent": 0.7, "repeated": 0.4}}, "large.fates"),
        ("large-messages", "large", {"fates": {"stolen": 0.1}}, "large.fates.stolen"),
        ("demo", "large", {"brokers": []}, "allows no incidents, unless"),
        ("demo", "large", {"connections": 0}, "allows no incidents, unless"),
        ("demo", "large", {"brokers": [1, 2]}, "allows no incidents, unless"),
        ("demo", "large", {"brokers": [9]}, "are not all brokers of the fleet"),
        ("demo", "large", {"subscriptions": [1, 4]}, "is not a range between 1 and 3"),
        ("demo", "kafka.storm", {"user": "nobody"}, "nobody is not one of the users"),
        ("demo", "kafka.storm", {"at_s": 500, "for_s": 60}, "in the quiet end"),
        (
            "demo",
            "kafka",
            {"users": {"idle": {"producers": 0}}, "storm": None},
            "users: none has producers",
        ),
        ("demo", "kafka.users", {"idle": {"producers": 0, "restarts": 1}}, "needs producers"),
        ("demo", "kafka", {"share": 0.99}, "leave nothing for the fleet"),
        (
            "cache-fan-out",
            "cache.readers.late",
            {"restarts": {"at_s": 5, "every_s": 1, "away_s": 0}},
            "away_s",
        ),
        ("cache-fan-out", "cache.readers.late", {"leaves_s": 8}, "is not after joins_s"),
        ("cache-fan-out", "cache.readers.late", {"delay_ms": [5, 1]}, "is not a range"),
        ("cache-fan-out", "cache", {"readers": {}}, "readers"),
        ("cache-fan-out", "cache", {"entry_bytes": [0, 5]}, "is not a range of positive numbers"),
        ("cache-fan-out", "cache", {"brokers": [3]}, "are not all brokers of the fleet"),
        ("cache-fan-out", "cache", {"share": 1.5}, "share"),
        ("backlog", "backlog.topics.reader.subscriptions.main", {"returns_s": 5}, "needs stops_s"),
        ("backlog", "backlog.topics.reader.subscriptions.main", {"stops_s": 5}, "with stops_s"),
        (
            "backlog",
            "backlog.topics.reader.subscriptions.main",
            {"speed": 5, "cumulative": True},
            "only without speed",
        ),
        ("backlog", "backlog.topics.reader.quota", {"size_bytes": 1}, "one of them"),
        ("backlog", "backlog.topics.reader.quota", {"policy": "shout"}, "policy"),
        ("backlog", "backlog.topics.reader", {"namespace": "ops/mirrors"}, "the same namespace"),
    ],
)
def test_mistake_in_a_part_is_refused(
    scenario: str, part: str, keys: dict[str, Any], said: str, tmp_path: Path
) -> None:
    document = yaml.safe_load((SHIPPED / f"{scenario}.yaml").read_text())
    section = document
    for key in part.split("."):
        section = section[key]
    section |= keys
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UserError) as refused:
        load_scenario(str(path))
    assert any(said in problem for problem in refused.value.problems), refused.value.problems
