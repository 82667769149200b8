"""A pause is the same one for whoever tells of it: view, finding, question, report, `explain`, metric and
alert, on any warehouse. So are a publish limit that is used up and the victim of a noisy neighbour."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.jobs.rate_limits.explain.pauses import pauses_of
from app.jobs.rate_limits.findings import FINDINGS
from app.jobs.rate_limits.metrics import Throttles
from app.jobs.rate_limits.report import timeline
from app.read.databases import fileless
from app.read.relations import Warehouse, connect
from app.show.explain.ask import Ask
from app.show.explain.nearby_rows import SnapshotReader
from app.show.metrics.entities import Bounds
from app.show.metrics.quota_gauges import QuotaMetrics
from app.show.report.model import Urgency
from app.show.report.report_reader import ReportReader, ReportSpan
from app.tables.definitions import VIEWS
from app.terminal.amounts import seconds_text
from app.terminal.counts import counted
from tests.conftest import ROOT
from tests.support.effort import drawn
from tests.support.throttle_rows import START_MS, event, frame, limiter_of, window, write

MINUTE = 60_000
TOPICS = ("persistent://acme/a/one", "persistent://acme/a/two", "persistent://shop/b/three")
PLACES = (("east", "b1", "c1"), ("east", "b1", "c2"), ("east", "b2", "c1"), ("west", "b1", "c1"))
"""Cluster, broker and connection: names are used again elsewhere."""
SHARED = {"broker": "b1", "connection": "c1", "resource_group": "gold", "unknown": None}
LIMITS = (*(("topic", topic) for topic in TOPICS[:2]), *SHARED.items())
Limit = tuple[str, str | None]
Where = tuple[str, str, str]


@dataclass
class Told:
    """A pause as the test has made it; times in ms from the start."""

    where: Where
    start: int
    limit: Limit
    topics: tuple[str, ...]
    marks: dict[str, int] = field(default_factory=dict)
    """When the limits of topics first held it."""
    end: int | None = None

    @property
    def length_ms(self) -> int:
        return 0 if self.end is None else self.end - self.start

    def row(self) -> tuple[Any, ...]:
        """As the view has it."""
        end_ms = None if self.end is None else START_MS + self.end
        length = None if self.end is None else self.length_ms * 1_000_000
        first = (START_MS + self.start, end_ms, length, self.end is None, self.limit[0])
        return (*self.where, *first, sorted(self.marks), sorted(self.topics))


STEPS = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 999, 30_000, MINUTE - 1, MINUTE, 90_000)),
        st.sampled_from(("mark", "mark", "unmark", "unmark", "gap", "restart")),
        st.sampled_from(LIMITS),
    ),
    max_size=8,
)
CONNECTIONS = st.dictionaries(
    st.sampled_from(PLACES),
    st.tuples(st.sets(st.sampled_from(TOPICS), min_size=1), st.booleans(), STEPS),
)


def played(
    connections: dict[Where, tuple[set[str], bool, Any]],
) -> tuple[list[dict[str, Any]], list[Told]]:
    """Rows of throttle_events of connections by what happens to them, and their pauses. What is observed
    is paused by reports of the broker. A gap ends what was seen half of the time before it."""
    rows: list[dict[str, Any]] = []
    pauses: list[Told] = []
    for place, (topics, observed, steps) in connections.items():
        held: list[Limit] = []
        at, clock_ms = 0, 0
        for after, what, (kind, name) in steps:
            # no broker is there again within a ms
            before, at = at, at + (max(after, 1) if what == "restart" else after)
            who = name if kind == "topic" else min(topics)
            if kind == "topic" and name not in topics:
                continue
            own = {"limiter": kind, "limiter_name": name, "culprit_topic": who, "topic": who}
            common = dict(zip(("cluster", "broker", "cnx_id"), place, strict=True))
            common |= {"row_no": len(rows), "collateral_topics": sorted(topics - {who})}
            clock = {"ts_mono_ns": (at - clock_ms) * 1_000_000}
            if what == "mark":
                if not held:
                    pauses.append(Told(place, at, (kind, name), tuple(topics)))
                    if observed:  # the limiter acts before the broker reports
                        early = {"reads_paused": False}
                        rows.append(event(at, "mark", **{**common, **own, **clock, **early}))
                        common["row_no"] = len(rows)
                held.append((kind, name))
                if kind == "topic":
                    pauses[-1].marks.setdefault(who, at)
                changed = {
                    "transition": "ConnectionStateChanged" if len(held) == 1 else "TypeStateChanged"
                }
                action = "pause" if observed and len(held) == 1 else "mark"
                changed |= {"reads_paused": True}
                rows.append(event(at, action, **{**common, **own, **clock, **changed}))
            elif held and what == "unmark":
                kind, name = held.pop(0)
                who = name if kind == "topic" else min(topics)
                own = {"limiter": kind, "limiter_name": name, "culprit_topic": who, "topic": who}
                last = {"reads_paused": bool(held)}
                rows.append(event(at, "unmark", **{**common, **own, **clock, **last}))
                if not held:
                    pauses[-1].end = at
            elif held:
                seen_ms = before + (at - before) // 2
                held = []
                if what == "gap":
                    last = {"rule": "gap", "seen_until_ns": (seen_ms - clock_ms) * 1_000_000}
                    pauses[-1].end = seen_ms
                else:
                    last, clock_ms = {"rule": "connection_closed"}, at + 10_000_000
                    clock = {"ts_mono_ns": (at - clock_ms) * 1_000_000}
                    pauses[-1].end = at
                rows.append(event(at, "unmark", **{**common, **own, **clock, **last}))
    return rows, pauses


def windows(pauses: list[Told]) -> list[dict[str, Any]]:
    """Rows of topic_throttle_stats of these pauses, those that have not ended up to three hours."""
    found: dict[tuple[str, str, str, int], Counter[str]] = defaultdict(Counter)
    for pause in pauses:
        until = 3 * 60 * MINUTE if pause.end is None else pause.end
        for topic in pause.topics:
            own = pause.marks.get(topic)
            role = "culprit" if own == pause.start else "collateral"
            role = "shared" if pause.limit[0] != "topic" else role
            at = pause.start // MINUTE
            found[pause.where[0], pause.where[1], topic, at][f"{role}_times"] += 1
            for minute in range(at, until // MINUTE + 1):
                edges = (max(pause.start, minute * MINUTE), min(until, (minute + 1) * MINUTE))
                turn = edges[1] if own is None else min(max(own, edges[0]), edges[1])
                sums = found[pause.where[0], pause.where[1], topic, minute]
                other = "shared" if pause.limit[0] != "topic" else "collateral"
                sums[f"{other}_ns"] += max(0, turn - edges[0]) * 1_000_000
                sums["culprit_ns"] += max(0, edges[1] - turn) * 1_000_000
    return [
        window(
            minute,
            cluster=cluster,
            broker=broker,
            topic=topic,
            limited_times=sum(n for name, n in sums.items() if name.endswith("_times")),
            **sums,
        )
        for (cluster, broker, topic, minute), sums in found.items()
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("facts")


@contextmanager
def stored(place: Path, tables: dict[str, list[dict[str, Any]]]) -> Iterator[Warehouse]:
    """A warehouse with these rows, which goes with it."""
    folder = place / "warehouse"
    for name, rows in tables.items():
        write(str(folder), name, rows)
    try:
        yield Warehouse(str(folder))
    finally:
        shutil.rmtree(folder)


def rule(name: str) -> str:
    file = ROOT / "app" / "jobs" / "rate_limits" / "alerts" / f"{name}.yaml"
    (found,) = yaml.safe_load(file.read_text("utf-8"))
    return str(found["sql"])


def counted_by(metric: Throttles) -> dict[tuple[str, ...], float]:
    """Pauses that begin and end, and those that are open, by cluster and broker."""
    names = (
        "pulsar_broker_connection_rate_limit_count_total",
        "pulsar_broker_throttled_connections",
    )
    return {labels: value for name, labels, value in metric.samples() if name in names}


def taken(halves: list[list[dict[str, Any]]]) -> dict[tuple[str, ...], float]:
    """What the metric shows after rows that it reads one part after the other."""
    part = Throttles(Bounds(10, 1000))
    for rows in halves:
        with fileless() as fresh:
            for name in Throttles.reads:
                own = rows if name == "throttle_events" else []
                fresh.register(name, frame(name, own))
            part.take(fresh)
    return counted_by(part)


@drawn(100)
@given(connections=CONNECTIONS, cut=st.integers(0, 20))
def test_a_pause(
    connections: dict[Where, tuple[set[str], bool, Any]], cut: int, place: Path
) -> None:
    rows, pauses = played(connections)
    tables = {
        "throttle_events": rows,
        "topic_throttle_stats": windows(pauses),
        "producer_throttle": [],
        "limiter_stats": [],
    }
    with stored(place, tables) as warehouse:
        reader = ReportReader(warehouse, ReportSpan())
        with connect(warehouse) as opened:
            view = opened.execute(
                "SELECT cluster, broker, cnx_id, start_ms, end_ms, paused_ns, is_open, limiter,"
                " culprit_topics, topics FROM throttle_intervals"
            ).fetchall()
            alert = opened.execute(rule("noisy-neighbour-victim")).fetchall()
            victims = opened.execute(
                "SELECT cluster, broker, topic, window_start_ms, share FROM noisy_neighbour_victims"
            ).fetchall()
        limits = reader.ask("shared-limits", 1000)
        pairs = reader.ask("blame", 1000, by="pair")
        (text,) = timeline(reader).sentences if rows else ("",)
        (findings,) = FINDINGS
        actions = [a for one in findings.findings(reader) for a in one.actions]
        snapshot = SnapshotReader(warehouse, ["throttle_events"])
        asked = Ask("connection", ("c1", "c2"), START_MS, 0, 2 * START_MS, limit=1000)
        explained = pauses_of(snapshot, asked) if rows else []
    assert sorted(view, key=str) == sorted((p.row() for p in pauses), key=str)
    assert Counter(
        (
            p.first["cluster"],
            p.first["broker"],
            p.first["cnx_id"],
            p.first["ts_wall_ms"],
            p.paused_ns,
        )
        for p in explained
    ) == Counter((*p.where, START_MS + p.start, p.length_ms * 1_000_000) for p in pauses)
    assert _summed(limits) == _sums(pauses, shared=True)
    assert {
        (row["cluster"], row["culprit"], row["victim"]): (row["pauses"], row["paused_s"] or 0.0)
        for row in pairs
    } == _pairs(pauses)
    open_now = sum(p.end is None for p in pauses)
    if pauses:
        where = len({p.where for p in pauses})
        longest = max((p.length_ms for p in pauses if p.end is not None), default=None)
        assert text == (
            f"{counted(where, 'connection')} {'was' if where == 1 else 'were'} paused"
            f" {counted(len(pauses), 'time')}"
            + ("" if longest is None else f", the longest time for {seconds_text(longest / 1e3)}")
            + (
                f"; {open_now} {'is' if open_now == 1 else 'are'} still paused at the end."
                if open_now
                else "."
            )
        )
    assert len(actions) == min(8, len({_cause(p) for p in pauses}))
    assert sum(int(a.reason.split()[0]) for a in actions) == len(pauses)
    assert {a.topic for a in actions if a.urgency is Urgency.OWN} <= {*TOPICS}
    assert any(a.lasts for a in actions) == bool(open_now)
    expected: Counter[tuple[str, ...]] = Counter()
    for p in pauses:
        expected[p.where[0], p.where[1], "paused"] += 1
        expected[p.where[0], p.where[1], "resumed"] += p.end is not None
        expected[p.where[:2]] += p.end is None
    in_time = sorted(rows, key=lambda row: (row["ts_wall_ms"], row["ts_mono_ns"], row["row_no"]))
    times = sorted({row["ts_wall_ms"] for row in rows})
    edge = times[cut % len(times)] if times else 0
    parts = [[r for r in in_time if (r["ts_wall_ms"] >= edge) == late] for late in (False, True)]
    for metric in (taken([rows]), taken(parts)):
        shown = {
            key: n for key, n in metric.items() if n and key[-1] not in ("throttled", "unthrottled")
        }
        assert shown == {key: n for key, n in expected.items() if n}
    of_rule = {row[:5]: row[6] for row in alert}
    assert {row[:4] for row in victims} == _victims(tables["topic_throttle_stats"])
    assert {(*key[:4],) for key in of_rule} == {row[:4] for row in victims}
    blamed = {(cluster, victim) for cluster, _, victim in _pairs(pauses)}
    culprits = defaultdict(set)
    for cluster, culprit, victim in _pairs(pauses):
        culprits[cluster, victim].add(culprit)
    for (cluster, _, topic, *_), names in of_rule.items():
        assert (cluster, topic) in blamed and {*names.split(", ")} <= culprits[cluster, topic]
        assert any(
            f"{a.topic}" in culprits[cluster, topic] and a.urgency is Urgency.OTHERS
            for a in actions
        )


def _cause(pause: Told) -> tuple[Any, ...]:
    """As a finding has it: a topic's own limit is one in its cluster."""
    kind, name = pause.limit
    cluster, broker, _ = pause.where
    return (cluster, kind, name) if kind == "topic" else (cluster, broker, kind, name or broker)


