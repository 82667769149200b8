"""A day of a Pulsar cluster in minutes, with Weir beside: what it says is true, and no more."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.show.reconcile.spans import differs
from tests.conftest import ROOT
from tests.servers.pulsar_day import (
    CALM,
    CHANGED,
    CHECK_S,
    CROWD,
    FUNCTION,
    GEO,
    GROUP,
    GROUPED,
    HOLES,
    HOT,
    PAIR,
    SATURATED,
    TTL,
    TWICE,
    VICTIM,
    Day,
    said,
)
from tests.servers.pulsar_situations import (
    DEFAULT_BYTES,
    EVICTED,
    NACKED,
    OFF,
    OFF_TOPIC,
    PERSISTED,
    REMARKS,
    SETTINGS,
)
from tests.support.recording.saturated import reported
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import with_telemetry

pytestmark = pytest.mark.slow
NEAR = 0.01
"""How far counts of pauses may be apart."""
SYSTEM = ("/__", "://pulsar/")
"""What names of the broker's own topics have."""


@pytest.fixture(
    scope="module", params=[pytest.param(60, id="a-minute"), pytest.param(600, id="ten-minutes")]
)
def day(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("beside")
    broker, metrics = with_telemetry(folder / "broker")
    pulsar_plugin.start(
        broker,
        folder / "records",
        weirSystemTopics="true",
        **SETTINGS,
        backlogQuotaCheckIntervalInSeconds=str(CHECK_S),
        messageExpiryCheckIntervalInMinutes="1",
    )
    lived = Day(broker, folder, metrics, request.param)
    try:
        lived.prepare()
        lived.begin_weir()
        lived.live()
        for run in lived.runs.values():
            run.stop()
        yield lived
    finally:
        for run in lived.runs.values():
            run.close()
        broker.stop()


def test_the_alerts_are_those_of_the_day(day: Day) -> None:
    victims = {("noisy-neighbour-victim", VICTIM)} if day.seconds >= 600 else set()
    broker = day.pulsar.url.removeprefix("http://")
    limits = {("publish-limit", name) for name in (*SATURATED, GROUP, broker)}
    expire = {("backlog-messages-expire", TTL)}
    full = {("backlog-quota", EVICTED)}
    stuck = {("chunk-message-stuck", NACKED)}
    for name, expected in (
        ("files", limits | victims | expire | full | stuck),
        ("polls", expire | full),
    ):
        assert said("alerts", "check", "--config", str(day.config(name)))[0] in (0, 1)
        rows = day.query(name, "SELECT DISTINCT alert, labels FROM alerts WHERE state = 'firing'")
        fired = [(row["alert"], row["labels"]) for row in rows]
        assert {(rule, of.get("topic") or of.get("entity")) for rule, of in fired} == expected


def test_pauses_are_those_of_the_broker(day: Day) -> None:
    rows = day.query(
        "files",
        "SELECT topic, sum(limited_times) AS times FROM topic_throttle_stats GROUP BY topic",
    )
    found = {row["topic"]: row["times"] for row in rows}
    seqs: dict[str, list[int]] = {}
    for r in day.records("reads_paused"):
        seqs.setdefault(r["cnx_id"], []).append(r["seq"])
    since: dict[tuple[str, str], int] = {}
    for r in day.records("producer_created"):
        since.setdefault((r["topic"], r["cnx_id"]), r["seq"])
    for topic in (*SATURATED, VICTIM, *GROUPED, *CROWD, *CALM):
        seen = sum(
            sum(seq > begun for seq in seqs.get(cnx, []))
            for (name, cnx), begun in since.items()
            if name == topic
        )
        assert found[topic] == pytest.approx(seen, rel=NEAR)
        assert found[topic] == pytest.approx(day.counted[topic], rel=NEAR)
        assert topic in CALM or seen > day.seconds
    assert {topic.partition("-partition-")[0] for topic, times in found.items() if times} == {
        topic for topic, times in day.counted.items() if times
    }


def test_pauses_have_their_times(day: Day) -> None:
    rows = day.query(
        "files",
        "SELECT cnx_id, count(*) AS times, sum(end_ns - start_ns) AS ns"
        " FROM throttle_intervals GROUP BY cnx_id",
    )
    happened = reported(day.records())
    assert {row["cnx_id"] for row in rows} == {*happened}
    for row in rows:
        times, ns = happened[row["cnx_id"]]
        assert row["times"] == pytest.approx(times, rel=NEAR)
        assert row["ns"] == pytest.approx(ns, rel=NEAR)


def test_culprits_and_victims_are_those_of_the_day(day: Day) -> None:
    kinds = ("culprit", "shared", "collateral")
    sums = ", ".join(f"sum({kind}_times) AS {kind}" for kind in kinds)
    rows = day.query("files", f"SELECT topic, {sums} FROM topic_throttle_stats GROUP BY topic")
    found = {row["topic"]: tuple(row[kind] for kind in kinds) for row in rows}
    for topics, place in (
        ((HOT, CHANGED, TWICE), 0),
        ((*GROUPED, *CROWD, *CALM), 1),
        ((VICTIM,), 2),
    ):
        for topic in topics:
            assert found[topic][place] >= (1 - NEAR) * sum(found[topic]), topic
    a, b = (found[topic] for topic in PAIR)
    assert a[0] > 0 and b[0] > 0 and a[1] == b[1] == 0
    assert a[2] == b[0] or b[2] == a[0]  # the producer that came first has missed no pause


@pytest.mark.parametrize("name", ["files", "polls"])
def test_every_cursor_is_what_it_is(day: Day, name: str) -> None:
    rows = day.query(name, "SELECT DISTINCT topic, subscription, kind FROM backlog_subscriptions")
    kinds = {(row["subscription"], row["kind"]) for row in rows}
    assert {
        ("pulsar.repl.elsewhere", "replicator"),
        ("pulsar.dedup", "deduplication"),
        ("__compaction", "compaction"),
        (FUNCTION, "subscription"),
    } <= kinds
    # A broker reads its own topics by cursors like any other.
    others = {
        row["subscription"]
        for row in rows
        if row["kind"] == "subscription"
        if not (row["subscription"].startswith("__system_reader") and "/__" in row["topic"])
        if row["subscription"].startswith(("pulsar.", "__")) or "%" in row["subscription"]
    }
    assert others == set()
    (geo,) = day.query(
        name,
        "SELECT bool_or(kind = 'replicator' AND backlog_entries = 50) AS held"
        f" FROM backlog_subscriptions WHERE topic = '{GEO}'",
    )
    assert geo["held"]
    (back,) = day.query(name, "SELECT count(*) AS n FROM backlog_subscriptions WHERE set_back")
    (hole,) = day.query(
        name,
        "SELECT max(unacked_ranges) AS n FROM backlog_subscriptions"
        f" WHERE topic = '{HOLES}' AND subscription = 'holes'",
    )
    assert back["n"] > 0 and hole["n"] > day.seconds / 10
    (gone,) = day.query(
        name,
        "SELECT sum(expired_unread) AS n FROM backlog_subscriptions WHERE subscription = 'slow'",
    )
    assert gone["n"] > 0


@pytest.mark.parametrize("name", ["files", "polls"])
def test_no_quota_of_the_brokers_own_topics_and_no_refused_record(day: Day, name: str) -> None:
    rows = day.query(name, "SELECT topic, limit_bytes, limit_s, rule FROM backlog_checks")
    own = [row for row in rows if any(part in row["topic"] for part in SYSTEM)]
    assert own or name == "polls"  # where polls find a backlog only
    assert {(row["limit_bytes"], row["limit_s"]) for row in own} <= {(None, None)}
    assert {row["rule"] for row in rows if row["topic"] != EVICTED} == {"within_limits"}
    assert day.query(name, "SELECT * FROM quarantine") == []


@pytest.mark.parametrize("name", ["files", "polls"])
def test_a_quota_that_is_switched_off_hides_the_one_above(day: Day, name: str) -> None:
    """And that is why more than twenty megabytes are no alert."""
    for topic, level in ((OFF, "namespace"), (OFF_TOPIC, "topic")):
        (row,) = day.query(
            name,
            "SELECT arg_max(limit_bytes, pass_ms) AS limit_bytes, max(backlog_bytes) AS most,"
            " arg_max(limit_source_size, pass_ms) AS level"
            f" FROM backlog_checks WHERE topic = '{topic}'",
        )
        assert (row["limit_bytes"], row["level"]) == (None, level)
        assert row["most"] > DEFAULT_BYTES


@pytest.mark.parametrize("name", ["files", "polls"])
def test_an_eviction_behind_single_acknowledgements_skips_nothing(day: Day, name: str) -> None:
    (row,) = day.query(
        name,
        "SELECT max(size_usage) AS usage, (SELECT string_agg(DISTINCT rule) FROM backlog_evictions"
        f" WHERE topic = '{EVICTED}') AS rule FROM backlog_checks WHERE topic = '{EVICTED}'",
    )
    assert row["usage"] > 1 and "skip_zero" in row["rule"]
    shown = day.scene.stats(EVICTED)["subscriptions"]["workers"]
    (skipped,) = day.query(
        name,
        "SELECT coalesce(sum(entries_skipped), 0) AS n FROM backlog_evictions"
        f" WHERE topic = '{EVICTED}' AND NOT phantom",
    )
    assert (skipped["n"], shown["msgBacklog"]) == (0, 1)
    assert any(f"{EVICTED}" in line and "skips nothing" in line for line in alerts_of(day, name))


def alerts_of(day: Day, name: str) -> list[str]:
    """What alerts say."""
    return [row["summary"] for row in day.query(name, "SELECT DISTINCT summary FROM alerts")]


def test_what_keeps_a_backlog_is_named(day: Day) -> None:
    """From what the broker shows in its stats: so where it is polled."""
    rows = day.query("polls", "SELECT DISTINCT topic, remarks FROM backlog_subscriptions")
    named = {(row["topic"], row["remarks"]) for row in rows if row["remarks"]}
    held = {**REMARKS, HOLES: f"ranges {PERSISTED} outlast a restart"}
    for topic, words in held.items():
        assert any(words in remarks for found, remarks in named if found == topic), named
    assert {topic for topic, _ in named} == {*held}


def test_a_large_message_that_was_handed_back_stalls_its_subscription(day: Day) -> None:
    """Until the subscription goes on: then nothing says so any more."""
    rows = day.query("files", "FROM incomplete_messages WHERE state = 'stalled'")
    assert {row["topic"] for row in rows} == {NACKED}
    assert day.query("files", "stalled-subscriptions") == []
    alert = "FROM alerts WHERE alert = 'chunk-message-stuck'"
    (newest,) = day.query("files", f"SELECT arg_max(state, number) AS state {alert}")
    assert newest["state"] == "resolved"


@pytest.mark.parametrize("name", ["files", "polls"])
def test_reconcile_agrees(day: Day, name: str) -> None:
    code, text = said("reconcile", "--config", str(day.config(name)))
    rows = day.query(name, "SELECT * FROM reconciliation")
    apart = [row for row in rows if differs(row)]
    assert code == (1 if apart else 0), text
    if day.seconds < 600:  # windows with what compaction reads, or before a cursor is known
        counts = ("cache_inserted", "cache_evicted", "cache_misses")
        apart = [row for row in apart if row["measure"] not in counts]
    assert apart == []
    agreed = Counter(row["measure"] for row in rows if row["reason"] is None)
    assert {"backlog_bytes", "backlog_entries"} <= {*agreed}
    assert name == "polls" or {"publish_limited_times", "messages_in", "bytes_in"} <= {*agreed}
    reasons = {None, "RATE_ONLY", "FEED_BEGAN", "OWN_READS", "READ_AGAIN"}
    assert {row["reason"] for row in rows} <= reasons
    again = [row for row in rows if row["reason"] == "READ_AGAIN"]
    assert {row["topic"] for row in again} == ({NACKED} if name == "files" else set())
    assert all(row["window_start_ms"] < day.went_on_ms for row in again)


def test_with_receipts_the_producers_of_hot_topics_are_told(day: Day) -> None:
    """Not the producer of a victim, which only shares their connection."""
    config = yaml.safe_load(day.config("files").read_text())
    del config["reconcile"]
    config["warehouse"] = str(day.folder / "receipts")
    config["queries"] = [["rate_limits"]]
    config["rate_limits"] = {"protocol": "pip385", "receipt_model": "all"}
    day.config("receipts").write_text(yaml.safe_dump(config))
    words = ["run", "--available-now", "--config", str(day.config("receipts"))]
    subprocess.run([ROOT / "spark-submit.sh", *words], check=True, capture_output=True)
    rows = day.query("receipts", "SELECT DISTINCT topic FROM producer_throttle")
    told = {row["topic"] for row in rows}
    assert {*SATURATED, *GROUPED} <= told and VICTIM not in told


def test_a_report_is_written(day: Day, tmp_path: Path) -> None:
    for name in day.runs:
        page = tmp_path / f"{name}.html"
        code, _ = said("report", "--config", str(day.config(name)), "--out", str(page))
        assert code == 0 and page.stat().st_size > 10_000
