"""The words and the table of a demo, from rows of the three tables that it reads."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from app import demo as command
from app.demo_report import (
    QUARANTINE_COLUMNS,
    QUERIES,
    STATS_COLUMNS,
    THROTTLE_COLUMNS,
    Cause,
    duration,
    other_protocol,
    render,
    render_next_steps,
    sentences,
    summarise,
)
from app.errors import UserError
from app.generate.scenario import load_scenario
from app.generate.trace import plan_trace
from app.settings import load_settings
from app.tables import TABLES

Row = dict[str, Any]
NOISY, OTHERS = "persistent://shop/orders/a", [f"persistent://shop/orders/b{i}" for i in range(11)]
START_MS = 1_767_621_600_000  # 2026-01-05T14:00:00Z
SECOND = 1_000_000_000


def _row(at_s: float, action: str, **changed: Any) -> Row:
    paused = action == "mark"
    return {
        "cluster": "demo", "broker": "broker-0", "cnx_id": "10.0.0.1:1", "row_no": 0,
        "ts_mono_ns": 10**16 + int(at_s * SECOND), "ts_wall_ms": START_MS + int(at_s * 1000),
        "action": action, "transition": "ConnectionStateChanged", "reads_paused": paused,
        "limiter": "topic", "topic": NOISY, "culprit_topic": NOISY,
        "collateral_topics": OTHERS if paused else [], **changed,
    }


def _pause(at_s: float, for_s: float, **changed: Any) -> list[Row]:
    return [_row(at_s, "mark", **changed), _row(at_s + for_s, "unmark", **changed)]


def _said(rows: list[Row], stats: list[Row] | None = None) -> list[str]:
    return sentences(summarise(rows, stats or [], []))


def test_noisy_neighbour_is_named_with_those_who_suffered() -> None:
    rows = [row for i in range(14) for row in _pause(60 + 5 * i, 2.714)]
    summary = summarise(rows, [], [])
    assert summary.causes == (Cause(
        "topic", NOISY, 14, 14 * 2_714_000_000, 0, {NOISY}, set(OTHERS),
        START_MS + 60_000,
    ),)
    assert sentences(summary) == [
        "Topic shop/orders/a broke its limit 14 times; 11 other topics were paused for 38 s "
        "because of it."
    ]


def test_order_of_rows_does_not_matter_and_marks_within_a_pause_count_once() -> None:
    second = _row(60.5, "mark", transition="TypeStateChanged")
    rows = [*_pause(60, 2), second, *_pause(70, 3)]
    assert summarise(rows, [], []) == summarise(rows[::-1], [], [])
    assert summarise(rows, [], []).causes[0].pauses == 2
    assert summarise(rows, [], []).causes[0].paused_ns == 5 * SECOND


def test_pause_that_has_not_ended_counts_without_a_time() -> None:
    (cause,) = summarise([_row(60, "mark")], [], []).causes
    assert (cause.pauses, cause.open_pauses, cause.paused_ns) == (1, 1, 0)


def test_connections_are_told_apart() -> None:
    other = {"cnx_id": "10.0.0.2:1", "collateral_topics": []}
    (cause,) = summarise([*_pause(60, 4), *_pause(61, 1, **other)], [], []).causes
    assert (cause.pauses, cause.paused_ns, cause.others) == (2, 5 * SECOND, set(OTHERS))


@pytest.mark.parametrize(("changed", "said"), [
    ({"collateral_topics": []},
     "Topic shop/orders/a broke its limit once; it was paused for 2.0 s and nobody else."),
    ({"limiter": "resource_group"},
     "On broker-0 a resource group was over its limit: connections paused once, 2.0 s in all, "
     "with 12 topics on them."),
    ({"limiter": "broker"},
     "broker-0 was over its own limit: connections paused once, 2.0 s in all, with 12 topics on "
     "them."),
    ({"limiter": "connection"},
     "Connection 10.0.0.1:1 had too many requests in flight: connections paused once, 2.0 s in "
     "all, with 12 topics on them."),
    ({"limiter": "io_thread"},
     "On broker-0 an IO thread had too many bytes in its buffers: connections paused once, 2.0 s "
     "in all, with 12 topics on them."),
])
def test_every_limiter_has_its_sentence(changed: Row, said: str) -> None:
    assert _said(_pause(60, 2, **changed)) == [said]


def test_share_of_the_innocent_is_told() -> None:
    stats = [{"topic": "a", "culprit_times": 1, "collateral_times": 0, "culprit_ns": 25,
              "collateral_ns": 75}]
    assert _said([], stats) == [
        "No connection was paused: every topic stayed within its limits.",
        "Of all the time that topics were paused, 75 % fell on topics that had kept within their "
        "limits.",
    ]


def test_records_in_quarantine_are_counted_once_per_code() -> None:
    def bad(code: str, offset: int) -> Row:
        return {"reason_code": code, "source_partition": "f", "source_offset": offset}

    rows = [bad("BAD_TYPE", 1), bad("BAD_TYPE", 1), bad("BAD_TOPIC", 1), bad("BAD_TOPIC", 2)]
    summary = summarise([], [], rows)
    assert summary.quarantined == {"BAD_TOPIC": 2, "BAD_TYPE": 1}
    assert summary.quarantined_records == 2


@pytest.mark.parametrize(("ns", "said"), [
    (0, "0.0 s"), (300_000_000, "0.3 s"), (38 * SECOND, "38 s"), (125 * SECOND, "2 min 5 s"),
])
def test_durations_read_as_one_says_them(ns: int, said: str) -> None:
    assert duration(ns) == said


def test_page_has_sentences_table_quarantine_and_queries() -> None:
    text = StringIO()
    console = Console(file=text, width=80, highlight=False)
    bad = [{"reason_code": "BAD_TYPE", "source_partition": "f", "source_offset": 1}]
    render(summarise(_pause(60, 2), [], bad), console)
    render_next_steps(Path("weir-demo"), console)
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert lines[:7] == [
        "  Topic shop/orders/a broke its limit once; 11 other topics were paused for 2.0",
        "  s because of it.",
        "",
        "limit of            pauses paused others first",
        "topic shop/orders/a      1  2.0 s     11 14:01:00",
        "",
        "1 record in quarantine, by reason:",
    ]
    assert lines[7] == "  BAD_TYPE 1"
    tried = [line for line in lines if "./spark-submit.sh query --warehouse weir-demo/" in line]
    assert len(tried) == len(QUERIES) == 3


def test_columns_that_are_read_are_columns_of_the_tables() -> None:
    for name, columns in (
        ("throttle_events", THROTTLE_COLUMNS), ("topic_throttle_stats", STATS_COLUMNS),
        ("quarantine", QUARANTINE_COLUMNS),
    ):
        assert set(columns) <= set(TABLES[name].names)


def test_configuration_of_the_demo_is_valid(tmp_path: Path) -> None:
    command.prepare(tmp_path / "out", 60_000, 7)
    trace = plan_trace(load_scenario("demo"), 60_000, 7)
    path = command.write_config(trace, tmp_path / "out")
    settings = load_settings(path)
    assert settings.policy_dicts() == trace.policies
    assert settings.source.path == str(tmp_path / "out" / "events")
    assert yaml.safe_load(path.read_text())["warehouse"] == str(tmp_path / "out" / "warehouse")


def test_demo_starts_over_in_its_own_folder_and_leaves_other_files_alone(tmp_path: Path) -> None:
    command.prepare(tmp_path, 1, 7)
    (tmp_path / "warehouse" / "events").mkdir(parents=True)
    (tmp_path / "weir.yaml").touch()
    (tmp_path / "notes.txt").touch()
    command.prepare(tmp_path, 1, 7)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "weir-demo.json"]


def test_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    with pytest.raises(UserError, match="is not empty and was not made by demo"):
        command.prepare(tmp_path, 1, 7)
    assert (tmp_path / "warehouse").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file; a folder is needed"):
        command.prepare(tmp_path / "file", 1, 7)


def test_what_the_throttle_command_would_have_spared() -> None:
    def stats(*values: tuple[str, float]) -> list[Row]:
        return [{"topic": topic, "collateral_ns": int(ns * SECOND)} for topic, ns in values]

    lost = stats(*((topic, 2.0) for topic in OTHERS), (OTHERS[0], 16.0), (NOISY, 0))
    assert other_protocol(lost, stats((OTHERS[0], 0.0))) == (
        "With the throttle command of PIP-385, if every client knew it, the 11 topics that stood "
        "still for others would have lost 0.0 s instead of 38 s."
    )
    assert other_protocol(stats((NOISY, 0)), []) is None
