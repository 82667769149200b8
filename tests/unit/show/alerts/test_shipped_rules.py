"""The shipped rules: rows that fire each of them, and rows that do not."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
import yaml

from app.config.alert_rule import FindingRule
from app.config.alerts import AlertSettings
from app.config.settings import load_settings
from app.read.questions import QUESTIONS
from app.read.relations import QUERIES, STATES, Warehouse, connect
from app.show import alerts
from app.show.alerts.rule_files import KEYS, rules_of, shipped_rules, told_of
from app.show.alerts.sinks import WATCHDOG
from app.show.report.report_reader import ReportReader, ReportSpan
from app.show.report.told import told as findings_of
from app.tables.definitions import TABLES, VIEWS
from tests.support import report_warehouse
from tests.support.client_quota_rows import stats
from tests.support.ready_questions import predicted
from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window, write

MINUTE = 60_000
ROOT = Path(__file__).resolve().parents[4]
OF_NO_JOB, OF_JOBS = "docs/runbooks/*.md", "app/jobs/*/runbooks/*.md"
RULES = {rule.name: rule for rule in rules_of(AlertSettings())}


@pytest.fixture
def firing(make_settings, tmp_warehouse, capsys):
    """Writes rows and answers what fires of one rule: labels without cluster and broker, since."""

    def ask(rule, **tables):
        for name, rows in tables.items():
            write(tmp_warehouse, name, rows)
        capsys.readouterr()
        alerts.check(make_settings(), as_json=True, only=[rule])
        found = json.loads(capsys.readouterr().out)
        assert found["broken"] == [] and found["undelivered"] == []
        return [
            (
                {k: v for k, v in row["labels"].items() if k not in ("cluster", "broker")},
                row["since_ms"] - START_MS,
                row["summary"],
            )
            for row in found["firing"]
        ]

    return ask


def limiter(minute, **changes):
    """A quiet minute of a topic's bucket."""
    start = START_MS + minute * MINUTE
    return {
        **COMMON,
        "ts_wall_ms": start + MINUTE,
        "window_start_ms": start,
        "window_ms": MINUTE,
        "limiter": "topic",
        "limiter_name": TOPIC,
        "messages": 600,
        "bytes": None,
        "limit_msgs": 100.0,
        "limit_bytes": None,
        "max_level": None,
        "limit_level": None,
        "min_balance_msgs": 50,
        "min_balance_bytes": None,
        "throttles": 0,
        "max_waiting": 0,
        "utilisation": 0.1,
        **changes,
    }


def limiters(minutes, **changes):
    return [limiter(minute, **changes) for minute in minutes]


@pytest.mark.usefixtures("both_sizes")
def test_the_texts_of_alerts(make_settings, tmp_warehouse, capsys, golden):
    """Regenerate with `pytest --regenerate`."""
    report_warehouse.fill(tmp_warehouse)
    alerts.check(make_settings(), as_json=True)
    firing = json.loads(capsys.readouterr().out)["firing"]
    lines = sorted(f"{row['alert']} ({row['severity']}): {row['summary']}\n" for row in firing)
    golden("alerts/report_warehouse.txt", "".join(lines))


ABOUT = {"limiter": "topic", "entity": TOPIC}


@pytest.mark.parametrize("quota_type", ["produce", "fetch", "request", "controller_mutation"])
def test_a_client_over_its_quota_is_no_publish_limit(firing, quota_type):
    """The alerts on limits of Pulsar's publishing read the view of all quotas, by their own kinds."""
    over = [stats(minute, used=42, throttled=9, quota_type=quota_type) for minute in range(12)]
    quiet = [limiter(minute) for minute in range(12)]
    assert firing("publish-limit", limiter_stats=quiet, client_quota_stats=over) == []
    assert firing("client-throttled")


def test_no_rule_names_the_quotas_that_it_is_not_about():
    """Those of a new job would be of every such rule."""
    files = [*ROOT.glob("app/jobs/*/alerts/*.yaml"), *ROOT.glob("configs/alerts/*.yaml")]
    files.append(ROOT / "conf" / "prometheus" / "weir.rules.yml")
    texts = {str(path): path.read_text("utf-8") for path in files}
    assert len(texts) > 20
    excluding = re.compile(r"kind\s*(!~|!=|<>|NOT )")
    assert [path for path, text in texts.items() if excluding.search(text)] == []


