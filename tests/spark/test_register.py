"""The functions in Spark's SQL: the same answers as in DuckDB."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from pyspark.errors import PySparkException

from udfs import register, register_duckdb
from udfs.functions import FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "functions.md"
ROWS = (
    "('acme/orders/created-partition-3', '9007199254740993:-1', 'User:alice', 'aGVsbG8='),"
    " ('orders', 'x', 'alice', '?'), (NULL, NULL, NULL, NULL), ('a/b/c', '0:0', 'a:b:c', '')"
)
COLUMNS = {"topic": "t", "text": "t", "position": "p", "principal": "u", "uuid": "p"}


def calls() -> list[str]:
    """Every function over columns; what takes bytes gets those of a base64 text."""
    found = []
    for function in FUNCTIONS.values():
        column = COLUMNS.get(function.takes[0][0], "weir_from_base64(b)")
        column = "b" if function.name == "weir_from_base64" else column
        found.append(f"{function.name}({column}{', 16' if len(function.takes) > 1 else ''})")
    return found


def plain(value: Any) -> Any:
    return (
        value.asDict()
        if hasattr(value, "asDict")
        else bytes(value)
        if isinstance(value, bytearray)
        else value
    )


def test_spark_and_duckdb_give_the_same(spark: SparkSession) -> None:
    assert register(spark) == tuple(FUNCTIONS)
    connection = duckdb.connect()
    register_duckdb(connection)
    statement = f"SELECT {', '.join(calls())} FROM (VALUES {ROWS}) AS r(t, p, u, b)"
    expected = connection.execute(statement).fetchall()
    assert len(expected) == 4 and expected[2][0] is None
    assert [tuple(map(plain, row)) for row in spark.sql(statement).collect()] == expected
    examples = ", ".join(function.example for function in FUNCTIONS.values())
    (row,) = spark.sql(f"SELECT {examples}").collect()
    assert list(map(plain, row)) == [function.answer for function in FUNCTIONS.values()]


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_of_shards_that_cannot_be_is_refused(spark: SparkSession, count: int) -> None:
    register(spark)
    with pytest.raises(PySparkException, match=f"weir_shard: {count} shards"):
        spark.sql(f"SELECT weir_shard(id, {count}) FROM range(3)").collect()


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
    assert re.search(r"│ +14 │", shown)
