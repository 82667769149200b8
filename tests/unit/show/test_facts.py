"""A fact is the same set for whoever tells of it: alert, finding, metric and view, on any warehouse."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.config.alerts import AlertSettings
from app.jobs.backlog.findings.groups import findings as of_groups
from app.jobs.backlog.metrics.groups import Groups
from app.jobs.backlog.report.groups import groups
from app.jobs.chunks.findings import FINDINGS as OF_LARGE_MESSAGES
from app.jobs.chunks.findings import REMEDIES
from app.jobs.chunks.metrics import ChunkMetrics
from app.jobs.chunks.report import large_messages
from app.jobs.chunks.views import GIVEN_UP
from app.jobs.client_quotas.findings import FINDINGS
from app.jobs.client_quotas.metrics import UnlimitedClients
from app.jobs.rate_limits.metrics import Throttles
from app.read.relations import Warehouse, connect
from app.show.alerts.rule_files import rules_of
from app.show.metrics.entities import Bounds
from app.show.metrics.part import MetricsPart
from app.show.report.phrases import NAMED
from app.show.report.report_reader import ReportReader, ReportSpan
from app.tables.definitions import VIEWS
from app.terminal.amounts import NONE
from app.terminal.counts import counted
from state.rate_limits.outputs import LIMITER_NAMES
from tests.conftest import ROOT
from tests.support.client_quota_rows import MINUTE, stats, usage
from tests.support.effort import drawn
from tests.support.ready_questions import fate, lag, put, waiting
from tests.support.throttle_rows import window, write

JOBS = ROOT / "app" / "jobs"
MIB_PER_S = 60 * 2**20
USERS = ("ann", "bob", "cid", "dan")
RULES = {rule.name: rule for rule in rules_of(AlertSettings())}
PROMETHEUS = yaml.safe_load((ROOT / "conf" / "prometheus" / "weir.rules.yml").read_text("utf-8"))
BYTES = st.sampled_from([0, MIB_PER_S - 60, MIB_PER_S, 2 * MIB_PER_S, 4 * MIB_PER_S])
TIMES = st.sampled_from([0.0, 0.9 * MINUTE, 1.0 * MINUTE, 2.0 * MINUTE, 8.0 * MINUTE])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("facts")


@contextmanager
def emptied(place: Path) -> Iterator[str]:
    """The folder of a warehouse that goes with it: one after the other at the same place, since DuckDB
    takes 30 ms of CPU to make the database of a folder."""
    folder = place / "warehouse"
    folder.mkdir()
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder)


def asked(part: MetricsPart, *sql: str) -> str:
    """What names the tables and views of a metric and of these statements: to make all takes longer."""
    return " ".join([*part.reads, *sql])


@drawn(200)
@given(
    uses=st.lists(
        st.tuples(st.sampled_from(USERS), BYTES, TIMES), min_size=1, unique_by=lambda u: u[0]
    ),
    limited=st.sets(st.sampled_from((*USERS, "eve"))),
)
def test_clients_without_a_limit(
    uses: list[tuple[str, int, float]], limited: set[str], place: Path
) -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "client_usage": [usage(0, user, size, handler_time_ms=ms) for user, size, ms in uses],
        "client_quota_stats": [stats(0, user) for user in limited],
    }
    with emptied(place) as folder:
        for name, table in rows.items():
            write(folder, name, table)
        (rule,) = yaml.safe_load(
            (JOBS / "client_quotas" / "alerts" / "client-without-limit.yaml").read_text()
        )
        part = UnlimitedClients(Bounds(10, 1000))
        sql = "SELECT principal, share FROM clients_without_limit"
        with connect(Warehouse(folder), asked(part, rule["sql"], sql)) as tables:
            part.take(tables)
            alert = {row[2]: row[7] for row in tables.execute(rule["sql"]).fetchall()}
            view = tables.execute(sql).fetchall()
        (findings,) = FINDINGS
        told = findings.findings(ReportReader(Warehouse(folder), ReportSpan()))
    metric = {labels[2]: share for _, labels, share in part.samples() if share >= 0.25}
    finding = {f"User:{action.user}" for one in told for action in one.actions}
    assert alert == dict(view) == metric
    assert finding <= alert.keys() and len(finding) == min(len(alert), NAMED)
    assert any("1 other client is" in one.sentence for one in told) == (len(alert) == NAMED + 1)


OUTCOMES = (*GIVEN_UP, "COMPLETE", "DUP_ACKED", "LOST_TO_SIGHT", "RESTART_REDELIVERY")


@drawn(200)
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.sampled_from(OUTCOMES),
            st.integers(0, 300_000),
            st.sampled_from([[], ["1:1"]]),
        ),
        max_size=9,
    ),
    arrived=st.sets(st.sampled_from("abcde")),
    waits=st.dictionaries(st.sampled_from("abcde"), st.integers(0, 5)),
)
def test_lost_large_messages(
    events: list[tuple[str, str, int, list[str]]],
    arrived: set[str],
    waits: dict[str, int],
    place: Path,
) -> None:
    rows = {
        "chunk_events": [fate(at, out, uuid, acks=acks) for uuid, out, at, acks in events],
        "chunk_messages": [fate(0, None, uuid) | {"outcome": None} for uuid in arrived],
        "incomplete_messages": [waiting(minute, uuid) for uuid, minute in waits.items()],
    }
    (rule,) = yaml.safe_load((JOBS / "chunks" / "alerts" / "chunk-messages-lost.yaml").read_text())
    part = ChunkMetrics(Bounds(10, 1000))
    with emptied(place) as folder:
        put(folder, rows)
        reader = ReportReader(Warehouse(folder), ReportSpan())
        sql = "SELECT uuid FROM given_up_messages"
        with connect(Warehouse(folder), asked(part, rule["sql"], sql)) as tables:
            part.take(tables)
            alert = sum(row[4] for row in tables.execute(rule["sql"]).fetchall())
            given_up = tables.execute(sql).fetchall()
        question = sum(row["lost"] for row in reader.ask("lost-messages"))
        tile = large_messages(reader).tile
        (findings,) = OF_LARGE_MESSAGES
        told = [action for one in findings.findings(reader) for action in one.actions]
    metric = sum(v for name, _, v in part.samples() if name == "weir_chunk_given_up_total")
    finding = sum(int(action.reason.split()[0]) for action in told)
    assert tile is not None
    assert (metric > 0) == bool(given_up) and metric >= len(given_up)
    assert alert == question == finding == int(tile.value.replace(NONE, "0"))


def test_each_outcome_has_a_remedy_and_its_runbook_the_same_ones() -> None:
    page = (JOBS / "chunks" / "runbooks" / "chunk-messages-lost.md").read_text()
    advice = page.partition("## What to do")[2]
    assert sorted(out for remedy in REMEDIES for out in remedy.outcomes) == sorted(GIVEN_UP)
    assert all(f"`{outcome}`" in advice for outcome in GIVEN_UP)


@drawn(200)
@given(
    uses=st.dictionaries(
        st.sampled_from("abc"),
        st.lists(
            st.tuples(
                st.sampled_from([0, 79, 80, 99, 100, 150]),
                st.sampled_from(["known", "known", "first_seen"]),
            ),
            min_size=3,
            max_size=3,
        ),
        min_size=1,
    )
)
def test_groups_near_retention(uses: dict[str, list[tuple[int, str]]], place: Path) -> None:
    rows = [
        lag(group, MINUTE * i, 9, age_s=age, age_state=state, limit_s=100, time_usage=age / 100)
        for group, checks in uses.items()
        for i, (age, state) in enumerate(checks)
    ]
    rule = JOBS / "backlog" / "alerts" / "group-near-retention.yaml"
    (near,) = yaml.safe_load(rule.read_text())
    with emptied(place) as folder:
        put(folder, {"group_lag": rows})
        with connect(Warehouse(folder), near["now"] + near["sql"]) as tables:
            ((now_ms,),) = tables.execute(near["now"]).fetchall()
            sql = f'SELECT "group" FROM ({near["sql"]}) WHERE end_ms >= {now_ms}'
            alert = {group for (group,) in tables.execute(sql).fetchall()}
        told = of_groups(ReportReader(Warehouse(folder), ReportSpan()))
    last = {group: checks[-1] for group, checks in uses.items()}
    assert alert == {group for group, (age, how) in last.items() if age >= 80 and how == "known"}
    remedies = [action.remedy for one in told for action in one.actions]
    assert sorted(remedies) == sorted(
        f"Scale group {group}, or raise retention.ms of topic orders" for group in alert
    )


@drawn(100)
@given(counts=st.dictionaries(st.sampled_from(LIMITER_NAMES), st.integers(1, 9), min_size=1))
def test_pauses_by_limiter_add_up(counts: dict[str, int], place: Path) -> None:
    total = sum(counts.values())
    rows = [window(0, limited_times=total, limited_by_limiter=list(counts.items()))]
    part = Throttles(Bounds(10, 1000))
    with emptied(place) as folder:
        for name in Throttles.reads:
            write(folder, name, rows if name == "topic_throttle_stats" else [])
        sql = "SELECT limiter, value FROM throttle_metrics WHERE limiter IS NOT NULL"
        with connect(Warehouse(folder), asked(part, sql)) as tables:
            part.take(tables)
            view = dict(tables.execute(sql).fetchall())
    samples = list(part.samples())
    times = {labels[-1]: n for name, labels, n in samples if name.endswith("limit_count_total")}
    (every,) = (n for name, _, n in samples if name == "pulsar_publish_rate_limit_times")
    assert view == counts == {name: times[name] for name in counts} and every == total


@drawn(100)
@given(
    states=st.dictionaries(
        st.tuples(st.sampled_from(("east", "west")), st.sampled_from("ab"), st.integers(0, 1)),
        st.lists(st.sampled_from(["committed", "ahead", "ahead", "gone"]), min_size=1, max_size=4),
        min_size=1,
    )
)
def test_groups_ahead(states: dict[tuple[str, str, int], list[str]], place: Path) -> None:
    rows = [
        lag(group, MINUTE * i, -3 if state == "ahead" else 3, state=state, partition=partition)
        | {"cluster": cluster}
        for (cluster, group, partition), checks in states.items()
        for i, state in enumerate(checks)
    ]
    rule, part = RULES["group-ahead"], Groups(Bounds(10, 1000))
    with emptied(place) as folder:
        put(folder, {"group_lag": rows, "lost_messages": [], "group_states": []})
        reader = ReportReader(Warehouse(folder), ReportSpan())
        with connect(Warehouse(folder)) as tables:
            found = tables.execute(
                f'SELECT cluster, "group", partitions FROM ({rule.sql})'
                ' SEMI JOIN (SELECT cluster, "group", pass_ms FROM group_ahead WHERE next_ms IS NULL)'
                ' AS n USING (cluster, "group") QUALIFY start_ms = max(start_ms) OVER'
                ' (PARTITION BY cluster, "group")'
            ).fetchall()
            part.take(tables)
        told = [action for one in of_groups(reader) for action in one.actions]
        section = groups(reader).sentences
        listed = [row for row in reader.ask("lag", 100) if row["state"] == "ahead"]
    now = {key for key, checks in states.items() if checks[-1] == "ahead"}
    assert {row[:2] for row in found} == {key[:2] for key in now}
    assert {(a.cluster, a.remedy.split()[5]) for a in told if a.remedy.startswith("Reset")} == {
        key[:2] for key in sorted({key[:2] for key in now})[:NAMED]
    }
    assert sorted((row["cluster"], row["group"], row["partition"]) for row in listed) == sorted(now)
    gauges = {labels[0]: n for name, labels, n in part.samples() if labels[1:] == ("ahead",)}
    assert gauges == {c: n for c in ("east", "west") if (n := sum(key[0] == c for key in now))}
    if now:
        assert any(
            f"ahead of the log in {counted(len(now), 'partition')}" in one for one in section
        )


def prometheus(name: str) -> list[dict[str, Any]]:
    """The rules of this name for Prometheus."""
    return [
        one for group in PROMETHEUS["groups"] for one in group["rules"] if one.get("alert") == name
    ]


WAITS = {
    "client-throttled",
    "cluster-not-answering",
    "producer-id-quota",
    "publish-limit",
    "query-stalled",
}
"""Rules one of which says in its statement or expression how long it waits."""
THRESHOLDS = {
    "client-without-limit": (VIEWS["clients_without_limit"].sql, ["share >= 0.25"], [">= 0.25"]),
    "group-near-retention": (VIEWS["group_near_retention"].sql, ["time_usage >= 0.8"], [">= 0.8"]),
    "publish-limit": (
        VIEWS["publish_limit_windows"].sql,
        ["ratio >= 0.8", "AS DOUBLE) * 500000", ">= 300000 OR", "ratio >= 1,", ">= 600000"],
        ["used_ratio >= 0.8", ">= 0.5", "for: 5m", "used_ratio >= 1", "for: 10m"],
    ),
    "noisy-neighbour-victim": (
        VIEWS["noisy_neighbour_victims"].sql,
        ["AS DOUBLE) * 100000"],
        [">= 0.1"],
    ),
    "client-near-quota": (RULES["client-near-quota"].sql, ["value >= 0.8"], [">= 0.8"]),
    "client-default-quota": (RULES["client-default-quota"].sql, ["value > 5"], ["> 5"]),
    "client-throttled": (RULES["client-throttled"].sql, [">= 600000"], ["for: 10m"]),
    "producer-id-quota": (RULES["producer-id-quota"].sql, ["0.8"], [">= 0.8"]),
    "backlog-quota": (RULES["backlog-quota"].sql, ["0.8"], [">= 0.8"]),
    "producer-id-heap": (RULES["producer-id-heap"].sql, ["268435456"], [">= 268435456"]),
    "backlog-quota-predicted": (RULES["backlog-quota-predicted"].sql, ["3600"], ["< 3600"]),
}
"""Where what Weir's rule calls much is said, in which words, and in which the rule for Prometheus."""


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_rule_for_prometheus_has_the_thresholds_of_the_shipped_one(name: str) -> None:
    sql, ours, theirs = THRESHOLDS[name]
    written = " ".join(f"{one['expr']} for: {one.get('for')}" for one in prometheus(name))
    assert [text for text in ours if text not in sql] == []
    assert [text for text in theirs if text not in written] == []


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_for_prometheus_waits_as_long_as_the_shipped_one(name: str) -> None:
    found = prometheus(name)
    if name not in WAITS and found:
        assert {one.get("for", "0s") for one in found} == {f"{RULES[name].for_ms // 60_000}m"} or (
            RULES[name].for_ms == 0 and not any("for" in one for one in found)
        )