def test_a_limit_that_is_nearly_used_up_for_five_minutes_fires(firing):
    near = {"messages": 4800}
    assert firing("publish-limit", limiter_stats=limiters(range(4), **near)) == []
    ((labels, since, summary),) = firing("publish-limit", limiter_stats=limiters([4], **near))
    assert (labels, since) == (ABOUT, 0)
    assert summary == (
        f"topic {TOPIC} on b1 (east) uses most of its limit, since 2023-11-14T22:14:00Z; lately"
        " 80 of 100 messages per s"
    )
    assert len(firing("publish-limit", limiter_stats=limiters([5], **near))) == 1
    assert firing("publish-limit", limiter_stats=limiters([6], messages=4799)) == []


def test_a_limit_that_is_reached_in_every_window_of_ten_minutes_is_critical(firing):
    empty = {"min_balance_msgs": 0}
    assert firing("publish-limit", limiter_stats=limiters(range(4), **empty)) == []
    ((*_, summary),) = firing("publish-limit", limiter_stats=limiters(range(4, 9), **empty))
    assert "uses most of its limit, since" in summary
    ((labels, since, summary),) = firing("publish-limit", limiter_stats=limiters([9], **empty))
    assert (labels, since) == (ABOUT, 0)
    assert "has reached its limit in every window of ten minutes, since" in summary
    assert firing("publish-limit", limiter_stats=limiters([10])) == []


@pytest.mark.parametrize(
    ("limit", "topic", "fires"),
    [
        ({"messages": 6000}, {}, True),
        ({"messages": 5999}, {}, False),
        ({"min_balance_msgs": 0}, {"culprit_ns": 30 * 10**9}, True),
        ({"min_balance_msgs": 0}, {"culprit_ns": 30 * 10**9 - 1}, False),
        (
            {
                "limiter": "connection",
                "limiter_name": "c1",
                "messages": None,
                "limit_msgs": None,
                "max_level": 9,
                "limit_level": 9,
            },
            {},
            False,
        ),
    ],
)
def test_a_window_at_its_limit_fires_at_once(firing, limit, topic, fires):
    found = firing(
        "publish-limit",
        limiter_stats=[limiter(0, **limit)],
        topic_throttle_stats=[window(0, **topic)],
    )
    assert [(labels, since) for labels, since, _ in found] == ([(ABOUT, 0)] if fires else [])


@pytest.mark.parametrize(
    ("kind", "marks", "named"),
    [
        (
            "topic",
            [{"producer_name": "p"}, {"producer_name": "p"}, {"producer_name": "q"}],
            "; mostly producer p",
        ),
        ("resource_group", [{"trigger_topic": OTHER}], f"; mostly topic {OTHER}"),
        ("broker", [], f"; mostly topic {TOPIC}"),
        ("broker", [{"trigger_topic": OTHER}], f"; mostly topic {OTHER}"),
        ("resource_group", [], "per s"),
    ],
)
def test_who_uses_a_limit_is_named(firing, kind, marks, named):
    rows = [
        event(1000 + i, "mark", limiter=kind, limiter_name=TOPIC, **changes)
        for i, changes in enumerate(marks)
    ]
    ((*_, summary),) = firing(
        "publish-limit",
        limiter_stats=[limiter(0, limiter=kind, messages=6000)],
        topic_throttle_stats=[window(0), window(0, topic=OTHER, messages=1)],
        throttle_events=rows,
    )
    assert summary.endswith(named)


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({"collateral_ns": 6_000_000_000}, True),
        ({"collateral_ns": 5_999_999_999}, False),
        ({"collateral_ns": 6_000_000_000, "culprit_ns": 1}, False),
    ],
)
def test_a_topic_that_waits_for_others_fires_after_two_minutes(firing, changes, fires):
    rows = [window(0, **changes)]
    pauses = [event(1000, "mark", culprit_topic="c", collateral_topics=[TOPIC])]
    assert firing("noisy-neighbour-victim", topic_throttle_stats=rows, throttle_events=pauses) == []
    found = firing("noisy-neighbour-victim", topic_throttle_stats=[window(1, **changes)])
    assert [(labels, since) for labels, since, _ in found] == (
        [({"topic": TOPIC}, 0)] if fires else []
    )
    assert all(summary.endswith("; lately because of c") for *_, summary in found)
    assert firing("noisy-neighbour-victim", topic_throttle_stats=[window(2)]) == []


