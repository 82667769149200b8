"""A run beside a Kafka cluster that lives: what is wrong fires, nothing else does, and every record
that was deleted unread is counted once."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from app.config.settings import Settings, load_settings
from app.show.reconcile.comparing import one_round
from app.show.reconcile.spans import differs
from app.tables.small_files import RECONCILE, read_text, write_text
from tests.servers.kafka_life import LATE_S, Life, weir
from tests.support.backlog_views import stored
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import Server, serving
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka
OFTEN = {
    "log.retention.check.interval.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.cleaner.backoff.ms": 1000,
    "transaction.max.timeout.ms": 1_800_000,
}
"""Of the broker: what it does in minutes otherwise."""
FOR_S = {"group-ahead": 120, "group-without-offset": 300}
"""How long a condition lasts before it fires; at once with other rules."""
Alert = tuple[str, str, str]
"""Rule, group and topic."""


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """A broker with two folders of logs; only the topic `dark` is in the second one."""
    folder = tmp_path / "kafka"
    with serving(lambda: Kafka(folder, OFTEN), "Kafka broker") as kafka:
        made = Life(kafka, tmp_path)
        with made.admin:  # a client that is left open may take the broker's port
            made.begin()
        kafka.stop()
        with (folder / "server.properties").open("a", encoding="utf-8") as file:
            file.write(f"log.dirs={folder / 'data'},{folder / 'more'}\n")
        about = (folder / "data" / "meta.properties").read_text("utf-8")
        (folder / "more").mkdir()
        (folder / "more" / "meta.properties").write_text(
            re.sub(r"directory\.id=.*", "", about), "utf-8"
        )
        kafka.start()
        made.connect()
        with made.admin:
            made.topic("dark")  # where there are the fewest partitions
            made.send("dark", 9)
            made.commit("dim", "dark", 4)
            opened = made.transaction("open", 4, "open")
            yield made
            opened.abort_transaction(30)
            if made.held is not None:
                made.held.close()


@contextmanager
def standing_still(run: Server, life: Life) -> Iterator[None]:
    """No poll begins in this context: a broker answers with an error of its disk until it has
    noticed that the disk is gone."""
    life.polled(1)
    os.killpg(run.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(run.pid, signal.SIGCONT)


def newest(config: Any, table: str) -> dict[tuple[str, str | None, int | None], dict[str, Any]]:
    """The last row of each group and partition."""
    rows = sorted(stored(config, [table])[table], key=lambda r: (r["pass_ms"], r["row_no"]))
    return {(r["group"], r["topic"], r["partition"]): r for r in rows}


def alerts(config: Settings) -> tuple[set[Alert], set[Alert]]:
    """Those that have fired, and those that wait for their time."""
    fired, last = set(), {}
    for row in sorted(stored(config, ["alerts"])["alerts"], key=lambda r: r["number"]):
        labels = dict(row["labels"])
        about = row["alert"], labels.get("group", str(labels)), labels.get("topic", "")
        last[about] = row["state"]
        if row["state"] == "firing":
            fired.add(about)
    assert not any(name == "query-stalled" for name, *_ in last)  # its batches are ordinary ones
    return fired, {about for about, state in last.items() if state == "pending"}


def compare(config: Settings) -> None:
    """A round of the comparison with what Kafka itself answers."""
    done = one_round(config)
    assert [row for row in done.rows if differs(row)] == []
    assert done.problems in ([], ["kafka: partition dark/0: has no leader"])


def read_only(config: Settings) -> int:
    """Read, and compare nothing yet; the time of the reading."""
    hours = config.reconcile.model_copy(update={"settle_ms": 10**8})  # type: ignore[union-attr]
    compare(config.model_copy(update={"reconcile": hours}))
    return time.time_ns() // 1_000_000


def assert_kafka_agrees(config: Settings, file: Path, since_ms: int) -> str:
    """Every number agrees, those of the last span to the offset; returns the readings."""
    readings = read_text(config.location, RECONCILE)
    assert readings is not None
    done = weir(file, "reconcile", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = stored(config, ["reconciliation"])["reconciliation"]
    of_dark = {r["reason"] for r in rows if r["topic"] == "dark"}
    assert of_dark == {"NO_ANSWER"}
    assert [r for r in rows if differs(r)] == []
    last = [r for r in rows if r["window_start_ms"] + r["window_ms"] > since_ms]
    assert {r["measure"] for r in last if r["reason"] is None} == {
        "group_lag",
        "log_start",
        "log_end",
        "lost_offsets",
    }
    return readings


def assert_changed_rows_differ(config: Settings, file: Path, readings: str) -> None:
    for table, group, update in (
        ("group_lag", "f-behind", {"lag": "lag + 1"}),
        ("lost_messages", "slow", {"to_offset": "to_offset - 1"}),
    ):
        DeltaTable(f"{config.warehouse}/{table}").update(update, predicate=f"\"group\" = '{group}'")
    write_text(config.location, RECONCILE, readings)
    done = weir(file, "reconcile", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert {
        (r["measure"], r["group"], r["topic"], r["partition"], r["difference"])
        for r in json.loads(done.stdout)["rows"]
        if differs(r)
    } == {("group_lag", "f-behind", "forever", 0, -1), ("lost_offsets", "slow", "drained", 0, 1)}


@pytest.mark.parametrize(
    ("seconds", "interval_ms"),
    [
        pytest.param(40, 2000, id="short"),
        pytest.param(600, 5000, id="ten-minutes", marks=pytest.mark.slow),
    ],
)
def test_what_is_wrong_fires_and_nothing_else(life: Life, seconds: int, interval_ms: int) -> None:
    file = life.folder / "weir.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(life.folder / "warehouse"),
                "partitions": 2,
                "alerts": {"interval_ms": 5000},
                "reconcile": {"interval_ms": None, "settle_ms": 0},
                "policies": [
                    {
                        "scope": "broker",
                        "name": "*",
                        "limits": {"backlogQuotaCheckIntervalInSeconds": 2},
                    }
                ],
                "source": {
                    "format": "kafka_groups",
                    "groups": {
                        "interval_ms": interval_ms,
                        "options": {"bootstrap.servers": life.kafka.servers},
                    },
                },
            }
        ),
        "utf-8",
    )
    config = load_settings(file)
    run = Server(
        [sys.executable, "-m", "app.cli", "run", "--config", str(file)],
        life.folder / "run.log",
        patience_s=120,
    )

    def lags() -> dict[Any, int]:
        """Lags as Weir has them, where a group has an offset."""
        return {
            key: r["lag"]
            for key, r in newest(config, "group_lag").items()
            if r["lag"] is not None and key[1] != "dark"
        }

    run.start(lambda log: "started: " in log, timeout_s=180)
    try:
        wait_for(life.polls.exists, 180)
        life.polled(1)
        life.once(standing_still(run, life))
        end, rounds = time.monotonic() + seconds, 0
        while rounds < 2 or time.monotonic() < end:
            life.round(rounds)
            compare(config)
            rounds += 1
        before = read_only(config)
        life.last()
        by_broker = life.lags()
        wait_for(lambda: lags() == by_broker, 180)
        life.polled()
        read_only(config)
        life.polled(4)
        ended, at_ms = time.monotonic(), time.time_ns() // 1_000_000
        # What has been polled is checked a moment later, what cannot be polled a while later.
        wait_for(lambda: newest(config, "group_lag")["dim", "dark", 0]["pass_ms"] > at_ms)
        readings = assert_kafka_agrees(config, file, before)
    finally:
        run.stop()
    log = run.log.read_text("utf-8")
    tables = stored(config, ["lost_messages", "quarantine", "events"])
    print(
        f"{rounds} rounds, {len(tables['events'])} records, {len(life.alerts)} alerts, "
        f"{sum(life.lost.values())} lost"
    )
    assert lags() == by_broker
    assert tables["quarantine"] == []

    # Every record that was deleted unread, once.
    counted: Counter[tuple[str, str]] = Counter()
    for r in tables["lost_messages"]:
        counted[r["group"], r["topic"]] += r["offsets"]
    assert counted == life.lost

    # What holds long enough fires, the rest waits for its time, and there is no more.
    due = {
        about
        for about, since in life.alerts.items()
        if about[0] not in FOR_S or since + FOR_S[about[0]] + LATE_S < ended
    }
    fired, waiting = alerts(config)
    assert fired | waiting == life.alerts.keys()
    assert fired >= due
    shown = weir(file, "alerts", "check", "--json")
    assert shown.returncode == 1, shown.stderr
    assert {
        (r["labels"]["group"], r["labels"]["topic"]): r["value"]
        for r in json.loads(shown.stdout)["firing"]
        if r["alert"] == "group-lost-messages"
    } == life.lost

    # Ages and states are those of the cluster.
    now, states = newest(config, "group_lag"), newest(config, "group_states")
    assert {
        group: now[group, topic, 0]["age_state"]
        for group, topic in (
            ("reader", "orders"),
            ("waiting", "open"),
            ("f-behind", "forever"),
            ("a-behind", "aging"),
        )
    } == {
        "reader": "nothing_unread",
        "waiting": "known",
        "f-behind": "known",
        "a-behind": "known",
    }
    assert now["f-behind", "forever", 0]["limit_s"] is None
    assert (now["dim", "dark", 0]["committed"], now["dim", "dark", 0]["log_end"]) == (4, 9)
    assert {k: r["unread"] for k, r in states.items() if r["state"] == "offsets_expired"} == (
        life.expired
    )
    assert {k for k, r in states.items() if r["state"] in ("ahead", "no_offset", "empty_id")} == {
        ("mirror", "mirrored", 0),
        ("partial", "wide", 1),
        ('""', None, None),
    }
    assert states["partial", "wide", 1]["unread"] == 7
    assert {group: states[group, None, None]["state"] for group in ("live", "slow")} == {
        "live": "stable",
        "slow": "empty",
    }

    # Problems of polls are those of the partition without a leader, and of the topic made anew.
    problems = re.findall(
        r"WARNING kafka_groups kafka: (?!groups without|\d)(.*)$", log, re.MULTILINE
    )
    assert [p for p in problems if not re.search("dark|anew", p)] == []
    # One that lasts has one line.
    assert [p for p in problems if "dark" in p] == ["partition dark/0: has no leader"]
    assert "ERROR" not in log and "Traceback" not in log
    for words in (("report", "--out", str(life.folder / "report.html")), ("query", "lag")):
        done = weir(file, *words)
        assert done.returncode == 0, done.stderr
    assert_changed_rows_differ(config, file, readings)
