"""Records that come as columns: what is taken, what is refused by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from app.contract.event_contract import from_table
from app.errors import UserError
from state.jobs import JOBS
from tests.unit.contract.records import record


def test_other_columns_are_ignored_and_absent_ones_null() -> None:
    table = pa.Table.from_pylist([{**record("broker_started"), "note": 1.5}])
    parsed = from_table(table, JOBS)
    assert parsed.bad.num_rows == 0
    assert parsed.table["broker"].to_pylist() == ["broker-1.example.com:6650"]
    assert parsed.table["topic"].to_pylist() == [None]


def test_integers_beyond_32_bits_are_bad_in_short_columns() -> None:
    values = [1, None, 2**31, -(2**31)]
    rows = [record("publish", partition=value) for value in values]
    parsed = from_table(pa.Table.from_pylist(rows), JOBS)
    assert parsed.table["partition"].to_pylist() == [1, None, None, -(2**31)]
    assert parsed.bad.to_pylist() == [
        {"row": 2, "reason_code": "BAD_TYPE", "detail": "partition", "job": None}
    ]


@pytest.mark.parametrize("value", [1.5, "7", True])
def test_a_column_of_another_type_is_refused_by_name(value: object) -> None:
    table = pa.Table.from_pylist([record("publish", seq=value)])
    with pytest.raises(UserError, match="seq"):
        from_table(table, JOBS)


@pytest.mark.parametrize("kind", [pa.int64(), pa.large_string(), pa.string()])
def test_dictionaries_are_taken_by_the_type_of_their_values(kind: pa.DataType) -> None:
    names = pa.array(["7", None, "7"]).cast(kind).dictionary_encode()
    table = pa.table({"broker": names})
    if kind == pa.int64():
        with pytest.raises(UserError, match="broker"):
            from_table(table, JOBS)
    else:
        assert from_table(table, JOBS).table["broker"].to_pylist() == ["7", None, "7"]


def test_an_empty_table_is_an_empty_block() -> None:
    parsed = from_table(pa.table({"seq": pa.array([], pa.int64())}), JOBS)
    assert (parsed.n, parsed.bad.num_rows, parsed.table.num_rows, len(parsed.topic)) == (0, 0, 0, 0)