@pytest.mark.parametrize(
    ("shadow_ns", "live", "fires"),
    [
        (6_000_000_000, {}, True),
        (5_999_999_999, {}, False),
        (6_000_000_000, {"limited_times": 1}, False),
        (6_000_000_000, None, True),
    ],
)
def test_a_topic_that_only_a_shadow_pauses_fires_after_two_minutes(firing, shadow_ns, live, fires):
    def minute(at):
        shadow = {**window(at, limited_times=1, culprit_ns=shadow_ns), "policy": "next"}
        other = window(at, topic="other") if live is None else window(at, **live)
        return {"shadow_topic_throttle_stats": [shadow], "topic_throttle_stats": [other]}

    assert firing("shadow-throttles", **minute(0)) == []
    found = firing("shadow-throttles", **minute(1))
    assert [(labels, since) for labels, since, _ in found] == (
        [({"policy": "next", "topic": TOPIC}, 0)] if fires else []
    )
    assert firing("shadow-throttles", **minute(2)) == found
    quiet = {**window(3), "policy": "next"}
    assert firing("shadow-throttles", shadow_topic_throttle_stats=[quiet]) == []


def cache(minute, hits, misses=0, **changes):
    start, counts = (
        START_MS + minute * MINUTE,
        [
            "hit_bytes",
            "miss_bytes",
            "inserted",
            "evicted_time",
            "evicted_size",
            "invalidated",
            "evicted_wanted",
            "extended",
            "stashed",
            "passes_size",
            "entries_visited",
            "entries",
            "used_bytes",
            "wanted_bytes",
            "non_evictable_bytes",
            "max_used_bytes",
        ],
    )
    reads = hits + misses
    return {
        **COMMON,
        **dict.fromkeys(counts, 0),
        "job": "entry_cache",
        "ts_wall_ms": start + MINUTE,
        "policy": "fifo",
        "max_bytes": None,
        "window_start_ms": start,
        "window_ms": MINUTE,
        "topic": None,
        "hits": hits,
        "misses": misses,
        "hit_ratio": hits / reads if reads else None,
        **changes,
    }


@pytest.mark.parametrize(
    ("before", "after", "fires"),
    [
        ((90, 10), (40, 60), True),
        ((90, 10), (45, 55), False),
        ((90, 10), (4, 6), False),
        ((19, 81), (0, 100), False),
    ],
)
def test_a_cache_that_finds_less_than_half_of_the_usual_fires(firing, before, after, fires):
    usual = [cache(minute, *before) for minute in range(20)]
    rows = [*usual, *(cache(minute, *after) for minute in range(20, 24))]
    assert firing("cache-hit-drop", cache_stats=rows) == []
    found = firing("cache-hit-drop", cache_stats=[cache(24, *after)])
    expected = [({"policy": "fifo", "size": "unbounded"}, 20 * MINUTE)] if fires else []
    assert [(labels, since) for labels, since, _ in found] == expected
    assert firing("cache-hit-drop", cache_stats=[cache(25, *before)]) == []


def checkpoint(warehouse, query, batches, committed, ago_s):
    """A checkpoint whose batches began, and were committed, so many seconds ago."""
    for log, count in (("offsets", batches), ("commits", committed)):
        folder = Path(warehouse, "_weir", "checkpoints", query, log)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            file = folder / str(number)
            file.write_text("v1\n")
            at = time.time() - ago_s
            os.utime(file, (at, at))


