"""The values of the metrics: those of the views, however the rows were committed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as plain_text

from app.config.described import described
from app.config.settings import Settings, load_settings
from app.read.relations import Warehouse, connect
from app.show.metrics.exporter import Exporter
from app.tables import last_configuration
from app.tables.definitions import TABLES
from app.tables.small_files import RECONCILE, write_text
from tests.support.exporter import Found, read, silent, value, whole
from tests.support.ready_questions import check, limiter
from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window, write
from tests.unit.show.metrics.rows import Rows, every, fill, halves, progress, topic_window

MakeSettings = Callable[..., Settings]
FOR_EVER = {"idle_s": 10**9}


def rows_of_view(settings: Settings, view: str) -> list[dict[str, Any]]:
    cursor = connect(Warehouse.of(settings.location), view).execute(f"SELECT * FROM {view}")
    names = [column[0] for column in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return every()


@pytest.fixture(scope="module")
def filled(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse with all rows, for tests that only read it or copy it."""
    warehouse = str(tmp_path_factory.mktemp("metrics") / "warehouse")
    fill(warehouse, rows)
    return load_settings(None, {"warehouse": warehouse, "alerts": None, "metrics": FOR_EVER})


@pytest.fixture(scope="module")
def at_once(filled: Settings) -> Found:
    """What an exporter finds in all rows that has just begun."""
    return whole(filled)


@pytest.fixture
def copied(filled: Settings, make_settings: MakeSettings) -> Settings:
    """All rows in a warehouse of the test's own."""
    settings = make_settings()
    shutil.copytree(filled.warehouse, settings.warehouse)
    return settings


def test_values_are_those_of_the_throttle_view(filled: Settings, at_once: Found) -> None:
    settings, found = filled, at_once
    names = {
        "pulsar.client.producer.throttled_times": "pulsar_client_producer_throttled_times_total",
        "pulsar.broker.topic.publish.rate.limit.count": "pulsar_broker_topic_publish_rate_limit_count_total",
        "pulsar.broker.connection.rate_limit.count": "pulsar_broker_connection_rate_limit_count_total",
        "publishRateLimitedTimes": None,
    }
    seen = set()
    for row in rows_of_view(settings, "throttle_metrics"):
        metric = names.get(row["metric"], row["metric"])
        if metric is None or (row["topic"] and not row["value"]):
            continue  # a field of the stats; a topic that was never paused
        labels = {k: row[k] for k in ("cluster", "broker", "topic", "reason", "limiter") if row[k]}
        if row["operation"]:
            labels["pulsar_connection_rate_limit_operation_name"] = row["operation"]
        assert value(found, metric, **labels) == row["value"]
        seen.add((metric, *sorted(labels.items())))
    assert len(seen) == sum(
        name in names.values() or name.startswith(("pulsar_publish", "pulsar_broker_throttled"))
        for name, _ in found
    )


def test_values_are_those_of_the_backlog_view(rows: Rows, filled: Settings, at_once: Found) -> None:
    settings, found = filled, at_once
    breached = {
        (r["cluster"], r["topic"])
        for r in rows["backlog_checks"]
        if r["exceeded_size"] or r["exceeded_time"]
    }
    view = [
        row
        for row in rows_of_view(settings, "backlog_metrics")
        if row["topic"] is None or (row["cluster"], row["topic"]) in breached
    ]
    expected = {
        (
            row["metric"],
            tuple(
                sorted(
                    (k, row[k]) for k in ("cluster", "namespace", "topic", "quota_type") if row[k]
                )
            ),
        ): row["value"]
        for row in view
    }
    assert {k: v for k, v in found.items() if "storage_backlog" in k[0]} == expected
    assert {name for name, _ in expected} >= {
        "pulsar_storage_backlog_age_seconds",
        "pulsar_storage_backlog_size",
        "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
    }


