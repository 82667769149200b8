"""The functions for SQL in DuckDB: answers, nulls and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from app.read.query import query
from tests.pages.pages import pages
from tests.support.throttle_rows import OTHER, event, write
from udfs import register_duckdb
from udfs.functions import FUNCTIONS, Function

PAGE = Path(__file__).resolve().parents[3] / "docs" / "functions.md"


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    assert register_duckdb(found) == tuple(FUNCTIONS)
    return found


def answer(connection: duckdb.DuckDBPyConnection, expression: str) -> Any:
    (value,) = connection.execute(f"SELECT {expression}").fetchone() or ()
    return value


def test_the_page_of_functions_is_current() -> None:
    assert PAGE.read_text("utf-8") == pages()["functions.md"], "run python -m tests.pages"


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_examples_give_what_the_page_says(
    function: Function, connection: duckdb.DuckDBPyConnection
) -> None:
    assert function.name in function.example
    assert answer(connection, function.example) == function.answer


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_null_gives_null(function: Function, connection: duckdb.DuckDBPyConnection) -> None:
    assert answer(connection, f"{function.name}(NULL)") is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("weir_topic('acme/orders/created')", "persistent://acme/orders/created"),
        ("weir_topic('non-persistent://a/b/c')", "non-persistent://a/b/c"),
        ("weir_topic_tenant('orders')", None),
        ("weir_topic_partition('acme/orders/created')", None),
        ("weir_topic_name('acme/orders/a/b')", "a/b"),
        ("weir_user('alice')", "alice"),
        ("weir_user('User:a:b')", "a:b"),
    ],
)
def test_what_functions_make_of_other_texts(
    expression: str, expected: Any, connection: duckdb.DuckDBPyConnection
) -> None:
    assert answer(connection, expression) == expected


def test_query_knows_the_functions(make_settings: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = make_settings()
    write(
        config.warehouse,
        "throttle_events",
        [
            event(1, "mark"),
            event(2, "mark", topic="persistent://umbrella/b/c"),
            event(3, "mark", topic=OTHER),
            event(4, "unmark"),
        ],
    )
    (command,) = re.findall(r'query "\n(.*?)"\n', PAGE.read_text("utf-8"), re.DOTALL)
    assert query(config, command, "csv") == 0
    assert capsys.readouterr().out == "tenant,marks\nacme,2\numbrella,1\n"
    assert (
        query(
            config,
            "SELECT DISTINCT WEIR_TOPIC_TENANT(topic) AS t FROM throttle_events ORDER BY t",
            "csv",
        )
        == 0
    )
    assert capsys.readouterr().out == "t\nacme\numbrella\n"
