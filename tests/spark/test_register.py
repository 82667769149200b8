"""The functions in Spark's SQL: the same answers as in DuckDB."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from udfs import register, register_duckdb
from udfs.functions import FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "functions.md"
ROWS = (
    "('acme/orders/created-partition-3', 'User:alice'), ('orders', 'alice'), (NULL, NULL),"
    " ('a/b/c', 'a:b:c')"
)


def test_spark_and_duckdb_give_the_same(spark: SparkSession) -> None:
    assert register(spark) == tuple(FUNCTIONS)
    connection = duckdb.connect()
    register_duckdb(connection)
    calls = ", ".join(f"{function.name}({function.takes})" for function in FUNCTIONS.values())
    statement = f"SELECT {calls} FROM (VALUES {ROWS}) AS r(topic, principal)"
    expected = connection.execute(statement).fetchall()
    assert len(expected) == 4 and expected[2][0] is None
    assert [tuple(row) for row in spark.sql(statement).collect()] == expected
    examples = ", ".join(function.example for function in FUNCTIONS.values())
    (row,) = spark.sql(f"SELECT {examples}").collect()
    assert list(row) == [function.answer for function in FUNCTIONS.values()]


def test_the_example_of_the_page_runs(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.sql(
        "SELECT * FROM (VALUES ('produce_batch', 'acme/orders/a', 'User:alice'),"
        " ('produce_batch', 'acme/orders/b', 'User:alice'), ('publish', 'acme/orders/b', NULL))"
        " AS e(event_type, topic, principal)"
    ).createOrReplaceTempView("events")
    first, second = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(first, {"spark": spark})
    exec(second, {})
    shown = capsys.readouterr().out
    assert "|acme/orders|alice|2      |" in shown
    assert "│ persistent://acme/orders/created │" in shown