def test_values_are_those_of_the_quota_view_and_of_the_newest_window_of_a_user(
    rows: Rows, filled: Settings, at_once: Found
) -> None:
    found = at_once
    newest: dict[tuple[str, ...], dict[str, Any]] = {}
    breaches: dict[tuple[str, ...], int] = {}
    shown: set[tuple[str, ...]] = set()
    for row in sorted(rows_of_view(filled, "quota_usage"), key=lambda r: r["window_start_ms"]):
        key = (row["kind"], row["cluster"], row["broker"], row["entity"])
        newest[key] = row
        breaches[key] = breaches.get(key, 0) + row["breached"]
        if row["breached"] or (row["ratio"] or 0) >= 0.5:
            shown.add(key)
    assert len(shown) > 5 and any(not breaches[key] for key in shown)
    for key in shown:
        labels = dict(zip(("kind", "cluster", "broker", "entity"), key, strict=True))
        assert value(found, "weir_quota_breaches_total", **labels) == breaches[key]
        row = newest[key]
        assert value(found, "weir_quota_breached", **labels) == row["breached"]
        if row["ratio"] is not None:
            assert value(found, "weir_quota_used_ratio", **labels) == row["ratio"]
    assert sum(name == "weir_quota_breaches_total" for name, _ in found) == len(shown)
    users = {
        (r["cluster"], r["user"])
        for r in rows["producer_id_stats"]
        if r["rejected"] or r["throttle_time_avg_ms"] or (r["utilisation"] or 0) >= 0.5
    }
    windows = sorted(
        rows["producer_id_stats"], key=lambda r: (r["window_start_ms"], r["ts_wall_ms"])
    )
    last = {(r["cluster"], r["broker"], r["user"]): r for r in windows}
    expected = {
        (
            f"kafka_server_producerids_{name}",
            tuple(zip(("broker", "cluster", "user"), key, strict=True)),
        ): of
        for (cluster, broker, user), row in last.items()
        if (cluster, user) in users
        for key in [(broker, cluster, user)]
        for name, of in (
            ("rate", row["rate"]),
            ("tokens", row["tokens"]),
            ("throttle_time", row["throttle_time_avg_ms"] or 0.0),
        )
        if of is not None
    }
    assert {
        k: v for k, v in found.items() if k[0].startswith("kafka_server_producerids")
    } == expected
    assert expected


def test_other_jobs_and_the_engine(rows: Rows, copied: Settings) -> None:
    settings = copied
    progress(settings.warehouse, "govern", 3, 1_700_000_000.0)
    found = whole(settings)
    cache = {"policy": "fifo", "max_bytes": "100", "broker": "b1"}
    assert value(found, "weir_cache_reads_total", result="hit", **cache) == 18
    assert value(found, "pulsar_ml_cache_evicted_entries_total", **cache) == 14
    assert value(found, "pulsar_ml_cache_hits_throughput", **cache) == 9 * 30 / 60
    assert value(found, "weir_quarantine_rows_total", reason_code="BAD_TOPIC") == 2
    late = {"reason_code": "TOO_LATE"}
    assert value(found, "weir_quarantine_rows_total", job="rate_limits", **late) == 1
    assert value(found, "weir_quarantine_rows_total", job="chunks", **late) == 0
    assert value(found, "weir_alerts_firing", alert="publish-limit", severity="warning") == 1
    assert value(found, "weir_producer_id_heap_bytes", broker="1") == 6000
    assert value(found, "weir_producer_id_heap_bytes", broker="2") == 400
    assert value(found, "weir_quality_expectations", result="held") == 2
    assert value(found, "weir_quality_expectations", result="failed") == 1
    assert value(found, "weir_policy_version", query="govern") == 1
    assert value(found, "weir_policy_edit_refused", query="govern") == 1
    assert value(found, "weir_chunk_events_total", cluster="east", outcome="COMPLETE") > 0
    assert value(found, "weir_coverage_received_records_total", broker="b1") == 7
    numbers = {
        result: value(found, "weir_reconcile_numbers", broker="b1", result=result)
        for result in ("agree", "differ", "not_compared")
    }
    assert numbers == {"agree": 2, "differ": 1, "not_compared": 1}  # of the newest minute
    ended_s = value(found, "weir_reconcile_compared_timestamp_seconds", broker="b1")
    assert ended_s == START_MS / 1000 + 120
    limits = {
        dict(have)["result"]: count
        for (name, have), count in found.items()
        if name == "weir_forecast_limits"
    }
    assert limits == {"breached": 1, "expected": 1, "unknown": 1, "none": 1}
    forecast = {"kind": "backlog_size", "cluster": "east", "entity": TOPIC}
    assert value(found, "weir_forecast_breach_timestamp_seconds", **forecast) == (
        START_MS / 1000 + 60
    )
    assert value(found, "weir_forecast_predicted_ratio", **forecast) == 1.5
    assert value(found, "weir_forecast_error_ratio", **forecast) == 0.25
    assert [
        name
        for name, have in found
        if name.startswith("weir_forecast_") and dict(have).get("entity") == OTHER
    ] == []
    assert value(found, "weir_forecast_known_timestamp_seconds") == START_MS / 1000 + 60
    shadow = {"cluster": "east", "policy": "next"}
    assert value(found, "weir_shadow_effects_total", **shadow, measure="pauses") == 3
    assert value(found, "weir_shadow_effects_total", **shadow, measure="victim_s") == 6
    live = {**shadow, "policy": "live", "measure": "pauses"}
    assert value(found, "weir_shadow_effects_total", **live) == sum(
        row["limited_times"] for row in rows["topic_throttle_stats"]
    )
    blind = "weir_coverage_blind_until_timestamp_seconds"
    assert value(found, blind, broker="b1", job="chunks") == START_MS / 1000 + 120
    assert value(found, "weir_query_phase_seconds_total", query="govern", phase="addBatch") == 2.1
    assert value(found, "weir_query_requests_total", query="govern", request="put") == 12
    assert value(found, "weir_query_newest_event_timestamp_seconds") == 1_699_999_998.0
    assert value(found, "weir_published_messages_total", broker="b1") == 600 * len(
        rows["topic_throttle_stats"]
    )
    assert value(found, "weir_topic_paused_seconds_total", topic=TOPIC, role="culprit") == 12