@pytest.mark.parametrize(
    ("archive", "govern", "stalled"),
    [
        ((3, 3, 1), (3, 3, 500), []),
        ((3, 3, 1), (3, 3, 700), ["govern"]),
        ((3, 3, 10_000), (3, 3, 10_100), []),
        ((3, 2, 500), (3, 3, 1), []),
        ((3, 2, 700), (3, 3, 100), ["archive"]),
        ((1, 0, 700), (1, 0, 700), ["archive", "govern"]),
    ],
)
def test_a_query_without_progress_fires(firing, tmp_warehouse, archive, govern, stalled):
    checkpoint(tmp_warehouse, "archive", *archive)
    checkpoint(tmp_warehouse, "govern", *govern)
    found = firing("query-stalled")
    assert [labels for labels, *_ in found] == [{"query": name} for name in stalled]


@pytest.mark.parametrize(
    ("ago_s", "states"),
    [
        (2, []),
        (240, []),  # ordinary batches of a loaded machine leave no row
        (400, ["pending"]),
        (700, ["pending", "firing"]),
    ],
)
def test_an_ordinary_batch_is_no_pending_alert(make_settings, tmp_warehouse, capsys, ago_s, states):
    checkpoint(tmp_warehouse, "govern", 3, 2, ago_s)
    alerts.check(make_settings(), as_json=True, only=["query-stalled"])
    assert [row["state"] for row in json.loads(capsys.readouterr().out)["changes"]] == states


def test_the_progress_of_queries_is_a_relation(tmp_warehouse):
    checkpoint(tmp_warehouse, "govern", 12, 11, 60)
    with connect(Warehouse(tmp_warehouse), f"SELECT * FROM {QUERIES}") as connection:
        rows = connection.execute(
            f"SELECT query, batch, is_open, begun_ms = committed_ms OR begun_ms > 0 FROM {QUERIES}"
        ).fetchall()
    assert rows == [("govern", 11, True, True)]


@pytest.fixture
def now_ms():
    """The minute that runs. Commits are at the machine's time, so these tests are as well."""
    return time.time_ns() // 1_000_000 // MINUTE * MINUTE


def refused(at_ms, count=1, code="UNPARSEABLE", job=None):
    row = {
        "reason_code": code,
        "detail": "topic",
        "job": job,
        "source_feed": "contract",
        "cluster": "east",
        "broker": "b1",
        "seq": 1,
        "ts_wall_ms": START_MS,
        "source_partition": "0",
        "source_offset": 1,
        "raw": "{",
        "ingest_ms": at_ms,
    }
    return [row] * count


@pytest.mark.parametrize(
    ("minutes_ago", "counts", "fires"),
    [
        ([1], {"UNPARSEABLE": 100}, True),
        ([1], {"UNPARSEABLE": 99}, False),
        ([2, 1], {"UNPARSEABLE": 60}, False),
        ([1], {"TOO_LATE": 100, "DUPLICATE_RECORD": 100}, False),
        ([9], {"UNPARSEABLE": 100}, False),
    ],
)
def test_a_minute_with_a_hundred_broken_records_fires_for_five(
    firing, now_ms, minutes_ago, counts, fires
):
    rows = [
        row
        for ago in minutes_ago
        for code, count in counts.items()
        for row in refused(now_ms - ago * MINUTE, count, code)
    ]
    found = firing("quarantine-spike", quarantine=rows)
    assert [(labels, since + START_MS) for labels, since, _ in found] == (
        [({"reason_code": "UNPARSEABLE", "source_feed": "contract"}, now_ms - MINUTE)]
        if fires
        else []
    )


@pytest.mark.parametrize(
    ("minutes_ago", "count", "fires"),
    [
        ([4, 3, 2, 1], 10, True),
        ([4, 3, 2, 1], 9, False),
        ([4, 3, 1], 10, False),
        ([2, 1], 10, False),
    ],
)
def test_records_that_are_late_for_three_minutes_fire(firing, now_ms, minutes_ago, count, fires):
    # The minutes that run and follow count as well: the test may take that long.
    minutes = [*minutes_ago, 0, -1, -2] if fires else minutes_ago
    rows = [
        row
        for ago in minutes
        for row in refused(now_ms - ago * MINUTE, count, "TOO_LATE", "chunks")
    ]
    found = firing("records-too-late", quarantine=rows)
    assert [(labels, since + START_MS) for labels, since, _ in found] == (
        [({"job": "chunks"}, now_ms - 4 * MINUTE)] if fires else []
    )


