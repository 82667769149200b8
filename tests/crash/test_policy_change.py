"""Policies that change in a run and between runs, killed where it hurts: the rows of the jobs over
the archive in one call, under the versions that the log of the query has."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from app.engine.assignment import apply, plan
from app.engine.operators import operators
from app.engine.policy_watch import Origin
from app.run.progress import Progress
from app.run.service import Service, run
from app.run.shutdown import Stopping
from app.tables import inventory, policy_log
from app.tables.definitions import TABLES
from tests.crash.killed_run import ALL
from tests.crash.policy_change import (
    Place,
    assert_as_at_once,
    at_once,
)
from tests.crash.service import killed_at


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def waited(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not what():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_edits_between_runs_and_kills_amid_them(place: Place) -> None:
    place.come(0.4)
    assert run(place.settings, available_now=True) == 0
    assert [one.number for one in place.log().taken] == [0]

    place.limit(0.5)  # the file changes while nothing runs
    place.come(0.7)
    killed_at(place.config, ALL, "taken", 1)  # taken, and nothing judged by it
    first = place.log()
    assert [one.number for one in first.taken] == [0, 1]

    place.limit(0.25)  # and again: the batch that was begun is judged by the version it had
    killed_at(place.config, ALL, "after", 2)  # some tables are committed, others are not
    assert place.log() == first
    place.come(1.0)
    assert run(place.settings, available_now=True, drain=True) == 0

    log = place.log()
    assert log.taken[:2] == first.taken and [one.number for one in log.taken] == [0, 1, 2]
    assert log.taken[2].batch > log.taken[1].batch
    rows = place.table()
    assert [
        (r["version"], r["batch"], r["ts_wall_ms"], r["policy_hash"], r["error"]) for r in rows
    ] == [(one.number, one.batch, one.since_ms, one.policy_hash, None) for one in log.taken]
    assert json.loads(rows[2]["policy_json"]) == place.settings.policy_dicts() == log.last
    found = assert_as_at_once(place)
    hashes = {h for one in log.taken for job, h in one.hashes.items() if job == "rate_limits"}
    at = TABLES["throttle_events"].schema.names.index("params_hash")
    assert {row[at] for row in found["throttle_events"]} == hashes
    settings = place.settings
    began = policy_log.PolicyLog(log.first, log.first, log.taken[:1])
    alone = at_once(settings, operators(settings, settings.jobs, log=began))
    assert alone["throttle_events"] != found["throttle_events"]


def test_edits_of_a_running_service_good_and_bad(place: Place, spark: Any) -> None:
    settings = place.settings
    stopping, heard = Stopping(), []
    progress = Progress()
    progress.say = heard.append  # type: ignore[method-assign]
    progress.warn = heard.append  # type: ignore[method-assign]
    made = plan(settings)
    inventory.claim(settings.location, 2, settings.shards)
    apply(settings.location, made)
    service = Service(
        spark,
        settings,
        made.queries,
        False,
        stopping,
        progress,
        Origin(place.config, lambda: place.settings),
    )
    thread = threading.Thread(target=service.work)
    thread.start()

    def came(text: str) -> bool:
        return any(text in line for line in heard)

    def files(count: int) -> bool:
        path = f"{settings.warehouse}/events"
        return (
            DeltaTable.is_deltatable(path)
            and len(
                set(
                    DeltaTable(path)
                    .to_pyarrow_table(columns=["source_partition"])
                    .column("source_partition")
                    .to_pylist()
                )
            )
            >= count
        )

    try:
        part = place.come(0.4)
        waited(lambda: files(part))
        place.limit(1.0, "- {scope: topic, name: '*', limit: {}}\n")
        waited(lambda: came("the edit is refused"))
        part = place.come(0.6)
        waited(lambda: files(part))
        place.limit(0.25)
        waited(lambda: came("policies: read again"))
        part = place.come(1.0)
        waited(lambda: files(part) and came("policies: version 1 holds"))
    finally:
        stopping.ask()
        thread.join(120)
    assert not thread.is_alive()
    assert not came("needs a restart")
    first, refused, second = place.table()
    assert (first["version"], first["ts_wall_ms"]) == (0, None)
    assert refused["version"] is None and "fleet.yaml: [0].limit: unknown key" in refused["error"]
    one = place.log().taken[1]
    assert (second["version"], second["ts_wall_ms"], second["batch"]) == (
        1,
        one.since_ms,
        one.batch,
    )
    assert "producer_ids_rate" in second["summary"]
    # an endless run stands where the plans were: at the end of the input both are at one time
    Service(spark, place.settings, made.queries, True, Stopping(), progress, drain=True).work()
    assert_as_at_once(place)
