"""The end of a Spark session waits for what still works in its JVM."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from app.run.session import stop_session


@pytest.mark.parametrize(
    ("name", "states", "looks"),
    [
        ("state-store-maintenance-thread-0", ["RUNNABLE", "TIMED_WAITING", "WAITING"], 3),
        ("state-store-maintenance-thread-0", ["BLOCKED", "WAITING", "WAITING"], 2),
        ("rpc-server-4-1", ["RUNNABLE", "RUNNABLE"], 1),
    ],
)
def test_state_stores_stop_once_no_task_needs_their_lock(
    name: str, states: list[str], looks: int
) -> None:
    looked: list[str] = []

    def threads() -> list[MagicMock]:
        looked.append(states[len(looked)])
        thread = MagicMock(**{"getState.return_value.name.return_value": looked[-1]})
        thread.getName.return_value = name
        return [thread]

    def stop() -> None:
        assert looked == states[:looks]

    spark = MagicMock()
    jvm = spark.sparkContext._jvm
    jvm.java.lang.Thread.getAllStackTraces.return_value.keySet = threads
    store = jvm.org.apache.spark.sql.execution.streaming.state.StateStore
    store.stop.side_effect = stop
    stop_session(spark)
    store.stop.assert_called_once()
    spark.stop.assert_called_once()


def test_a_task_that_does_not_end_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.run.session.END_S", 0.2)
    thread = MagicMock(**{"getState.return_value.name.return_value": "RUNNABLE"})
    thread.getName.return_value = "state-store-maintenance-thread-0"
    spark = MagicMock()
    jvm = spark.sparkContext._jvm
    jvm.java.lang.Thread.getAllStackTraces.return_value.keySet.return_value = [thread]
    stop_session(spark)
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop.assert_not_called()
    spark.stop.assert_called_once()
