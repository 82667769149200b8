"""Files that a statement cannot need are left out, and no row with them."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli import main
from app.read.databases import fileless
from app.read.pruning import needed, overlaps
from app.read.relations import Warehouse, connect, connect_once
from app.read.table_relation import FEW_FILES
from tests.support.throttle_rows import START_MS, event, write

COLUMNS = {
    "t": {"a": "BIGINT", "b": "INTEGER", "s": "VARCHAR", "day": "DATE"},
    "u": {"a": "BIGINT", "s": "VARCHAR"},
}
VIEWS = {"v": "SELECT *, lag(a) OVER (PARTITION BY s ORDER BY a) AS before FROM t"}
MOST, LEAST = 2**63 - 1, -(2**63)


def wanted(sql, params=None):
    return needed(sql, params or {}, COLUMNS, VIEWS)


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("a BETWEEN 3 AND 9", {"a": (3, 9)}),
        ("a > 3 AND a < 9 AND b = 5", {"a": (4, 8), "b": (5, 5)}),
        ("NOT a < 3", {"a": (3, MOST)}),
        ("a IN (1, 2, 3)", {"a": (1, 3)}),
        ("a >= epoch_ms(TIMESTAMP '1970-01-01 00:00:01')", {"a": (1000, MOST)}),
        ("a > 3 AND a <> 7", {"a": (4, MOST)}),
        ("a = -5 AND s = 'x AND (a >= 7)'", {"a": (-5, -5)}),
        ("s IS NOT NULL AND a > 3", {"a": (4, MOST), "s": (LEAST, MOST)}),
    ],
)
def test_comparisons_with_numbers_bound_what_is_wanted(condition, bounds):
    assert wanted(f"SELECT * FROM t WHERE {condition}") == {"t": [bounds]}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t",
        "SELECT * FROM t WHERE s = '(a >= 7)'",
        "SELECT * FROM t WHERE s = '(a IS NOT NULL)'",
        "SELECT * FROM t WHERE a IS NOT NULL OR s IS NOT NULL",
        "SELECT * FROM t WHERE a IS NULL",
        "SELECT * FROM t WHERE a = 5 OR s = 'x'",
        "SELECT * FROM t WHERE a = 5 OR a IS NULL",
        "SELECT * FROM t WHERE a = 5 OR random() > 0.5",
        "SELECT * FROM t WHERE a > 1.5",
        "SELECT * FROM t WHERE a IS NOT DISTINCT FROM NULL",
        "SELECT * FROM t LEFT JOIN u ON t.a = u.a AND t.a > 5",
        "SELECT * FROM v WHERE a > 5",  # the row before is needed for `before`
        "SELECT (SELECT count(*) FROM t WHERE a > 5), (SELECT count(*) FROM t)",
        "SELECT * FROM nothing WHERE a > 5",
        "SELEC",
        "SELECT * FROM t WHERE a > $x",
    ],
)
def test_what_is_not_surely_bounded_needs_every_file(sql):
    assert "t" not in wanted(sql)


def test_each_scan_of_a_table_counts_and_parameters_have_their_values():
    assert wanted(
        "SELECT * FROM t WHERE a < $x UNION ALL SELECT * FROM t WHERE a > 9", {"x": 3}
    ) == {"t": [{"a": (LEAST, 2)}, {"a": (10, MOST)}]}
    assert wanted("SELECT * FROM t JOIN u ON t.s = u.s WHERE t.a > 9 AND u.a = 4") == {
        "t": [{"a": (10, MOST)}],
        "u": [{"a": (4, 4)}],
    }


def test_a_file_in_which_a_wanted_column_has_no_value_is_left_out():
    for bounds in ((3, 9), (LEAST, MOST)):
        assert not overlaps([{"a": bounds}], {}, {}, ["a", "b"])
        assert overlaps([{"a": bounds}], {}, {}, ["b"])
        assert overlaps([{"a": bounds}, {"b": bounds}], {}, {}, ["a"])


@pytest.mark.parametrize(
    ("least", "most", "kept"),
    [
        (1, 2, False),
        (2, 3, True),
        (5, 9, True),
        (10, 20, False),
        (None, None, True),
        (None, 2, False),
    ],
)
def test_a_file_without_statistics_is_kept(least, most, kept):
    assert overlaps([{"a": (3, 9)}], {"a": least}, {"a": most}) is kept
    assert overlaps([{"other": (3, 9)}], {"a": least}, {"a": most}) is True


def numbers():
    return st.integers(-20, 20)


@st.composite
def conditions(draw, depth=2):
    if depth == 0 or draw(st.booleans()):
        column = draw(st.sampled_from("ab"))
        kind = draw(
            st.sampled_from(
                [
                    "{c} {o} {x}",
                    "{c} BETWEEN {x} AND {y}",
                    "{c} IN ({x}, {y})",
                    "{c} IS NULL",
                    "{c} IS NOT NULL",
                    "{c} + 1 > {x}",
                    "s = '(a >= {x})'",
                ]
            )
        )
        return kind.format(
            c=column,
            o=draw(st.sampled_from(["<", "<=", "=", ">=", ">", "<>"])),
            x=draw(numbers()),
            y=draw(numbers()),
        )
    joined = draw(st.sampled_from(["({} AND {})", "({} OR {})", "(NOT {} AND {})"]))
    return joined.format(draw(conditions(depth - 1)), draw(conditions(depth - 1)))


@settings(deadline=None)
@given(conditions(), st.lists(st.tuples(numbers(), st.none() | numbers()), max_size=30))
def test_no_row_that_matches_lies_in_a_file_that_is_left_out(condition, rows):
    scans = wanted(f"SELECT * FROM t WHERE {condition}").get("t")
    with fileless() as connection:
        connection.execute("CREATE TEMP TABLE t (a BIGINT, b INTEGER, s VARCHAR)")
        values = ", ".join(f"({a}, {'NULL' if b is None else b}, '(a >= 1)')" for a, b in rows)
        if rows:
            connection.execute(f"INSERT INTO t VALUES {values}")
        matching = connection.execute(f"SELECT a, b FROM t WHERE {condition}").fetchall()
    for a, b in matching if scans is not None else ():
        # A file of this row alone.
        empty = [] if b is not None else ["b"]
        assert overlaps(scans, {"a": a, "b": b}, {"a": a, "b": b}, empty)


@pytest.fixture
def many_files(tmp_warehouse):
    for i in range(FEW_FILES + 4):
        write(tmp_warehouse, "throttle_events", [event(1000 * i, "mark")])
    return tmp_warehouse


def rows(capsys, warehouse, sql):
    assert main(["query", sql, "--warehouse", warehouse, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_files_outside_the_bounds_are_not_opened(many_files, capsys):
    """They are broken, so that opening one would fail."""
    sql = f"SELECT ts_wall_ms - {START_MS} AS after_ms FROM throttle_events WHERE ts_wall_ms"
    for file in Path(many_files, "throttle_events").glob("*.parquet"):
        with duckdb.connect() as connection:
            ((at,),) = connection.execute(f"SELECT ts_wall_ms FROM '{file}'").fetchall()
        if not START_MS + 4000 <= at <= START_MS + 6000:
            file.write_bytes(b"broken")
    between = f"{sql} BETWEEN {START_MS + 3500} AND {START_MS + 6500} ORDER BY after_ms"
    assert [r["after_ms"] for r in rows(capsys, many_files, between)] == [4000, 5000, 6000]
    code = main(["query", f"{sql} > {START_MS}", "--warehouse", many_files, "--json"])
    assert code == 2 and "throttle_events" not in capsys.readouterr().out


def test_bounds_that_no_file_meets_give_no_rows(many_files, capsys):
    assert rows(capsys, many_files, "SELECT topic FROM throttle_events WHERE ts_wall_ms < 5") == []


def test_a_log_without_statistics_rules_nothing_out(many_files, capsys):
    for log in Path(many_files, "throttle_events", "_delta_log").glob("*.json"):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        for entry in entries:
            entry.get("add", {}).pop("stats", None)
        log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    sql = f"SELECT count(*) AS n FROM throttle_events WHERE ts_wall_ms > {START_MS + 17_500}"
    assert rows(capsys, many_files, sql) == [{"n": 2}]


def test_a_connection_for_several_statements_has_every_file(many_files):
    sql = f"SELECT count(*) FROM throttle_events WHERE ts_wall_ms > {START_MS + 17_500}"
    warehouse = Warehouse(many_files)
    for connection, total in (
        (connect(warehouse, sql), FEW_FILES + 4),
        (connect_once(warehouse, sql, {}), 2),
    ):
        assert connection.execute(sql).fetchall() == [(2,)]
        everything = connection.execute("SELECT count(*) FROM throttle_events").fetchall()
        assert everything == [(total,)]
