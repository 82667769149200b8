"""Policies that change in a run and between runs, killed where it hurts: the rows of the jobs over
the archive in one call, under the versions that the log of the query has."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from app.config.settings import Settings, load_settings
from app.demo.generator.write import write_files
from app.engine.assignment import plan
from app.engine.operators import Operator, live_operators, operators
from app.engine.policy_watch import Origin
from app.run.progress import Progress
from app.run.service import Service, run
from app.run.shutdown import Stopping
from app.tables import policy_log
from app.tables.definitions import TABLES
from app.whatif.replay import replayed
from state.engine.table import WHOSE
from tests.crash.test_sigkill import killed
from tests.support.traces import NOT_COMPARED, punctual_trace, rows_of

EVENTS = 20_000
QUERY = "govern"
Rows = dict[str, list[tuple[Any, ...]]]


class Place:
    """A stream that comes in parts, and a configuration whose policies change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = punctual_trace(EVENTS)
        write_files(self.trace, folder / "all")
        self._files = sorted((folder / "all").iterdir())
        self._came = 0
        (folder / "events").mkdir()
        self.policies = folder / "policies"
        self.policies.mkdir()
        self.config = folder / "weir.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "warehouse": str(folder / "warehouse"),
                    "partitions": 2,
                    "policies": "policies",
                    "shadows": {"same": "policies"},
                    "alerts": None,
                    "quality": None,
                    "maintenance": None,
                    "idle_advance_ms": 60_000,
                    "source": {
                        "format": "files",
                        "path": str(folder / "events"),
                        "options": {"maxFilesPerTrigger": max(len(self._files) // 6, 1)},
                    },
                }
            )
        )
        self.limit(1.0)

    def limit(self, share: float, text: str | None = None) -> None:
        """Let the policies be those of the trace with rates of such a share, or a text."""
        found = self.documents(share)
        (self.policies / "fleet.yaml").write_text(found if text is None else text)

    def documents(self, share: float) -> str:
        """The policies of the trace with rates of such a share."""
        return yaml.safe_dump(
            [
                {
                    **p,
                    "limits": {
                        k: scaled(v, share) if "Rate" in k else v for k, v in p["limits"].items()
                    },
                }
                for p in self.trace.policies
            ]
            + [{"scope": "user", "name": "*", "limits": {"producer_ids_rate": int(20 * share)}}]
        )

    def come(self, share: float) -> int:
        """Let the files up to a share of all come; how many there are then."""
        until = round(share * len(self._files))
        for i in range(self._came, until):
            to = self.folder / "events" / self._files[i].name
            unfinished = to.with_name(f".{to.name}")
            unfinished.write_bytes(self._files[i].read_bytes())
            os.utime(unfinished, (1_700_000_000 + i, 1_700_000_000 + i))
            unfinished.rename(to)
        self._came = until
        return until

    @property
    def settings(self) -> Settings:
        """The configuration as it is now."""
        return load_settings(self.config, reads=True)

    def log(self) -> policy_log.PolicyLog:
        """The versions that the query has judged by."""
        found = policy_log.load(self.settings, QUERY)
        assert found is not None
        return found

    def table(self) -> list[dict[str, Any]]:
        """The rows of the table `policies`, in order of time."""
        rows = DeltaTable(f"{self.settings.warehouse}/policies").to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda r: (r["read_ms"], r["version"] or 0))


def scaled(value: Any, share: float) -> Any:
    return int(value * share) if isinstance(value, int) and value > 0 else value


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def at_once(settings: Settings, group: dict[str, Operator]) -> Rows:
    """The rows of the jobs over the archive, each shard in one slice."""
    return {
        name: sorted(
            tuple(str(row[c]) for c in row if c not in NOT_COMPARED) for row in rows.to_pylist()
        )
        for name, rows in replayed(settings, settings.jobs, group=group).items()
        if TABLES[name].job
    }


def assert_as_at_once(place: Place) -> Rows:
    """The rows of all jobs are those of their versions; they are answered."""
    settings = place.settings
    expected = at_once(settings, live_operators(settings, settings.jobs))
    assert {"throttle_events", "producer_id_decisions", "backlog_checks"} <= expected.keys()
    found = {name: rows_of(place.settings.warehouse, name) for name in expected}
    for name, rows in expected.items():
        assert found[name] == rows, name
    for name, rows in shadow_rows(settings, "same").items():
        assert found.get(name, []) == rows, name
    return found


def shadow_rows(settings: Settings, policy: str) -> Rows:
    """The rows of a shadow by live table."""
    found: Rows = {}
    for table in TABLES.values():
        if table.live is not None:
            whose = table.names.index(WHOSE.name)
            rows = rows_of(settings.warehouse, table.name)
            found[table.live] = [row[:whose] for row in rows if row[whose] == policy]
    return found


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
    ended = killed(place.config, QUERY, "taken", 1)  # taken, and nothing judged by it
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
    first = place.log()
    assert [one.number for one in first.taken] == [0, 1]

    place.limit(0.25)  # and again: the batch that was begun is judged by the version it had
    ended = killed(place.config, QUERY, "after", 2)  # some tables are committed, others are not
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
    assert place.log() == first
    place.come(1.0)
    assert run(place.settings, available_now=True) == 0

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
    service = Service(
        spark,
        settings,
        plan(settings).running,
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
    assert_as_at_once(place)
