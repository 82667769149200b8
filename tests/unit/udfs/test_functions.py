"""The functions for SQL in DuckDB: answers, nulls and what they refuse."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Any

import duckdb
import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import UserError
from app.read.query import query
from tests.pages.pages import pages
from tests.support.throttle_rows import OTHER, event, write
from udfs import register_duckdb
from udfs.decoding import sender_of
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
    usual = ("'x'", "4")
    for place in range(len(function.takes)):
        given = ", ".join("NULL" if i == place else usual[i] for i in range(len(function.takes)))
        found = answer(connection, f"{function.name}({given})")
        assert (set(found.values()) if isinstance(found, dict) else {found}) == {None}


def test_hash_and_shard_are_those_of_murmur3(connection: duckdb.DuckDBPyConnection) -> None:
    for text in ("", "acme/orders/created", "ä" * 40):
        hashed = mmh3.hash64(text, 0)[0]
        assert answer(connection, f"weir_hash64('{text}')") == hashed
        assert answer(connection, f"weir_shard('{text}', 7)") == hashed % 2**64 % 7
    assert answer(connection, "weir_shard('x', 1)") == 0


@pytest.mark.parametrize("count", [0, -1, -(2**63), 2**31])
def test_a_number_of_shards_that_cannot_be_is_refused(
    count: int, connection: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(duckdb.Error, match=rf"weir_shard: {count} shards \(allowed: 1 to 2147483"):
        answer(connection, f"weir_shard('x', {count})")
    with pytest.raises(duckdb.Error, match="shards"):
        answer(connection, f"max(weir_shard('x', n)) FROM (VALUES (4), ({count})) AS t(n)")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("weir_topic('acme/orders/created')", "persistent://acme/orders/created"),
        ("weir_topic('non-persistent://a/b/c')", "non-persistent://a/b/c"),
        ("weir_topic_tenant('orders')", None),
        ("weir_topic_partition('acme/orders/created')", None),
        ("weir_topic_name('acme/orders/a/b')", "a/b"),
        ("weir_position_ledger('9007199254740993:-1')", 9007199254740993),
        ("weir_position_entry('7')", None),
        ("weir_user('alice')", "alice"),
        ("weir_user('User:a:b')", "a:b"),
        ("weir_from_base64('aGVsbG8')", None),
        ("weir_from_base64('')", b""),
        ("weir_crc32(weir_from_base64(''))", 0),
        ("weir_chunk_sender('no number-')", {"producer_name": None, "sequence_id": None}),
        ("weir_chunk_sender('9223372036854775808')", {"producer_name": None, "sequence_id": None}),
        (
            "weir_chunk_sender('a-9223372036854775808')",
            {"producer_name": None, "sequence_id": None},
        ),
    ],
)
def test_what_functions_make_of_other_texts(
    expression: str, expected: Any, connection: duckdb.DuckDBPyConnection
) -> None:
    assert answer(connection, expression) == expected


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_payloads_have_the_checksum_and_text_of_the_standard_library(data: bytes) -> None:
    connection = duckdb.connect()
    register_duckdb(connection)
    found = connection.execute(
        "SELECT weir_crc32($1::BLOB), weir_to_base64($1::BLOB),"
        " weir_from_base64(weir_to_base64($1::BLOB))",
        [data],
    ).fetchone()
    assert found == (binascii.crc32(data), base64.b64encode(data).decode(), data)


@given(st.text(max_size=20), st.integers(0, 2**63 - 1))
def test_a_uuid_gives_its_sender(name: str, sequence: int) -> None:
    assert sender_of(f"{name}-{sequence}") == {"producer_name": name, "sequence_id": sequence}


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
    with pytest.raises(UserError, match="weir_shard: 0 shards"):
        query(config, "SELECT WEIR_SHARD(topic, 0) FROM throttle_events")
