"""When a start waits for executors."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from app.run.executors import await_cores


def session(master: str, executors: list[int], cores: int, **conf: str) -> MagicMock:
    """A session whose executors register one look after the other."""
    spark, looks = MagicMock(), iter(executors)
    context = spark.sparkContext
    context.master, context.defaultParallelism = master, cores
    given = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    context.getConf.return_value.get = given.get
    spark.conf.get = given.get
    status = context._jsc.sc.return_value.getExecutorMemoryStatus.return_value
    status.size = lambda: 1 + next(looks, executors[-1] if executors else 0)
    return spark


@pytest.mark.parametrize(
    ("master", "conf"),
    [("local[2]", {}), ("yarn", {"dynamicAllocation_enabled": "true"})],
)
def test_where_none_register_by_themselves_nobody_waits(master: str, conf: dict[str, str]) -> None:
    assert await_cores(session(master, [], 2, **conf), True, lambda _: None) == 2


def test_a_new_warehouse_under_dynamic_allocation_is_told_of_its_partitions() -> None:
    said: list[str] = []
    spark = session("yarn", [], 2, dynamicAllocation_enabled="true")
    assert await_cores(spark, False, said.append) == 2  # it has a number, or is configured
    assert said == []
    assert await_cores(spark, True, said.append) == 2
    (line,) = said
    assert "2 partitions for its life; set partitions" in line


def test_all_that_are_configured_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = session("k8s://x", [0, 1, 1, 2, 3], 6, executor_instances="3")
    assert await_cores(spark, True, lambda _: None) == 6
    assert await_cores(session("yarn", [0, 1], 4), False, lambda _: None) == 4


def test_that_there_is_none_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.run.executors.SILENT_S", 0.0)
    said: list[str] = []
    await_cores(session("spark://head:7077", [0, 0, 0, 1], 4), False, said.append)
    assert len(said) == 1 and "spark.cores.max" in said[0]
