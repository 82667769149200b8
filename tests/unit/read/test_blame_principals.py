"""Whose connections were paused because of whose publishes: every row by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.read.table_relation import FEW_FILES
from tests.support.blame_principals import (
    ALICE,
    BOB,
    PAIR,
    USED,
    Json,
    archived,
    opened,
    pause,
    published,
)
from tests.support.charges import PAUSES, Ask, ask
from tests.support.throttle_rows import OTHER, TOPIC, event, write

__all__ = ["ask"]

DAY = 86_400_000


def pairs(ask: Ask, pauses: list[Json], events: list[Json], *params: str) -> list[Json]:
    return ask("blame", "by=principal-pair", *params, throttle_events=pauses, events=events)


def names(found: list[Json]) -> list[tuple[str | None, str | None]]:
    return [(row["culprit"], row["victim"]) for row in found]


def test_one_principal_uses_up_the_limit_of_a_topic_that_two_publish_to(ask: Ask) -> None:
    """Alice had three quarters of the second before; what bob sent earlier does not count. In
    another pause, for a limit that is shared, nobody is the culprit."""
    shared = pause(5000, 8000, "c2", limiter="broker")
    early = published(-801, "c2", 1000)
    found = pairs(ask, [*pause(200, 1200, "c2"), *shared], [ALICE, BOB, early, *USED])
    assert found == [{**PAIR, "share_of_victims_pauses": 0.25}]


def test_what_digests_sum_up_counts_as_well(ask: Ask) -> None:
    summed = {"event_type": "publish_digest", "publishes": 5}
    used = [published(100, "c1", 75, **summed), published(200, "c2", 25)]
    found = pairs(ask, pause(200, 1200, "c2"), [ALICE, BOB, *used])
    assert found == [PAIR]


def test_levels_of_topics_leave_that_pair_out(ask: Ask) -> None:
    assert (
        ask("blame", "by=pair", throttle_events=pause(200, 1200, "c2", collateral_topics=[])) == []
    )


def test_the_debt_that_one_has_left_pauses_another_seconds_later(ask: Ask) -> None:
    """Alice's burst at 3 s is repaid at 9 s. Bob sends one message at 6 s, in a second in which
    nobody else sent any."""
    pauses = [
        event(3000, "mark", cnx_id="c1", waiting=1),
        event(6000, "mark", cnx_id="c2", waiting=2),
        event(9000, "unmark", cnx_id="c1", waiting=1),
        event(9000, "unmark", cnx_id="c2", waiting=0, row_no=1),
        # What is left of it is forgotten once the bucket pauses nobody.
        *pause(9500, 9600, "c2"),
    ]
    found = pairs(
        ask,
        pauses,
        [
            ALICE,
            BOB,
            published(3000, "c1", 999),
            published(6000, "c2", 1),
            published(9500, "c2", 500),
        ],
    )
    at = "2023-11-14T22:14:06Z"
    assert found == [
        {
            **PAIR,
            "paused_s": 3.0,
            "share_of_victims_pauses": 30 / 31,
            "culprit_share": 0.999,
            "victim_share": 0.001,
            "first_pause": at,
            "last_pause": at,
        }
    ]


def test_a_pause_of_many_marks_counts_once_for_each_culprit(ask: Ask) -> None:
    pauses = [
        event(200, "mark", cnx_id="c2"),
        event(
            400,
            "mark",
            cnx_id="c2",
            topic=OTHER,
            culprit_topic=OTHER,
            transition="TypeStateChanged",
        ),
        event(500, "mark", cnx_id="c2", waiting=2, transition="TypeStateChanged"),
        event(1200, "unmark", cnx_id="c2"),
    ]
    found = pairs(
        ask,
        pauses,
        [
            ALICE,
            BOB,
            opened(0, "c3", "carol"),
            *USED,
            published(300, "c3", 9, topic=OTHER),
            published(400, "c2", 1, topic=OTHER),
        ],
    )
    assert found == [
        PAIR,
        {**PAIR, "culprit": "carol", "topic": OTHER, "culprit_share": 0.9, "victim_share": 0.1},
    ]


@pytest.mark.parametrize(
    ("balances", "culprit"),
    [
        ({"balance_msgs": 0, "balance_bytes": -1}, "User:alice"),
        ({"balance_msgs": 1, "balance_bytes": 0}, "carol"),
        ({"balance_msgs": None, "balance_bytes": -9}, "carol"),
    ],
)
def test_what_counts_is_what_was_used_up(
    ask: Ask, balances: dict[str, int | None], culprit: str
) -> None:
    events = [ALICE, BOB, opened(0, "c3", "carol"), *USED, published(150, "c3", 1, 10**6)]
    assert names(pairs(ask, pause(200, 1200, "c2", **balances), events)) == [(culprit, "app:bob")]


def test_marks_of_one_time_may_be_of_different_buckets(ask: Ask) -> None:
    """At the first the bytes are used up, which are carol's, at the second the messages as well."""
    events = [ALICE, BOB, opened(0, "c3", "carol"), *USED, published(150, "c3", 1, 10**6)]
    pauses = [
        event(200, "mark", cnx_id="c2", balance_msgs=1, balance_bytes=0),
        event(200, "mark", cnx_id="c2", waiting=2, row_no=1, transition="TypeStateChanged"),
        event(1200, "unmark", cnx_id="c2"),
    ]
    assert names(pairs(ask, pauses, events)) == [("User:alice", "app:bob"), ("carol", "app:bob")]


