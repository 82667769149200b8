"""Report, ready questions, `explain` and metrics agree about one warehouse: pauses
for own limits, shared limits and limits of other topics, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.settings import Settings
from tests.support.exporter import value, whole
from tests.support.throttle_rows import write
from tests.unit.show.explain.asking import ALL, texts
from tests.unit.show.explain.rows import of_job
from tests.unit.state.trace import play, publish, record
from tests.unit.state.traces import document

S, MS = 1_000_000_000, 1_000_000
NOISY, QUIET = "persistent://shop/web/noisy", "persistent://shop/web/quiet"
FIRST, SECOND, OUTSIDE = (
    "persistent://bank/batch/first",
    "persistent://bank/batch/second",
    "persistent://shop/web/outside",
)
LARGE, SMALL = "persistent://shop/app/large", "persistent://shop/app/small"
MANY, FEW = "persistent://shop/app/many", "persistent://shop/app/few"
LIMITS = [
    document("topic", NOISY, publishRateInMsgs=10),
    document("namespace", "bank/batch", resource_group="batch"),
    document("resource_group", "batch", publishRateInMsgs=10),
    document(
        "broker",
        "*",
        brokerPublisherThrottlingMaxMessageRate=1000,
        maxPendingPublishRequestsPerConnection=3,
    ),
]
ON = {"c1": (NOISY, QUIET), "c2": (FIRST, SECOND, OUTSIDE), "c3": (LARGE, SMALL), "c4": (MANY, FEW)}


def _sent(at_ns: int, topic: str, messages: int) -> list[dict[str, Any]]:
    """A publish whose entry is added a microsecond later."""
    cnx = next(name for name, topics in ON.items() if topic in topics)
    return [
        publish(at_ns, topic, cnx, 1 + ON[cnx].index(topic), messages),
        record(
            "entry_added",
            at_ns + 1000,
            cnx_id=cnx,
            topic=topic,
            ledger_id=1,
            entry_id=1,
            entry_bytes=1,
        ),
    ]


TRACE = [
    *(
        record(
            "producer_created",
            0,
            cnx_id=cnx,
            topic=topic,
            producer_id=1 + number,
            producer_name="p",
        )
        for cnx, topics in ON.items()
        for number, topic in enumerate(topics)
    ),
    # Ten of ten a second leave nothing: 100 ms and 1 ns, twice.
    *_sent(S, NOISY, 10),
    *_sent(3 * S, NOISY, 10),
    *_sent(4 * S, QUIET, 30),
    *_sent(20 * S, FIRST, 7),
    *_sent(20 * S + MS, SECOND, 4),
    # A thousand of a thousand a second: 10 of them are there after 20 ms and 2 ns.
    *_sent(29 * S, SMALL, 100),
    *_sent(31 * S, LARGE, 1000),
    # The third request in flight pauses the connection, the second answer ends that.
    *(publish(40 * S, MANY, "c4", 1) for _ in range(2)),
    publish(40 * S, FEW, "c4", 2),
    *(
        record(
            "entry_added",
            40 * S + 50 * MS,
            cnx_id="c4",
            topic=MANY,
            ledger_id=1,
            entry_id=1,
            entry_bytes=1,
        )
        for _ in range(2)
    ),
]
OWN, GROUP, BROKER, CNX = 2 * (100 * MS + 1), 200 * MS + 1, 20 * MS + 2, 50 * MS
EXPECTED = {
    # pauses and time: for its own limit, for shared ones, for those of others
    NOISY: ((2, 0, 0), (OWN, 0, 0)),
    QUIET: ((0, 0, 2), (0, 0, OWN)),
    FIRST: ((0, 1, 0), (0, GROUP, 0)),
    SECOND: ((0, 1, 0), (0, GROUP, 0)),
    OUTSIDE: ((0, 0, 1), (0, 0, GROUP)),
    LARGE: ((0, 1, 0), (0, BROKER, 0)),
    SMALL: ((0, 1, 0), (0, BROKER, 0)),
    MANY: ((0, 1, 0), (0, CNX, 0)),
    FEW: ((0, 1, 0), (0, CNX, 0)),
}
SHARED = [
    # limiter, its name, pauses, paused (s), topics on its connections, most used by
    ("resource_group", "batch", 1, GROUP / S, 3, FIRST),
    ("connection", "c4", 1, CNX / S, 2, MANY),
    ("broker", "b1", 1, BROKER / S, 2, LARGE),
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("numbers") / "warehouse")
    records = [{**r, "seq": number} for number, r in enumerate(TRACE)]
    for table, rows in play([records], policies=LIMITS, drain_ms=600_000).items():
        write(folder, table, of_job("rate_limits", "c", rows))
    Path(folder, "_weir").mkdir()
    return folder


def asked(capsys: pytest.CaptureFixture[str], warehouse: str, *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--warehouse", warehouse, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_tables_have_what_was_worked_out(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sums = ", ".join(
        f"sum({name}_{unit})::BIGINT"
        for unit in ("times", "ns")
        for name in ("culprit", "shared", "collateral")
    )
    rows = asked(
        capsys,
        warehouse,
        "query",
        f"SELECT topic, [{sums}] AS n FROM topic_throttle_stats GROUP BY topic",
    )
    assert {row["topic"]: (tuple(row["n"][:3]), tuple(row["n"][3:])) for row in rows} == EXPECTED


def test_the_questions_agree(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    offenders = asked(capsys, warehouse, "query", "blame")
    assert [(r["topic"], r["broke_its_limit"], r["paused_s"]) for r in offenders] == [
        (NOISY, 2, OWN / S)
    ]
    victims = asked(capsys, warehouse, "query", "blame", "--by", "victim")
    assert {(r["topic"], r["paused_by_others"]) for r in victims} == {(QUIET, 2), (OUTSIDE, 1)}
    pairs = asked(capsys, warehouse, "query", "blame", "--by", "pair")
    assert [(r["culprit"], r["victim"], r["pauses"]) for r in pairs] == [(NOISY, QUIET, 2)]
    pauses = asked(
        capsys,
        warehouse,
        "query",
        "SELECT culprit_topics AS c, shared_limits AS s, count(*) AS n"
        " FROM throttle_intervals GROUP BY ALL ORDER BY ALL",
    )
    assert [(r["c"], r["s"], r["n"]) for r in pauses] == [
        ([], ["broker b1"], 1),
        ([], ["connection c4"], 1),
        ([], ["resource_group batch"], 1),
        ([NOISY], [], 2),
    ]
    shared = asked(capsys, warehouse, "query", "shared-limits")
    assert [
        (
            r["limiter"],
            r["limiter_name"],
            r["pauses"],
            r["paused_s"],
            r["topics"],
            r["most_used_by"],
        )
        for r in shared
    ] == SHARED


def test_the_report_begins_with_the_sentences_of_what_happened(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = [
        "Topic shop/web/noisy exceeded its limit 2 times; it and 1 other topic were paused for 0.2"
        " s, summed over pauses.",
        "Resource group batch was over its limit on b1 once: connections with 3 topics were paused"
        " for 0.2 s; bank/batch/first used most (64 % of the messages).",
        "Connection c4 had too many requests in flight once: connections with 2 topics were paused"
        " for 0.1 s; shop/app/many used most (67 % of the messages).",
        "Broker b1 was over its own limit once: connections with 2 topics were paused for 0.0 s;"
        " shop/app/large used most (86 % of the messages).",
    ]
    report = asked(capsys, warehouse, "report")
    assert report["sections"]["what-happened"]["sentences"][:4] == expected
    assert [(row["remedy"], row["reason"]) for row in report["actions"]] == [
        (
            "Raise the publish limit of shop/web/noisy, or split it",
            "2 pauses, 0.2 s in all, and 1 other topic paused with it",
        ),
        (
            "Raise the limit of resource group batch, or move topics out of it",
            "1 pause, 0.2 s in all, of 3 topics; bank/batch/first used 64 % of it",
        ),
        (
            "Give the producers of connection c4 more connections, or raise "
            "maxPendingPublishRequestsPerConnection",
            "1 pause, 0.1 s in all, of 2 topics; shop/app/many used 67 % of it",
        ),
        (
            "Move topics off b1, or raise its publish limit",
            "1 pause, 0.0 s in all, of 2 topics; shop/app/large used 86 % of it",
        ),
    ]


def test_the_report_shows_the_classes_of_the_tables(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    section = asked(capsys, warehouse, "report")["sections"]["culprits"]
    assert section["sentences"][0].startswith(
        "1 topic exceeded its own limit; 2 topics were paused for the limits of others."
    )
    parts = {part["title"]: part["rows"] for part in section["parts"]}
    bars = {(row["name"], row["kind"]): row["value"] for row in parts["Top culprits"]}
    assert bars == {
        ("shop/web/noisy", "own limit"): round(OWN / S, 3),
        ("shop/web/noisy", "shared limit"): 0,
        ("shop/web/noisy", "others' limits"): 0,
    }
    assert {row["name"] for row in parts["Top victims"]} == {"shop/web/quiet", "shop/web/outside"}
    assert [
        (r["limiter"], r["limiter_name"], r["pauses"]) for r in parts["Limits that topics share"]
    ] == [row[:3] for row in SHARED]


@pytest.mark.parametrize("topic", EXPECTED)
def test_explain_counts_the_same_pauses(
    topic: str, warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own, shared, others = EXPECTED[topic][0]
    found = [
        text
        for _, rule, text in texts(capsys, warehouse, "topic", topic, *ALL)
        if rule == "window" and "its connections were paused" in text
    ]
    times = "1 time" if own + shared + others == 1 else f"{own + shared + others} times"
    assert len(found) == 1
    assert (
        f"paused {times}, {own} for its own limit, {shared} for limits that it shares and"
        f" {others} for the limits of other topics"
    ) in found[0]


def test_explain_names_a_shared_limit_and_who_used_most_of_it(
    warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = " ".join(text for _, _, text in texts(capsys, warehouse, "topic", SMALL, *ALL))
    assert f"broker b1 used up its own limit at a publish of {LARGE}" in found
    assert f"{LARGE} used most of it, with 86 % of the messages in that window" in found
    found = " ".join(text for _, _, text in texts(capsys, warehouse, "topic", FIRST, *ALL))
    assert f"resource group batch used up its limit at a publish of {SECOND}" in found
    assert f"{FIRST} used most of it, with 64 % of the messages in that window" in found


@pytest.mark.parametrize("topic", EXPECTED)
def test_the_exporter_counts_the_same_pauses(
    topic: str, warehouse: str, make_settings: Callable[..., Settings]
) -> None:
    found = whole(make_settings(warehouse=warehouse, metrics={"idle_s": 10**9}))
    for role, times, ns in zip(("culprit", "shared", "collateral"), *EXPECTED[topic], strict=True):
        about = {"topic": topic, "role": role}
        assert value(found, "weir_topic_pauses_total", **about) == times
        assert value(found, "weir_topic_paused_seconds_total", **about) == pytest.approx(ns / S)
