"""What is below conf for a deployment: linters, and whether it fits the program (the chart:
test_chart.py)."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.setup.launch import line as lines

ROOT = Path(__file__).resolve().parents[3]
CONF = ROOT / "conf"
UNIT = CONF / "systemd/weir.service"


def checked(*words: str | Path, **more: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hadolint_finds_nothing_wrong_with_the_image() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    checked(hadolint, "--failure-threshold", "style", CONF / "docker/Dockerfile")


def test_the_image_is_made_of_what_its_context_has() -> None:
    text = (CONF / "docker/Dockerfile").read_text("utf-8")
    copied = [
        shlex.split(line)[1:-1]
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
    ]
    sources = {word for words in copied for word in words if not word.startswith("--")}
    assert {path for path in sources if not (ROOT / path).exists()} == set()
    ignored = (CONF / "docker/Dockerfile.dockerignore").read_text("utf-8").splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    assert {
        path
        for path in sources
        if not any(path == each or path.startswith(f"{each}/") for each in let_in)
    } == set()


def entrypoint(folder: Path, *words: str, **environment: str) -> list[str]:
    """The words that the entry point of the image becomes, the program's name first."""
    for program in ("weir", "java"):
        stand_in = folder / program
        stand_in.write_text('#!/bin/bash\nprintf "%s\\n" "${0##*/}" "$@"\n', encoding="utf-8")
        stand_in.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return checked(
        CONF / "docker/entrypoint.sh", *words, env={"PATH": path, **environment}
    ).splitlines()


def test_the_image_starts_commands_and_the_executors_of_spark(tmp_path: Path) -> None:
    given = ["run", "--config", "a b.yaml"]
    assert entrypoint(tmp_path, *given) == ["weir", *given]
    names = (
        "DRIVER_URL",
        "EXECUTOR_ID",
        "EXECUTOR_CORES",
        "APPLICATION_ID",
        "EXECUTOR_POD_IP",
        "RESOURCE_PROFILE_ID",
        "EXECUTOR_POD_NAME",
    )
    found = entrypoint(
        tmp_path,
        "executor",
        **{f"SPARK_{name}": name.lower() for name in names},
        SPARK_EXECUTOR_MEMORY="2g",
        SPARK_HOME="/spark",
        SPARK_CONF_DIR="/conf",
        SPARK_JAVA_OPT_0="-Xss4m",
        SPARK_JAVA_OPT_1="-Da=b c",
    )
    assert found[:6] == ["java", "-Xss4m", "-Da=b c", "-Xms2g", "-Xmx2g", "-cp"]
    assert found[6].startswith("/conf:/spark/jars/*:")
    backend = found[7:]
    assert backend[0].endswith("k8s.KubernetesExecutorBackend")
    assert dict(zip(backend[1::2], backend[2::2], strict=True)) == {
        "--driver-url": "driver_url",
        "--executor-id": "executor_id",
        "--cores": "executor_cores",
        "--app-id": "application_id",
        "--hostname": "executor_pod_ip",
        "--resourceProfileId": "resource_profile_id",
        "--podName": "executor_pod_name",
    }


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing (Debian: systemd)"
)
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    (command,) = re.findall(r"^ExecStart=(.*)", UNIT.read_text("utf-8"), re.M)
    program, *words = shlex.split(command)
    assert lines.read(words).command == "run"
    # The program is looked for: one that exists here stands for it.
    (tmp_path / "weir.service").write_text(UNIT.read_text("utf-8").replace(program, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "weir.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_grafana_finds_its_data_source_and_the_dashboards() -> None:
    folder = CONF / "grafana/provisioning"
    sources = yaml.safe_load((folder / "datasources/weir.yml").read_text())
    providers = yaml.safe_load((folder / "dashboards/weir.yml").read_text())
    assert sources["apiVersion"] == providers["apiVersion"] == 1
    (source,), (provider,) = sources["datasources"], providers["providers"]
    assert (source["type"], provider["type"]) == ("prometheus", "file")
    (job,) = yaml.safe_load((CONF / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert job["job_name"] == "weir"
    pages = [json.loads(page.read_text()) for page in sorted((CONF / "grafana").glob("*.json"))]
    assert len({page["uid"] for page in pages}) == len(pages) > 0
    for page in pages:
        (variable,) = [v for v in page["templating"]["list"] if v["name"] == "datasource"]
        assert (variable["type"], variable["query"]) == ("datasource", source["type"])
