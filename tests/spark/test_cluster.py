"""Weir on a Spark standalone cluster: a master and two workers, as a stranger would have them.

Code and environment travel as `spark-submit.sh` sends them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from app.config.settings import load_settings
from app.run.service import run
from benchmarks.generator.generate_command import generate
from tests.support.servers.process import serving
from tests.support.servers.standalone import Standalone, on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 20_000
OF_PYTEST = (
    "PYTHONPATH",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "SPARK_CONF_DIR",
    "WEIR_JARS",
)
SEVERAL = Path(__file__).with_name("several.py")
THEN = "then.json"
NOT_COMPARED = {"ingest_ms", "compared_ms", "trace", "read_ms"}
BY_THE_CLOCK = {"alerts", "quality_results"}
"""What is evaluated beside the run, whenever there is time."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master that two workers of one core each have registered with."""
    with serving(lambda: Standalone(tmp_path_factory.mktemp("cluster")), "Spark cluster") as made:
        yield made.master


@pytest.fixture(scope="module")
def demonstrated(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the demo's fleet that the cluster has run, in an environment that travels to it;
    in the same session then a replay, a comparison of policies and a demo."""
    folder = tmp_path_factory.mktemp("demo")
    out, then, python = folder / "fleet", folder / THEN, folder / "python"
    generate("demo", EVENTS, 7, out)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {SEVERAL} "$@"\n')
    python.chmod(0o755)
    config, both = ("--config", str(out / "weir.yaml")), (str(out / "policies.yaml"),) * 2
    replay = ("replay", *config, "--verify", "--drain", "--slice", "5000")
    effects = ("policy", "diff", *both, "--on", "all", *config, "--json")
    written = ("--out", str(folder / "replay")), ("--keep", str(folder / "kept"))
    demo = ("demo", "--scenario", "real-pulsar", "--out", str(folder / "demo"))
    then.write_text(json.dumps([(*replay, *written[0]), (*effects, *written[1]), demo]))
    asked = ("run", *config, "--available-now", "--drain")
    driver = ("--conf", f"spark.pyspark.driver.python={python}")
    weir(*on(cluster), *driver, *asked, WEIR_THEN=str(then))
    return out


def answered(demonstrated: Path, number: int) -> str:
    """The output of a command that followed the run."""
    answer = json.loads((demonstrated.parent / f"{number}-{THEN}").read_text())
    assert answer["code"] == 0, answer["out"] + answer["err"]
    return str(answer["out"])


def weir(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs spark-submit.sh as a user does, with what pytest itself needs left out."""
    environment = {key: value for key, value in os.environ.items() if key not in OF_PYTEST}
    done = subprocess.run(
        [str(ROOT / "spark-submit.sh"), *words],
        env={**environment, **variables},
        text=True,
        capture_output=True,
        check=False,
        timeout=900,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done


def tables(warehouse: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table that follows from the events, with all its rows, in an order of their own;
    columns of the clock left out."""
    found = {}
    for log in sorted(warehouse.glob("*/_delta_log")):
        if log.parent.name in BY_THE_CLOCK:
            continue
        rows = DeltaTable(str(log.parent)).to_pyarrow_table().to_pylist()
        plain = [{k: v for k, v in row.items() if k not in NOT_COMPARED} for row in rows]
        found[log.parent.name] = sorted(plain, key=repr)
    return found


def test_a_cluster_finds_what_the_local_run_finds(
    demonstrated: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """The demo's fleet on the cluster, and on two cores in the session of the suite."""
    warehouse = tmp_path / "warehouse"
    settings = load_settings(demonstrated / "weir.yaml", {"warehouse": str(warehouse)})
    assert run(settings, available_now=True, drain=True) == 0
    local, remote = (tables(at) for at in (warehouse, demonstrated / "warehouse"))
    assert len(local["events"]) > 19_000
    assert local["throttle_events"]
    assert list(remote) == list(local)
    for name, rows in local.items():
        assert remote[name] == rows, name


def test_a_replay_on_a_cluster_gives_the_tables_of_the_run(demonstrated: Path) -> None:
    assert "tables are those of the live run over the whole archive" in answered(demonstrated, 0)


def test_effects_of_policies_are_replayed_on_a_cluster(demonstrated: Path) -> None:
    assert json.loads(answered(demonstrated, 1))["same"]
    before, after = (tables(demonstrated.parent / "kept" / side) for side in ("before", "after"))
    assert before["throttle_events"]
    assert before == after


def test_the_demo_on_a_cluster_prints_what_it_has_found(demonstrated: Path) -> None:
    said = answered(demonstrated, 2)
    assert "Processed in" in said and "numbers that the broker and its clients counted" in said
    assert (demonstrated.parent / "demo/report.html").is_file()


def test_an_environment_that_is_on_the_workers_is_used(cluster: str, tmp_path: Path) -> None:
    asked = ("doctor", "--json", "--warehouse", str(tmp_path / "warehouse"))
    done = weir(*on(cluster), *asked, WEIR_WORKER_PYTHON=sys.executable)
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert [name for name, check in checks.items() if not check["ok"]] == []
    assert f"on {cluster}" in checks["spark"]["found"]