def _sums(pauses: list[Told], shared: bool) -> dict[tuple[Any, ...], tuple[int, float, int]]:
    """Pauses, their time (s) and topics by shared limit."""
    found: dict[tuple[Any, ...], list[Told]] = defaultdict(list)
    for pause in pauses:
        if (pause.limit[0] != "topic") == shared:
            found[(*pause.where[:2], *pause.limit)].append(pause)
    return {
        key: (
            len(several),
            sum(p.length_ms for p in several) / 1e3,
            len({topic for p in several for topic in p.topics}),
        )
        for key, several in found.items()
    }


def _summed(limits: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[int, float, int]]:
    return {
        (row["cluster"], row["broker"], row["limiter"], row["limiter_name"]): (
            row["pauses"],
            row["paused_s"] or 0.0,
            row["topics"],
        )
        for row in limits
    }


def _pairs(pauses: list[Told]) -> dict[tuple[str, str, str], tuple[int, float]]:
    """Pauses and their time (s) by cluster, culprit and victim."""
    found: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for pause in pauses:
        for culprit in pause.marks:
            for victim in {*pause.topics} - {culprit}:
                found[pause.where[0], culprit, victim].append(pause.length_ms)
    return {key: (len(lengths), sum(lengths) / 1e3) for key, lengths in found.items()}