@pytest.mark.usefixtures("both_sizes")
@pytest.mark.parametrize("seed", range(2))
def test_rows_may_be_committed_in_any_pieces_and_compacted_meanwhile(
    seed: int, at_once: Found, make_settings: MakeSettings
) -> None:
    settings = make_settings(metrics=FOR_EVER)
    dice = random.Random(seed)
    exporter = Exporter(settings, silent)
    before: Found = {}
    left = every()
    began = False
    while any(left.values()):
        for name in left:
            count = dice.randrange(1 + len(left[name]) + len(left[name]) // 2)
            if count:
                write(settings.warehouse, name, left[name][:count])
                left[name] = left[name][count:]
                began = True
                if dice.random() < 0.3:
                    DeltaTable(f"{settings.warehouse}/{name}").optimize.compact()
        if not began:
            continue
        assert exporter.refresh() == []
        now = read(exporter)
        for key, was in before.items():
            if key[0].endswith("_total"):
                assert now.get(key, was) >= was, key
        before = now
    assert before == whole(settings) == at_once


def test_compaction_and_restarts_leave_every_value(rows: Rows, make_settings: MakeSettings) -> None:
    settings = make_settings()
    exporter = Exporter(settings, silent)
    for part in halves():
        fill(settings.warehouse, part)
        exporter.refresh()
    expected = read(exporter)
    for name in rows:
        DeltaTable(f"{settings.warehouse}/{name}").optimize.compact()
    exporter.refresh()
    assert read(exporter) == expected == whole(settings)
    for name in rows:
        table = DeltaTable(f"{settings.warehouse}/{name}")
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    exporter.refresh()
    assert read(exporter) == expected == whole(settings)


def test_files_that_are_read_as_an_arrow_dataset_give_the_same(
    at_once: Found, tmp_warehouse: str, make_settings: MakeSettings
) -> None:
    # DuckDB would expand the star; so is it in object stores.
    odd = make_settings(metrics=FOR_EVER, warehouse=tmp_warehouse + "-*")
    exporter = Exporter(odd, silent)
    for part in halves():
        fill(odd.warehouse, part)
        exporter.refresh()
    assert read(exporter) == at_once


def test_a_table_that_is_made_anew_is_read_from_its_start(make_settings: MakeSettings) -> None:
    settings = make_settings()
    exporter = Exporter(settings, silent)
    path = f"{settings.warehouse}/topic_throttle_stats"
    write(settings.warehouse, "topic_throttle_stats", [topic_window(0, TOPIC, "culprit", 5)])
    exporter.refresh()
    shutil.rmtree(path)
    write(settings.warehouse, "topic_throttle_stats", [topic_window(0, TOPIC, "culprit", 2)])
    assert exporter.refresh() == []
    assert value(read(exporter), "weir_topic_pauses_total", topic=TOPIC, role="culprit") == 2
    table = DeltaTable(path)
    table.update({"limited_times": "7"})  # rows rewritten, as a repair would
    assert exporter.refresh() == []
    assert value(read(exporter), "pulsar_publish_rate_limit_times", topic=TOPIC) == 7
    table.delete()
    exporter.refresh()
    assert value(read(exporter), "pulsar_publish_rate_limit_times", topic=TOPIC) == 7
    assert ("weir_topic_pauses_total",) not in {(name,) for name, _ in whole(settings)}


def test_the_state_of_a_table_is_that_of_its_newest_version(make_settings: MakeSettings) -> None:
    settings = make_settings()
    exporter, name = Exporter(settings, silent), "topic_throttle_stats"
    for minute in range(3):
        write(settings.warehouse, name, [topic_window(minute, TOPIC, "culprit", 5)])
        assert exporter.refresh() == []
        found = {
            sample.name: sample.value
            for metric in exporter.collect()
            for sample in metric.samples
            if sample.labels.get("table") == name
        }
        assert found["weir_table_rows"] == found["weir_table_files"] == minute + 1


def test_a_connection_stays_paused_between_readings(make_settings: MakeSettings) -> None:
    settings = make_settings()
    exporter = Exporter(settings, silent)
    paused = []
    for at_ms, action in ((1, "mark"), (2, "unmark"), (3, "mark"), (4, "mark"), (5, "unmark")):
        write(settings.warehouse, "throttle_events", [event(at_ms, action)])
        exporter.refresh()
        found = read(exporter)
        name = "pulsar_broker_connection_rate_limit_count_total"
        paused.append(
            (
                value(found, "pulsar_broker_throttled_connections"),
                *(
                    value(found, name, pulsar_connection_rate_limit_operation_name=operation)
                    for operation in ("paused", "resumed")
                ),
            )
        )
    assert paused == [(1, 1, 0), (0, 1, 1), (1, 2, 1), (1, 2, 1), (0, 2, 2)]


def test_entities_appear_with_a_breach_go_when_idle_and_the_rest_is_other(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(metrics={"top": 2, "idle_s": 600})
    exporter = Exporter(settings, silent)

    def pauses(*rows: dict[str, Any]) -> dict[str, float]:
        write(settings.warehouse, "topic_throttle_stats", list(rows))
        exporter.refresh()
        found: dict[str, float] = {}
        for (name, labels), count in read(exporter).items():
            if name == "pulsar_publish_rate_limit_times":
                found[dict(labels)["topic"]] = count
        return found

    assert pauses(window(0)) == {}
    assert pauses(topic_window(1, "a", "culprit", 3), topic_window(1, "b", "collateral", 5)) == {
        "a": 3,
        "b": 5,
    }
    # No place is free, and it weighs less than both.
    assert pauses(topic_window(2, "c", "collateral", 1)) == {"a": 3, "b": 5, "other": 1}
    # A culprit takes the place of a victim; what went into `other` stays there.
    assert pauses(topic_window(3, "c", "culprit", 2)) == {"a": 3, "c": 2, "other": 1}
    assert pauses(topic_window(4, "b", "collateral", 1)) == {"a": 3, "c": 2, "other": 2}
    # Ten minutes after their last breach they go, and come back where they were.
    assert pauses(window(12)) == {"c": 2, "other": 2}
    assert pauses(window(14)) == {"other": 2}
    assert pauses(topic_window(15, "a", "culprit", 1)) == {"a": 4, "other": 2}


def test_topic_level_metrics_of_backlogs_can_be_switched_off(
    rows: Rows, make_settings: MakeSettings
) -> None:
    settings = make_settings(backlog={"exposeTopicLevelMetricsInPrometheus": False})
    fill(
        settings.warehouse,
        {"backlog_checks": rows["backlog_checks"], "backlog_evictions": rows["backlog_evictions"]},
    )
    found = {key: v for key, v in whole(settings).items() if "storage_backlog" in key[0]}
    assert found and all("topic" not in dict(labels) for _, labels in found)
    assert "pulsar_storage_backlog_age_seconds" not in {name for name, _ in found}


def checked(topic: str, at_ms: int, **changes: Any) -> dict[str, Any]:
    """A check of a topic, with its usage where it has limits."""
    row = check(topic, at_ms, **changes)
    for usage, used, limit in (
        ("size_usage", "backlog_bytes", "limit_bytes"),
        ("time_usage", "age_s", "limit_s"),
    ):
        row[usage] = row[used] / row[limit] if row.get(limit) else None
    return {column: row.get(column) for column in _columns("backlog_checks")}


def subscribed(topic: str, at_ms: int, subscription: str, seconds: float | None) -> dict[str, Any]:
    """A check of a subscription, with the time in which it reaches the quota of its topic."""
    row = {
        **COMMON,
        "cluster": "east",
        "topic": topic,
        "pass_ms": START_MS + at_ms,
        "ts_wall_ms": START_MS + at_ms,
        "subscription": subscription,
        "time_to_quota_s": seconds,
    }
    return {column: row.get(column) for column in _columns("backlog_subscriptions")}


def test_a_topic_near_a_quota_has_its_age_limit_and_size_before_it_breaches(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    write(
        settings.warehouse,
        "backlog_checks",
        [
            checked(topic, 0, age_s=age, limit_s=100, backlog_bytes=size, limit_bytes=1000)
            for topic, age, size in (
                ("half", 50, 0),
                ("old", 95, 1),
                ("big", 1, 950),
                ("few", 49, 499),
            )
        ],
    )
    found = whole(settings)
    for name, of_topics in (
        ("pulsar_storage_backlog_age_seconds", {"half": 50, "old": 95, "big": 1}),
        ("pulsar_storage_backlog_size", {"half": 0, "old": 1, "big": 950, "other": 499}),
        ("pulsar_storage_backlog_quota_limit", dict.fromkeys(("half", "old", "big"), 1000)),
        ("pulsar_storage_backlog_quota_limit_time", dict.fromkeys(("half", "old", "big"), 100)),
    ):
        assert {
            dict(labels)["topic"]: v for (metric, labels), v in found.items() if metric == name
        } == of_topics, name
    assert value(found, "weir_quota_used_ratio", kind="backlog_age", entity="old") == 0.95
    assert value(found, "weir_quota_breaches_total", kind="backlog_age", entity="old") == 0
    assert value(found, "weir_backlog_dropped_entries_total", topic="old", quota_type="size") == 0
    # The share is a setting.
    found = whole(make_settings(warehouse=settings.warehouse, metrics={"share": 0.96}))
    assert {
        dict(labels)["topic"]
        for (metric, labels) in found
        if metric == "pulsar_storage_backlog_age_seconds"
    } == set()


def test_a_topic_that_will_soon_reach_a_quota_has_series(make_settings: MakeSettings) -> None:
    settings = make_settings()
    write(
        settings.warehouse,
        "backlog_checks",
        [checked(topic, 0, age_s=1, limit_s=100) for topic in ("soon", "later", "never")],
    )
    write(
        settings.warehouse,
        "backlog_subscriptions",
        [
            subscribed("soon", 0, "fast", 3599.0),
            subscribed("soon", 0, "slow", 9000.0),
            subscribed("later", 0, "s", 3600.0),
            subscribed("never", 0, "s", None),
        ],
    )
    exporter = Exporter(settings, silent)
    exporter.refresh()
    found = read(exporter)
    assert {
        dict(labels)["topic"]: v
        for (metric, labels), v in found.items()
        if metric == "weir_backlog_time_to_quota_seconds"
    } == {"soon": 3599.0}
    assert value(found, "pulsar_storage_backlog_age_seconds", topic="soon") == 1
    write(settings.warehouse, "backlog_subscriptions", [subscribed("soon", 1, "fast", None)])
    exporter.refresh()
    assert "weir_backlog_time_to_quota_seconds" not in {name for name, _ in read(exporter)}


def test_a_breach_weighs_more_than_any_use_and_more_use_than_less(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(metrics={"top": 2})
    exporter = Exporter(settings, silent)

    def shown(*uses: tuple[str, int]) -> set[str]:
        write(
            settings.warehouse,
            "backlog_checks",
            [
                checked(topic, minute * 60_000, age_s=age, limit_s=100, exceeded_time=age > 100)
                for topic, age in uses
            ],
        )
        exporter.refresh()
        return {
            dict(labels)["topic"]
            for metric, labels in read(exporter)
            if metric == "pulsar_storage_backlog_age_seconds"
        }

    minute = 0
    assert shown(("a", 60), ("b", 70), ("c", 65)) == {"b", "c"}
    minute = 1
    assert shown(("over", 101), ("b", 70), ("c", 99)) == {"over", "c"}
    minute = 2
    assert shown(("b", 98), ("over", 10)) == {"over", "c"}


def test_a_topic_that_has_moved_counts_on_its_new_broker(make_settings: MakeSettings) -> None:
    settings = make_settings()
    for at_ms, broker, age in ((0, "b1", 95), (60_000, "b2", 60)):
        write(
            settings.warehouse,
            "backlog_checks",
            [{**checked(TOPIC, at_ms, age_s=age, limit_s=100), "broker": broker}],
        )
    assert {
        dict(labels)["broker"]: v
        for (metric, labels), v in whole(settings).items()
        if metric == "weir_quota_used_ratio"
    } == {"b2": 0.6}


def test_dropped_entries_are_counted_by_topic_and_sum_to_all(make_settings: MakeSettings) -> None:
    settings = make_settings(metrics={"top": 1})
    row = every()["backlog_evictions"][0]
    write(
        settings.warehouse,
        "backlog_evictions",
        [
            {
                **row,
                "topic": topic,
                "quota_type": quota,
                "entries_skipped": skipped,
                "phantom": skipped == 0,
            }
            for topic, quota, skipped in (
                ("a", "size", 5),
                ("a", "time", 2),
                ("b", "size", 3),
                ("c", "size", 0),
            )
        ],
    )
    assert {
        (dict(labels)["topic"], dict(labels)["quota_type"]): v
        for (metric, labels), v in whole(settings).items()
        if metric == "weir_backlog_dropped_entries_total"
    } == {
        ("a", "size"): 5,
        ("a", "time"): 2,
        ("other", "size"): 3,
        ("other", "time"): 0,
    }
    by_namespace = make_settings(
        warehouse=settings.warehouse,
        backlog={"exposeTopicLevelMetricsInPrometheus": False},
    )
    found = {
        key: v
        for key, v in whole(by_namespace).items()
        if key[0] == "weir_backlog_dropped_entries_total"
    }
    assert all("topic" not in dict(labels) for _, labels in found)
    assert sum(found.values()) == 10


def test_what_has_not_breached_is_in_other_for_sizes(make_settings: MakeSettings) -> None:
    settings = make_settings()
    write(
        settings.warehouse,
        "backlog_checks",
        [
            {
                c: {**check(topic, 0, age_s=1, backlog_bytes=size, exceeded_size=over)}.get(c)
                for c in _columns("backlog_checks")
            }
            for topic, size, over in ((TOPIC, 100, True), (OTHER, 30, False), ("x", 5, False))
        ],
    )
    found = whole(settings)
    assert {
        dict(labels)["topic"]: v
        for (name, labels), v in found.items()
        if name == "pulsar_storage_backlog_size"
    } == {TOPIC: 100, "other": 35}


def _columns(table: str) -> tuple[str, ...]:
    return TABLES[table].names


def test_the_largest_use_is_of_the_newest_window_whoever_wrote_it(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    exporter = Exporter(settings, silent)
    seen = []
    for minute, used in ((0, 90), (1, 30), (1, 50), (0, 99), (2, 10)):
        row = limiter(
            minute,
            f"t{used}",
            0.5,
            messages=used * 60,
            bytes=None,
            limit_msgs=100.0,
            limit_bytes=None,
            min_balance_msgs=1,
        )
        write(
            settings.warehouse,
            "limiter_stats",
            [{c: row.get(c) for c in _columns("limiter_stats")}],
        )
        exporter.refresh()
        seen.append(value(read(exporter), "weir_quota_used_ratio_max", kind="topic_msgs"))
    assert seen == pytest.approx([0.9, 0.3, 0.5, 0.5, 0.1])


def test_who_has_left_keeps_its_counter_and_loses_its_values(make_settings: MakeSettings) -> None:
    settings = make_settings()
    exporter = Exporter(settings, silent)
    seen = []
    for minute, name in ((0, "a"), (1, "b"), (2, "b"), (3, "b")):
        row = limiter(
            minute,
            name,
            1.5,
            messages=9000,
            bytes=None,
            limit_msgs=100.0,
            limit_bytes=None,
            min_balance_msgs=-1,
        )
        write(
            settings.warehouse,
            "limiter_stats",
            [{c: row.get(c) for c in _columns("limiter_stats")}],
        )
        exporter.refresh()
        found = read(exporter)
        assert value(found, "weir_quota_breaches_total", entity="a") == 1
        seen.append(
            {
                dict(labels)["entity"]
                for metric, labels in found
                if metric == "weir_quota_used_ratio"
            }
        )
    assert seen == [{"a"}, {"a", "b"}, {"b"}, {"b"}]


def test_counters_of_evictions_are_there_before_the_first(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings()
    write(settings.warehouse, "backlog_checks", [checked(TOPIC, 0, age_s=60, limit_s=100)])
    found = whole(settings)
    for kind in ("size", "time"):
        assert (
            value(
                found,
                "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
                quota_type=kind,
            )
            == 0
        )
        evicted = [
            v
            for (name, labels), v in found.items()
            if name == "pulsar_storage_backlog_quota_exceeded_evictions_total"
            and dict(labels)["quota_type"] == kind
        ]
        assert evicted == [0, 0]  # of the topic and of its namespace


def test_messages_that_expired_are_counted_by_topic(make_settings: MakeSettings) -> None:
    settings = make_settings()
    write(
        settings.warehouse,
        "backlog_subscriptions",
        [
            {**subscribed(topic, at, "s", None), "expired_unread": count}
            for topic, at, count in (("a", 0, 5), ("a", 60_000, 2), ("b", 0, None), ("c", 0, 0))
        ],
    )
    assert {
        dict(labels)["topic"]: v
        for (name, labels), v in whole(settings).items()
        if name == "weir_backlog_expired_unread_total"
    } == {"a": 7}


def test_no_series_names_a_topic_where_topic_level_metrics_are_off(
    copied: Settings, make_settings: MakeSettings
) -> None:
    shown = copied
    hidden = make_settings(
        warehouse=shown.warehouse, backlog={"exposeTopicLevelMetricsInPrometheus": False}
    )
    every, found = whole(shown), whole(hidden)
    topics = {dict(labels)["topic"] for _, labels in every if "topic" in dict(labels)}
    assert topics
    values = {label for _, labels in found for label in dict(labels).values()}
    assert not values & topics
    assert all("topic" not in dict(labels) for _, labels in found)
    for name in ("weir_topic_pauses_total", "weir_topic_paused_seconds_total"):
        sums = [
            sum(v for (metric, _), v in part.items() if metric == name) for part in (every, found)
        ]
        assert sums[0] == pytest.approx(sums[1]) and sums[0] > 0
    # A command without a configuration hides what the last run hid.
    last_configuration.keep(hidden.location, described(hidden, 1))
    assert whole(shown).keys() == found.keys()


def test_the_durations_of_the_brokers_checks_are_passed_on(make_settings: MakeSettings) -> None:
    settings = make_settings()
    fill(settings.warehouse, {"backlog_checks": [checked(TOPIC, 0, age_s=1)]})
    name = "pulsar_storage_backlog_quota_check_duration_seconds"
    assert not [metric for metric, _ in whole(settings) if metric.startswith(name)]
    newest = {
        "cluster": "east",
        "broker": "b1:8080",
        "checks": {"5.0": 7, "+Inf": 8, "count": 8, "sum": 12},
    }
    write_text(
        settings.location,
        RECONCILE,
        json.dumps({"scrapes": {"b1:8080": [{**newest, "checks": {}}, newest]}}),
    )
    found = whole(settings)
    assert value(found, f"{name}_count", broker="b1:8080") == 8
    assert value(found, f"{name}_sum", broker="b1:8080") == 12
    assert value(found, f"{name}_bucket", le="5.0") == 7
    assert value(found, f"{name}_bucket", le="+Inf") == 8
    exporter, registry = Exporter(settings, silent), CollectorRegistry(auto_describe=False)
    assert exporter.refresh() == []
    registry.register(exporter)
    shown = {m.name: m.type for m in plain_text(generate_latest(registry).decode())}
    assert shown[name] == "histogram" and f"{name}_bucket" not in shown
    write_text(settings.location, RECONCILE, "{")
    assert not [metric for metric, _ in whole(settings) if metric.startswith(name)]