def lost(ended, job, blind_minutes, **changes):
    """A gap of a minute that dropped 7 events."""
    end_ms = START_MS + ended * MINUTE
    return {
        "cluster": "east",
        "broker": "b1",
        "source_feed": "interceptor",
        "seq": ended,
        "ts_wall_ms": end_ms,
        "gap_from_wall_ms": end_ms - MINUTE,
        "dropped": 7,
        "job": job,
        "blind_until_ms": end_ms + blind_minutes * MINUTE,
        **changes,
    }


def read(minute):
    return {
        "cluster": "east",
        "broker": "b1",
        "minute_ms": START_MS + minute * MINUTE,
        "received": 1,
        "quarantined": 0,
    }


def test_a_gap_fires_as_long_as_a_job_is_blind(firing):
    gaps = [lost(2, "rate_limits", 1), lost(2, "chunks", 3), lost(2, "chunks", 3)]
    ((labels, since, summary),) = firing(
        "coverage-gap", coverage_gaps=gaps, coverage_counts=[read(0), read(3)]
    )
    assert (labels, since) == ({"source_feed": "interceptor"}, MINUTE)
    assert summary.endswith("7 in a gap at most; lately blind: chunks, rate_limits")
    assert firing("coverage-gap", coverage_counts=[read(5)]) == []


def poll(minute, feed="kafka_groups", **changes):
    """A poll that was not answered."""
    return {
        "cluster": "east",
        "source_feed": feed,
        "seq": minute,
        "ts_wall_ms": START_MS + minute * MINUTE,
        "gap_from_wall_ms": START_MS + minute * MINUTE - 1000,
        "dropped": None,
        "problem": "Connection refused",
        **changes,
    }


ANSWERED = {"dropped": 0, "problem": None}
SILENT = [poll(0, **ANSWERED), *(poll(minute) for minute in (1, 2, 3, 4))]


def test_a_cluster_that_answers_no_poll_fires(firing):
    ((labels, since, summary),) = firing("cluster-not-answering", coverage_polls=SILENT)
    assert (labels, since) == ({"source_feed": "kafka_groups"}, MINUTE - 1000)
    assert summary.endswith("Connection refused")


@pytest.mark.parametrize(
    "polls",
    [
        [SILENT[0], poll(1), poll(2, **ANSWERED), poll(3), poll(4, **ANSWERED)],
        [*SILENT, poll(5, dropped=3), poll(9, **ANSWERED)],
        [*SILENT, poll(5, **ANSWERED), poll(9, "kafka_producers", **ANSWERED)],
    ],
    ids=["now and then", "a part of it", "again"],
)
def test_a_cluster_that_answers_does_not_fire(firing, polls):
    assert firing("cluster-not-answering", coverage_polls=polls) == []


def compared(minute, difference, **changes):
    """A minute of a counter that the broker has at 100."""
    return {
        "compared_ms": START_MS,
        "cluster": "east",
        "broker": "b1",
        "topic": TOPIC,
        "measure": "messages_in",
        "compared_job": "rate_limits",
        "broker_value": 100,
        "window_start_ms": START_MS + minute * MINUTE,
        "window_ms": MINUTE,
        "weir_value": 100 - difference,
        "difference": difference,
        "bound": 0,
        "reason": None,
        **changes,
    }


OF_LIMITS = {
    "topic": None,
    "broker": "*",
    "user": "etl",
    "client": "",
    "measure": "producer_byte_rate",
}
OF_LOG = {"topic": None, "user": "etl", "client": "app", "measure": "produce_agreeing"}
OF_KAFKA = {"topic": "orders", "partition": 3, "group": "billing", "measure": "log_end"}