def _victims(stats: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """Topic windows with a tenth of the time for others' limits, and none for the own one."""
    return {
        (row["cluster"], row["broker"], row["topic"], row["window_start_ms"])
        for row in stats
        if row["culprit_ns"] == 0 and row["collateral_ns"] >= row["window_ms"] * 100_000
    }


USED = st.tuples(
    st.sampled_from([0, 4799, 4800, 5999, 6000, 9000]),  # messages of a minute, of 100 per s
    st.booleans(),  # a charge left nothing
    st.sampled_from([0, 30_000 * 1_000_000 - 1, 30_000 * 1_000_000]),  # held back (ns)
)
ENTITIES = [
    (cluster, broker, kind, name)
    for cluster, broker, _ in PLACES[1:]
    for kind, name in (("topic", TOPICS[0]), ("resource_group", "gold"), ("connection", "c1"))
]


@drawn(200)
@given(
    uses=st.dictionaries(
        st.sampled_from(ENTITIES), st.dictionaries(st.integers(0, 24), USED, min_size=1)
    )
)
def test_a_publish_limit_that_is_used_up(
    uses: dict[tuple[str, str, str, str], dict[int, tuple[int, bool, int]]],
) -> None:
    limiters, topics, expected, now = [], [], set(), {}
    for (cluster, broker, kind, name), minutes in uses.items():
        at = {"cluster": cluster, "broker": broker}
        is_rate, near, reached = kind != "connection", set(), set()
        over = set()
        for minute, (used, empty, held_ns) in minutes.items():
            row = limiter_of(window(minute, messages=used), **at, limiter=kind, limiter_name=name)
            level = {
                "limit_msgs": None,
                "messages": None,
                "limit_level": 100,
                "max_level": used // 60,
            }
            row |= {"min_balance_msgs": 0 if empty else 1} if is_rate else level
            limiters.append(row)
            is_held = kind == "topic" and held_ns == 30_000 * 1_000_000
            if kind == "topic":
                topics.append(window(minute, **at, topic=name, culprit_ns=held_ns))
            ratio = used / 6000 if is_rate else used // 60 / 100
            if ratio > 1 or (empty if is_rate else ratio >= 1):
                reached.add(minute)
            over |= {minute} if is_held or (is_rate and ratio >= 1) else set()
            near |= {minute} if minute in {*over, *reached} or ratio >= 0.8 else set()
            now[cluster, broker, kind, name, minute] = (ratio, minute in reached)
        for minute in near:
            since = next(m for m in range(minute, -2, -1) if m - 1 not in near)
            if minute in over or minute - since >= 4:
                sustained = {*range(minute - 9, minute + 1)} <= reached
                expected.add((cluster, broker, kind, name, minute, sustained, minute in over))
    with fileless() as opened:
        for table, rows in (
            ("limiter_stats", limiters),
            ("topic_throttle_stats", topics),
            ("throttle_events", []),
        ):
            opened.register(table, frame(table, rows))
        opened.execute(
            f"CREATE OR REPLACE TEMP VIEW publish_limit_windows AS {VIEWS['publish_limit_windows'].sql}"
        )
        view = opened.execute(
            "SELECT cluster, broker, limiter, entity, (window_start_ms - $start) // $minute,"
            " is_sustained, is_over FROM publish_limit_windows",
            {"start": START_MS, "minute": MINUTE},
        ).fetchall()
        alert = opened.execute(
            "SELECT cluster, broker, limiter, entity, (end_ms - $start) // $minute - 1,"
            f" severity = 'critical' FROM ({rule('publish-limit')})",
            {"start": START_MS, "minute": MINUTE},
        ).fetchall()
        part = QuotaMetrics(Bounds(100, 10**9, share=0.8))
        for name in {*QuotaMetrics.reads} - {"limiter_stats"}:
            opened.register(name, frame(name, []))
        part.take(opened)
    assert {*view} == expected and len(view) == len(expected)
    assert {*alert} == {row[:6] for row in expected}
    gauges = {(name, labels[1:]): value for name, labels, value in part.samples()}
    newest = max((minute for *_, minute in now), default=0)
    for (cluster, broker, kind, name), minutes in uses.items():
        ratio, reached = now[cluster, broker, kind, name, max(minutes)]
        if max(minutes) >= newest - 1 and (ratio >= 0.8 or reached):
            assert gauges["weir_quota_used_ratio", (cluster, broker, name)] == pytest.approx(ratio)
            assert gauges["weir_quota_breached", (cluster, broker, name)] == reached
