"""Client quotas compared: limits with files, throttle times with the log, rates with metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.settings import Settings
from app.errors import UserError
from app.read.table_relation import FEW_FILES
from app.show.reconcile.comparing import one_round
from app.show.reconcile.recorded_numbers import entity_text
from app.show.reconcile.spans import differs
from app.tables.archive_files import actions, write_files
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from tests.support.client_quota_rows import MINUTE, decision, stats, usage
from tests.support.throttle_rows import START_MS, frame, write

Row = dict[str, Any]
Make = Callable[..., Settings]
Compare = Callable[..., list[tuple[Any, ...]]]
MIB = 1 << 20
FEEDS = [
    {"format": "kafka_logs", "cluster": "east", "path": "/logs"},
    {
        "format": "kafka_quotas",
        "cluster": "east",
        "options": {"kafka.bootstrap.servers": "127.0.0.1:9"},
    },
]
RUNS = {"source": FEEDS, "queries": [["client_quotas"]]}


@pytest.fixture
def compared(make_settings: Make) -> Compare:
    """What a round says of the rows of each table: of each number entity, measure, both values,
    bound and reason."""

    def compare(tables: dict[str, list[Row]], **more: Any) -> list[tuple[Any, ...]]:
        settings = make_settings(**{**RUNS, **more})
        for name, rows in tables.items():
            write(settings.warehouse, name, rows)
        return shown(one_round(settings).rows)

    return compare


def shown(rows: list[Row]) -> list[tuple[Any, ...]]:
    keys = ("measure", "broker_value", "weir_value", "bound", "reason")
    return [(entity_text(row), *(row[key] for key in keys)) for row in rows]


def policy(at_ms: int, limits: dict[str, float], **about: Any) -> Row:
    """A limit that a poll has told."""
    document = {"scope": "user", "name": "etl", "limits": limits}
    for key in ("scope", "name", "client_id"):
        if key in about:
            document[key] = about.pop(key)
    return {
        "event_type": "policy",
        "source_feed": "kafka_quotas",
        "cluster": "east",
        "broker": "*",
        "ts_wall_ms": at_ms,
        "policy_json": json.dumps(document),
        "source_partition": "p",
        "source_offset": at_ms,
        **about,
    }


# -- limits ----------------------------------------------------------------------------------


def test_limits_that_files_name_are_those_of_the_cluster_or_differ(
    compared: Compare,
) -> None:
    polled = [
        policy(1, {"producer_byte_rate": MIB, "request_percentage": 12.5}),
        policy(2, {"producer_byte_rate": 5}, client_id="<default>"),
        policy(3, {"consumer_byte_rate": 7}, scope="client", name="app"),
        policy(4, {"producer_byte_rate": 9}, name="gone"),
        policy(5, {}, name="gone"),
        policy(6, {"producer_byte_rate": 2**63 - 1}, name="free"),
        policy(7, {"producer_byte_rate": 1}, source_feed="contract", name="told"),
    ]
    files = [
        {"scope": "user", "name": "etl", "limits": {"producer_byte_rate": MIB}},
        {"scope": "user", "name": "etl", "limits": {"producer_byte_rate": 6}}
        | {"client_id": "<default>"},
        {"scope": "client", "name": "app", "limits": {"consumer_byte_rate": 7}},
        {"scope": "user", "name": "gone", "limits": {"producer_byte_rate": 9}},
        {"scope": "user", "name": "free", "limits": {"producer_byte_rate": 3}},
    ]
    assert compared({"events": polled}, policies=files) == [
        ("user=etl", "producer_byte_rate", MIB, MIB, 0, None),
        ("user=etl, client-id=<default>", "producer_byte_rate", 5, 6, 0, None),
        ("client-id=app", "consumer_byte_rate", 7, 7, 0, None),
        ("user=gone", "producer_byte_rate", 0, 9, 0, None),
        ("user=free", "producer_byte_rate", 2**63 - 1, 3, 0, None),
    ]


def test_limits_are_read_from_the_files_of_the_archive_that_have_some(
    make_settings: Make,
) -> None:
    """The others are broken, so that opening one would fail."""
    files = [{"scope": "user", "name": "etl", "limits": {"producer_byte_rate": 9}}]
    settings = make_settings(**RUNS, policies=files)
    root = Path(settings.warehouse, "events")
    writer = Writer(settings.location, "events", 1, "archive")
    count = FEW_FILES + 4
    for number in range(count):
        rows = [{"event_type": kind, "ts_wall_ms": number} for kind in ("client_usage", "poll")]
        rows += (
            [policy(number, {"producer_byte_rate": number})] if number in (0, 7, count - 1) else []
        )
        rows = [{**row, "event_date": date(1970, 1, 1)} for row in rows]
        written = write_files(TABLES["events"], [frame("events", rows)], str(root), {})
        writer.add_files("events", actions(TABLES["events"], written), number)
        if number not in (0, 7, count - 1):
            (root / written.column("path")[0].as_py()).write_bytes(b"broken")
    assert shown(one_round(settings).rows) == [
        ("user=etl", "producer_byte_rate", count - 1, 9, 0, None)
    ]


def test_limits_of_a_kind_that_files_name_are_counted_where_they_are_in_no_file(
    compared: Compare,
) -> None:
    limit = {"request_percentage": 12.5}
    polled = [
        *(policy(n, limit, name=name) for n, name in enumerate(("etl", "web", "audit"))),
        policy(8, {**limit, "producer_byte_rate": 5}),  # a limit that files do not name
        policy(9, limit, scope="client", name="app"),  # nor do they name clients
        policy(9, limit, cluster="west"),
    ]
    files = [{"scope": "user", "name": "etl", "limits": {"request_percentage": 12.5}}]
    assert compared({"events": polled}, policies=files) == [
        ("user=etl", "request_percentage_milli", 12_500, 12_500, 0, None),
        ("-", "request_percentage_of_users", 3, 1, 0, "NOT_IN_FILES"),
        ("user=etl", "request_percentage_milli", 12_500, 12_500, 0, None),
    ]


def test_without_limits_in_files_there_is_nothing_to_compare(
    compared: Compare,
) -> None:
    files = [{"scope": "topic", "name": "persistent://a/b/c", "limits": {"publishRateInMsgs": 1}}]
    assert compared({"events": [policy(1, {"producer_byte_rate": 5})]}, policies=files) == []


# -- throttle times --------------------------------------------------------------------------

ALL = range(4)
"""Minutes: the first and the last one are cut, whatever they have."""


def windows(
    theirs: int, both: int, alone: int, of_decisions: Row | None = None, **changes: Any
) -> dict[str, list[Row]]:
    """Tables of four minutes of 100 requests, of which the broker throttled `theirs`."""
    times = {"observed_throttle_ms": 1000 * theirs, "throttle_ms": 1000 * (both + alone)}
    counts = {"requests": 100, "throttled": both + alone, "observed_throttled": theirs}
    beside = {"charged": 2000.0, "used": 1.1}
    return {
        "client_usage": [usage(minute) for minute in ALL],
        "client_quota_stats": [
            stats(minute, **{**beside, **times, **counts, **changes}) for minute in ALL
        ],
        "client_quota_decisions": [
            decision(
                minute * MINUTE + n,
                row_no=n,
                **{
                    "observed_throttle_ms": 1000 if n < both else 0,
                    **(of_decisions or {}),
                },
            )
            for minute in ALL
            for n in range(both + alone)
        ],
    }


@pytest.mark.parametrize(
    ("tables", "agreeing", "times"),
    [
        (windows(20, 20, 0), (100, 100, 0, None), (20_000, 20_000, 4_000, None)),
        # One throttles and the other does not: explained up to two samples, at 20 bytes of 100 per s.
        (windows(20, 18, 3), (100, 95, 5, None), (20_000, 21_000, 13_600, None)),
        # Weir throttles for longer than that: it has more requests, or another limit.
        (
            windows(18, 18, 3, {"rate": 121.0}),
            (100, 97, 0, None),
            (18_000, 21_000, 9_600, None),
        ),
        # The broker throttles and Weir is far from the limit.
        (windows(20, 0, 0, used=0.5), (100, 80, 0, None), (20_000, 0, 40_000, None)),
        # Weir knows of no limit.
        (
            windows(20, 0, 0, used=None, bound=None, bound_level="none"),
            (100, 80, 0, None),
            (20_000, 0, 40_000, None),
        ),
        (
            windows(20, 0, 0, used=0.5, quota_type="request"),
            (100, 80, 0, "NOT_LOGGED"),
            (20_000, 0, 40_000, None),
        ),
    ],
    ids=["alike", "edges", "beyond", "far", "no-limit", "request-time"],
)
def test_throttle_times_of_the_log(
    compared: Compare,
    tables: dict[str, list[Row]],
    agreeing: tuple[Any, ...],
    times: tuple[Any, ...],
) -> None:
    kind = tables["client_quota_stats"][0]["quota_type"]
    two = [("user=etl", f"{kind}_agreeing", *agreeing), ("user=etl", f"{kind}_throttle_ms", *times)]
    of_all = ("-", "agreeing", *((100, 100, 0, None) if agreeing[3] else agreeing))
    assert compared(tables) == [*two * 2, of_all, of_all]


@pytest.mark.parametrize(
    ("rate", "found"),
    [
        (100 * (1 + 1000 / 10_000), []),  # as the throttle time of the broker says
        (105.0, [(100, 100), (5000, 5000)]),
    ],
)
def test_a_throttle_time_that_was_taken_from_the_broker_proves_nothing(
    compared: Compare, rate: float, found: list[tuple[int, int]]
) -> None:
    fetch = {"quota_type": "fetch"}
    tables = windows(5, 5, 0, {**fetch, "api": "FETCH", "rate": rate}, **fetch)
    shown_of = [row for row in compared(tables) if row[1] != "agreeing"]
    assert [(row[2], row[3]) for row in shown_of] == found * 2


def test_what_the_log_does_not_tell_is_not_compared(
    compared: Compare,
) -> None:
    unknown = {"observed_throttled": None, "observed_throttle_ms": None}
    assert compared(windows(0, 2, 0, {"observed_throttle_ms": None}, **unknown)) == []


def test_a_window_without_a_throttled_request_agrees_as_a_whole(compared: Compare) -> None:
    assert compared(windows(0, 0, 0)) == [("-", "agreeing", 100, 100, 0, None)] * 2


@pytest.mark.parametrize(
    ("beside", "reasons"),
    [
        ({"events": [policy(START_MS + 2 * MINUTE, {})]}, ["LIMIT_CHANGED"] * 2),
        ({"events": [policy(START_MS + 3 * MINUTE, {})]}, [None, "LIMIT_CHANGED"]),
        ({"events": [policy(START_MS + 2 * MINUTE, {}, cluster="west")]}, [None] * 2),
        (
            {
                "coverage_gaps": [
                    {
                        "job": "client_quotas",
                        "cluster": "east",
                        "broker": "b1",
                        "gap_from_wall_ms": START_MS + 2 * MINUTE,
                        "blind_until_ms": START_MS + 2 * MINUTE + 1,
                    }
                ]
            },
            [None, "GAP"],
        ),
    ],
)
def test_windows_that_are_no_comparison(
    compared: Compare,
    beside: dict[str, list[Row]],
    reasons: list[str | None],
) -> None:
    found = compared({**windows(20, 0, 0, used=0.5), **beside})
    assert [row[5] for row in found if row[1] == "produce_agreeing"] == reasons


# -- rates -----------------------------------------------------------------------------------


def rates(measured: Row | None, judged: Row | None, kind: str = "produce") -> dict[str, list[Row]]:
    """Four minutes of an entity by metrics and by requests, beside another one with both."""
    both = (("metrics", measured), ("requests", judged))
    told = {"utilisation": None, "quota_type": kind}
    return {
        "client_usage": [usage(minute) for minute in ALL],
        "client_quota_stats": [
            stats(minute, user, basis=basis, **told, **rows)
            for minute in ALL
            for basis, of_etl in both
            for user, rows in (("etl", of_etl), ("web", {"rate_avg": 0.0, "rate_max": 0.0}))
            if rows is not None
        ],
    }


STEADY = {"rate_avg": 600.0, "rate_max": 600.0}


@pytest.mark.parametrize(
    ("measured", "judged", "found"),
    [
        (STEADY, STEADY, [(600, 600, 111, None), (600, 600, 61, None)]),
        # 11 s of a minute's rates are of the minute before.
        (
            {"rate_avg": 490.0, "rate_max": 655.0},
            STEADY,
            [(490, 600, 111, None), (655, 600, 61, None)],
        ),
        # Weir lacks a part of the requests.
        (
            {"rate_avg": 800.0, "rate_max": 800.0},
            STEADY,
            [(800, 600, 111, None), (800, 600, 61, None)],
        ),
        # Polls miss bursts.
        (
            {"rate_avg": 100.0, "rate_max": 200.0},
            {"rate_avg": 300.0, "rate_max": 600.0},
            [(100, 300, 411, None), (200, 600, 401, None)],
        ),
        (STEADY, None, [(600, 0, 1, "NO_REQUESTS"), (600, 0, 1, "NO_REQUESTS")]),
        (None, STEADY, [(0, 600, 111, "NO_METRICS"), (0, 600, 601, "NO_METRICS")]),
    ],
    ids=["alike", "edges", "missing", "bursts", "metrics-only", "requests-only"],
)
def test_rates_of_metrics(
    compared: Compare,
    measured: Row | None,
    judged: Row | None,
    found: list[tuple[Any, ...]],
) -> None:
    rows = compared(rates(measured, judged))
    assert rows == [
        ("user=etl", f"produce_rate_{name}", *numbers)
        for _ in (1, 2)
        for name, numbers in zip(("avg", "max"), found, strict=True)
    ]


def test_request_time_of_metrics_has_that_of_network_threads(
    compared: Compare,
) -> None:
    more, less = ({"rate_avg": rate, "rate_max": rate} for rate in (9.0, 6.0))
    kind = "request_rate_avg_milli"
    found = [row[1:] for row in compared(rates(more, less, "request")) if row[1] == kind]
    assert found == [(kind, 9000, 6000, 1101, "NOT_LOGGED")] * 2


def test_a_broker_with_one_of_both_has_nothing_to_compare(
    compared: Compare,
) -> None:
    tables = rates(STEADY, STEADY)
    alone = [row for row in tables["client_quota_stats"] if row["basis"] == "requests"]
    assert compared({**tables, "client_quota_stats": alone}) == []


# -- rounds ----------------------------------------------------------------------------------


def test_a_window_is_compared_once_and_a_limit_in_every_round(make_settings: Make) -> None:
    files = [{"scope": "user", "name": "etl", "limits": {"producer_byte_rate": 5}}]
    settings = make_settings(**RUNS, policies=files)
    polled = {"events": [policy(1, {"producer_byte_rate": 6})]}
    for name, rows in (windows(20, 0, 0, used=0.5) | polled).items():
        write(settings.warehouse, name, rows)

    def round_() -> list[tuple[str, int]]:
        return [
            (row["measure"], (row["window_start_ms"] - START_MS) // MINUTE)
            for row in one_round(settings).rows
            if row["measure"] == "produce_agreeing"
        ]

    assert round_() == [("produce_agreeing", 1), ("produce_agreeing", 2)]
    assert round_() == []
    (limit,) = one_round(settings).rows  # nothing else is new
    assert limit["window_ms"] >= 0 and differs(limit)
    write(settings.warehouse, "client_usage", [usage(4)])
    assert round_() == [("produce_agreeing", 3)]


def test_the_command_says_what_differs_and_what_to_do(
    make_settings: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(**RUNS)
    tables = windows(20, 0, 0, used=0.5)
    for name, rows in windows(20, 20, 0).items():
        tables[name] += [{**row, "cluster": "west"} for row in rows]
    for name, rows in tables.items():
        write(settings.warehouse, name, rows)
    words = ["reconcile", "--warehouse", settings.warehouse]
    assert main(words) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[2].split() == [
        *("east", "b1", "user=etl", "produce_agreeing", "2023-11-14T22:15:00Z"),
        *("100", "80", "20", "0"),
    ]
    assert out[6].startswith("produce_agreeing, agreeing: Weir judges requests as the broker does")
    assert out[7].startswith("12 numbers: 8 agree, 4 differ, 0 cannot be compared; ")
    (Path(settings.warehouse) / "_weir" / "reconcile.json").unlink()
    assert main([*words, "--cluster", "west", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert {row["cluster"] for row in found} == {"west"} and len(found) == 6


@pytest.mark.parametrize("section", [{}, {"interval_ms": 1000}])
def test_a_run_needs_no_brokers(make_settings: Make, section: Row) -> None:
    assert make_settings(**RUNS, reconcile=section).reconcile is not None
    with pytest.raises(UserError, match=r"reconcile\.brokers: is missing"):
        make_settings(**RUNS | {"queries": [["producer_ids"]]}, reconcile=section)
