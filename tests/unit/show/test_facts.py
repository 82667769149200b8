"""A fact is the same set for whoever tells of it: alert, finding, metric and view, on any warehouse."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.config.alerts import AlertSettings
from app.jobs.backlog.metrics.groups import Groups
from app.jobs.backlog.report.groups import groups
from app.jobs.chunks.findings import FINDINGS as OF_LARGE_MESSAGES
from app.jobs.chunks.findings import REMEDIES
from app.jobs.chunks.metrics import ChunkMetrics
from app.jobs.chunks.report import large_messages
from app.jobs.chunks.views import GIVEN_UP
from app.jobs.client_quotas.metrics import UnlimitedClients
from app.jobs.rate_limits.metrics import Throttles
from app.read.relations import Warehouse, connect
from app.show.alerts.evaluation import clock_sql
from app.show.alerts.rule_files import rules_of
from app.show.metrics.entities import Bounds
from app.show.metrics.part import MetricsPart
from app.show.report.report_reader import ReportReader, ReportSpan
from app.show.report.summary import all_findings
from app.show.report.told import answer
from app.show.report.told import told as told_of
from app.tables.definitions import VIEWS
from app.terminal.amounts import NONE
from app.terminal.counts import counted
from app.terminal.phrases import NAMED
from state.rate_limits.outputs import LIMITER_NAMES
from tests.conftest import ROOT
from tests.support.client_quota_rows import MINUTE, decision, measured, stats, usage
from tests.support.effort import drawn
from tests.support.ready_questions import changed, fate, lag, lost, put, waiting
from tests.support.throttle_rows import COMMON, START_MS, window, write

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
        told = all_findings(ReportReader(Warehouse(folder), ReportSpan()))
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
        told = all_findings(ReportReader(Warehouse(folder), ReportSpan()))
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
        told = [action for one in all_findings(reader) for action in one.actions]
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


CLUSTERS, GROUPS = st.sampled_from(("east", "west")), st.sampled_from("ab")
PASSES = st.integers(0, 3)


def listed(rows: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Some rows; of one table, key and time there is one."""
    key = (
        "cluster",
        "group",
        "topic",
        "partition",
        "subscription",
        "user",
        "pass_ms",
        "ts_wall_ms",
    )
    return st.lists(rows, max_size=9, unique_by=lambda row: tuple(row.get(name) for name in key))


def checked(cluster: str, group: str, minute: int, state: str, age: int) -> dict[str, Any]:
    behind = -3 if state == "ahead" else 9
    used = {"age_s": age, "age_state": "known", "limit_s": 100, "time_usage": age / 100}
    return lag(group, MINUTE * minute, behind, state=state, **used) | {"cluster": cluster}


CHECKED = listed(
    st.builds(
        checked,
        CLUSTERS,
        GROUPS,
        PASSES,
        st.sampled_from(["committed", "ahead"]),
        st.sampled_from([9, 80, 120]),
    )
)
LOST = listed(
    st.builds(
        lambda cluster, group, minute: lost(group, MINUTE * minute, 0, 3) | {"cluster": cluster},
        CLUSTERS,
        GROUPS,
        PASSES,
    )
)
STATES = listed(
    st.builds(
        lambda cluster, group, minute, state: (
            changed(group, MINUTE * minute, state) | {"cluster": cluster}
        ),
        CLUSTERS,
        GROUPS,
        PASSES,
        st.sampled_from(["committed", "open_transaction", "pending_offsets"]),
    )
)


def of_backlog(
    cluster: str, topic: str, minute: int, over: bool, to_quota_s: float
) -> tuple[Any, Any]:
    """A check of a topic with one subscription, and the row of that subscription."""
    place = {**COMMON, "job": "backlog", "cluster": cluster, "topic": topic}
    place |= {"pass_ms": START_MS + MINUTE * minute, "ts_wall_ms": START_MS + MINUTE * minute}
    check = {
        **place,
        "exceeded_size": over,
        "exceeded_time": False,
        "size_usage": 1.2 if over else 0.3,
    }
    return check, {**place, "subscription": "s", "durable": True, "time_to_quota_s": to_quota_s}


STANDINGS = st.tuples(st.booleans(), st.sampled_from([-1.0, 0.0, 5.0, 3599.0, 3600.0]))
BACKLOGS = st.dictionaries(PASSES, st.tuples(STANDINGS, STANDINGS)).map(
    lambda passes: [
        of_backlog("east", f"t{place}", minute, *standing)
        for minute, standings in passes.items()
        for place, standing in enumerate(standings)
    ]
)
"""Two topics, checked together."""


def of_user(user: str, minute: int, over: bool) -> tuple[Any, Any]:
    """A decision about a user's new producer id, and its window."""
    place = {**COMMON, "job": "producer_ids", "user": user}
    start = START_MS + MINUTE * minute
    taken = {"verdict": "rejected" if over else "counted", "bound": 5.0, "bound_source": "user"}
    decided = {**place, **taken, "producer_id": minute, "ts_wall_ms": start}
    window = {"window_start_ms": start, "window_ms": MINUTE, "utilisation": 2.5 if over else 0.3}
    return decided, {
        **place,
        **window,
        "ts_wall_ms": start + MINUTE,
        "new_ids": 1,
        "rejected": int(over),
    }


