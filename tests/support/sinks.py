"""What tests share of sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.config.settings import Settings
from app.read.relations import Warehouse
from app.show.alerts.evaluator import Evaluator
from tests.support.throttle_rows import TOPIC, window, write

RULE = {
    "name": "busy",
    "severity": "critical",
    "for": "1m",
    "now": "topic_throttle_stats",
    "runbook": "docs/busy.md",
    "labels": ["cluster", "topic"],
    "sql": "SELECT cluster, topic, window_start_ms AS start_ms, messages AS value, limit_msgs,"
    " window_start_ms + window_ms AS end_ms FROM topic_throttle_stats WHERE messages > 1000",
    "summary": "{topic} sent {value:.0f} of {limit_msgs}",
}
BUSY = {"messages": 6000}


def evaluator_of(settings: Settings, only: Sequence[str] = ()) -> Evaluator:
    """The evaluator of a configuration."""
    warehouse = Warehouse.of(settings.location, settings.owners)
    return Evaluator(warehouse, settings.alerts, only)


def states(receiver: Any) -> list[tuple[str, str]]:
    return [
        (a["state"], a["labels"]["topic"]) for body in receiver.bodies() for a in body["alerts"]
    ]


def minutes(warehouse: str, *numbers: int, topic: str = TOPIC, **changes: Any) -> None:
    write(
        warehouse,
        "topic_throttle_stats",
        [window(number, topic=topic, **changes) for number in numbers],
    )
