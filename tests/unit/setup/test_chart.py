"""The Helm chart: what it renders fits Kubernetes, Prometheus' operator and the program."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from app import __version__
from app.config.settings import load_settings
from app.setup.launch import line as lines
from app.setup.launch.home import Home
from app.setup.launch.start import main
from app.setup.size import COEFFICIENTS
from tests.support.helm import (
    CHART,
    VALUES,
    Document,
    executor_of,
    helm,
    needs_helm,
    of_kind,
    pod_of,
    rendered,
)

pytestmark = needs_helm
ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = "1.32"
LOGIN, EXECUTORS, STORE = (
    CHART / f"ci/{name}-values.yaml" for name in ("login", "executors", "object-store")
)
EVERY = pytest.mark.parametrize(
    "values", [None, *VALUES], ids=lambda path: path.stem if path else "default"
)
MIB, GIB = 1 << 20, 1 << 30


def strict(schema: Any) -> Any:
    """A schema that refuses keys it does not name, as `kubectl --validate=strict` does."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in made and isinstance(made["properties"], dict):
        made.setdefault("additionalProperties", False)
    return made


def check(document: Document) -> None:
    if document["apiVersion"] == "monitoring.coreos.com/v1":
        file = f"tests/data/crd/{document['kind'].lower()}s.json"
        schema = strict(json.loads((ROOT / file).read_text()))
        schema["properties"]["metadata"] = {"type": "object"}
        jsonschema.validate(document, schema)
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def memory(text: str) -> float:
    units = {"Mi": MIB, "Gi": GIB, "m": MIB, "g": GIB}
    (unit,) = (unit for unit in units if text.endswith(unit))
    return float(text.removesuffix(unit)) * units[unit]


@EVERY
def test_helm_finds_nothing_wrong(values: Path | None) -> None:
    done = helm("lint", "--strict", CHART, *(("--values", values) if values else ()))
    assert done.returncode == 0, done.stdout + done.stderr


@EVERY
def test_manifests_have_the_schemas_of_their_kinds(values: Path | None) -> None:
    documents = rendered(values)
    for document in documents:
        check(document)
    pod = executor_of(documents)
    if pod is not None:
        check(pod)