@pytest.mark.parametrize("mono_ns", [-(2**63), 2**63 - 1])
def test_numbers_at_the_edges(ask: Ask, mono_ns: int) -> None:
    most = 2**63 - 1
    events = [
        {**row, "ts_mono_ns": mono_ns}
        for row in (
            ALICE,
            BOB,
            published(100, "c1", 2**31 - 1, most),
            published(110, "c1", 2**31 - 1, most),
            published(200, "c2", 1, most),
        )
    ]
    pauses = [{**row, "ts_mono_ns": mono_ns} for row in pause(200, 1200, "c2")]
    (row,) = pairs(ask, pauses, events)
    assert (row["culprit"], row["victim"]) == ("User:alice", "app:bob")
    assert row["culprit_share"] == (2**32 - 2) / (2**32 - 1)


@pytest.mark.parametrize(("sizes", "culprit"), [((5, 6), "carol"), ((6, 6), "User:alice")])
def test_of_equals_the_other_amount_decides_then_the_name(
    ask: Ask, sizes: tuple[int, int], culprit: str
) -> None:
    events = [
        ALICE,
        BOB,
        opened(0, "c3", "carol"),
        published(100, "c1", 7, sizes[0]),
        published(110, "c3", 7, sizes[1]),
    ]
    assert names(pairs(ask, pause(200, 1200, "c2"), events)) == [(culprit, "app:bob")]


def test_connections_of_a_principal_count_together_and_never_against_it(ask: Ask) -> None:
    """Of 120 messages alice's two connections sent 75, bob's one 45."""
    events = [
        ALICE,
        BOB,
        opened(0, "c3", "User:alice"),
        published(100, "c1", 35),
        published(110, "c3", 40),
        published(120, "c2", 45),
    ]
    pauses = [*pause(200, 1200, "c2"), *pause(200, 1200, "c3", row_no=7)]
    assert pairs(ask, pauses, events) == [{**PAIR, "culprit_share": 0.625, "victim_share": 0.375}]


def test_a_connection_id_that_is_used_again_is_another_connection(ask: Ask) -> None:
    """The broker's clock begins anew with its process: in the second run c1 is carol's. In the
    third nobody has opened it, in the fourth it is closed."""

    def run(start_ms: int, *rows: Json) -> list[Json]:
        began = archived(start_ms, "broker_started", None)
        return [
            {**row, "ts_mono_ns": row["ts_mono_ns"] - start_ms * 1_000_000}
            for row in (began, *rows)
        ]

    def paused(start_ms: int) -> list[Json]:
        return [
            {**row, "ts_mono_ns": row["ts_mono_ns"] - start_ms * 1_000_000}
            for row in pause(start_ms + 1000, start_ms + 2000, "c2")
        ]

    def used(start_ms: int) -> Json:
        return published(start_ms + 900, "c1", 9)

    events = [
        *run(-9000, opened(-8999, "c1", "User:alice"), opened(-8999, "c2", "app:bob"), used(-9000)),
        *run(0, opened(10, "c1", "carol"), opened(10, "c2", "app:bob"), used(0)),
        *run(10_000, opened(10_010, "c2", "app:bob"), used(10_000)),
        *run(
            20_000,
            opened(20_010, "c1", "dave"),
            opened(20_010, "c2", "app:bob"),
            archived(20_500, "connection_closed", "c1"),
            used(20_000),
        ),
    ]
    pauses = [row for start in (-9000, 0, 10_000, 20_000) for row in paused(start)]
    found = pairs(ask, pauses, events)
    assert {row["culprit"]: row["pauses"] for row in found} == {
        "User:alice": 1,
        "carol": 1,
        None: 2,
    }
    assert {row["victim"] for row in found} == {"app:bob"}


@pytest.mark.parametrize(
    "events",
    [
        [BOB, *USED],  # never opened
        [opened(150, "c1", "User:alice"), BOB, *USED],  # after it published
        [opened(-5000, "c1", None), BOB, *USED],  # without authentication
        [opened(-5000, "c1", ""), BOB, *USED],
        [opened(-5000, "c1", "User:alice", broker="b2"), BOB, *USED],
        [opened(-5000, "c1", "User:alice", cluster="west"), BOB, *USED],
        [ALICE, archived(50, "connection_closed", "c1"), BOB, *USED],
        [BOB],  # the archive has no publishes
    ],
)
def test_a_culprit_that_is_not_known_is_null(ask: Ask, events: list[Json]) -> None:
    (row,) = pairs(ask, pause(200, 1200, "c2"), events)
    assert (row["culprit"], row["victim"], row["paused_s"]) == (None, "app:bob", 1.0)
    assert (row["culprit_share"], row["victim_share"]) == (
        (0.75, 0.25) if len(events) > 1 else (None, None)
    )