PRODUCERS = st.lists(
    st.builds(of_user, st.sampled_from(USERS), PASSES, st.booleans()),
    max_size=9,
    unique_by=lambda both: (both[0]["user"], both[0]["producer_id"]),
)


def of_client(user: str, minute: int, over: bool, by_metrics: bool) -> tuple[Any, Any]:
    """A window of a client, and the decision about a request of it, which metrics do not have."""
    row = (measured if by_metrics else stats)(minute, user, throttled=int(over))
    return row, decision(MINUTE * minute, user) if over and not by_metrics else None


CLIENTS = st.lists(
    st.builds(of_client, st.sampled_from(USERS), PASSES, st.booleans(), st.booleans()),
    max_size=9,
    unique_by=lambda both: (both[0]["user"], both[0]["window_start_ms"], both[0]["basis"]),
)
USAGES = st.lists(
    st.builds(
        lambda user, size, handled: usage(0, user, size, handler_time_ms=handled),
        st.sampled_from(USERS),
        BYTES,
        TIMES,
    ),
    max_size=9,
    unique_by=lambda row: row["principal"],
)
OF_GROUPS = st.fixed_dictionaries(
    {"group_lag": CHECKED, "lost_messages": LOST, "group_states": STATES}
)
OF_TOPICS = BACKLOGS.map(
    lambda both: {
        "backlog_checks": [check for check, _ in both],
        "backlog_subscriptions": [row for _, row in both],
    }
)
WAREHOUSES = {
    **dict.fromkeys(("backlog-quota", "backlog-quota-predicted"), OF_TOPICS),
    "client-throttled": CLIENTS.map(
        lambda both: {
            "client_quota_stats": [row for row, _ in both],
            "client_quota_decisions": [row for _, row in both if row],
        }
    ),
    "client-without-limit": USAGES.map(
        lambda rows: {"client_usage": rows, "client_quota_stats": [stats(0, "eve")]}
    ),
    "producer-id-quota": PRODUCERS.map(
        lambda both: {
            "producer_id_decisions": [row for row, _ in both],
            "producer_id_stats": [row for _, row in both],
        }
    ),
    **dict.fromkeys(
        ("group-ahead", "group-lost-messages", "group-near-retention", "group-open-transaction"),
        OF_GROUPS,
    ),
}
"""Warehouses with what a rule is about, and what it is not about."""
TOLD = {"backlog-quota": "starts_with(standing, 'over')", "producer-id-quota": "value >= 1"}
"""Of rules whose alert begins before their finding: which of the alert's rows a finding is about."""


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.finding])
@drawn(150)
@given(data=st.data())
def test_a_finding_is_about_what_its_alert_is_about(name: str, data: Any, place: Path) -> None:
    """Without `for`: whatever has been an alert may be told, and what holds at the end is told."""
    tables, rule = data.draw(WAREHOUSES[name]), RULES[name]
    assert rule.finding is not None
    with emptied(place) as folder:
        put(folder, tables)
        reader = ReportReader(Warehouse(folder), ReportSpan())
        columns, rows = answer(reader, rule, rule.finding)
        sentences = told_of(reader, rule, rule.finding)
        labels = [each for each in rule.labels or () if each in columns or f"{each}s" in columns]
        picked = ", ".join(f'"{each}"' for each in labels)
        found = f"SELECT DISTINCT {picked} FROM ({rule.sql}) WHERE {TOLD.get(name, 'true')}"
        ever = {tuple(row.values()) for row in reader.rows(found)}
        (now,) = reader.row(f"SELECT ({clock_sql(rule, name)}) AS now_ms").values()
        holds = {tuple(row.values()) for row in reader.rows(f"{found} AND end_ms >= {now or 0}")}
    said = {tuple(of) for row in rows for of in product(*(values(row, each) for each in labels))}
    assert labels and said <= ever and holds <= said
    assert len(sentences) == min(len(rows), rule.finding.most) + (len(rows) > rule.finding.most)
    assert all(one.actions or one is sentences[-1] for one in sentences if name not in READ_ON)


READ_ON = {"group-lost-messages"}
"""Rules about what may be over: then there is nothing to do."""


def values(row: dict[str, Any], label: str) -> list[Any]:
    """The values of a label in a row of a finding, which may be about several."""
    return row[f"{label}s"] if isinstance(row.get(f"{label}s"), list) else [row[label]]


def test_whoever_is_near_a_quota_is_told_when_it_will_be_reached(place: Path) -> None:
    """From 80 % on the alert is backlog-quota; the report still says how much time is left."""
    check, row = of_backlog("east", "t1", 0, False, 600.0)
    rule = RULES["backlog-quota-predicted"]
    assert rule.finding is not None
    with emptied(place) as folder:
        put(
            folder,
            {"backlog_checks": [check | {"size_usage": 0.9}], "backlog_subscriptions": [row]},
        )
        reader = ReportReader(Warehouse(folder), ReportSpan())
        assert reader.rows(rule.sql) == [] != reader.rows(RULES["backlog-quota"].sql)
        (found,) = told_of(reader, rule, rule.finding)
    assert found.actions[0].reason == "it reaches its backlog quota in 10 min"


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
    "backlog-quota-predicted": (
        VIEWS["backlog_quota_predictions"].sql,
        ["time_to_quota_s < 3600"],
        ["< 3600"],
    ),
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