@pytest.mark.parametrize(
    ("rows", "fires"),
    [
        ([compared(n, 2) for n in range(12)], True),  # 2 %
        ([compared(n, 1) for n in range(12)], False),  # 1 %
        ([compared(n, -2) for n in range(12)], True),
        ([compared(n, 2) for n in range(9)], False),  # not for ten minutes
        (
            [compared(n, 20 if n % 2 else -20) for n in range(1, 13)],
            False,
        ),  # timing: they cancel out
        ([compared(n, 3, bound=2) for n in range(12)], False),  # 36 < 24 + 12
        ([compared(n, 4, bound=2) for n in range(12)], True),
        ([compared(n, 50, reason="GAP") for n in range(12)], False),
        # Of the cache only the two ends of the hour are in doubt.
        ([compared(n, 4, bound=20, measure="cache_misses", topic=None) for n in range(30)], True),
        ([compared(n, 4, bound=90, measure="cache_misses", topic=None) for n in range(30)], False),
        # Of Kafka a difference has no cause in timing, however large the number is.
        ([compared(n, 1, **OF_KAFKA, broker_value=10**9) for n in range(12)], True),
        ([compared(n, int(n == 3), **OF_KAFKA) for n in range(20)], False),
        (
            [
                compared(n, int(n == 3), **{**OF_KAFKA, "measure": "lost_offsets"})
                for n in range(20)
            ],
            True,
        ),
        ([compared(n, 0, **OF_KAFKA) for n in range(12)], False),
        # A limit is no count: one that was set right again is over.
        ([compared(n, 1, **OF_LIMITS, broker_value=10**6) for n in range(12)], True),
        ([compared(n, 90 if n < 6 else 0, **OF_LIMITS) for n in range(12)], False),
        # Requests that both decide alike add up, and so does what is explained.
        ([compared(n, 5, **OF_LOG, bound=3) for n in range(12)], True),
        ([compared(n, 5, **OF_LOG, bound=4) for n in range(12)], False),
    ],
)
def test_numbers_that_differ_from_the_brokers_for_ten_minutes(firing, rows, fires):
    found = firing("reconciliation-differs", reconciliation=rows)
    assert [labels for labels, _, _ in found] == (
        [
            {
                "topic": rows[0]["topic"] or "all topics",
                "measure": rows[0]["measure"],
                "partition": str(rows[0].get("partition", "")),
                "group": rows[0].get("group", ""),
                "user": rows[0].get("user", ""),
                "client": rows[0].get("client", ""),
            }
        ]
        if fires
        else []
    )
    of = "orders/3 for group billing" if "group" in rows[0] else rows[0]["topic"] or "all topics"
    of = " ".join(filter(None, (rows[0].get("user"), rows[0].get("client")))) or of
    assert all(f" of {of} on {rows[0]['broker']} " in summary for *_, summary in found)


def foreseen(hour, days, **changes):
    """A forecast of an hour, of a breach so many days later."""
    at = START_MS + hour * 60 * MINUTE
    breach_ms = None if days is None else at + round(days * 1440 * MINUTE)
    return predicted(
        0,
        known_ms=at,
        made_ms=at,
        for_ms=at + 4 * 1440 * MINUTE,
        breach_ms=breach_ms,
        **{"mean_error": 0.09, **changes},
    )


def test_a_breach_that_is_expected_soon_by_a_trend_that_was_right_fires(firing):
    rule = "breach-forecast"
    assert (
        firing(
            rule,
            forecasts=[
                foreseen(0, 3),
                foreseen(0, 1, mean_error=0.1, entity="unsure"),
                foreseen(0, 1, breached=True, entity="full"),
                foreseen(0, None, entity="flat"),
            ],
        )
        == []
    )
    ((labels, since, summary),) = firing(rule, forecasts=[foreseen(1, 2.5, predicted=1.25)])
    assert (labels, since) == ({"kind": "backlog_size", "entity": TOPIC}, 60 * MINUTE)
    assert summary == (
        f"{TOPIC} (east) is expected since 2023-11-14T23:14:00Z to reach its limit of backlog_size,"
        " at 2023-11-17T11:14Z: its highest use of a day will be 125% of the"
        " limit, with a mean error of 9.0% in 4 past forecasts"
    )
    # It lasts until a forecast does not expect it any more.
    ((_, since, _),) = firing(rule, forecasts=[foreseen(2, 2.5)])
    assert since == 60 * MINUTE
    assert firing(rule, forecasts=[foreseen(3, None)]) == []


