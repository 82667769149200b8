"""Executors as pods, by the words of the chart: Spark's driver asks an API server on loopback for
them, and each runs as the image starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from tests.conftest import OF_JAVA
from tests.support.helm import CHART, executor_of, needs_helm, pod_of, rendered
from tests.support.servers.kubernetes import Document, Kubernetes
from tests.support.servers.process import free_ports

pytestmark = [pytest.mark.cluster, needs_helm]
ROOT = Path(__file__).resolve().parents[2]
SPARK = Path(pyspark.__file__).parent
OF_PYTEST = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR")
DRIVER = "weir-driver-pod"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Kubernetes]:
    """A namespace with the driver's pod, whose containers have the variables of the image."""

    def start(pod: Document, variables: dict[str, str]) -> subprocess.Popen[bytes]:
        (container,) = pod["spec"]["containers"]
        image = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
        image |= {"SPARK_HOME": str(SPARK), "SPARK_CONF_DIR": str(ROOT / "conf")}
        with (tmp_path / f"{pod['metadata']['name']}.log").open("wb") as log:
            return subprocess.Popen(
                [ROOT / "conf/docker/entrypoint.sh", *container["args"]],
                env={**image, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    there = Kubernetes(start)
    there.add("pods", {"metadata": {"name": DRIVER, "namespace": "fleets"}, "spec": {}})
    yield there
    there.stop()


def test_executors_of_the_chart_run_as_pods(cluster: Kubernetes, tmp_path: Path) -> None:
    documents = rendered(
        CHART / "ci/executors-values.yaml", "weir", "--set", "executors.heap=512m,executors.cores=1"
    )
    (container,) = pod_of(documents)["containers"]
    (tmp_path / "executor.yaml").write_text(yaml.safe_dump(executor_of(documents)))
    service, (rpc, blocks) = "weir-driver.fleets.svc", map(str, free_ports(2))
    here = {
        "k8s://https://kubernetes.default.svc": cluster.master,
        "spark.kubernetes.executor.podTemplateFile=/etc/weir/executor.yaml": "spark.kubernetes."
        f"executor.podTemplateFile={tmp_path}/executor.yaml",
        "spark.kubernetes.driver.pod.name=$(POD_NAME)": f"spark.kubernetes.driver.pod.name={DRIVER}",
        f"spark.driver.host={service}": "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=0.0.0.0": "spark.driver.bindAddress=127.0.0.1",
        "spark.driver.port=7078": f"spark.driver.port={rpc}",
        "spark.driver.blockManager.port=7079": f"spark.driver.blockManager.port={blocks}",
    }
    words = container["args"][: container["args"].index("run")]
    assert set(here) <= set(words)
    options = [
        *(here.get(word, word) for word in words),
        *("--conf", "spark.kubernetes.executor.enableApiWatcher=false"),
        *("--conf", "spark.kubernetes.executor.apiPollingInterval=1s"),
        *("--conf", f"spark.executor.extraJavaOptions=-Xss4m {OF_JAVA}"),
    ]
    variables = {name: text for name, text in os.environ.items() if name not in OF_PYTEST}
    done = subprocess.run(
        [ROOT / "spark-submit.sh", *options, "doctor", "--json", "--warehouse", tmp_path / "w"],
        env={**variables, "WEIR_WORKER_PYTHON": sys.executable},
        text=True,
        capture_output=True,
        check=False,
        timeout=600,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert [name for name, check in checks.items() if not check["ok"]] == []
    assert checks["spark"]["found"].endswith(f"on {cluster.master}, 2 cores")

    _, *executors = cluster.created
    assert len(executors) == 2
    for pod in executors:
        inside = as_asked(pod)
        assert inside["resources"]["limits"]["memory"] == f"{512 + 1536 + 512}Mi"
        assert inside["image"] == container["image"]
        assert {"name": "warehouse", "mountPath": "/data"} in inside["volumeMounts"]
        assert pod["spec"]["serviceAccountName"] == "weir"
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsUser"] == 10001
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["name"] == DRIVER  # they go with their driver
    assert set(cluster.ended().values()) <= {0, 143}


def as_asked(pod: Document) -> dict[str, Any]:
    """The container of a pod that the driver has asked for."""
    (container,) = pod["spec"]["containers"]
    found: dict[str, Any] = container
    return found
