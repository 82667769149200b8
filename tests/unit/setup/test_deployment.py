"""What is below conf for a deployment: linters, schemas, and whether it fits the program."""

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

import kubernetes_validate
import pytest
import yaml

from app.config.settings import load_settings
from app.setup.launch import line as lines

ROOT = Path(__file__).resolve().parents[3]
CONF = ROOT / "conf"
MANIFESTS = sorted((CONF / "kubernetes").glob("*.yaml"))
UNIT = CONF / "systemd/weir.service"
KUBERNETES = "1.32"


def checked(*words: str | Path, **more: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documents(manifest: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(manifest.read_text("utf-8")))


def of_kind(manifest: Path, kind: str) -> list[dict[str, Any]]:
    return [one for one in documents(manifest) if one["kind"] == kind]


def pod_of(manifest: Path) -> dict[str, Any]:
    (deployment,) = of_kind(manifest, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


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


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_have_the_schemas_of_kubernetes(manifest: Path) -> None:
    for document in documents(manifest):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_what_a_manifest_names_is_in_it(manifest: Path) -> None:
    there = {(one["kind"], one["metadata"]["name"]) for one in documents(manifest)}
    pod = pod_of(manifest)
    (container,) = pod["containers"]
    for volume in pod["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in there
        else:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there
    assert "serviceAccountName" not in pod or ("ServiceAccount", pod["serviceAccountName"]) in there
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    labels = of_kind(manifest, "Deployment")[0]["spec"]["template"]["metadata"]["labels"]
    for service in of_kind(manifest, "Service"):
        assert service["spec"]["selector"] == labels
        for port in service["spec"]["ports"]:
            assert ports[port["name"]] == port["port"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_the_pod_runs_a_command_with_a_configuration_that_is_valid(
    manifest: Path, tmp_path: Path
) -> None:
    pod = pod_of(manifest)
    (container,) = pod["containers"]
    line = lines.read(container["args"])
    assert (line.command, line.option("--config")) == ("run", "/etc/weir/weir.yaml")
    assert line.words[:1] == ["run"]  # what is for spark-submit has gone there
    (config,) = of_kind(manifest, "ConfigMap")
    (tmp_path / "weir.yaml").write_text(config["data"]["weir.yaml"], encoding="utf-8")
    settings = load_settings(tmp_path / "weir.yaml", reads=True)
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert settings.warehouse.startswith(tuple(f"{mount}/" for mount in mounts))
    assert settings.metrics is not None
    (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == "metrics")
    assert settings.metrics.listen == f"0.0.0.0:{port}"


def test_executors_find_their_driver() -> None:
    manifest = CONF / "kubernetes/executors.yaml"
    (container,) = pod_of(manifest)["containers"]
    confs = lines.read(container["args"]).confs
    service, namespace, _ = confs["spark.driver.host"].split(".")
    assert namespace == confs["spark.kubernetes.namespace"]
    assert confs["spark.kubernetes.container.image"] == container["image"]
    (found,) = [one for one in of_kind(manifest, "Service") if one["metadata"]["name"] == service]
    assert found["spec"]["clusterIP"] == "None"
    assert {str(port["port"]) for port in found["spec"]["ports"]} == {
        confs["spark.driver.port"],
        confs["spark.driver.blockManager.port"],
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
