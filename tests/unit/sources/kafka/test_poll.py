"""The poller: whole files, a memory that survives, reads within their budget."""

from __future__ import annotations

import gzip
import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.errors import UserError
from app.sources.kafka.groups_poll import GroupPoller, Ticks
from app.sources.kafka.offsets import KafkaTopic, Log, LogPosition, OffsetAnswers, Oldest, Place
from app.sources.polling import Unanswered
from tests.reference.words import words
from tests.support.servers.kafka_port import kafka, port
from tests.support.servers.process import free_ports
from tests.support.waiting import wait_for
from tests.unit.sources.kafka.answers import AT, P0, P1, WEEK, answers
from tests.unit.sources.kafka.poll import Scripted, lines, poller, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FULL = [*words("ledger_state cursor_state cursor_state ledger_state cursor_state group_state")]


def kinds(path: Path | None) -> list[str]:
    return [record["event_type"] for record in lines(path)]


def test_a_poll_is_one_whole_file(tmp_path: Path) -> None:
    client = Scripted()
    client.now = answers(settings={"orders": WEEK})
    one = poller(tmp_path, client)
    first = one.poll_once(AT)
    assert kinds(first) == ["policy", *FULL]
    assert {record["ts_wall_ms"] for record in lines(first)} <= set(range(AT, AT + 500))
    assert [record["seq"] for record in lines(first)] == list(range(7))
    assert one.last.text().startswith(
        "kafka_groups east: 2 partitions polled, 0 skipped, 0 gone, 7 rec"
    )
    # Another process goes on: numbers, what is known, policies.
    one.close()
    two = poller(tmp_path, client)
    second = two.poll_once(AT + 60_000)
    assert kinds(second) == FULL and lines(second)[0]["seq"] == 8
    assert client.asked == [(set(), set()), ({"orders"}, {"fast", "slow"})]
    client.now = answers(committed={"fast": {P0: 100, P1: 50}, "slow": {}})
    assert kinds(two.poll_once(AT + 120_000)) == [
        "cursor_deleted",
        "cursor_deleted",
        *FULL[:2],
        *FULL[3:5],
    ]
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["lock", "memory.json", "polls"]


def test_a_poll_without_an_answer_changes_nothing(tmp_path: Path) -> None:
    client = Scripted()
    one = poller(tmp_path, client)
    one.poll_once(AT)
    memory = json.loads((tmp_path / "memory.json").read_text())
    client.now = Unanswered("the list of topics: refused")
    path = one.poll_once(AT + 1000)
    assert path is not None and lines(path) == []
    assert (one.last.skipped, one.last.problems) == (2, ["the list of topics: refused"])
    after = json.loads((tmp_path / "memory.json").read_text())
    assert after == {**memory, "seq": memory["seq"] + 1, "file": path.name}


def test_a_position_is_read_once(tmp_path: Path) -> None:
    client = Scripted()
    one = poller(tmp_path, client)
    first = one.poll_once(AT)
    assert [r.get("publish_time_ms") for r in lines(first)] == [
        None,
        None,
        AT - 40,
        None,
        None,
        None,
    ]
    given: dict[str, Any] = {"read": {}, "oldest": {}, "settings": {"orders": WEEK}}
    client.now = answers(**given)
    assert [r.get("publish_time_ms") for r in lines(one.poll_once(AT + 1))] == [
        None,
        None,
        None,
        AT - 40,
        None,
        None,
        None,
    ]
    client.now = answers(committed={"slow": {P0: 41}}, **given)
    one.poll_once(AT + 2)
    client.now = answers(
        committed={"slow": {P0: 41}}, topics={"orders": KafkaTopic("id2", (0, 1))}, **given
    )
    one.poll_once(AT + 3)
    again = one.poll_once(AT + 4)
    p40, p41 = LogPosition(P0, 40), LogPosition(P0, 41)
    assert client.reads == [[p40], [], [p41], [p41], []], "made anew: another record stands there"
    assert [r.get("publish_time_ms") for r in lines(again)][-4:] == [None, AT - 41, None, None]
    memory = json.loads((tmp_path / "memory.json").read_text())
    assert memory["topics"]["orders/0"]["mean"] == 10


def test_marks_of_transactions_are_looked_behind_when_more_comes(tmp_path: Path) -> None:
    class Empty(Scripted):
        def read(self, positions: Any, *rest: Any) -> dict[LogPosition, Oldest]:
            super().read(positions, *rest)
            return dict.fromkeys(positions, Oldest())

    client = Empty()
    one = poller(tmp_path, client)
    for end in (100, 100, 102):
        client.now = answers(
            logs={P0: Log(10, end)},
            read={},
            oldest={},
            committed={"slow": {P0: 99}},
            settings={"orders": WEEK},
        )
        assert lines(one.poll_once(AT))[-1].get("publish_time_ms") is None
    assert [len(each) for each in client.reads] == [1, 0, 1]


