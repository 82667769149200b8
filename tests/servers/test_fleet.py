"""Several clusters of Kafka in one run: two of different releases, and one that is down."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app import sources
from app.cli import main
from app.run.service import run
from tests.servers.kafka_groups import AGED_MS, PRECISE, Cluster, Json, now_ms
from tests.support import backlog_views
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import free_ports, serving

if TYPE_CHECKING:
    from app.config.settings import Settings

pytestmark = pytest.mark.kafka
OLDER = "3.9.1"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("older")
    with serving(lambda: Kafka(folder, version=OLDER), f"Kafka {OLDER}") as kafka:
        yield kafka


@pytest.fixture
def clusters(kafka: Kafka, older: Kafka) -> Iterator[dict[str, Cluster]]:
    """A topic and a group in each."""
    made = {"east": Cluster(kafka), "west": Cluster(older)}
    with made["east"].admin, made["west"].admin:
        for number, cluster in enumerate(made.values()):
            cluster.kafka.create_topic(cluster.topic, 2)
            cluster.produce(0, 10, now_ms() - AGED_MS)
            cluster.commit("g", 3 + number)
        yield made


def feed(cluster: str, servers: str, *formats: str, **groups: Any) -> Json:
    return {
        "format": list(formats or ("kafka_groups", "kafka_producers")),
        "cluster": cluster,
        "options": {"kafka.bootstrap.servers": servers},
        "groups": {"timeout_ms": 5000, **groups},
        "producers": {"timeout_ms": 5000},
    }


@pytest.fixture
def of_feeds(make_settings: Callable[..., Settings]) -> Callable[..., Settings]:
    """Settings of a run of some feeds, all of them in one warehouse."""
    return lambda *feeds: make_settings(source=list(feeds), partitions=1, backlog=PRECISE)


def stored(given: Settings, table: str) -> list[Json]:
    return backlog_views.stored(given, [table])[table]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("spark")
def test_a_cluster_that_is_down_costs_itself_alone(
    clusters: dict[str, Cluster],
    tmp_path: Path,
    of_feeds: Callable[..., Settings],
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"
    feeds = [feed(name, cluster.kafka.servers) for name, cluster in clusters.items()]
    given = of_feeds(*feeds, feed("down", away))
    assert given.jobs == ("producer_ids", "backlog")
    run(given, available_now=True, drain=True)
    where = ("--warehouse", given.warehouse)
    fleet = {row["cluster"]: row for row in asked(capsys, "query", "fleet", *where)}
    assert {name: row["unanswered_polls"] for name, row in fleet.items()} == {
        "east": 0,
        "west": 0,
        "down": 2,
    }
    assert "Connection refused" in fleet["down"]["last_problem"]
    for name, cluster in clusters.items():
        lag = asked(capsys, "query", "lag", "--cluster", name, *where)
        ours = [row for row in lag if row["topic"] == cluster.topic and row["partition"] == 0]
        assert [row["lag"] for row in ours] == [7 - list(clusters).index(name)]
        assert {row["cluster"] for row in lag} == {name}
    silent = [row for row in asked(capsys, "query", "coverage", *where) if row["failed_polls"]]
    assert {(row["cluster"], row["broker"]) for row in silent} == {("down", "*")}
    assert main(["report", "--out", str(tmp_path / "r.html"), *where]) == 0
    assert "down has answered no poll" in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.usefixtures("spark")
def test_clusters_come_and_go_and_nothing_is_read_twice(
    clusters: dict[str, Cluster], of_feeds: Callable[..., Settings]
) -> None:
    east, west = (feed(n, c.kafka.servers, "kafka_groups") for n, c in clusters.items())
    first = of_feeds(east)
    run(first, available_now=True)
    # Polls that wait are read though their cluster is not in the source any more.
    unread = of_feeds(east)
    with sources.keep_polling(unread, ["govern"], endless=False):
        pass
    run(of_feeds(west), available_now=True)
    run(of_feeds(west, east), available_now=True)
    events = stored(first, "events")
    seen = Counter((row["cluster"], row["seq"]) for row in events)
    assert set(seen.values()) == {1}
    assert Counter(row["cluster"] for row in events if row["event_type"] == "poll") == {
        "east": 3,
        "west": 2,
    }
    assert stored(first, "quarantine") == []


@pytest.mark.usefixtures("spark")
def test_polls_beside_a_source_that_is_streamed_and_is_behind(
    clusters: dict[str, Cluster], tmp_path: Path, of_feeds: Callable[..., Settings]
) -> None:
    """Files of an hour ago, in two batches, beside polls of now: none of them is too late."""
    folder = tmp_path / "in"
    folder.mkdir()
    old_ms = now_ms() - 3_600_000

    def batch(principal: str, at_ms: int) -> Json:
        return {
            "event_type": "produce_batch",
            "source_feed": "test",
            "cluster": "logs",
            "broker": "b1",
            "ts_wall_ms": at_ms,
            "principal": principal,
            "topic": "t",
            "partition": 0,
            "producer_id": at_ms % 1000,
        }

    def write(name: str, first_ms: int) -> None:
        lines = [json.dumps(batch("User:a", first_ms + n * 1000)) for n in range(30)]
        (folder / name).write_text("\n".join(lines), "utf-8")

    files = {"format": "files", "path": str(folder)}
    servers = clusters["east"].kafka.servers
    polls = feed("east", servers, "kafka_groups", interval_ms=3_600_000)  # one of each run
    given = of_feeds(polls)
    run(given, available_now=True)  # alone: the other source comes to a query that has begun
    write("1.jsonl", old_ms)
    both = of_feeds(files, polls)
    assert both.jobs[0] == "rate_limits" and len(both.jobs) == 5
    run(both, available_now=True)
    write("2.jsonl", old_ms + 30_000)
    run(both, available_now=True)
    run(of_feeds(files), available_now=True, drain=True)
    assert stored(given, "quarantine") == []
    counted = Counter(row["event_type"] for row in stored(given, "events"))
    assert counted["produce_batch"] == 60 and counted["poll"] == 3
    found = stored(given, "producer_id_stats")
    assert sum(row["new_ids"] for row in found if row["cluster"] == "logs") > 0
    assert {row["cluster"] for row in stored(given, "group_lag")} == {"east"}
