"""The command `weir` of a wheel that is installed into an environment of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import typer
from deltalake import DeltaTable

from app.cli import app
from app.config.alerts import AlertSettings
from app.demo.recording import names
from app.show.alerts.rule_files import rules_of
from tests.support.throttle_rows import event, write

ROOT = Path(__file__).resolve().parents[2]
OF_PYTEST = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR")


class Installed:
    """An environment with the wheel; the packages of the requirements are those of this one."""

    def __init__(self, folder: Path) -> None:
        wheels, self.folder, self.work = folder / "wheels", folder / "env", folder / "work"
        self.work.mkdir()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", wheels, ROOT],
            check=True,
            capture_output=True,
        )
        venv.create(self.folder)
        self.site = self.folder / "lib/python3.11/site-packages"
        (self.site / "packages.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        (wheel,) = wheels.iterdir()
        subprocess.run(
            [*pip, "--python", self.folder / "bin/python", "install", "-q", "--no-deps", wheel],
            check=True,
            capture_output=True,
        )

    def weir(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name not in OF_PYTEST}
        return subprocess.run(
            [self.folder / "bin/weir", *words],
            cwd=self.work,
            env=kept | more,
            text=True,
            capture_output=True,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_the_help_lists_every_command_under_the_name_of_the_program(installed: Installed) -> None:
    shown = installed.weir("--help")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("Usage: weir ")
    listed = {
        line.split()[0]
        for line in shown.stdout.splitlines()
        if line.startswith("  ") and line.split()
    }
    assert set(typer.main.get_command(app).commands) <= listed  # type: ignore[attr-defined]


def test_a_warehouse_is_read(installed: Installed) -> None:
    write(str(installed.work / "warehouse"), "throttle_events", [event(100, "mark")])
    found = installed.weir(
        "query", "SELECT count(*) AS n FROM throttle_events", "--warehouse", "warehouse", "--json"
    )
    assert (found.returncode, json.loads(found.stdout)) == (0, [{"n": 1}]), found.stderr


def test_files_that_ship_beside_the_code_are_found(installed: Installed) -> None:
    rules = installed.weir("alerts", "rules", "--json")
    runbooks = {rule["name"]: rule["runbook"] for rule in json.loads(rules.stdout)}
    assert set(runbooks) == {rule.name for rule in rules_of(AlertSettings())}
    for runbook in runbooks.values():
        assert (installed.site / "weir" / runbook).is_file()
    write(str(installed.work / "reported"), "throttle_events", [event(100, "mark")])
    page = installed.weir("report", "--warehouse", "reported", "--out", "page.html")
    assert page.returncode == 0, page.stderr
    for recording in names():
        place = f"configs/recordings/{recording}"
        assert {file.name for file in (installed.site / "weir" / place).iterdir()} == {
            file.name for file in (ROOT / place).iterdir()
        }
    for left in ("benchmarks", "configs/scenarios", "app/demo/generator"):
        assert not (installed.site / "weir" / left).exists()
    refused = installed.weir("demo", "--scenario", "none")
    assert refused.returncode == 2 and "allowed: demo, real-pulsar" in refused.stderr


def test_spark_starts_with_what_is_installed(installed: Installed) -> None:
    shown = installed.weir("--dry-run", "demo", "--out", "my demo")
    assert shown.returncode == 0, shown.stderr
    words = shlex.split(shown.stdout)
    python = str(installed.folder / "bin/python")
    assert {
        f"PYSPARK_PYTHON={python}",
        "TZ=UTC",
        "SPARK_LOCAL_IP=127.0.0.1",
        f"SPARK_CONF_DIR={installed.site}/weir/conf",
        f"PYTHONPATH={installed.site}/weir",
    } <= set(words)
    assert words[-4:] == [f"{installed.site}/weir/app/main.py", "demo", "--out", "my demo"]
    assert str(ROOT) not in {Path(word).parent for word in words}


def test_a_missing_java_and_missing_jars_are_named_with_what_helps(installed: Installed) -> None:
    refused = installed.weir("doctor", JAVA_HOME="/nowhere")
    assert refused.returncode == 2
    first, second = refused.stderr.splitlines()
    assert first == "weir: Java 17 is missing in JAVA_HOME=/nowhere"
    assert "install" in second and "openjdk-17-jre-headless" in second
    (installed.work / "ivy.xml").write_text("<ivysettings/>", encoding="utf-8")
    refused = installed.weir("--conf", "spark.jars.ivySettings=ivy.xml", "--prepare", WEIR_JARS="")
    assert refused.returncode == 2
    assert "weir: the jars could not be fetched" in refused.stderr
    assert "behind a mirror: --repositories URL" in refused.stderr


@pytest.mark.slow
def test_the_demo_runs_outside_the_checkout(installed: Installed) -> None:
    done = installed.weir("demo", "--out", "made")
    assert done.returncode == 0, done.stderr
    assert "weir query --warehouse made/warehouse" in done.stdout
    page = (ROOT / "docs/demo.md").read_text("utf-8").partition("<!-- demo-output -->")[2]
    assert page.partition("```text\n")[2].partition("```")[0] in done.stdout
    assert DeltaTable(installed.work / "made/warehouse/events").to_pyarrow_dataset().count_rows()
    checked = installed.weir("doctor", "--warehouse", "made/warehouse")
    assert checked.returncode == 0, checked.stdout + checked.stderr
