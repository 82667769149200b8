"""Alert rules on the tables, and the sinks that are notified.

The commands `alerts check`, `alerts watch` and `alerts rules`, and what they evaluate beside a
run. Start with `evaluator`: a round evaluates each rule (`evaluation`), compares it with
the recorded alerts (`episodes`, `journal`) and delivers the changes (`sinks`). Imports
`app.read` and `app.config`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings


def check(
    settings: Settings,
    as_json: bool = False,
    at_ms: int | None = None,
    only: Sequence[str] = (),
    cluster: str | None = None,
) -> int:
    """Evaluate every rule on the warehouse of `settings`, in event time; 1 while one fires, of one
    cluster or all."""
    from app.show.alerts.evaluator import check_command

    return check_command(settings, as_json, at_ms, only, cluster)


def watch(
    settings: Settings,
    interval_ms: int | None = None,
    as_json: bool = False,
    only: Sequence[str] = (),
) -> int:
    """Evaluate every rule repeatedly, until SIGTERM or SIGINT; 0."""
    from app.show.alerts.evaluator import watch_command

    return watch_command(settings, interval_ms, as_json, only)


def rules(settings: Settings, as_json: bool = False) -> int:
    """List the rules; 0."""
    from app.show.alerts.rule_files import rules_command, rules_of

    return rules_command(rules_of(settings.alerts), as_json)
