"""What tests share of prometheus rules."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.support.servers.prometheus import RULES

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((ROOT / "conf" / "grafana").glob("*.json"))


def rules() -> list[dict[str, object]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions(page: Path) -> list[str]:
    document = json.loads(page.read_text())
    return [target["expr"] for panel in document["panels"] for target in panel["targets"]]
