"""A run whose warehouse is in an object store, a real S3 server on loopback: far away, refusing requests
and losing answers; killed, and a second one; a table put back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from app.config.settings import load_settings
from app.run.service import run
from tests.crash.service import Submitted, batches
from tests.crash.tables import ALONE, Tables
from tests.support.servers.process import serving
from tests.support.servers.s3 import BUCKET, S3, SECRET, connector
from tests.support.servers.slow_store import SlowStore, now_and_then

NAME = "stored"
JOBS = ["rate_limits", "chunks", "producer_ids", "backlog", "entry_cache", "client_quotas"]
QUERY = "govern-client_quotas"
TABLE = "topic_throttle_stats"
SEED = int(os.environ.get("WEIR_SEED", "7"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3]:
    """A server of this test. Skips where none can start."""
    with serving(lambda: S3(tmp_path), "S3 server") as server:
        yield server


@pytest.fixture(scope="module")
def calm_of_six(make_config: Callable[[str], Path], spark: object) -> Tables:
    """The tables of an uninterrupted run of six jobs in a folder."""
    settings = load_settings(make_config("calm-of-six"), {**ALONE, "queries": [JOBS]})
    assert run(settings, available_now=True) == 0
    return Tables.of(settings.warehouse)


class Stored:
    """Runs over the trace whose warehouse is in a store."""

    def __init__(self, server: S3, store: SlowStore, config: Path, **changed: object) -> None:
        options = {
            **server.options,
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_SECRET_ACCESS_KEY": "${env:WEIR_TEST_STORE}",
        }
        document = yaml.safe_load(config.read_text("utf-8"))
        document |= {
            "warehouse": f"s3a://{BUCKET}/{NAME}",
            "storage_options": options,
            "queries": [JOBS],
        }
        config.write_text(yaml.safe_dump({**document, **ALONE, **changed}), "utf-8")
        self.objects = server.data / BUCKET / NAME
        self._config, self._said = config, config.parent
        self._jars = connector()
        self.runs: list[Submitted] = []

    def start(self, *options: str) -> Submitted:
        """One more run."""
        started = Submitted(
            ["--jars", self._jars, "run", "--config", str(self._config), *options],
            self._said / f"{NAME}-{len(self.runs)}.log",
            variables={"WEIR_TEST_STORE": SECRET},
        )
        self.runs.append(started)
        return started

    def ended(self) -> int:
        """Batches that have ended."""
        return batches(str(self.objects), QUERY, "commits")

    def close(self) -> None:
        """End what is still at work; no run has said the secret."""
        for each in self.runs:
            each.close()
        assert SECRET not in "".join(each.said for each in self.runs)


@pytest.fixture
def stored(
    server: S3, make_config: Callable[[str], Path]
) -> Iterator[Callable[..., tuple[Stored, SlowStore]]]:
    """Runs on a store with a delay (s) and faults, and keys of their configuration."""
    opened: list[tuple[Stored, SlowStore]] = []

    def make(store: SlowStore, **changed: object) -> tuple[Stored, SlowStore]:
        opened.append((Stored(server, store, make_config(NAME), **changed), store))
        return opened[-1]

    yield make
    for runs, store in opened:
        runs.close()
        store.stop()


def test_killed_on_a_bad_day_of_the_store_a_run_goes_on_to_the_rows_of_a_calm_one(
    stored: Callable[..., tuple[Stored, SlowStore]], server: S3, calm_of_six: Tables, tmp_path: Path
) -> None:
    runs, store = stored(SlowStore(server.port, 0.01, now_and_then(SEED)), trigger_ms=0)
    first = runs.start()
    first.wait(lambda: runs.ended() >= 1, "a first batch")
    first.kill()  # before the time at which silent keys are decided
    before = tmp_path / "before"
    shutil.copytree(runs.objects / TABLE, before)
    second = runs.start("--available-now")
    second.wait(lambda: "starting Spark" in second.said, "the lease of the next run")
    refusal = " ".join(runs.start().refused(300.0))
    second.end_well()
    assert f"s3a://{BUCKET}/{NAME}" in refusal, refusal
    assert Tables.of(str(runs.objects)).differences(calm_of_six) == []
    assert {"refused", "cut", "lost"} <= set(store.faults), store.faults

    shutil.rmtree(runs.objects / TABLE)
    shutil.copytree(before, runs.objects / TABLE)
    refusal = " ".join(runs.start("--available-now").refused(300.0))
    assert f"the table s3a://{BUCKET}/{NAME}/{TABLE} has lost batch" in refusal, refusal
