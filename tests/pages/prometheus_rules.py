"""The rules for Prometheus: what the file has of its own, then those of the shipped alert rules."""

from __future__ import annotations

from typing import Any

import yaml

from app.config.alert_rule import PrometheusRule, Rule
from app.config.shipped import ROOT
from app.show.alerts.rule_files import told_of

FILE = ROOT / "conf" / "prometheus" / "weir.rules.yml"
MARK = "  # From here on the alert rules say what stands here: change those, then `make docs`.\n"
BASE = (
    '{{ with query "last_over_time(weir_alerts_info[1d])" }}'
    '{{ . | first | label "runbook_base" }}/{{ end }}'
)
GROUPS = {"weir-quotas": "app/jobs/", "weir-engine": "docs/"}
"""The groups, and where the runbooks of their rules are."""


def render() -> str:
    """The text of the file."""
    own, _, _ = FILE.read_text("utf-8").partition(MARK)
    groups = [
        {
            "name": name,
            "rules": [
                _rule(rule, one)
                for rule in told_of(None).values()
                if rule.runbook.startswith(folder)
                for one in rule.prometheus
            ],
        }
        for name, folder in GROUPS.items()
    ]
    text = yaml.safe_dump(groups, sort_keys=False, width=10_000, allow_unicode=True)
    return own + MARK + "".join(f"  {line}\n" for line in text.splitlines())


def _rule(rule: Rule, one: PrometheusRule) -> dict[str, Any]:
    waits_s = (rule.for_ms if one.for_ms is None else one.for_ms) // 1000
    labels = {"severity": one.severity or rule.severity, "stage": one.stage}
    return {
        "alert": rule.name,
        "expr": one.expr,
        **({"for": _duration(waits_s)} if waits_s else {}),
        "labels": {name: text for name, text in labels.items() if text},
        "annotations": {"summary": one.summary, "runbook": BASE + rule.runbook},
    }


def _duration(seconds: int) -> str:
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"