@EVERY
def test_what_a_manifest_names_is_in_it(values: Path | None) -> None:
    documents = rendered(values, "east")
    given = yaml.safe_load(values.read_text()) if values else {}
    secrets = {*given.get("secrets", ()), *given.get("secretFiles", ())}
    there = {(one["kind"], one["metadata"]["name"]) for one in documents}
    there |= {("Secret", name) for name in secrets}
    executor = executor_of(documents)
    for pod in (pod_of(documents), *([executor["spec"]] if executor else [])):
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        for volume in volumes.values():
            named = {
                ("ConfigMap", volume.get("configMap", {}).get("name")),
                ("PersistentVolumeClaim", volume.get("persistentVolumeClaim", {}).get("claimName")),
                ("Secret", volume.get("secret", {}).get("secretName")),
            }
            assert {each for each in named if each[1]} <= there
        assert {each["name"] for each in container.get("volumeMounts", ())} == set(volumes)
        assert ("ServiceAccount", pod["serviceAccountName"]) in there
        assert {each["secretRef"]["name"] for each in container.get("envFrom", ())} == set(
            given.get("secrets", ())
        )
    (container,) = pod_of(documents)["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    labels = of_kind(documents, "Deployment")[0]["spec"]["template"]["metadata"]["labels"]
    for service in of_kind(documents, "Service"):
        assert service["spec"]["selector"] == labels
        for port in service["spec"]["ports"]:
            assert ports[port["name"]] == port["port"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


@EVERY
def test_the_pod_runs_a_line_that_the_launcher_takes(
    values: Path | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (container,) = pod_of(rendered(values))["containers"]
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "MASTER", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/delta.jar").touch()
    java = tmp_path / "jdk/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    # As the image has them.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("WEIR_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("WEIR_WORKER_PYTHON", "/opt/weir/bin/python")
    assert main(["--dry-run", *container["args"]], Home.of_environment(tmp_path)) == 0
    shown = shlex.split(capsys.readouterr().out)
    given = lines.read(container["args"])
    assert shown[-5:] == ["run", "--config", "/etc/weir/weir.yaml", "--log-format", "json"]
    assert given.words == shown[-5:]  # what is for spark-submit has gone there
    master = shown[shown.index("--master") + 1]
    executors = yaml.safe_load(values.read_text()).get("executors") if values else None
    if executors is None:
        assert master == "local[2]"
    else:
        assert master == "k8s://https://kubernetes.default.svc"
        assert shown[shown.index("--num-executors") + 1] == str(executors["count"])
        assert shown[shown.index("--executor-cores") + 1] == str(executors["cores"])


@EVERY
def test_its_configuration_is_valid_as_a_volume_of_kubernetes_has_it(
    values: Path | None, tmp_path: Path
) -> None:
    documents = rendered(values)
    (config,) = of_kind(documents, "ConfigMap")
    (tmp_path / "..data").mkdir()
    for name, text in config["data"].items():
        (tmp_path / "..data" / name).write_text(text, encoding="utf-8")
        (tmp_path / name).symlink_to(f"..data/{name}")
    done = subprocess.run(
        [sys.executable, "-m", "app.main", "validate", "--config", tmp_path / "weir.yaml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    settings = load_settings(tmp_path / "weir.yaml", reads=True)
    (container,) = pod_of(documents)["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    claims = of_kind(documents, "PersistentVolumeClaim")
    if "://" in settings.warehouse:
        assert "/data" not in mounts and not claims
    else:
        assert settings.warehouse.startswith("/data/") and "/data" in mounts and len(claims) == 1
    assert settings.metrics is not None
    (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == "metrics")
    assert settings.metrics.listen == f"0.0.0.0:{port}"


@pytest.mark.parametrize("values", [EXECUTORS, STORE], ids=lambda path: path.stem)
def test_executors_find_their_driver_and_have_what_it_has(values: Path) -> None:
    documents = rendered(values, "east")
    (container,) = pod_of(documents)["containers"]
    confs = lines.read(container["args"]).confs
    service, namespace, _ = confs["spark.driver.host"].split(".")
    assert namespace == confs["spark.kubernetes.namespace"] == "fleets"
    assert confs["spark.kubernetes.container.image"] == container["image"]
    (found,) = (one for one in of_kind(documents, "Service") if one["metadata"]["name"] == service)
    assert found["spec"]["clusterIP"] == "None"
    assert {str(port["port"]) for port in found["spec"]["ports"]} == {
        confs["spark.driver.port"],
        confs["spark.driver.blockManager.port"],
    }
    executor = executor_of(documents)
    assert executor is not None
    (inside,) = executor["spec"]["containers"]
    assert inside["name"] == confs["spark.kubernetes.executor.podTemplateContainerName"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert confs["spark.kubernetes.executor.podTemplateFile"] == "/etc/weir/executor.yaml"
    assert {mount["mountPath"] for mount in inside.get("volumeMounts", ())} == mounts - {
        "/etc/weir"
    }
    # The services must not lead to executors, nor the driver's token to them.
    labels = of_kind(documents, "Deployment")[0]["spec"]["selector"]["matchLabels"]
    assert not labels.items() <= executor["metadata"]["labels"].items()
    assert not executor["spec"]["automountServiceAccountToken"]
    assert pod_of(documents)["automountServiceAccountToken"]
    (role,) = of_kind(documents, "Role")
    assert {"pods", "configmaps"} <= set(role["rules"][0]["resources"])


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_an_executor_has_room_for_the_measured_workers_of_its_cores(cores: int) -> None:
    documents = rendered(EXECUTORS, "weir", "--set", f"executors.cores={cores}")
    (container,) = pod_of(documents)["containers"]
    overhead = memory(lines.read(container["args"]).confs["spark.executor.memoryOverhead"])
    measured = json.loads(COEFFICIENTS.read_text())["coefficients"]["worker_gb"]["value"] * 1e9
    assert overhead >= cores * measured + 300 * MIB  # Spark's own, at the least


def test_the_default_has_room_for_the_measured_run_of_twenty_clusters() -> None:
    (container,) = pod_of(rendered())["containers"]
    weight = json.loads((ROOT / "benchmarks/results/weight.json").read_text())
    (most,) = (
        figure["value"]
        for figure in weight["figures"]
        if figure["name"] == "20 clusters, 500 groups each: at most"
    )
    limit = memory(container["resources"]["limits"]["memory"])
    assert limit == memory(container["resources"]["requests"]["memory"])
    assert limit >= 1.5 * most * 1e6


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ("wharehouse=x", "wharehouse"),
        ("config.warehouse=weir-warehouse", "/config/warehouse"),
        ("config.source=kafka", "/config/source"),
        ("cores=0", "/cores"),
        ("cores=1.5", "/cores"),
        ("memory=3g", "/memory"),
        ("heap=1Gi", "/heap"),
        ("executors.count=-1", "/executors/count"),
        ("executors.memory=2g", "memory"),
        ("executors.heap=2", "/executors/heap"),
        ("secrets=one", "/secrets"),
        ("secretFiles={Not_A_Name}", "/secretFiles/0"),
        ("storage.size=big", "/storage/size"),
        ("image.tagg=1", "tagg"),
        ("prometheus.rules=yes", "/prometheus/rules"),
        ("sparkOptions=--verbose", "/sparkOptions"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values: str, named: str) -> None:
    done = helm("template", "weir", CHART, "--set", values)
    assert done.returncode != 0
    assert named in done.stderr, done.stderr


def test_every_value_has_a_default_and_a_schema() -> None:
    def keys(values: Any, schema: Document) -> None:
        if schema.get("additionalProperties") is False:
            assert set(values) == set(schema["properties"]) - {"global"}
            for name, value in values.items():
                keys(value, schema["properties"][name])

    schema = json.loads((CHART / "values.schema.json").read_text())
    keys(yaml.safe_load((CHART / "values.yaml").read_text()), schema)


def test_its_image_is_that_of_the_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    (container,) = pod_of(rendered())["containers"]
    assert container["image"] == f"weir:{__version__}"
    own = rendered(None, "weir", "--set", "image.repository=r.example/weir,image.tag=polls")
    assert pod_of(own)["containers"][0]["image"] == "r.example/weir:polls"


def test_values_reach_what_they_are_for() -> None:
    documents = rendered(LOGIN)
    (container,) = pod_of(documents)["containers"]
    assert pod_of(documents)["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    (mount,) = (m for m in container["volumeMounts"] if m["mountPath"].startswith("/etc/weir-"))
    (config,) = of_kind(documents, "ConfigMap")
    assert f"{mount['mountPath']}/truststore.p12" in config["data"]["weir.yaml"]
    assert "${env:KAFKA_PASSWORD}" in config["data"]["weir.yaml"]  # it is not resolved here
    (account,) = of_kind(rendered(STORE), "ServiceAccount")
    assert "eks.amazonaws.com/role-arn" in account["metadata"]["annotations"]
    (claim,) = of_kind(rendered(EXECUTORS), "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "shared-files"
    kept = rendered(None, "weir", "--set", "storage.claim=of-before")
    assert not of_kind(kept, "PersistentVolumeClaim")
    assert {"name": "warehouse", "persistentVolumeClaim": {"claimName": "of-before"}} in pod_of(
        kept
    )["volumes"]


def test_a_configuration_stays_as_it_is() -> None:
    given = {"a": 536870912, "b": "{{ owner }} ${env:NAME}", "c": [1.5, None, True, "0x1f"]}
    documents = rendered(None, "weir", "--set-json", f"config.given={json.dumps(given)}")
    (config,) = of_kind(documents, "ConfigMap")
    assert yaml.safe_load(config["data"]["weir.yaml"])["given"] == given


def test_another_configuration_is_another_pod() -> None:
    def mark(*more: str) -> str:
        (deployment,) = of_kind(rendered(None, "weir", *more), "Deployment")
        text: str = deployment["spec"]["template"]["metadata"]["annotations"]["weir/configuration"]
        return text

    marks = {mark(), mark("--set", "config.trigger_ms=1"), mark("--set", "files.a=b")}
    assert len(marks) == 3
    assert mark("--set", "prometheus.rules=true") in marks


def test_prometheus_finds_the_job_of_the_rules_and_the_rules() -> None:
    documents = rendered(LOGIN)
    (monitor,) = of_kind(documents, "ServiceMonitor")
    (rules,) = of_kind(documents, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((ROOT / "conf/prometheus/weir.rules.yml").read_text())
    wanted = monitor["spec"]["selector"]["matchLabels"]
    found = [
        service
        for service in of_kind(rendered(EXECUTORS) + documents, "Service")
        if wanted.items() <= service["metadata"]["labels"].items()
    ]
    assert {service["metadata"]["name"] for service in found} == {"weir-metrics"}
    assert found[0]["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "weir"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found[0]["spec"]["ports"]}
    assert {rules["metadata"]["labels"]["release"], monitor["metadata"]["labels"]["release"]} == {
        "prometheus"
    }
    assert not of_kind(rendered(), "ServiceMonitor") + of_kind(rendered(), "PrometheusRule")