def test_a_victim_that_is_not_known_is_null(ask: Ask) -> None:
    found = pairs(ask, pause(200, 1200, "c2"), [ALICE, *USED])
    assert found == [{**PAIR, "victim": None}]


def test_two_that_are_not_known_are_a_pair_unless_they_are_one_connection(ask: Ask) -> None:
    """c1 alone used the limit by which it was paused; by c2's pause somebody else was involved."""
    first = [published(100, "c1", 5), *USED]
    later = [published(5000, "c1", 5)]
    pauses = [*pause(200, 1200, "c2"), *pause(5000, 6000, "c1")]
    found = pairs(ask, pauses, [*first, *later])
    assert [(row["culprit"], row["victim"], row["pauses"]) for row in found] == [(None, None, 1)]


def test_records_that_the_archive_has_twice_count_once(ask: Ask) -> None:
    """Alice's is repeated: once it is less than bob's, who is the victim himself."""
    repeated = [published(100, "c1", 15, seq=4), published(100, "c1", 15, seq=4)]
    found = pairs(ask, pause(200, 1200, "c2"), [ALICE, BOB, *repeated, USED[1]])
    assert found == []


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": TOPIC.removeprefix("persistent://")},
        {"topic": TOPIC.removeprefix("persistent://"), "partition": -1},
    ],
)
def test_feeds_may_spell_the_topic_in_other_ways(ask: Ask, changes: Json) -> None:
    events = [ALICE, BOB, published(100, "c1", 75, **changes), USED[1]]
    assert pairs(ask, pause(200, 1200, "c2"), events) == [PAIR]


def test_partitions_are_topics_of_their_own(ask: Ask) -> None:
    name = f"{TOPIC}-partition-3"
    events = [
        ALICE,
        BOB,
        published(100, "c1", 75, partition=3),
        published(200, "c2", 25, topic=name),
        published(150, "c2", 999),
    ]
    found = pairs(ask, pause(200, 1200, "c2", topic=name, culprit_topic=name), events)
    assert found == [{**PAIR, "topic": name}]


def test_owners_of_principals(ask: Ask) -> None:
    events = [opened(-5000, "c1", "app:etl-7"), BOB, *USED]
    (row,) = pairs(ask, pause(200, 1200, "c2"), events)
    assert (row["culprit"], row["culprit_team"], row["victim_team"]) == ("app:etl-7", "data", None)


def test_pauses_of_the_asked_time(ask: Ask) -> None:
    pauses = [*pause(200, 1200, "c2"), *pause(60_200, 61_200, "c2")]
    events = [ALICE, BOB, *USED, published(60_100, "c1", 1)]
    found = pairs(ask, pauses, events, "until=2023-11-14T22:15:00Z")
    assert [(row["pauses"], row["culprit_share"]) for row in found] == [(1, 0.75)]


def test_levels_of_tables_do_not_open_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(str(tmp_path), "throttle_events", PAUSES)
    (tmp_path / "events" / "_delta_log").mkdir(parents=True)
    (tmp_path / "events" / "_delta_log" / f"{0:020}.json").write_text("broken")
    assert main(["query", "blame", "--by", "pair", "--warehouse", str(tmp_path)]) == 0
    assert main(["query", "blame", "--by", "principal-pair", "--warehouse", str(tmp_path)]) == 2


def test_only_files_of_the_asked_time_are_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of other times are broken, so that opening one would fail: records from eleven minutes
    before the range on, and openings of connections from a day before it on."""
    write(str(tmp_path), "throttle_events", pause(200, 1200, "c2"))
    for at_ms in range(-10 * DAY, 10 * DAY, DAY // 2):
        write(str(tmp_path), "events", [published(at_ms + 5000, "c1", 1)])
    write(str(tmp_path), "events", [ALICE, BOB, *USED])
    files = sorted(Path(tmp_path, "events").rglob("*.parquet"))
    assert len(files) > FEW_FILES
    days = {"2023-11-13", "2023-11-14"}
    for file in files:
        if file.parent.name.removeprefix("event_date=") not in days:
            file.write_bytes(b"broken")
    asked = ["query", "blame", "--by", "principal-pair", "--warehouse", str(tmp_path), "--json"]
    span = ["--param", "since=2023-11-14T22:14:00Z", "--param", "until=2023-11-14T22:15:00Z"]
    assert main([*asked, *span]) == 0
    assert json.loads(capsys.readouterr().out) == [PAIR]
    assert main([*asked, *span, "--param", "opened_since=2023-11-14T22:14:00Z"]) == 0
    assert names(json.loads(capsys.readouterr().out)) == [(None, None)]
    assert main([*asked, *span, "--param", "opened_since=2023-11-10"]) == 2
    assert main(asked) == 2
