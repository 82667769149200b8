"""The words and the table of a demo, from rows of the three tables that it reads."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from app.cli import main
from app.config.owners import Owner
from app.config.settings import Settings, load_settings
from app.demo.demo_folder import prepare
from app.demo.recording import Recording, names
from app.errors import UserError
from app.jobs.chunks.findings import (
    MESSAGE_COLUMNS,
    large_message_finding,
)
from app.jobs.entry_cache.findings import cache_sentence
from app.jobs.rate_limits.findings import CAUSES, USED, WHOSE, causes, pause_findings
from app.read.databases import fileless
from app.read.relations import Warehouse
from app.show.report.model import Finding, Urgency
from app.show.report.printed import render, render_next_steps, show
from app.show.report.report_reader import ReportReader, ReportSpan
from app.show.report.summary import actions_of, all_findings, what_to_do
from app.show.report.text import runbook_page
from app.tables.definitions import TABLES, VIEWS
from app.tables.run_lock import only_run
from app.terminal.amounts import duration
from tests.support.found import found_in
from tests.support.given_up import given_up
from tests.support.ready_questions import CASES, changed, lag, lost, put
from tests.support.throttle_rows import frame, window, write

Row = dict[str, Any]
NOISY, OTHERS = "persistent://shop/orders/a", [f"persistent://shop/orders/b{i}" for i in range(11)]
START_MS = 1_767_621_600_000  # 2026-01-05T14:00:00Z
SECOND = 1_000_000_000


def _said(findings: Iterable[Finding]) -> list[str]:
    return [finding.sentence for finding in findings]


def sentences(found: list[Row], stats: Sequence[Row] = ()) -> list[str]:
    sums = {name: sum(row[name] for row in stats) for name in WHOSE}
    return _said(pause_findings(found, sums))


def producer_id_sentences(rows: Iterable[Row]) -> list[str]:
    return _said(found_in(producer_id_decisions=list(rows)))


def backlog_findings(
    checks: list[Row], subscriptions: list[Row], evictions: list[Row]
) -> list[Finding]:
    return found_in(
        backlog_checks=checks, backlog_subscriptions=subscriptions, backlog_evictions=evictions
    )


def backlog_sentences(*rows: list[Row]) -> list[str]:
    return _said(backlog_findings(*rows))


def large_message_sentence(
    messages: list[Row], events: list[Row], incomplete: list[Row]
) -> str | None:
    finding = large_message_finding(messages, *given_up(messages, events, incomplete))
    return None if finding is None else finding.sentence


def _row(at_s: float, action: str, **changed: Any) -> Row:
    paused = action == "mark"
    return {
        "cluster": "demo",
        "broker": "broker-0",
        "cnx_id": "10.0.0.1:1",
        "row_no": 0,
        "ts_mono_ns": 10**16 + int(at_s * SECOND),
        "ts_wall_ms": START_MS + int(at_s * 1000),
        "action": action,
        "reads_paused": paused,
        "limiter": "topic",
        "limiter_name": NOISY,
        "topic": NOISY,
        "culprit_topic": NOISY,
        "trigger_topic": changed.get("culprit_topic", NOISY),
        "collateral_topics": OTHERS if paused else [],
        **changed,
    }


def _pause(at_s: float, for_s: float, **changed: Any) -> list[Row]:
    return [_row(at_s, "mark", **changed), _row(at_s + for_s, "unmark", **changed)]


def _decision(at_s: float, producer_id: int, **changed: Any) -> Row:
    return {
        "cluster": "k",
        "user": "alice",
        "producer_id": producer_id,
        "verdict": "counted",
        "bound": 5.0,
        "bound_source": "default_user",
        "ts_wall_ms": START_MS + int(at_s * 1000),
        **changed,
    }


def _message(uuid: str, **changed: Any) -> Row:
    return {"cluster": "c", "topic": "t", "subscription": "s", "uuid": uuid, **changed}


def _ended(uuid: str, outcome: str, **changed: Any) -> Row:
    return _message(uuid, outcome=outcome, **{"consumer": "index-0", "acks": [], **changed})


def _open(uuid: str, minute: int = 0, **changed: Any) -> Row:
    return _message(
        uuid,
        window_start_ms=START_MS + 60_000 * minute,
        **{"producer_name": f"video-{uuid}", "state": "assembling", **changed},
    )


def _behind(uuid: str, position: str, gone: list[int], **changed: Any) -> Row:
    """A message of a subscription that is stalled at 5:2."""
    return _open(
        uuid,
        state="stalled",
        first_position=position,
        stalled_at="5:2",
        missing_chunks=gone,
        **changed,
    )


def _causes(rows: list[Row], shared_limits: Sequence[Row] = ()) -> list[Row]:
    """The causes of pauses by rows of throttle_events and of shared limits."""
    with fileless() as connection:
        connection.register("throttle_events", frame("throttle_events", rows))
        view = f"throttle_intervals AS {VIEWS['throttle_intervals'].sql}"
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {view}")
        return causes(connection.sql(CAUSES).to_arrow_table().to_pylist(), shared_limits)


def _sentences(rows: list[Row], stats: Sequence[Row] = ()) -> list[str]:
    return sentences(_causes(rows), stats)


def test_noisy_neighbour_is_named_with_those_who_suffered() -> None:
    rows = [row for i in range(14) for row in _pause(60 + 5 * i, 2.714)]
    found = _causes(rows)
    assert found == [
        {
            "limiter": "topic",
            "name": NOISY,
            "cluster": "demo",
            "broker": "",
            "pauses": 14,
            "paused_ns": 14 * 2_714_000_000,
            "open_pauses": 0,
            "topics": sorted(OTHERS),
            "first_ms": START_MS + 60_000,
            **dict.fromkeys(USED),
        },
    ]
    assert sentences(found) == [
        "Topic shop/orders/a exceeded its limit 14 times; it and 11 other topics were paused for "
        "38 s, summed over pauses."
    ]


def test_order_of_rows_does_not_matter_and_marks_within_a_pause_count_once() -> None:
    second = _row(60.5, "mark")
    rows = [*_pause(60, 2), second, *_pause(70, 3)]
    assert _causes(rows) == _causes(rows[::-1])
    assert _causes(rows)[0]["pauses"] == 2
    assert _causes(rows)[0]["paused_ns"] == 5 * SECOND


def test_pause_that_has_not_ended_counts_without_a_time() -> None:
    (cause,) = _causes([_row(60, "mark")])
    assert (cause["pauses"], cause["open_pauses"], cause["paused_ns"]) == (1, 1, 0)


def test_connections_are_distinguished() -> None:
    other = {"cnx_id": "10.0.0.2:1", "collateral_topics": []}
    (cause,) = _causes([*_pause(60, 4), *_pause(61, 1, **other)])
    assert (cause["pauses"], cause["paused_ns"], cause["topics"]) == (2, 5 * SECOND, sorted(OTHERS))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"collateral_topics": []},
            "Topic shop/orders/a exceeded its limit once; it was paused for 2.0 s, and no other "
            "topic was.",
        ),
        (
            {"limiter": "resource_group", "limiter_name": "g"},
            "Resource group g was over its limit on broker-0 once: connections with 12 topics were paused "
            "for 2.0 s.",
        ),
        (
            {"limiter": "broker", "limiter_name": "broker-0"},
            "Broker broker-0 was over its own limit once: connections with 12 topics were paused for "
            "2.0 s.",
        ),
        (
            {"limiter": "connection", "limiter_name": "10.0.0.1:1"},
            "Connection 10.0.0.1:1 had too many requests in flight once: connections with 12 topics were "
            "paused for 2.0 s.",
        ),
        (
            {"limiter": "io_thread", "limiter_name": "7"},
            "IO thread 7 of broker-0 had too many bytes in its buffers once: connections with 12 topics "
            "were paused for 2.0 s.",
        ),
    ],
)
def test_every_limiter_has_its_sentence(changed: Row, expected: str) -> None:
    assert _sentences(_pause(60, 2, **changed)) == [expected]


def test_a_shared_limit_is_named_with_the_topic_that_used_most_of_it() -> None:
    broker = {"limiter": "broker", "limiter_name": "broker-0", "culprit_topic": None}
    rows = [*_pause(60, 2, **broker), *_pause(70, 1, **broker)]
    most = {
        "cluster": "demo",
        "broker": "broker-0",
        "limiter": "broker",
        "limiter_name": "broker-0",
        "most_used_by": OTHERS[3],
        "share": 0.412,
        "used": "bytes",
    }
    assert sentences(_causes(rows, [most])) == [
        "Broker broker-0 was over its own limit 2 times: connections with 12 topics were paused "
        "for 3.0 s, summed over pauses; shop/orders/b3 used most (41 % of the bytes)."
    ]
    elsewhere = {**most, "broker": "broker-1"}
    assert "used most" not in sentences(_causes(rows, [elsewhere]))[0]


def test_paused_time_is_split_by_whose_limit_it_was() -> None:
    stats = [
        {
            "topic": "a",
            "culprit_ns": 25 * SECOND,
            "shared_ns": 15 * SECOND,
            "collateral_ns": 50 * SECOND,
        },
        {"topic": "b", "culprit_ns": 0, "shared_ns": 0, "collateral_ns": 10 * SECOND},
    ]
    none = "No connection was paused: every topic stayed within its limits."
    assert _sentences([], stats) == [
        none,
        "Paused time, summed over topics, is 100 s: 25 % for their own limits, 15 % for limits "
        "that they share and 60 % for the limits of other topics.",
    ]
    assert _sentences([], stats[1:]) == [
        none,
        "Paused time, summed over topics, is 10 s: 100 % for the limits of other topics.",
    ]


def _reader(warehouse: Path, *owners: Owner) -> ReportReader:
    return ReportReader(Warehouse(str(warehouse), owners=owners), ReportSpan())


def _printed(reader: ReportReader) -> list[str]:
    """The lines of what is to be done about a warehouse."""
    text = StringIO()
    render(reader, Console(file=text, width=80, highlight=False))
    return text.getvalue().splitlines()


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (0, "0.0 s"),
        (300_000_000, "0.3 s"),
        (38 * SECOND, "38 s"),
        (125 * SECOND, "2 min 5 s"),
    ],
)
def test_formats_of_durations(ns: int, expected: str) -> None:
    assert duration(ns) == expected


SLOW = "Restart or scale subscription archive of shop/exports/a"
"""What is done about a backlog."""


def _fill(warehouse: Path) -> None:
    """Something of each urgency, the least urgent first."""
    alone = {"collateral_topics": [], "culprit_topic": "t", "limiter_name": "t", "topic": "t"}
    pauses = [*_pause(60, 2), *_pause(70, 1, cnx_id="2", **alone)]
    write(str(warehouse), "throttle_events", pauses)
    write(str(warehouse), "topic_throttle_stats", [window(1, topic=NOISY)])
    write(str(warehouse), "chunk_events", [_ended("a", "GAP")])
    write(str(warehouse), "producer_id_decisions", [_decision(1, 2, verdict="rejected")])
    write(str(warehouse), "backlog_checks", [{**_check(1), "ts_wall_ms": 1, "row_no": 0}])
    soon = {**_reaches(1, 600.0), "ts_wall_ms": 1, "row_no": 0}
    write(str(warehouse), "backlog_subscriptions", [soon])


def test_a_large_message_that_is_acknowledged_in_part_is_a_finding(tmp_path: Path) -> None:
    """The same ones that the question lists; none where whole messages are acknowledged."""
    tables, _, listed = CASES["partial-acks"]
    put(str(tmp_path), tables)
    reader = _reader(tmp_path)
    assert _said(all_findings(reader))[1:] == [
        f"{len(listed)} large messages are acknowledged in part (consumer k): after a redelivery the"
        " rest of them makes no message."
    ]
    (row,) = actions_of(all_findings(reader), reader)
    assert row["remedy"] == (
        f"Let k of {listed[0]['topic'].split('://')[1]} acknowledge large messages whole, by the id"
        " that its client gives"
    )
    assert row["reason"] == "3 large messages are acknowledged in part, the newest at 1:62"


def test_what_is_lost_soon_comes_first_and_a_culprit_without_victims_last(tmp_path: Path) -> None:
    _fill(tmp_path)
    owners = [Owner(tenant="shop", team="retail"), Owner(principal="alice", team="data")]
    reader = _reader(tmp_path, *owners)
    rows = actions_of(all_findings(reader), reader)
    assert [(row["remedy"], row["team"], row["by_ms"], row["lasts"]) for row in rows] == [
        (SLOW, "retail", START_MS + 660_000, False),
        (
            "Let clients of user alice keep their producers, or raise its bound",
            "data",
            None,
            False,
        ),
        ("Send again what consumer index-0 of t gave up", None, None, False),
        ("Raise the publish limit of shop/orders/a, or split it", "retail", None, False),
        ("Raise the publish limit of t, or split it", None, None, False),
    ]
    assert [row["reason"] for row in rows] == [
        "it reaches its backlog quota in 10 min",
        "1 new producer id in 0.0 s; 1 batch over the bound of 5",
        "1 large message was given up because of a lost chunk",
        "1 pause, 2.0 s in all, and 11 other topics paused with it",
        "1 pause, 1.0 s in all, and no other topic paused with it",
    ]
    assert _printed(reader)[:4] == [
        f"  1. {SLOW} before 14:11:00: it",
        "     reaches its backlog quota in 10 min (retail).",
        "  2. Let clients of user alice keep their producers, or raise its bound: 1 new",
        "     producer id in 0.0 s; 1 batch over the bound of 5 (data).",
    ]


def test_every_action_names_a_runbook_of_weir(tmp_path: Path) -> None:
    _fill(tmp_path)
    near = {"age_s": 95, "age_state": "known", "limit_s": 100, "time_usage": 0.95}
    groups = {
        "group_lag": [lag("a", 0, 9), lag("b", 0, -3, state="ahead"), lag("c", 0, 9, **near)],
        "lost_messages": [lost("a", 0, 0, 3)],
        "group_states": [changed("d", 0, "open_transaction"), changed("e", 0, "pending_offsets")],
    }
    findings = [
        *all_findings(_reader(tmp_path)),
        *found_in(**groups),
        *backlog_findings([_over(2)], [], []),
        *pause_findings(
            _causes(_pause(60, 2, limiter="broker", limiter_name="broker-0")),
            dict.fromkeys(WHOSE, 0),
        ),
    ]
    large = large_message_finding([], [], [_behind("b", "5:2", [0])])
    assert large is not None
    actions = [action for f in [*findings, large] for action in f.actions]
    assert len({action.runbook for action in actions}) == 11
    for action in actions:
        assert runbook_page(action.runbook) is not None, action
        assert action.remedy[0].isupper() and not action.remedy.endswith("."), action


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        ("h", "Scale group g, or raise retention.ms of topic orders"),
        ("", "Start consumers of group g for topic orders: no member has it"),
    ],
)
def test_a_group_that_loses_records_soon_has_the_time(host: str, remedy: str) -> None:
    near = {"age_s": 910, "age_state": "known", "limit_s": 1000, "time_usage": 0.91}
    row = {**lag("g", 0, 9, **near), "client_host": host, "commit_rate": 0.0}
    (finding,) = found_in(group_lag=[row])
    (action,) = finding.actions
    assert finding.sentence == (
        f"Retention may delete records of topic orders that group g of cluster {row['cluster']} has not"
        " read in 90 s."
    )
    assert (action.urgency, action.by_ms) == (Urgency.DEADLINE, row["pass_ms"] + 90_000)
    assert action.remedy == remedy


def test_every_group_that_lost_records_is_named_once_with_its_cluster(tmp_path: Path) -> None:
    groups = [("east", "a"), ("west", "a"), ("east", "b"), ("east", "c"), ("east", "read-on")]
    lost_rows = [
        {**lost(group, 0, 0, 10 * (9 - n)), "cluster": cluster, "topic": topic}
        for n, (cluster, group) in enumerate(groups)
        for topic in ("t1", "t2", "t3", "t4", "t5")[: 5 if n == 0 else 1]
    ]
    now = [
        {**lag(group, 60_000, lagging), "cluster": cluster, "topic": "t1", "client_host": host}
        for (cluster, group), lagging, host in zip(
            groups, (5, 5, 5, 5, 0), ("", "h", "h", "", "h"), strict=True
        )
    ]
    write(str(tmp_path), "lost_messages", lost_rows)
    write(str(tmp_path), "group_lag", now)
    found = [f for f in all_findings(_reader(tmp_path)) if " lost " in f.sentence]
    assert [f.sentence.partition(":")[0].rstrip(".") for f in found] == [
        "Group a of cluster east lost 450 offsets of topics t1, t2, t3 and 2 others",
        "Group a of cluster west lost 80 offsets of topic t1",
        "Group b of cluster east lost 70 offsets of topic t1",
        "Group c of cluster east lost 60 offsets of topic t1",
        "Group read-on of cluster east lost 50 offsets of topic t1",
    ]
    assert [[action.remedy for action in f.actions] for f in found] == [
        ["Scale group a, or raise retention.ms of topics t1, t2, t3 and 2 others"],
        ["Scale group a, or raise retention.ms of topic t1"],
        ["Scale group b, or raise retention.ms of topic t1"],
        ["Start consumers of group c for topic t1: no member has it"],
        [],
    ]
    assert found[0].actions[0].reason == (
        "in cluster east 450 offsets were deleted before it read them"
    )


def test_a_group_before_an_open_transaction_is_said_with_whose_it_is(tmp_path: Path) -> None:
    write(
        str(tmp_path),
        "group_states",
        [
            changed("g", 0, "open_transaction", producer_id=7, transactional_id="payments-1"),
            changed("h", 0, "open_transaction", producer_id=8),
            changed("i", 0, "open_transaction"),
            changed("i", 1, "committed"),
        ],
    )
    found = [f for f in all_findings(_reader(tmp_path)) if "last stable offset" in f.sentence]
    assert [f.actions[0].remedy for f in found] == [
        "End the transaction payments-1",
        "End the transaction of producer id 8",
    ]
    assert found[0].sentence == (
        "Group g has read topic orders up to the last stable offset in 1 partition: readers of"
        " committed data get nothing more before the transaction payments-1 ends."
    )


def test_a_group_whose_next_offsets_are_in_a_transaction_is_said(tmp_path: Path) -> None:
    rows = [
        changed("g", 0, "pending_offsets", producer_id=7, transactional_id="payments-1"),
        changed("g", 0, "open_transaction", partition=2),
    ]
    write(str(tmp_path), "group_states", rows)
    found = [f for f in all_findings(_reader(tmp_path)) if "roup g " in f.sentence]
    waits, held = found
    assert "last stable offset" in waits.sentence
    assert held.sentence == (
        "Offsets of group g in topic orders stand in 1 partition: the next ones are in the transaction"
        " payments-1, which has not ended."
    )
    (action,) = held.actions
    assert (action.remedy, action.reason) == (
        "End the transaction payments-1",
        "it has the next offsets of group g in topic orders",
    )


def test_a_quota_that_holds_to_the_end_is_to_be_mended_now() -> None:
    lasting = [f.actions[0].lasts for f in backlog_findings([_check(1), _over(2)], [], [])]
    over = [f.actions[0].lasts for f in backlog_findings([_over(1), _check(2)], [], [])]
    assert (lasting, over) == ([True], [False])
    row = {"remedy": "r", "reason": "c", "team": None, "topic": None, "runbook": ""}
    grid = what_to_do([{**row, "by_ms": None, "lasts": True}, {**row, "by_ms": 5, "lasts": False}])
    assert [shown["by"] for shown in grid.rows] == ["now", 5]
    assert "owner" not in [column.heading for column in grid.columns]


def test_what_jobs_found_is_printed_where_nothing_is_to_be_done(tmp_path: Path) -> None:
    write(str(tmp_path), "cache_stats", [_hits("lru", 750)])
    write(str(tmp_path), "topic_throttle_stats", [window(1)])
    assert _printed(_reader(tmp_path)) == [
        "  No connection was paused: every topic stayed within its limits.",
        "  A cache of 250 MB would have answered 75.0 % of 1,000 reads under lru; 2.0 MB",
        "  would have come from storage.",
    ]


@pytest.mark.parametrize("width", range(20, 60))
def test_a_line_parts_no_number_from_what_it_counts(width: int) -> None:
    text = StringIO()
    show(Console(file=text, width=width), "Paused for 2 min 5 s, 16 % of it for 3 other topics.")
    lines = text.getvalue().splitlines()
    assert not [line for line in lines if line[-1:].isdigit()], lines
    assert " ".join(line.strip() for line in lines) == (
        "Paused for 2 min 5 s, 16 % of it for 3 other topics."
    )


def test_next_steps_are_commands_that_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = str(tmp_path / "warehouse")
    write(warehouse, "throttle_events", _pause(60, 2))
    write(warehouse, "topic_throttle_stats", [window(1, topic=NOISY)])
    reader = _reader(tmp_path / "warehouse")
    text = StringIO()
    console = Console(file=text, width=80, highlight=False)
    render_next_steps(tmp_path, actions_of(all_findings(reader), reader), console)
    lines = text.getvalue().splitlines()
    assert [line[2:4] == "# " for line in lines[1:]] == [True, False] * 4
    assert lines[2].strip() == str(tmp_path / "report.html")
    for line in (lines[4], lines[6]):
        words = shlex.split(line)
        assert words[0] == "./spark-submit.sh"
        assert main(words[1:]) == 0, (line, capsys.readouterr().err)
    # serves until it is stopped: tests/unit/show/live
    assert shlex.split(lines[8])[1:] == ["serve", "--warehouse", warehouse]


def test_columns_that_are_read_are_columns_of_the_tables() -> None:
    assert set(MESSAGE_COLUMNS) <= set(TABLES["chunk_messages"].names)


@pytest.mark.parametrize("scenario", names())
def test_configuration_of_the_demo_is_valid(scenario: str, tmp_path: Path) -> None:
    prepare(tmp_path / "out", scenario)
    path = Recording(scenario).copy_to(tmp_path / "out")
    settings = load_settings(path)
    assert bool(settings.policy_dicts()) == (scenario == "demo")
    assert settings.feed.path == str(tmp_path / "out" / "events")
    assert yaml.safe_load(path.read_text())["warehouse"] == str(tmp_path / "out" / "warehouse")


def test_demo_starts_over_in_its_own_folder_and_leaves_other_files_alone(tmp_path: Path) -> None:
    prepare(tmp_path, "demo")
    (tmp_path / "warehouse" / "events").mkdir(parents=True)
    (tmp_path / "weir.yaml").touch()
    (tmp_path / "notes.txt").touch()
    prepare(tmp_path, "demo")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "weir-demo.json"]


def test_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    with pytest.raises(UserError, match="is not empty and was not made by demo"):
        prepare(tmp_path, "demo")
    assert (tmp_path / "warehouse").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file; a folder is needed"):
        prepare(tmp_path / "file", "demo")


STORM = [
    *(_decision(600 + i, 100 + i) for i in range(60)),
    *(_decision(660 + i, 160 + i, verdict="rejected") for i in range(180)),
    _decision(839, 339, verdict="rejected"),  # a batch with an id that was rejected before
]
QUIET = [_decision(i, i, user="bob", bound=50.0, bound_source="user") for i in range(60)]


def test_storm_of_producer_ids_has_its_user_named() -> None:
    assert producer_id_sentences([*QUIET, *STORM]) == [
        "User alice brought 240 new producer ids in 4 min, 80 % of all; 181 batches would have "
        "been rejected under the default bound of 5 (14:11:00 to 14:13:59). No other user was over "
        "its bound."
    ]
    assert producer_id_sentences([*STORM, *QUIET][::-1]) == producer_id_sentences([*QUIET, *STORM])


def test_an_own_bound_and_a_throttled_batch_are_named() -> None:
    own = {"bound": 0.5, "bound_source": "user"}
    assert producer_id_sentences(
        [
            _decision(0, 1, **own),
            _decision(1.5, 1, **own, verdict="throttled"),
        ]
    ) == [
        "User alice brought 1 new producer id in 1.5 s, 100 % of all; 1 batch would have been "
        "throttled under its bound of 0.5 (14:00:01 to 14:00:01). No other user was over its bound."
    ]


def test_bound_is_the_one_that_was_broken() -> None:
    rows = [
        _decision(0, 1, bound=9.0),
        _decision(1, 2, verdict="rejected", bound=7.0),
        _decision(2, 3, bound=8.0),
        _decision(3, 4, bound=None, bound_source="none"),
    ]
    assert (
        "1 batch would have been rejected under the default bound of 7 "
        in (producer_id_sentences(rows)[0])
    )


def test_the_worst_users_come_first_and_the_others_are_counted() -> None:
    rows = [
        _decision(i, i, user=f"user-{n}", verdict="rejected")
        for n in range(5)
        for i in range(10 + n)
    ]
    *found, others = producer_id_sentences(rows)
    assert [text.split()[1] for text in found] == ["user-4", "user-3", "user-2"]
    assert others == "2 other users were also over the bound."
    *_, others = producer_id_sentences(r for r in rows if r["user"] != "user-0")
    assert others == "1 other user was also over the bound."
    *_, last = producer_id_sentences(r for r in rows if r["user"] > "user-1")
    assert last.startswith("User user-2 ") and last.endswith(" No other user was over its bound.")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        (QUIET, ["60 new producer ids of 1 user: no user was over the bound."]),
        (
            [_decision(0, 1, bound=None, bound_source="none"), QUIET[0]],
            ["2 new producer ids of 2 users: no user was over the bound."],
        ),
        (
            [_decision(0, 1, bound=None, bound_source="none")],
            ["1 new producer id of 1 user; no user has a bound."],
        ),
    ],
)
def test_users_within_their_bounds_are_not_blamed(rows: list[Row], expected: list[str]) -> None:
    assert producer_id_sentences(rows) == expected


def test_outcomes_of_large_messages_name_producers_and_consumers() -> None:
    whole = [_message(f"w{i}") for i in range(206)]
    events = [
        *(_ended(m["uuid"], "COMPLETE") for m in whole),
        _ended("w0", "RESTART_CORRUPTED"),
        _ended("w1", "GAP"),  # redelivered and whole in the end
        *(_ended(f"e{i}", "EXPIRED") for i in range(5)),
        _ended("e0", "NO_FIRST_CHUNK"),
        *(_ended(f"g{i}", "GAP") for i in range(2)),
        _ended("g2", "NO_FIRST_CHUNK"),
        _ended("g2", "NO_FIRST_CHUNK"),
    ]
    incomplete = [_open(f"e{i}", producer_name="video-3") for i in range(5)]
    assert large_message_sentence(whole, events, incomplete) == (
        "Of 214 large messages 206 arrived complete; 5 never got their last chunk (producer "
        "video-3), 3 were given up because of a lost chunk (consumer index-0)."
    )


def test_incomplete_messages_and_other_outcomes_are_counted() -> None:
    events = [_ended("a", "EVICTED"), _ended("a", "NO_FIRST_CHUNK"), _ended("b", "EXPIRED")]
    incomplete = [
        _open("b"),
        _open("w", 0),
        _open("c", 1),
        _open("d", 1),
        _open("b", 1, producer_name=None),
        _open("z", cluster="other"),
    ]
    assert large_message_sentence([_message("w")], events, incomplete) == (
        "Of 6 large messages 1 arrived complete; 1 never got its last chunk, 1 was given up for "
        "other reasons, 3 wait for a chunk (producers video-c, video-d, video-z)."
    )


def test_stalled_messages_name_the_chunk_and_are_not_lost() -> None:
    events = [_ended("a", "SHARED_ORPHAN"), _ended("x", "SHARED_ORPHAN", acks=["1:1"])]
    incomplete = [_behind("a", "5:2", [0, 1]), _behind("b", "5:3", []), _open("w")]
    assert large_message_sentence([], events, incomplete) == (
        "Of 4 large messages 0 arrived complete; 1 was given up because of a lost chunk (consumer"
        " index-0), 1 waits for a chunk (producer video-w), 2 are stalled behind 5:2, whose chunks"
        " 0 and 1 are gone (subscription s)."
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (([], [], []), None),
        (([], [_ended("a", "ALREADY_ACKED")], []), None),
        (([_message("a"), _message("b")], [], []), "Of 2 large messages all arrived complete."),
        (([_message("a")], [], []), "Of 1 large message 1 arrived complete."),
        (
            ([_message("a"), _message("a", subscription="other")], [], []),
            "Of 2 deliveries of large messages to subscriptions all arrived complete.",
        ),
        (
            ([], [_ended(c, "GAP", consumer=c) for c in "dcbab"], []),
            "Of 4 large messages 0 arrived complete; 4 were given up because of a lost chunk (consumers "
            "a, b, c and 1 more).",
        ),
    ],
)
def test_sentence_on_large_messages(
    rows: tuple[list[Row], list[Row], list[Row]], expected: str | None
) -> None:
    assert large_message_sentence(*rows) == expected


def test_tables_that_were_never_written_add_no_sentence(tmp_path: Path) -> None:
    def sentences_of() -> list[str]:
        return _said(all_findings(_reader(tmp_path)))

    write(str(tmp_path), "producer_id_decisions", [_decision(1, 2)])
    assert sentences_of() == ["1 new producer id of 1 user: no user was over the bound."]
    write(str(tmp_path), "chunk_events", [_ended("a", "EXPIRED")])
    assert sentences_of()[1:] == [
        "Of 1 large message 0 arrived complete; 1 never got its last chunk."
    ]


def _check(minute: int, topic: str = "persistent://shop/exports/a", **changed: Any) -> Row:
    return {
        "cluster": "c",
        "topic": topic,
        "pass_ms": START_MS + 60_000 * minute,
        "exceeded_size": False,
        "exceeded_time": False,
        "limit_bytes": None,
        "limit_s": 200,
        "retention_policy": None,
        "oldest_subscription": "archive",
        "age_s": 10,
        **changed,
    }


def _over(minute: int, topic: str = "persistent://shop/exports/a", **changed: Any) -> Row:
    return _check(
        minute,
        topic,
        **{"exceeded_time": True, "retention_policy": "consumer_backlog_eviction", **changed},
    )


def _reaches(minute: int, in_s: float | None, **changed: Any) -> Row:
    return {
        "cluster": "c",
        "topic": "persistent://shop/exports/a",
        "subscription": "archive",
        "pass_ms": START_MS + 60_000 * minute,
        "age_s": 100,
        "time_to_quota_s": in_s,
        **changed,
    }


def test_topic_over_its_quota_is_named_with_the_action() -> None:
    checks = [_check(1), _over(2), _over(3)]
    skipped = [{"cluster": "c", "topic": checks[0]["topic"], "entries_skipped": n} for n in (5, 9)]
    assert backlog_sentences(checks[::-1], [], skipped) == [
        "Topic shop/exports/a was over its time quota of 200 s at 2 checks from 14:02:00, because "
        "of subscription archive; 14 entries were to be evicted."
    ]
    size = {
        "exceeded_size": True,
        "limit_bytes": 4_200_000,
        "retention_policy": "producer_exception",
    }
    assert backlog_sentences([_check(1, **size), _check(2)], [], []) == [
        "Topic shop/exports/a was over its size quota of 4.2 MB at the check of 14:01:00, "
        "because of subscription archive; its producers were disconnected."
    ]


def test_quota_that_will_be_reached_is_forecast_by_the_last_check() -> None:
    checks = [_check(1), _check(2)]
    assert backlog_sentences(checks, [_reaches(1, 160.0), _reaches(2, 500.5)], []) == [
        "Topic shop/exports/a will reach its quota in 8 min, at 14:10:20, at the current rate of "
        "subscription archive (its oldest message has waited 100 s)."
    ]
    late = [_reaches(2, 4000.0), _reaches(2, None), _reaches(1, 5.0)]
    none = ["1 topic with a backlog: none was over a quota, and none will be within the hour."]
    assert backlog_sentences(checks, late, []) == none
    assert backlog_sentences([_over(2)], [_reaches(2, 5.0)], [])[1:] == []
    assert backlog_sentences([], [], []) == []


def test_worst_topics_over_a_quota_come_first_and_the_others_are_counted() -> None:
    checks = [_over(m, f"persistent://a/b/t{n}") for n in range(5) for m in range(1, 2 + n)]
    found = backlog_sentences(checks, [], [])
    assert [text.split()[1] for text in found[:3]] == ["a/b/t4", "a/b/t3", "a/b/t2"]
    assert found[3:] == ["2 other topics were also over a quota."]


def _hits(policy: str, hits: int, max_bytes: int | None = 250_000_000, **changed: Any) -> Row:
    return {
        "policy": policy,
        "max_bytes": max_bytes,
        "hits": hits,
        "misses": 1000 - hits,
        "hit_ratio": hits / 1000,
        "miss_bytes": (1000 - hits) * 8192,
        **changed,
    }


def test_cache_sentence_ranks_policies_at_the_size_where_they_differ() -> None:
    rows = [
        _hits("fifo", 769),
        _hits("expected_reads", 984),
        _hits("proportional", 600),
        _hits("expected_reads", 990, 10**9),
        _hits("fifo", 989, 10**9),
    ]
    assert cache_sentence(rows) == (
        "A cache of 250 MB would have answered 98.4 % of 1,000 reads under expected_reads (fifo "
        "76.9 %, proportional 60.0 %); 131 kB instead of 3.3 MB would have come from storage."
    )
    assert cache_sentence(rows[::-1]) == cache_sentence(rows)


def test_cache_sentence_sums_windows_of_brokers_and_leaves_topics_out() -> None:
    rows = [
        _hits("expected_reads", hits, None, topic=topic)
        for hits, topic in ((900, None), (800, None), (900, "t"))
    ]
    assert cache_sentence(rows) == (
        "A cache without a size limit would have answered 85.0 % of 2,000 reads under "
        "expected_reads; 2.5 MB would have come from storage."
    )
    assert cache_sentence([]) is None
    assert cache_sentence([_hits("fifo", 0, misses=0)]) is None


def test_a_folder_in_which_another_demo_is_at_work_is_left_alone(tmp_path: Path) -> None:
    prepare(tmp_path, "demo")
    (tmp_path / "report.html").touch()
    settings = Settings(warehouse=str(tmp_path / "warehouse"))
    with (
        only_run(settings.location, ["govern"]),
        pytest.raises(UserError, match="another run works on"),
    ):
        prepare(tmp_path, "demo")
    assert (tmp_path / "report.html").exists()
    prepare(tmp_path, "demo")
    assert not (tmp_path / "report.html").exists()