def command(minute, **changes):
    at = START_MS + minute * MINUTE
    return {
        **COMMON,
        "ts_wall_ms": at,
        "cnx_id": "c1",
        "producer_id": 1,
        "producer_name": "p",
        "topic": TOPIC,
        "partition": None,
        "reason": "TopicProduceQuotaExceeded",
        "start_ms": at,
        "pause_ms": 500,
        "end_ms": at + 500,
        "request_id": 1,
        "throttled_ms_total": 500,
        "sequence_id": None,
        "exception": None,
        **changes,
    }


def test_a_send_that_times_out_fires_for_five_minutes(firing):
    rule, other = "producer-send-timeouts", {"sequence_id": 7, "exception": "TimeoutException"}
    timeout = {**other, "exception": "ProducerThrottledException"}
    quiet, without = [window(0)], [command(0), command(0, **other)]
    assert firing(rule, producer_throttle=without, topic_throttle_stats=quiet) == []
    found = firing(rule, producer_throttle=[command(0, **timeout)], topic_throttle_stats=[])
    assert [(labels, since) for labels, since, _ in found] == [({"topic": TOPIC}, 0)]
    assert found[0][2].endswith("1 in a minute at most; lately of p")
    assert firing(rule, topic_throttle_stats=[window(5)]) == []


def expectation(at_ms, success, **changes):
    return {
        "run_id": f"r{at_ms}",
        "checked_ms": START_MS + at_ms,
        "table": "events",
        "expectation": "unique",
        "column": None,
        "success": success,
        "observed": "{}",
        "unexpected_count": 0,
        **changes,
    }


def test_an_audit_that_fails_fires_until_the_next_one_of_the_table(firing):
    rule = "quality-check-failed"
    assert firing(rule, quality_results=[expectation(0, True)]) == []
    bad = [expectation(1000, False), expectation(1000, True, expectation="in range")]
    ((labels, since, summary),) = firing(rule, quality_results=bad)
    assert (labels, since) == ({"table_name": "events"}, 1000)
    assert summary.endswith("1 expectations at most; lately unique")
    assert len(firing(rule, quality_results=[expectation(2000, True, table="alerts")])) == 1
    assert firing(rule, quality_results=[expectation(3000, True)]) == []


def held(minute, mib, user="etl", broker="1"):
    """A row of a broker whose producer states take so much."""
    return {
        "polled_ms": START_MS + minute * MINUTE,
        "cluster": "east",
        "broker": broker,
        "topic": "orders",
        "user": user,
        "live_ids": 9,
        "states": 9,
        "heap_bytes": 1 << 20,
        "broker_heap_bytes": mib << 20,
        "number": minute + 1,
    }


def test_producer_states_that_fill_the_heap_fire_until_they_are_fewer(firing):
    rule = "producer-id-heap"
    assert firing(rule, producer_id_live=[held(0, 255)]) == []
    ((labels, since, summary),) = firing(rule, producer_id_live=[held(1, 256, "web")])
    assert (labels, since) == ({}, MINUTE)
    assert "take 256 MiB of the heap of broker 1 (east)" in summary and summary.endswith("of web")
    # Silence ends nothing before the rows that come every 15 minutes have been missed twice.
    assert len(firing(rule, producer_id_live=[held(16, 300), held(30, 1, broker="2")])) == 1
    assert firing(rule, producer_id_live=[held(31, 255)]) == []


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_a_page_with_its_meaning_how_to_confirm_it_and_what_to_do(name):
    rule = RULES[name]
    (file,) = (file for file in shipped_rules() if file.name == f"{name}.yaml")
    place = "docs" if file.parent == ROOT / "configs/alerts" else f"app/jobs/{file.parts[-3]}"
    assert rule.runbook == f"{place}/runbooks/{name}.md"
    page = (ROOT / rule.runbook).read_text("utf-8")
    parts = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert page.startswith(f"# {name}\n\n") and parts == ["How to confirm", "What to do"]
    assert "resolved" in page


