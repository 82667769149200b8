"""What Helm makes of the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "conf/helm/weir"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
HELM = shutil.which("helm", path=f"{os.environ['PATH']}:{Path.home()}/.cache/weir/bin")
needs_helm = pytest.mark.skipif(
    HELM is None, reason="helm is missing (.ci/run builds it with Go into ~/.cache/weir/bin)"
)

Document = dict[str, Any]


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """One command of Helm to its end."""
    assert HELM is not None
    return subprocess.run([HELM, *words], capture_output=True, text=True, check=False)


@cache
def rendered(values: Path | None = None, name: str = "weir", *more: str) -> tuple[Document, ...]:
    """The manifests of a release in the namespace `fleets`."""
    given = ("--values", values) if values else ()
    done = helm("template", name, CHART, "--namespace", "fleets", *given, *more)
    assert done.returncode == 0, done.stderr
    return tuple(one for one in yaml.safe_load_all(done.stdout) if one)


def of_kind(documents: tuple[Document, ...], kind: str) -> list[Document]:
    """Those of one kind."""
    return [one for one in documents if one["kind"] == kind]


def pod_of(documents: tuple[Document, ...]) -> Document:
    """The pod of the driver."""
    (deployment,) = of_kind(documents, "Deployment")
    spec: Document = deployment["spec"]["template"]["spec"]
    return spec


def executor_of(documents: tuple[Document, ...]) -> Document | None:
    """What Spark makes the pods of executors of."""
    (config,) = of_kind(documents, "ConfigMap")
    text = config["data"].get("executor.yaml")
    return yaml.safe_load(text) if text else None
