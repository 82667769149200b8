"""The figures that a run shows."""

from __future__ import annotations

import io
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from app.engine import catch_up_time
from app.run import progress as module
from app.run.progress import Progress

NOW_S = 1_770_000_100.0


def batch(number: int, events: int, **more: Any) -> dict[str, Any]:
    """The progress of a batch, as much of it as is looked at."""
    return {
        "batchId": number,
        "numInputRows": 3,
        "timestamp": f"t{number}",
        "durationMs": {"addBatch": 400, "triggerExecution": 500},
        "batchDuration": 500,
        "observedMetrics": {
            "records": {"records": [events // 2, (1 << 40) + events - events // 2]}
        },
        "eventTime": {"max": "2026-02-02T02:41:30.000Z"},
        "stateOperators": [
            {"memoryUsedBytes": 2_000_000, "customMetrics": {"rocksdbSstFileSize": 500_000}}
        ],
        **more,
    }


def idle(number: int, at: int = 0) -> dict[str, Any]:
    """The report of a query that waits for the records of its batch `number`."""
    return batch(
        number,
        0,
        numInputRows=0,
        timestamp=f"idle{at}",
        observedMetrics={},
        eventTime={},
        durationMs={"latestOffset": 3, "triggerExecution": 4},
    )


def query(name: str, *batches: dict[str, Any]) -> Any:
    """A query that has done these batches."""
    last = batches[-1] if batches else None
    return SimpleNamespace(
        name=name,
        recentProgress=batches,
        lastProgress=last,
        isActive=True,
        status={"isTriggerActive": True, "message": "Processing new data"},
    )


def lines(out: io.StringIO) -> list[str]:
    """The messages of a log without time and level."""
    return [line.split(maxsplit=2)[2] for line in out.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is shown, at one moment."""
    monkeypatch.setattr(module, "IN_LOG_S", 0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1.0, time=lambda: NOW_S))


def test_a_log_gets_a_line_when_the_figures_change() -> None:
    out = io.StringIO()
    shown = Progress(out)
    archive = query("archive", batch(0, 400, eventTime={}, stateOperators=[]))
    for batches in ([batch(0, 1000)], [batch(0, 1000)], [batch(0, 1000), batch(1, 3000)]):
        shown.look([query("rate_limits", *batches), archive])
    shown.close()
    tail = "archive: 800 events/s, batch 0.50 s"
    assert lines(out) == [
        f"rate_limits: 2,000 events/s, batch 0.50 s, 10.0 s behind, state 2.5 MB | {tail}",
        f"rate_limits: 6,000 events/s, batch 0.50 s, 10.0 s behind, state 2.5 MB | {tail}",
        "rate_limits: 4,000 events read, to batch 1",
        "archive: 400 events read, to batch 0",
    ]


def test_a_batch_that_leaves_the_clock_where_it_is_has_no_age() -> None:
    out = io.StringIO()
    shown = Progress(out)
    shown.look([query("govern", batch(0, 1000, eventTime={"max": "1970-01-01T00:00:00.000Z"}))])
    assert lines(out) == ["govern: 2,000 events/s, batch 0.50 s, state 2.5 MB"]


def kafka_source(end: dict[str, int], latest: dict[str, int]) -> list[dict[str, str]]:
    """What Spark reports of a Kafka source, and of one without offsets."""
    offsets = {"endOffset": {"events": end}, "latestOffset": {"events": latest}}
    return [
        {name: str(found) for name, found in offsets.items()},
        {"endOffset": "{'logOffset': 3}", "latestOffset": "None"},
    ]


def test_a_catch_up_shows_how_many_records_wait_and_how_long_they_take() -> None:
    out = io.StringIO()
    shown = Progress(out)
    latest = {"0": 400_000, "1": 600_000, "2": 9_000}  # partition 2 is new, and not read yet
    for number, read in enumerate((100_000, 105_000, 105_000, 400_000)):
        sources = kafka_source({"0": read, "1": 600_000}, latest)
        shown.look([query("govern", batch(number, 1000, stateOperators=[], sources=sources))])
    sources = kafka_source(latest, latest)
    shown.look([query("govern", batch(4, 9, stateOperators=[], sources=sources))])
    rest = "batch 0.50 s, 10.0 s behind"
    assert lines(out) == [
        f"govern: 2,000 events/s, {rest}, 309,000 records wait",
        f"govern: 2,000 events/s, {rest}, 304,000 records wait, caught up in 30 s",
        f"govern: 2,000 events/s, {rest}, 304,000 records wait",
        f"govern: 2,000 events/s, {rest}, 9,000 records wait, caught up in 1 s",
        f"govern: 18 events/s, {rest}",
    ]


def test_there_is_no_time_while_more_comes_than_is_processed() -> None:
    found = [catch_up_time.caught_up_s(before, 20_000, 500) for before in (21_000, 20_000, None)]
    assert found == [10.0, None, None]


def test_long_catch_ups_are_in_minutes_and_hours() -> None:
    assert [catch_up_time.text(5, s).rsplit(" in ")[1] for s in (119, 600, 9000)] == [
        "119 s",
        "10 min",
        "2 h",
    ]


def test_the_first_figures_do_not_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_LOG_S", 60.0)
    out = io.StringIO()
    shown = Progress(out)
    for batches in ([], [batch(0, 1000)], [batch(0, 1000), batch(1, 3000)]):
        shown.look([query("govern", *batches)])
    assert lines(out) == ["govern: 2,000 events/s, batch 0.50 s, 10.0 s behind, state 2.5 MB"]


def test_the_first_figures_of_each_query_are_shown_when_they_are_there() -> None:
    out = io.StringIO()
    shown = Progress(out, pause_s=module.OF_POLLS_S)
    archive = query("archive", batch(0, 1000))
    for batches in ([], [batch(0, 3000)], [batch(0, 3000), batch(1, 3000)]):
        shown.look([query("govern", *batches), archive])
    assert [re.findall(r"(\w+): ([\w,]+)", line) for line in lines(out)] == [
        [("govern", "first"), ("archive", "2,000")],
        [("govern", "6,000"), ("archive", "2,000")],
    ]


def test_polls_that_are_alike_are_told_every_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    out, clock = io.StringIO(), [0.0]
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: clock[0], time=lambda: NOW_S)
    )
    shown = Progress(out, pause_s=module.OF_POLLS_S)
    for number in range(70):
        clock[0] = 10.0 * number
        shown.look([query("govern", batch(number, 100 * (number + 1)))])
    told = [line.partition(", batch")[0] for line in lines(out)]
    assert told == ["govern: 200 events/s"] + [
        f"govern: {200 * (n + 1):,} events/s" for n in (30, 60)
    ]


def test_every_line_of_a_log_has_a_time_and_a_level() -> None:
    out = io.StringIO()
    shown = Progress(out)
    shown.look([query("archive", batch(0, 400))])
    shown.say("one\ntwo")
    shown.warn("three")
    shown.close()
    head = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO   |WARNING) \S")
    levels = [head.match(line)[1].strip() for line in out.getvalue().splitlines()]  # type: ignore[index]
    assert levels == ["INFO", "INFO", "WARNING", "INFO"]  # two lines of a message are one


def test_a_log_as_json_has_an_object_a_line_with_the_figures() -> None:
    out = io.StringIO()
    shown = Progress(out, "json")
    shown.look([query("archive", batch(0, 400)), query("govern")])
    shown.warn('one\n"two"')
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [one["level"] for one in found] == ["INFO", "WARNING"]
    assert all(re.fullmatch(r"[\d-]{10}T[\d:.]{12}Z", one["time"]) for one in found)
    assert found[1]["message"] == 'one\n"two"'
    (figures,) = found[0]["queries"]
    assert (figures["name"], figures["batch"], figures["events"]) == ("archive", 0, 400)


def test_before_its_first_batch_has_ended_a_query_is_shown_at_work_or_waiting() -> None:
    out = io.StringIO()
    shown = Progress(out)
    waiting = query("archive", idle(0))
    waiting.status = {"isTriggerActive": False, "message": "Waiting for data to arrive"}
    for _ in range(2):
        shown.look([query("govern"), waiting])
    assert lines(out) == ["govern: first batch, 0 s | archive: no records yet"] * 2


def test_a_log_gets_no_line_of_queries_that_wait_for_their_first_records() -> None:
    out = io.StringIO()
    waiting = query("archive", idle(7))
    waiting.status = {"isTriggerActive": False, "message": "Waiting for data to arrive"}
    Progress(out).look([waiting])
    assert lines(out) == []


def test_a_log_gets_no_line_while_no_batch_ends() -> None:
    out = io.StringIO()
    shown = Progress(out)
    for _ in range(3):
        shown.look([query("archive", batch(0, 400))])
    shown.look([query("archive", batch(0, 400), idle(1))])
    assert len(lines(out)) == 1


def test_a_batch_counts_once_and_missed_ones_are_made_up_for() -> None:
    shown = Progress(io.StringIO())
    shown.look([query("archive", batch(4, 10))])
    shown.look([query("archive", batch(4, 10), batch(5, 20), batch(6, 30))])
    assert [figures.events for figures in shown.figures] == [60]


def test_a_query_that_waits_reports_the_batch_to_come_which_counts_when_it_ends() -> None:
    reports = [batch(0, 10), idle(1), idle(1, 1), batch(1, 20_000), idle(2, 2), batch(2, 7)]
    for step in (1, 2, 3, len(reports)):  # looked at after every report, or only after some
        shown = Progress(io.StringIO())
        for seen in range(0, len(reports) + 1, step):
            shown.look([query("govern", *reports[:seen])])
        shown.look([query("govern", *reports)])
        (figures,) = shown.figures
        assert (figures.events, figures.batches, figures.batch) == (20_017, 3, 2)
        assert figures.phases_ms == {"addBatch": 1200, "triggerExecution": 1500}


def test_a_query_that_only_waited_has_no_figures() -> None:
    shown = Progress(io.StringIO())
    shown.look([query("govern", idle(7))])
    assert shown.figures == []


def test_events_of_long_ago_are_shown_by_their_date() -> None:
    out = io.StringIO()
    old = batch(0, 1000, eventTime={"max": "2026-01-05T14:00:00.000Z"}, stateOperators=[])
    Progress(out).look([query("rate_limits", old)])
    line = "rate_limits: 2,000 events/s, batch 0.50 s, at 2026-01-05T14:00:00Z"
    assert lines(out) == [line]


def test_without_the_observed_count_the_rows_of_the_source_count() -> None:
    assert module.records(batch(0, 0, observedMetrics={})) == 3
