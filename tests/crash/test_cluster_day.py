"""A day on a Spark standalone cluster of two workers: one of them is killed, then the driver; the run
is started again, asked to stop, and finished. Afterwards every command finds what a calm local run
has."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from app.cli import main
from app.config.settings import load_settings
from app.run.service import run as run_here
from tests.crash.service import Service
from tests.crash.tables import ALONE, Tables
from tests.support.servers.process import serving
from tests.support.servers.standalone import JAVA_OPTIONS, Standalone

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
FILES, BATCHES = 2, 20
"""Files of a batch; more batches than are waited for."""
READ = re.compile(r"govern: ([\d,]+) events read")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with serving(lambda: Standalone(tmp_path), "Spark cluster") as made:
        yield made


def test_a_worker_and_a_driver_are_killed_on_a_cluster(
    make_config: Callable[[str], Path],
    spark: object,
    cluster: Standalone,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, calm = make_config("clustered"), make_config("calm-of-cluster")
    files = []
    for number, file in enumerate(sorted((config.parent / "events").iterdir())[: FILES * BATCHES]):
        files.append(tmp_path / "events" / file.name)
        files[-1].parent.mkdir(exist_ok=True)
        shutil.copy(file, files[-1])
        os.utime(files[-1], (number, number))  # Spark reads them in this order
    for each in (config, calm):
        document = yaml.safe_load(each.read_text("utf-8"))
        document["source"] |= {
            "path": str(tmp_path / "events"),
            "options": {"maxFilesPerTrigger": FILES},  # of a calm run, too: clocks follow batches
        }
        each.write_text(yaml.safe_dump(document | ALONE), "utf-8")
    warehouse = load_settings(config).warehouse

    def start(*options: str) -> closing[Service]:
        confs = [
            "spark.driver.host=127.0.0.1",
            f"spark.driver.extraJavaOptions={JAVA_OPTIONS}",
            f"spark.executor.extraJavaOptions={JAVA_OPTIONS}",
        ]
        python = {"WEIR_WORKER_PYTHON": sys.executable}
        run = Service(config, "run", *options, master=cluster.master, variables=python, confs=confs)
        return closing(run)

    def within_a_batch(run: Service) -> None:
        """Wait for one that has begun after one that has ended."""
        run.wait_for_batches(1)
        begun = run.batches("govern", "commits")
        run.wait(lambda: run.batches("govern", "offsets") > begun, "a batch of govern")

    with start() as run:
        within_a_batch(run)
        cluster.workers[0].kill()
        run.wait_for_batches(2)
        cluster.join(cluster.workers[0])
        run.wait_for_batches(1)
        run.terminate()
        run.end_well()
        (read,) = READ.findall(run.said)
        ended = run.batches("govern", "commits")
    there = sum(len(file.read_bytes().splitlines()) for file in files[: FILES * ended])
    assert int(read.replace(",", "")) == there, "tasks that were repeated count once"

    with start() as run:
        within_a_batch(run)
        driver = run.driver
        assert driver is not None
        run.kill(driver)
    with start() as run:
        within_a_batch(run)
        run.terminate()
        run.end_well()
    with start("--available-now", "--drain") as run:
        run.end_well()
    assert run_here(load_settings(calm), available_now=True, drain=True) == 0
    expected = Tables.of(load_settings(calm).warehouse)
    assert Tables.of(warehouse).differences(expected) == []

    def asked(*words: str) -> str:
        capsys.readouterr()
        given = ("--warehouse", warehouse) if words[0] == "query" else ("--config", str(config))
        assert main([*words, *given]) == 0, capsys.readouterr()
        return capsys.readouterr().out

    counted = json.loads(asked("query", "SELECT count(*) AS n FROM events", "--json"))
    assert counted[0]["n"] > 0.9 * sum(len(file.read_bytes().splitlines()) for file in files)
    assert "expectations hold" in asked("quality")
    assert json.loads(asked("maintain", "--json"))["tables"]
    assert json.loads(asked("query", "SELECT count(*) AS n FROM events", "--json")) == counted
    out = str(tmp_path / "replay")
    assert "tables are those of the live run" in asked(
        "replay", "--verify", "--drain", "--out", out
    )
