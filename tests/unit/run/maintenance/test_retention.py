"""Rows leave when they are older than configured, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from app.config.settings import Settings
from app.errors import UserError
from app.read.relations import Warehouse
from app.run.maintenance import retention
from app.show.metrics.table_changes import TableFollower
from app.tables.data_files import data_files
from tests.support.throttle_rows import OTHER, TOPIC, event, write
from tests.unit.run.maintenance.tables import found, opened

MakeSettings = Callable[..., Settings]
DAY_MS = 86_400_000
NOW_MS = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS + DAY_MS // 2
NAME = "throttle_events"


def row(days: float, **changes: Any) -> dict[str, Any]:
    return {**event(0, "mark"), "ts_wall_ms": NOW_MS - int(days * DAY_MS), **changes}


def apply(settings: Settings, name: str = NAME, dry_run: bool = False, now_ms: int = NOW_MS) -> int:
    return retention.RetentionRules(settings.location, settings.maintenance, now_ms).apply(
        opened(settings, name), dry_run
    )


def days(settings: Settings, name: str = NAME) -> list[float | None]:
    times = found(settings, name)["ts_wall_ms"].to_pylist()
    return sorted(((NOW_MS - t) / DAY_MS for t in times if t is not None), reverse=True)


def test_old_files_leave_and_files_with_newer_rows_are_written_anew(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(maintenance={"retention": [{"table": NAME, "keep_ms": "7d"}]})
    write(settings.warehouse, NAME, [row(10), row(9)])
    write(settings.warehouse, NAME, [row(8), row(7.25), row(3)])
    write(settings.warehouse, NAME, [row(2), row(1)])
    untouched = data_files(opened(settings, NAME).delta)[0].path
    assert apply(settings, dry_run=True) == 3
    assert days(settings) == [10, 9, 8, 7.25, 3, 2, 1]
    assert apply(settings) == 3
    # The limit is the midnight before: 7.25 days are within the day that ends there.
    assert days(settings) == [7.25, 3, 2, 1]
    assert untouched in [file.path for file in data_files(opened(settings, NAME).delta)]


def test_a_rule_is_applied_once_a_day_and_when_it_changes(make_settings: MakeSettings) -> None:
    rule = {"table": NAME, "keep_ms": "7d"}
    settings = make_settings(maintenance={"retention": [rule]})
    write(settings.warehouse, NAME, [row(10), row(6), row(1)])
    assert apply(settings) == 1
    write(settings.warehouse, NAME, [row(10)])
    assert apply(settings) == 0
    assert apply(settings, now_ms=NOW_MS + DAY_MS) == 1
    shorter = make_settings(maintenance={"retention": [{**rule, "keep_ms": "2d"}]})
    assert apply(shorter) == 1
    assert days(settings) == [1]


def test_a_tenant_has_a_time_of_its_own(make_settings: MakeSettings) -> None:
    settings = make_settings(
        maintenance={"retention": [{"table": NAME, "tenant": "acme", "keep_ms": "1d"}]}
    )
    other = TOPIC.replace("acme", "shop")
    write(
        settings.warehouse,
        NAME,
        [
            row(5),
            row(5, topic=other),
            row(5, topic=None),
            row(5, topic="plain"),
            row(0),
            row(5, topic=OTHER),
        ],
    )
    assert apply(settings) == 2
    assert [
        (r["topic"], (NOW_MS - r["ts_wall_ms"]) / DAY_MS)
        for r in sorted(found(settings, NAME).to_pylist(), key=lambda r: str(r["topic"]))
    ] == [
        (None, 5),
        (TOPIC, 0),
        (other, 5),
        ("plain", 5),
    ]


def test_a_dry_run_counts_a_row_once(make_settings: MakeSettings) -> None:
    settings = make_settings(
        maintenance={
            "retention": [
                {"table": NAME, "keep_ms": "7d"},
                {"table": NAME, "tenant": "acme", "keep_ms": "1d"},
            ]
        }
    )
    other = TOPIC.replace("acme", "shop")
    write(settings.warehouse, NAME, [row(9), row(3), row(9, topic=other), row(3, topic=other)])
    assert apply(settings, dry_run=True) == 3
    assert apply(settings) == 3
    assert found(settings, NAME)["topic"].to_pylist() == [other]


def test_rows_without_a_time_are_as_old_as_their_file(make_settings: MakeSettings) -> None:
    settings = make_settings(maintenance={"retention": [{"table": NAME, "keep_ms": "7d"}]})
    write(settings.warehouse, NAME, [row(10), {**row(0), "ts_wall_ms": None}])
    assert apply(settings) == 1
    assert found(settings, NAME)["ts_wall_ms"].to_pylist() == [None]
    assert apply(settings, now_ms=NOW_MS + 9 * DAY_MS) == 1
    assert found(settings, NAME).num_rows == 0


def test_the_newest_change_of_an_alert_stays(make_settings: MakeSettings) -> None:
    settings = make_settings(maintenance={"retention": [{"table": "alerts", "keep_ms": "7d"}]})
    labels = [("topic", TOPIC)]

    def change(number: int, age: int, **changes: Any) -> dict[str, Any]:
        return {
            "alert": "a",
            "labels": labels,
            "state": "firing",
            "number": number,
            "checked_ms": NOW_MS - age * DAY_MS,
            **changes,
        }

    write(
        settings.warehouse,
        "alerts",
        [
            change(1, 30),
            change(2, 20, state="resolved"),
            change(3, 25, alert="b"),
            change(4, 20, labels=[]),
            change(5, 1, labels=[]),
        ],
    )
    assert apply(settings, "alerts") == 2
    assert sorted(found(settings, "alerts")["number"].to_pylist()) == [2, 3, 5]


def test_the_newest_audit_of_a_table_stays(make_settings: MakeSettings) -> None:
    settings = make_settings()
    write(
        settings.warehouse,
        "quality_results",
        [
            {"run_id": run, "table": table, "checked_ms": NOW_MS - age * DAY_MS}
            for run, table, age in (
                ("1", "events", 90),
                ("2", "events", 60),
                ("3", "events", 5),
                ("1", "alerts", 90),
                ("2", "alerts", 60),
            )
        ],
    )
    assert apply(settings, "quality_results") == 2
    kept = found(settings, "quality_results").select(["run_id", "table"]).to_pylist()
    assert sorted((r["table"], r["run_id"]) for r in kept) == [
        ("alerts", "2"),
        ("events", "2"),
        ("events", "3"),
    ]


def test_the_archive_grows_old_by_the_time_of_reading(make_settings: MakeSettings) -> None:
    settings = make_settings(maintenance={"retention": [{"table": "events", "keep_ms": "7d"}]})
    write(
        settings.warehouse,
        "events",
        [
            {"event_type": "publish", "ts_wall_ms": 5, "ingest_ms": NOW_MS, "event_date": 1},
            {"event_type": "publish", "ts_wall_ms": NOW_MS, "ingest_ms": 5, "event_date": 1},
        ],
    )
    assert apply(settings, "events") == 1
    assert found(settings, "events")["ingest_ms"].to_pylist() == [NOW_MS]


def test_whole_files_that_leave_are_no_new_rows_for_the_metrics(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(maintenance={"retention": [{"table": NAME, "keep_ms": "7d"}]})
    write(settings.warehouse, NAME, [row(10)])
    follower = TableFollower(Warehouse.of(settings.location))
    news = follower.news(NAME)
    assert news is not None
    follower.done([news])
    apply(settings)
    write(settings.warehouse, NAME, [row(1)])
    after = follower.news(NAME)
    assert after is not None and len(after.files) == 1


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"table": "event"},
            "maintenance.retention.0.table: there is no table event whose rows grow "
            "old (did you mean events?)",
        ),
        (
            {"table": "chunk_payloads"},
            "maintenance.retention.0.table: there is no table chunk_payloads"
            " whose rows grow old (allowed: throttle_events, ",
        ),
        (
            {"table": "alerts", "tenant": "acme"},
            "maintenance.retention.0.tenant: rows of alerts have no topic, so no tenant",
        ),
    ],
)
def test_a_rule_that_no_table_can_follow_is_refused(
    rule: dict[str, Any], message: str, make_settings: MakeSettings
) -> None:
    settings = make_settings(maintenance={"retention": [{**rule, "keep_ms": "7d"}]})
    with pytest.raises(UserError) as refused:
        retention.check(settings.maintenance)
    assert str(refused.value).startswith(message)
