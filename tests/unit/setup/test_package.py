"""What travels to a cluster is enough there: rules, scenarios, recordings, pages are in the zip."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from app.config.alerts import AlertSettings
from app.demo.generator.scenario import shipped
from app.demo.recording import names
from app.setup.package import LAUNCHER, pack_code
from app.show.alerts.rule_files import rules_of

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import app.config.reading
from app.show.alerts.rule_files import rules_of
from app.config.alerts import AlertSettings
from app.demo.generator.scenario import load_scenario, shipped
from app.show.report.model import Page
from jinja2 import Environment, PackageLoader
from importlib.resources import files
from app.demo.recording import Recording, names
assert ".zip" in app.config.reading.__file__
print(*[rule.name for rule in rules_of(AlertSettings())])
print(*shipped())
print(*names())
print(next(Recording("real-pulsar").records())["event_type"])
print(load_scenario("demo").model_dump_json()[:1])
print("<html" in PackageLoader("app.show.report", "").get_source(Environment(), "page.html.j2")[0])
print(bool(files("app.show.report").joinpath("style.css").read_text("utf-8")))
"""
PACK = """
import sys
from pathlib import Path
from app.setup.package import pack_environment
pack_environment(Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "weir.zip"
    pack_code(path)
    return path


def test_what_is_shipped_beside_the_code_is_found_in_the_zip(code: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(code)},
        cwd=code.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rules, scenarios, recordings, first, *others = done.stdout.splitlines()
    assert rules.split() == [rule.name for rule in rules_of(AlertSettings())]
    assert scenarios.split() == shipped()
    assert (recordings.split(), first) == (names(), "broker_started")
    assert others == ["{", "True", "True"]


def test_an_environment_is_packed_without_what_no_worker_reads(tmp_path: Path) -> None:
    """A small one: its packages are those of this environment, and the files that are made here."""
    folder = tmp_path / "env"
    venv.create(folder)
    kept = ["lib/python3.11/site-packages/pyspark/sql/types.py", "bin/weir"]
    left = [
        "lib/python3.11/site-packages/pyspark/jars/spark-core.jar",
        "lib/python3.11/site-packages/pyspark/work/app-1/0/delta.jar",
        "lib/python3.11/site-packages/pyspark/__pycache__/a.pyc",
        "lib/python3.11/site-packages/kubernetes_validate/schema.json",
        "share/weir/jars/delta.jar",
        "bin/ruff",
    ]
    for name in (*kept, *left):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    target = tmp_path / "env.tar.gz"
    subprocess.run(
        [folder / "bin/python", "-c", PACK, target],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"},
    )
    with tarfile.open(target) as archive:
        found = set(archive.getnames())
    assert {*kept, "bin/weir-python"} <= found
    assert not found & set(left)


@pytest.mark.parametrize("has_code", [True, False])
def test_the_daemon_of_a_packed_environment_has_the_code_that_spark_has_brought(
    tmp_path: Path, has_code: bool
) -> None:
    python = tmp_path / "env/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$PYTHONPATH" "$@"\n', encoding="utf-8")
    launcher = python.with_name("weir-python")
    launcher.write_text(LAUNCHER, encoding="utf-8")
    for path in (python, launcher):
        path.chmod(0o755)
    if has_code:
        (tmp_path / "weir.zip").touch()
    packages = f"{tmp_path}/env/lib/python3.11/site-packages"

    def started(*words: str) -> str:
        done = subprocess.run(
            ["env/bin/weir-python", *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": "spark"},
            text=True,
            capture_output=True,
            check=True,
        )
        return done.stdout.strip()

    daemon = started("-m", "pyspark.daemon", "pyspark.worker")
    path = f"spark:{packages}"
    assert daemon == (
        f"weir.zip:{path} -m app.setup.daemon pyspark.worker"
        if has_code
        else f"{path} -m pyspark.daemon pyspark.worker"
    )
    assert started("-m", "pyspark.worker") == f"{path} -m pyspark.worker"
