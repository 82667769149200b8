"""One run at a time by leases. The files of a folder stand for objects of a store."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest

from app.config.location import Location
from app.errors import UserError
from app.tables import lease
from app.tables.lease import Lease, guarded, held, require

LEASE_S = 0.6


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
    return sorted(path.name for path in Path(store.uri, lease.FOLDER).glob("*"))


def test_a_second_run_is_refused_by_who_has_the_lease(store: Location) -> None:
    with held(store, ["govern", "archive"]):
        about = json.loads(Path(store.uri, lease.FOLDER, "govern.json").read_text())
        with pytest.raises(UserError) as refused, held(store, ["other", "govern"]):
            pass
        require(store, "govern")
        assert objects(store) == ["archive.json", "govern.json"]
    assert str(refused.value) == (
        f"warehouse: the run on {about['host']} (process {about['pid']}, since {about['since']}) works on"
        f" {store.uri} (query govern) and has a lease, which ends 1 s after it is renewed last\n"
        "stop it first, or take another warehouse"
    )
    assert objects(store) == []


def test_runs_of_other_queries_work_side_by_side(store: Location) -> None:
    with held(store, ["govern"]), held(store, ["archive"]):
        sleep(0.3)
        require(store, "govern")
        require(store, "archive")


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


def test_of_starts_at_once_one_goes_on(store: Location) -> None:
    at_once = threading.Barrier(4)

    def start(_: int) -> bool:
        one = Lease(store, ["govern"])
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

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(start, range(4))) == [False, False, False, True]


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