def test_every_page_has_a_rule_here_or_in_prometheus():
    prometheus = (ROOT / "conf" / "prometheus" / "weir.rules.yml").read_text("utf-8")
    theirs = set(re.findall(r"runbook: .+/runbooks/([\w-]+)\.md", prometheus))
    pages = {path.stem for path in (*ROOT.glob(OF_NO_JOB), *ROOT.glob(OF_JOBS))}
    assert pages == {*RULES, *theirs}


@pytest.mark.parametrize("name", RULES)
def test_the_queries_of_a_page_run(name, tmp_warehouse):
    Path(tmp_warehouse, "_weir").mkdir(parents=True)
    page = (ROOT / RULES[name].runbook).read_text("utf-8")
    queries = [
        text.replace('\\"', '"') for text in re.findall(r' query "\n(.*?)"\n', page, re.DOTALL)
    ]
    named = re.findall(r" query ([a-z-]+)$", page, re.MULTILINE)
    assert queries or named
    assert {*named} <= {question.name for question in QUESTIONS.values()}
    for sql in queries:
        with connect(Warehouse(tmp_warehouse), sql) as connection:
            connection.execute(sql)


def test_every_rule_reads_the_tables_of_the_warehouse_and_has_a_summary():
    known = {*TABLES, *VIEWS, STATES, QUERIES}
    for rule in RULES.values():
        assert known & set(re.findall(r"\w+", rule.sql)), rule.name
        assert "{since}" in rule.summary, rule.name


NAMES = {
    *("cluster", "broker", "topic", "subscription", "consumer", "group", "partition", "producer"),
    *(
        "entity",
        "limiter",
        "limiter_name",
        "quota",
        "quota_type",
        "principal",
        "client",
        "client_id",
    ),
    *("user", "kind", "policy", "size", "bound_level", "source_feed", "state", "table_name", "job"),
    *("reason_code", "query", "measure"),
}


@pytest.mark.parametrize("name", RULES)
def test_an_alert_is_known_by_names_and_not_by_words_that_change(name, tmp_warehouse):
    Path(tmp_warehouse, "_weir").mkdir(parents=True)
    rule = RULES[name]
    with connect(Warehouse(tmp_warehouse), rule.sql) as connection:
        shown = [column[0] for column in connection.execute(rule.sql).description]
    own = {*shown} - {"start_ms", "end_ms", "value", "severity"}
    assert {*(own if rule.labels is None else rule.labels)} <= NAMES


def test_the_rule_and_the_configuration_of_the_page_on_alerts_are_valid(make_settings, tmp_path):
    page = (ROOT / "docs" / "alerts.md").read_text("utf-8")
    rules, finding, config, manager = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (route,) = yaml.safe_load(manager)["route"]["routes"]
    assert route["matchers"] == [f"alertname = {WATCHDOG}"]
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "ours.yaml").write_text(rules + finding)
    (tmp_path / "weir.yaml").write_text(config.replace(", rules/shared", ""))
    settings = load_settings(tmp_path / "weir.yaml")
    assert [sink.type for sink in settings.alerts.sinks] == ["stdout", "webhook", "alertmanager"]
    assert [rule.name for rule in rules_of(settings.alerts)] == ["topic-nearly-idle"]
    told = told_of(settings.alerts)["topic-nearly-idle"]
    assert told.finding is not None
    write(tmp_path / "w", "topic_throttle_stats", [window(0, messages=1, limit_msgs=None)])
    reader = ReportReader(Warehouse(str(tmp_path / "w")), ReportSpan())
    (found,) = findings_of(reader, told, told.finding)
    assert found.sentence == (
        "acme/orders/created sent 1 message in a window at most, from 22:14:00 to 22:15:00."
    )
    keys = {*KEYS, *FindingRule.model_fields}
    assert keys >= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
