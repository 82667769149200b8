"""Alert rules on the tables: `check` judges them once, `rules` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.settings import Settings

RULES = Path(__file__).resolve().parents[2] / "configs" / "alerts"
"""The folder of the rules that are shipped."""


def check(
    settings: Settings, as_json: bool = False, at_ms: int | None = None, rules_dir: Path = RULES
) -> int:
    """Judge every rule on the warehouse of `settings`, in event time; 1 while one fires."""
    from app.alerts.judge import check_command
    from app.warehouse import Warehouse

    return check_command(Warehouse.of(settings), rules_dir, as_json, at_ms)


def rules(settings: Settings, as_json: bool = False, rules_dir: Path = RULES) -> int:
    """List the rules; 0."""
    from app.alerts.rule_files import rules_command

    return rules_command(rules_dir, as_json)
