"""A run judges the alert rules on what it has committed, and its rows do not depend on that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config.settings import Settings
from app.demo.generator.write import write_files
from app.read.relations import Warehouse
from app.run.service import run
from tests.support.traces import all_rows, demo_trace
from tests.unit.show.alerts.receiver import receiving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 17_000
SOUND: dict[str, Any] = {
    "name": "paused",
    "severity": "info",
    "now": "topic_throttle_stats",
    "labels": ["cluster", "topic"],
    "summary": "{topic} was paused {value:.0f} times",
    "sql": "SELECT cluster, topic, window_start_ms AS start_ms, 2 * window_ms + window_start_ms AS"
    " end_ms, limited_times AS value FROM topic_throttle_stats WHERE limited_times > 0",
}
BROKEN = {**SOUND, "name": "broken", "sql": "SELECT nonsense FROM topic_throttle_stats"}


def test_a_run_tells_of_alerts_and_a_broken_rule_or_sink_does_not_stop_it(
    spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path, capfd: Any
) -> None:
    trace = demo_trace(EVENTS)
    write_files(trace, tmp_path / "events")
    source = {
        "format": "files",
        "path": str(tmp_path / "events"),
        "options": {"maxFilesPerTrigger": "30"},
    }

    def settings(name: str, **alerts: Any) -> Settings:
        return make_settings(
            source=source, policies=trace.policies, warehouse=str(tmp_path / name), alerts=alerts
        )

    quiet = settings("quiet", interval_ms=None)
    with receiving() as receiver:
        told = settings(
            "told",
            rules=[BROKEN, SOUND],
            rule_files=[],
            interval_ms=200,
            sinks=[
                {"type": "webhook", "url": receiver.url},
                {"type": "stdout"},
                {"type": "webhook", "url": "http://127.0.0.1:1", "retries": 0},
            ],
        )
        assert run(told, available_now=True) == 0
        sent = [alert for body in receiver.bodies() for alert in body["alerts"]]
    assert run(quiet, available_now=True) == 0
    assert all_rows(told.warehouse) == all_rows(quiet.warehouse)
    shown = capfd.readouterr()
    assert 'alert rule broken: Binder Error: Referenced column "nonsense"' in shown.err
    assert "webhook http://127.0.0.1:1: cannot be reached" in shown.err
    alerts = Warehouse(told.warehouse).open("alerts")
    assert alerts is not None and Warehouse(quiet.warehouse).open("alerts") is None
    rows = [row for row in alerts.to_pyarrow_table().to_pylist() if row["state"] == "firing"]
    assert rows and {row["alert"] for row in rows} == {"paused"}
    assert sorted(a["number"] for a in sent if a["state"] == "firing") == sorted(
        row["number"] for row in rows
    )
    assert all(f"{row['summary']}\n" in shown.out for row in rows)
