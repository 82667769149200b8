"""One run at a time by leases. The files of a folder stand for objects of a store."""

from __future__ import annotations

import json
import random
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from app.config.location import Location
from app.errors import UserError
from app.tables import lease
from app.tables.lease import Lease, guarded, held, require
from app.tables.small_files import write_text

LEASE_S = 2.0
"""Longer than a process waits for a processor of a machine that has other work."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_S", LEASE_S)
    monkeypatch.setattr(lease, "RENEW_S", 0.1)
    monkeypatch.setattr(lease, "SETTLE_S", 0.15)
    monkeypatch.setattr(lease, "LOOK_S", 0.05)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Location]:
    yield Location(str(tmp_path))
    # No part of a lease stays behind.
    assert list(tmp_path.rglob("*.unfinished")) == []


def objects(store: Location) -> list[str]:
    """Those of leases; what is being written has a name that begins with a dot."""
    return sorted(path.name for path in Path(store.uri, lease.FOLDER).glob("[!.]*"))


def test_a_second_run_is_refused_by_who_has_the_lease(store: Location) -> None:
    with held(store, ["govern", "archive"]):
        about = json.loads(Path(store.uri, lease.FOLDER, "govern.json").read_text())
        with pytest.raises(UserError) as refused, held(store, ["other", "govern"]):
            pass
        require(store, "govern")
        assert objects(store) == ["archive.json", "govern.json"]
    assert str(refused.value) == (
        f"warehouse: the run on {about['host']} (process {about['pid']}, since {about['since']}) works on"
        f" {store.uri} (query govern) and has a lease, which ends 2 s after it is renewed last\n"
        "stop it first, or take another warehouse"
    )
    assert objects(store) == []


def test_runs_of_other_queries_work_side_by_side(store: Location) -> None:
    with held(store, ["govern"]), held(store, ["archive"]):
        sleep(0.3)
        require(store, "govern")
        require(store, "archive")


@pytest.mark.parametrize("error", [UserError("the disk is full"), KeyboardInterrupt()])
def test_a_run_that_fails_keeps_no_lease(store: Location, error: BaseException) -> None:
    with pytest.raises(type(error)), held(store, ["govern"]):
        raise error
    assert objects(store) == []
    with held(store, ["other"]):
        require(store, "govern")  # of which nothing is held


def test_a_start_after_a_clean_end_does_not_wait(store: Location) -> None:
    with held(store, ["govern"]):
        pass
    began = monotonic()
    with held(store, ["govern"]):
        took = monotonic() - began
    assert took < LEASE_S


@pytest.mark.parametrize(
    "left",
    [
        '{"owner": "x", "host": "h", "pid": 7, "since": "2199-01-01T00:00:00+00:00", "renewed": 3}',
        "{}",
        "not JSON",
        "[1]",
        "",
    ],
)
def test_the_lease_of_a_run_that_was_killed_ends_by_itself(store: Location, left: str) -> None:
    file = Path(store.uri, lease.FOLDER, "govern.json")
    file.parent.mkdir(parents=True)
    file.write_text(left)
    began = monotonic()
    with held(store, ["govern"]):
        assert LEASE_S < monotonic() - began < 3 * LEASE_S
        require(store, "govern")


@pytest.mark.parametrize("queries", [["govern"], ["archive", "chunks", "govern"]])
def test_of_starts_at_once_one_goes_on(
    queries: list[str], store: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they write in turns, so that each has some of the leases."""
    at_once, order = threading.Barrier(4), random.Random(5)
    monkeypatch.setattr(lease, "SETTLE_S", 0.5)

    def slowly(*words: Any) -> None:
        sleep(order.uniform(0, 0.02))
        write_text(*words)

    monkeypatch.setattr(lease, "write_text", slowly)

    def start(_: int) -> bool:
        one = Lease(store, queries)
        at_once.wait()
        try:
            one.take()
            sleep(2 * LEASE_S)
            one.require()
        except UserError:
            return False
        finally:
            one.release()
        return True

    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(start, range(4))) == [False, False, False, True]


def test_of_two_that_have_a_part_each_the_larger_name_goes_on(
    store: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, bool] = {}

    def start(owner: str) -> None:
        monkeypatch.setattr(secrets, "token_hex", lambda _: owner)
        one = Lease(store, ["archive", "govern"])
        made.wait()
        try:
            one.take()
            one.require()
            found[owner] = True
        except UserError:
            found[owner] = False

    turns = ["1", "2", "2", "1"]
    made, changed = threading.Barrier(2), threading.Condition()

    def in_turns(warehouse: Location, name: str, text: str) -> None:
        owner = json.loads(text)["owner"]
        with changed:
            assert changed.wait_for(lambda: not turns or turns[0] == owner, 5)
            write_text(warehouse, name, text)
            del turns[:1]
            changed.notify_all()

    monkeypatch.setattr(lease, "write_text", in_turns)
    threads = []
    for owner in ("1", "2"):
        threads.append(threading.Thread(target=start, args=(owner,)))
        threads[-1].start()
        sleep(0.02)  # the name is taken when it is made
    for each in threads:
        each.join()
    assert found == {"1": False, "2": True}


def test_a_run_that_was_paused_commits_nothing_further(store: Location) -> None:
    written: list[int] = []
    paused = Lease(store, ["govern"])
    paused.take()  # and renews nothing
    with held(store, ["govern"]):
        with pytest.raises(UserError) as lost:
            paused.require("govern")
        paused.release()  # is not its own any more
        sleep(0.3)
        write = guarded(store, "govern", lambda _, batch: written.append(batch))
        write(None, 1)
    assert str(lost.value).startswith(
        f"warehouse: this run has lost its lease on {store.uri} (query govern)"
    )
    assert "it stops and commits nothing further" in str(lost.value)
    with pytest.raises(UserError, match="to another run: it was paused"):
        stolen(store, written)
    assert written == [1]


def stolen(store: Location, written: list[int]) -> None:
    """A run whose lease is gone, and was another's."""
    with held(store, ["govern"]):
        Path(store.uri, lease.FOLDER, "govern.json").unlink()
        write = guarded(store, "govern", lambda _, batch: written.append(batch))
        for _ in range(20):
            sleep(0.05)
            lease.look(store)  # what the run does beside its batches
        write(None, 2)


def test_a_warehouse_without_a_lease_asks_for_none(store: Location) -> None:
    require(store, "govern")
    lease.look(store)
    assert objects(store) == []