@pytest.mark.parametrize(
    ("most", "stands", "read"),
    [
        (2, False, [[0, 1], [2, 0], [1, 0]]),
        # Of groups that move on with each poll, none keeps a group that stands from being read.
        (1, True, [[0], [2], [1]]),
    ],
)
def test_the_oldest_positions_are_read_first_within_the_budget(
    tmp_path: Path, most: int, stands: bool, read: list[list[int]]
) -> None:
    client = Scripted()
    one = poller(tmp_path, client, publish_reads=most)
    places = [Place("orders", n) for n in range(3)]
    for poll in range(3):
        positions = dict.fromkeys(places, 10 + poll)
        client.now = answers(
            topics={"orders": KafkaTopic("id1", (0, 1, 2))},
            read={},
            oldest={},
            logs=dict.fromkeys(places, Log(0, 100)),
            committed={"g": {**positions, places[2]: 50} if stands else positions},
        )
        one.poll_once(AT + poll)
    assert [[p.place.partition for p in each] for each in client.reads] == read


def test_nothing_is_read_where_times_are_off(tmp_path: Path) -> None:
    off = Scripted()
    path = poller(tmp_path / "off", off, publish_times=False).poll_once(AT)
    assert off.reads == [] and kinds(path) == FULL


def test_groups_without_an_offset_are_said_once_and_stated_until_they_have_one(
    tmp_path: Path,
) -> None:
    client = Scripted()
    said: list[str] = []
    one = poller(tmp_path, client, said)
    states = []
    for found, consumers in (
        ({"": "empty_id", "typo": "unknown_group"}, {"fast": "stable"}),
        ({"": "empty_id"}, {"fast": "empty"}),
        ({"fast": "no_offset"}, {"fast": "empty"}),
        ({}, {}),
        ({}, {}),
    ):
        client.now = answers(states=found, consumers=consumers, listed=True)
        states.append(
            [
                (r["subscription"], r["group_state"])
                for r in lines(one.poll_once(AT))
                if r["event_type"] == "group_state" and "topic" not in r
            ]
        )
        one.close()
        one = poller(tmp_path, client, said)  # what was stated survives a restart
    nameless = ('""', "empty_id")
    assert states == [
        [nameless, ("fast", "stable"), ("typo", "unknown_group")],
        [nameless, ("fast", "empty"), ("typo", "known")],
        [('""', "known"), ("fast", "no_offset")],
        [("fast", "known")],
        [],
    ]
    assert said == [
        'kafka_groups east: groups without an offset: "" (empty_id), typo (unknown_group)',
        "kafka_groups east: groups without an offset: fast (no_offset)",
    ]


def test_a_list_of_groups_that_is_not_whole_ends_no_state(tmp_path: Path) -> None:
    client = Scripted()
    one = poller(tmp_path, client)
    client.now = answers(states={"typo": "unknown_group"}, listed=True)
    one.poll_once(AT)
    client.now = answers(listed=False)
    assert kinds(one.poll_once(AT + 1)) == FULL
    client.now = answers(listed=True)
    assert kinds(one.poll_once(AT + 2)) == [*FULL, "group_state"]


def test_the_records_after_an_offset_are_counted_while_the_log_stands(tmp_path: Path) -> None:
    class Whole(Scripted):
        def read(self, positions: Any, *rest: Any) -> dict[LogPosition, Oldest]:
            return {p: Oldest(AT, 3, 30, whole=True) for p in positions}

    client = Whole()
    one = poller(tmp_path, client)
    counted = []
    for end in (100, 100, 101):
        client.now = answers(
            logs={P0: Log(10, end)},
            committed={"slow": {P0: 40}},
            read={},
            oldest={},
            settings={"orders": WEEK},
        )
        counted.append(lines(one.poll_once(AT))[-1].get("unread"))
    assert counted == [3, 3, None]


def test_a_position_in_a_compacted_topic_is_read_again(tmp_path: Path) -> None:
    """Compaction may remove the record that stood there; in another topic only retention may."""
    for policy, reads in (("compact", 3), ("compact,delete", 3), ("delete", 1)):
        client = Scripted()
        one = poller(tmp_path / policy, client)
        for _ in range(3):
            client.now = answers(
                read={}, oldest={}, settings={"orders": {**WEEK, "cleanup.policy": policy}}
            )
            one.poll_once(AT)
        assert sum(map(len, client.reads)) == reads


def test_polling_goes_on_after_failures(tmp_path: Path) -> None:
    client = Scripted()
    client.now = Unanswered("the list of topics: refused")
    said: list[str] = []
    one = poller(tmp_path, client, said, interval_ms=50)
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    wait_for(lambda: said)
    client.now = answers()
    wait_for(lambda: one.records.is_dir() and len(list(one.records.iterdir())) > 2)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert "the list of topics: refused" in said[0]


def test_a_folder_belongs_to_one_cluster(tmp_path: Path) -> None:
    one = poller(tmp_path, Scripted())
    one.poll_once(AT)
    with pytest.raises(UserError, match=r"another folder \(source\.groups\.spool\)"):
        poller(tmp_path, Scripted()).poll_once(AT)
    one.close()
    with pytest.raises(UserError, match=r"source\.groups\.cluster: .* is of cluster east"):
        poller(tmp_path, Scripted(), cluster="west").poll_once(AT)


