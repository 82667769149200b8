"""Polls of producer states with scripted answers: their files, their table and their memory."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from app.config.kafka_producers import KafkaProducersSettings
from app.config.location import Location
from app.errors import UserError
from app.sources.kafka.live_tables import LiveTables
from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_states import IdState
from app.sources.kafka.producers_poll import ProducerPoller
from app.sources.kafka.transactions import Coordinated
from app.sources.polling import Unanswered

P0 = Place("orders", 0)


class Scripted:
    """A cluster with one partition."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.away = False
        self.open_from: int | None = None
        """First offset of a transaction of the ids."""

    def names(self, deadline: float) -> frozenset[str]:
        if self.away:
            raise Unanswered("list of topics: away")
        return frozenset({"orders"})

    def leaders(self, topics: Any, deadline: float, problems: list[str]) -> Any:
        return {"orders": {0: "1"}}

    def states(self, places: Any, deadline: float, problems: list[str]) -> Any:
        return {P0: [IdState(each, 0, 0, 1000, self.open_from) for each in self.ids]}

    def coordinated(self, ids: Any, deadline: float) -> Any:
        if self.open_from == 99:
            raise Unanswered("the list of transactions: refused")
        return {
            each: Coordinated(f"t-{each}", each, 0, "Ongoing", 9000, 5, frozenset({P0}))
            for each in ids
        }

    def grants(self, deadline: float) -> Any:
        raise Unanswered("ACLs: SecurityDisabledException")

    def close(self) -> None:
        pass


class Site:
    """A warehouse and a cluster, for pollers one after the other."""

    def __init__(self, folder: Path, **keys: Any) -> None:
        self.folder, self.cluster, self.said = folder, Scripted(), list[str]()
        self.settings = KafkaProducersSettings(**keys)
        self.at = 1000

    def poller(self) -> ProducerPoller:
        admin: Any = self.cluster
        return ProducerPoller(
            self.settings,
            {},
            self.folder / "spool",
            LiveTables(Location(str(self.folder / "w")), 86_400_000),
            self.said.append,
            admin=lambda _: admin,
        )

    def poll(self, poller: ProducerPoller, *ids: int) -> list[int]:
        """The new ids of a poll of a cluster that has these."""
        self.cluster.ids = list(ids)
        self.at += 1000
        path = poller.poll_once(self.at)
        records = (
            [] if path is None else map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
        )
        return [r["producer_id"] for r in records if r["event_type"] == "produce_batch"]

    def rows(self) -> list[tuple[int, int]]:
        """Number and live ids of the table's rows."""
        table = DeltaTable(str(self.folder / "w/producer_id_live")).to_pyarrow_table()
        return sorted((r["number"], r["live_ids"]) for r in table.to_pylist())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_restart_continues(site: Site) -> None:
    poller = site.poller()
    assert site.poll(poller, 1) == []
    poller.close()
    poller = site.poller()
    assert site.poll(poller, 1, 2) == [2]
    assert site.poll(poller, 1, 2) == []
    assert site.rows() == [(1, 1), (2, 2)]


def test_rows_are_in_the_table_once_whatever_the_memory_has_lost(site: Site) -> None:
    poller = site.poller()
    site.poll(poller, 1)
    site.poll(poller, 1, 2)
    memory = site.folder / "spool/memory.json"
    assert [
        [r["number"] for r in rows] for rows in json.loads(memory.read_text())["extra"]["rows"]
    ] == [[2]], "they leave the memory with the poll after"
    poller.close()
    poller = site.poller()
    site.poll(poller, 1, 2, 3)
    assert site.rows() == [(1, 1), (2, 2), (3, 3)]


def test_open_transactions_have_a_table_of_their_own(site: Site) -> None:
    """A restart goes on with them; a coordinator that does not answer is reported."""
    site.cluster.open_from = 40
    poller = site.poller()
    site.poll(poller, 1)
    poller.close()
    poller = site.poller()
    site.poll(poller, 1)
    site.poll(poller)
    table = DeltaTable(str(site.folder / "w/open_transactions")).to_pyarrow_table()
    rows = sorted(table.to_pylist(), key=lambda r: r["number"])
    assert [(r["number"], r["state"], r["transactional_id"]) for r in rows] == [
        (1, "Ongoing", "t-1"),
        (2, "ended", "t-1"),
    ]
    site.cluster.open_from = 99
    site.poll(poller, 1)
    site.poll(poller, 1)
    assert poller.last.problems == ["the list of transactions: refused"]


def test_rows_wait_for_a_table_that_cannot_be_written(site: Site) -> None:
    poller = site.poller()
    site.poll(poller, 1)
    place = site.folder / "w/producer_id_live"
    moved = place.rename(site.folder / "moved")
    place.write_text("no folder")
    poller.close()
    poller = site.poller()
    assert site.poll(poller, 1, 2) == [2], "the records do not wait"
    assert site.poll(poller, 1, 2, 3) == [3]
    assert any(text.startswith("producer_id_live: cannot be") for text in poller.last.problems)
    place.unlink()
    shutil.move(moved, place)
    assert site.poll(poller, 1, 2, 3) == []
    assert site.rows() == [(1, 1), (2, 2), (3, 3)]
    assert poller.last.problems == []


def test_a_spool_that_begins_anew_adds_rows_of_its_own(site: Site) -> None:
    poller = site.poller()
    site.poll(poller, 1)
    poller.close()
    shutil.rmtree(site.folder / "spool")
    assert site.poll(site.poller(), 1, 2) == [], "what is there is not new"
    assert site.rows() == [(1, 1), (1, 2)]


def test_a_cluster_that_is_away_changes_nothing(site: Site) -> None:
    poller = site.poller()
    site.poll(poller, 1)
    site.cluster.away = True
    assert site.poll(poller, 1, 2) == []
    assert (poller.last.skipped, poller.last.problems) == (1, ["list of topics: away"])
    site.cluster.away = False
    assert site.poll(poller, 1, 2) == [2]


def test_acls_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    site = Site(tmp_path, acls=True)
    poller = site.poller()
    site.poll(poller, 1)
    assert poller.last.problems == [
        "ACLs: SecurityDisabledException; those of an earlier poll are used"
    ]
    with pytest.raises(UserError, match="another process polls"):
        site.poll(site.poller())