def test_a_cluster_that_is_not_there(tmp_path: Path, spark: SparkSession) -> None:
    (free,) = free_ports(1)
    servers = {"bootstrap.servers": f"127.0.0.1:{free}"}
    one = GroupPoller(settings(options=servers, timeout_ms=500), tmp_path)
    with pytest.raises(UserError, match=rf"source\.groups: 127.0.0.1:{free}: the list of topics"):
        one.check()
    assert lines(one.poll_once(AT)) == []
    assert "refused" in one.last.problems[0]


def test_what_is_not_allowed_is_refused_at_the_start(tmp_path: Path) -> None:
    client = Scripted()
    one = poller(tmp_path, client)
    client.now = answers(problems=["partition orders/0: no leader"])
    one.check()  # this passes by itself
    client.now = answers(problems=["a", "b"], refused=["settings of orders: not authorized"])
    with pytest.raises(UserError, match=r"source\.groups: h:1: settings of orders: not auth"):
        one.check()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"no.such.option": "1", "sasl.jaas.config": "x hush"}, "no.such.option is no option"),
        (
            {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_PLAINTEXT"}
            | {"sasl.jaas.config": 'x password="hush";'},
            "Kafka's client refuses them: .*JAAS",
        ),
        ({"security.protocol": "TLS"}, "Kafka's client refuses them: .*security.protocol"),
    ],
)
def test_a_mistake_in_the_options_is_the_users(
    tmp_path: Path, spark: SparkSession, options: dict[str, str], said: str
) -> None:
    with port(kafka(["PLAIN"] if "sasl.mechanism" in options else None)) as opened:
        given = {"bootstrap.servers": opened.server, **options}
        with pytest.raises(UserError, match=rf"source\.groups\.options: {said}") as error:
            GroupPoller(settings(options=given), tmp_path).check()
    assert "hush" not in str(error.value)


def test_a_stop_ends_a_wait_at_once(tmp_path: Path, spark: SparkSession) -> None:
    (free,) = free_ports(1)
    servers = {"bootstrap.servers": f"127.0.0.1:{free}"}
    one = GroupPoller(settings(options=servers, timeout_ms=30_000), tmp_path, lambda _: None)
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    time.sleep(0.3)
    stop.set()
    thread.join(3)
    assert not thread.is_alive()
    assert P1 not in {Place.of_text(text) for text in one.spool.memory.topics}


def test_a_record_after_a_check_moves_the_clocks_past_it(tmp_path: Path) -> None:
    """The first poll is checked at the next check, though the second poll is an hour away."""
    client = Scripted()
    client.now = answers(consumers={"fast": "stable"}, listed=True)
    one = GroupPoller(
        settings(interval_ms=3_600_000),
        tmp_path,
        lambda _: None,
        client=client,
        ticks=Ticks(1000, 300),
    )
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    wait_for(lambda: one.records.is_dir() and len(list(one.records.iterdir())) > 1)
    time.sleep(1)  # once is enough
    stop.set()
    thread.join(5)
    polled, ticked = sorted(one.records.iterdir())
    first = lines(polled)
    polled_ms = first[-1]["ts_wall_ms"]
    tick = json.loads(gzip.decompress(ticked.read_bytes()))
    waited_ms = tick.pop("ts_wall_ms") - (polled_ms // 1000 + 1) * 1000
    assert 300 <= waited_ms < 1000
    assert tick == {
        "event_type": "group_state",
        "source_feed": "kafka_groups",
        "cluster": "east",
        "broker": "kafka",
        "subscription": "weir",
        "group_state": "known",
        "seq": len(first) + 1,
    }


def test_a_hundred_thousand_positions_are_read_five_hundred_at_a_time(tmp_path: Path) -> None:
    """The oldest first, each once, however many new ones there are; the others say so."""
    topics = {f"t{n:03d}": KafkaTopic(f"id{n}", tuple(range(1000))) for n in range(100)}
    places = [Place(name, n) for name, topic in topics.items() for n in topic.partitions]
    client = Scripted()

    def at(offset: int) -> None:
        client.now = answers(
            topics=topics,
            committed={"g": dict.fromkeys(places, offset)},
            logs=dict.fromkeys(places, Log(0, 1000)),
            oldest={},
            read={},
        )

    one = poller(tmp_path, client, publish_reads=500, interval_ms=600_000, timeout_ms=600_000)
    at(10)
    for number in range(2):
        path = one.poll_once(AT + number * 60_000)
    asked = [position for part in client.reads for position in part]
    assert list(map(len, client.reads)) == [500, 500] and len(set(asked)) == 1000
    timed = [r for r in lines(path) if r["event_type"] == "cursor_state" and "publish_time_ms" in r]
    assert len(timed) == 1000, "the others have no time"
    # Half of the partitions move on: what has stood since the first poll is read before that.
    moved = set(places[::2])
    assert isinstance(client.now, OffsetAnswers)
    client.now.committed["g"] |= dict.fromkeys(moved, 20)
    client.reads.clear()
    one.poll_once(AT + 120_000)
    assert len(client.reads[0]) == 500 and not {p.place for p in client.reads[0]} & moved
