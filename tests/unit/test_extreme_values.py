"""Every read command on a warehouse with extreme values in every 64-bit column of every table."""

from __future__ import annotations

import io
import json
import math
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app.cli import main
from app.read.questions import QUESTIONS
from app.read.relations import Warehouse
from app.tables.definitions import TABLES, VIEWS
from app.whatif.effect.compare import compared
from app.whatif.effect.effect_page import html_of
from app.whatif.effect.effect_text import About, plain, print_all
from app.whatif.replay.event_span import WHOLE
from tests.support import report_warehouse as reported
from tests.support.throttle_rows import START_MS, TOPIC, frame, write
from tests.unit.show.explain import rows as explained

LEAST, MOST = -(2**63), 2**63 - 1
NUMBERS = (MOST, LEAST, 0)
RATES = (math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 0.0)
OWN = {"alerts": "number"}
"""A column that Weir counts up itself, row by row."""
WORDS = {
    "event_date": None,
    "cluster": "east",
    "topic": TOPIC,
    "state": "ahead",
    "age_state": "known",
}


EVIL = "\x1b[2J\x9b1;31m\x07\r\u202e"
"""Ends of names that would clear a screen, colour it, ring, and turn the direction of reading."""
CHOSEN = (
    "event_date",
    "job",
    "kind",
    "state",
    "age_state",
    "reason_code",
    "policy_json",
    "quota_type",
)
"""Texts that Weir chooses itself."""


def plain_row(table: str) -> dict[str, Any]:
    """A row of a table that the other fixtures leave empty."""
    kinds = {c.name: c.type for c in TABLES[table].columns}
    return {
        name: WORDS.get(name, "x")
        if kind == pa.string()
        else 1
        if kind == pa.int64()
        else {"x": 1 if pa.types.is_int64(kind.item_type) else "y"}
        if pa.types.is_map(kind)
        else None
        for name, kind in kinds.items()
    }


def extremes(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last row again: for each column with each extreme value, and with all of them at once."""
    drawn = {
        c.name: RATES if c.type == pa.float64() else NUMBERS
        for c in TABLES[table].columns
        if c.type in (pa.int64(), pa.float64())
    }
    drawn.pop(OWN.get(table, ""), None)
    row = rows[-1]
    each = [{**row, name: value} for name, values in drawn.items() for value in values]
    together = [{**row, **{name: values[i] for name, values in drawn.items()}} for i in range(3)]
    named = {
        c.name: f"{row[c.name]}{EVIL}"
        for c in TABLES[table].columns
        if c.type == pa.string() and row.get(c.name) and c.name not in CHOSEN
    }
    return [*each, *together, {**row, **named}]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory) -> str:
    """Rows of every table, and those with extreme values beside them."""
    folder = str(tmp_path_factory.mktemp("extreme") / "warehouse")
    explained.fill(folder)
    decided = stored(folder)
    reported.fill(folder)
    shown = stored(folder)
    for table in TABLES:
        rows = decided.get(table) or shown.get(table) or [plain_row(table)]
        write(folder, table, extremes(table, rows))
    idle = {"user": "idle", "bound": 1000.0, "bound_level": "user", "utilisation": 0.001}
    write(folder, "client_quota_stats", [{**plain_row("client_quota_stats"), **idle}])
    unlimited = plain_row("client_usage")  # of a client without a limit, and one that is large
    large = {**unlimited, "broker": "b9", "window_ms": 60_000, "bytes": 10**9}
    write(folder, "client_usage", [unlimited, large])
    write(folder, "group_lag", [plain_row("group_lag")])  # ahead
    paused = {"broker": "b9", "window_ms": 60_000, "collateral_ns": 10**10, "culprit_ns": 0}
    write(folder, "topic_throttle_stats", [{**plain_row("topic_throttle_stats"), **paused}])
    # the archive has the time of arrival of every record
    events = Warehouse(folder).open("events").to_pyarrow_table().to_pylist()
    filled = [
        {**row, "ingest_ms": START_MS if row["ingest_ms"] is None else row["ingest_ms"]}
        for row in events
    ]
    write_deltalake(f"{folder}/events", frame("events", filled), mode="overwrite")
    return folder


def stored(warehouse: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table."""
    tables = Warehouse(warehouse).open_all(TABLES)
    return {
        name: delta.to_pyarrow_table().select(TABLES[name].names).to_pylist()
        for name, delta in tables.items()
        if delta is not None
    }


def answer(warehouse: str, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*words, "--warehouse", warehouse])
    for text in (err.getvalue(), "" if "--csv" in words or "--json" in words else out.getvalue()):
        assert text.replace("\n", "").replace("\t", "").isprintable(), words
    return code, out.getvalue(), err.getvalue()


def test_every_64_bit_column_has_its_extremes(warehouse):
    for table, about in TABLES.items():
        found = Warehouse(warehouse).open(table).to_pyarrow_table()
        for column in about.columns:
            values = set(found.column(column.name).to_pylist()) if column.type == pa.int64() else ()
            is_drawn = column.type == pa.int64() and column.name != OWN.get(table)
            assert not is_drawn or {LEAST, 0, MOST} <= values, (table, column.name)


@pytest.mark.parametrize("form", ["--json", "--csv", None])
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_is_answered(warehouse, question, form):
    code, out, err = answer(warehouse, "query", question, *([form] if form else []))
    assert (code, err) == (0, ""), err
    assert form != "--json" or isinstance(json.loads(out), list)


@pytest.mark.parametrize("name", [*TABLES, *VIEWS])
def test_every_table_and_view_reads_as_it_is(warehouse, name):
    code, out, err = answer(warehouse, "query", f"FROM {name}", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out, parse_constant=pytest.fail)
    for form in ("--csv", "--as-of=2100-01-01"):
        assert answer(warehouse, "query", f"FROM {name}", form)[::2] == (0, "")


SPANS = (
    [],
    ["--from", str(LEAST)],
    ["--to", str(MOST)],
    ["--from", str(LEAST), "--to", str(MOST)],
    ["--from", "2023-11-14"],
    ["--from", str(MOST - 1)],
    ["--to", str(LEAST + 1)],
    ["--from", "0001-01-01", "--to", "9999-12-31"],
)


@pytest.mark.parametrize("span", SPANS, ids=" ".join)
def test_a_report_is_written(warehouse, span, tmp_path):
    out = tmp_path / "report.html"
    code, said, err = answer(warehouse, "report", "--out", str(out), "--json", *span)
    assert (code, err) == (0, "")
    assert "</html>" in out.read_text()
    sections = json.loads(said, parse_constant=pytest.fail)["sections"]
    told = sections["what-happened"]["sentences"]
    assert told and not [text for text in told if text.startswith("alert rule")]


def test_the_verdict_of_a_report_is_printed(warehouse, tmp_path):
    code, said, err = answer(warehouse, "report", "--out", str(tmp_path / "report.html"))
    assert (code, err) == (0, "") and said.endswith("report.html.\n")


MOMENTS = (
    [],
    ["--at", str(MOST)],
    ["--at", str(LEAST)],
    ["--at", "0"],
    ["--at", str(MOST), "--window", "5m"],
    ["--at", "0", "--window", "106751991167d"],
)
ENTITIES = (
    ["topic", TOPIC],
    ["topic", explained.ORDERS],
    ["connection", "c1"],
    ["principal", "*"],
    ["message", "x"],
    ["subscription", TOPIC, "s"],
    ["client", "*"],
    ["client", "*", "*"],
)


@pytest.mark.parametrize("moment", MOMENTS, ids=" ".join)
@pytest.mark.parametrize("entity", ENTITIES, ids=" ".join)
def test_everything_is_explained(warehouse, entity, moment):
    for form in ([], ["--json"]):
        code, out, err = answer(warehouse, "explain", *entity, *moment, *form)
        assert code in (0, 2) and "internal error" not in err, err
        assert code == 2 or out
    assert code == 2 or json.loads(out, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "words",
    [
        ["tables"],
        ["tables", "--json"],
        ["tables", "events"],
        ["metrics", "--once"],
        ["metrics", "--once", "--json"],
        ["policy", "suggest", "producer-ids", "--json"],
        ["forecast"],
        ["forecast", "--json"],
        ["forecast", "--at", "2023-11-15"],
    ],
    ids=" ".join,
)
def test_other_commands_answer(warehouse, words):
    code, out, err = answer(warehouse, *words)
    assert (code, err) == (0, ""), err
    if "--json" in words:
        json.loads(out, parse_constant=pytest.fail)


def test_a_suggestion_says_what_the_archive_lacks(warehouse):
    code, _, err = answer(warehouse, "policy", "suggest", "publish", "--json")
    assert (code, "has no publishes" in err) == (2, True)


def test_a_bakeoff_says_what_the_archive_lacks(warehouse):
    code, _, err = answer(warehouse, "bakeoff", "--json")
    assert (code, "has no dispatch records" in err) == (2, True)


def test_effects_of_policies_are_compared(warehouse, tmp_path, capsys):
    (tmp_path / "_weir").mkdir()
    sides = Warehouse(str(tmp_path)), Warehouse(warehouse)
    about = About("a", "b", WHOLE, ["rate_limits"], [], [])
    for before, after in (sides, sides[::-1], (sides[1], sides[1])):
        found = compared(before, after, 20, 60_000)
        assert found.same == (before is after)
        text = json.dumps(plain(about, found))
        assert json.loads(text, parse_constant=pytest.fail)["total"]["paused_s"]
        print_all(about, found)
        assert "paused_s" in capsys.readouterr().out
        assert "</html>" in html_of(about, found)


@pytest.mark.parametrize(
    "at", [[], ["--at", str(MOST)], ["--at", str(LEAST)], ["--at", "0"]], ids=" ".join
)
def test_alerts_are_judged(warehouse, at):
    code, out, err = answer(warehouse, "alerts", "check", "--json", *at)
    assert code in (0, 1), err
    found = json.loads(out, parse_constant=pytest.fail)
    assert found["broken"] == []


def test_the_tables_are_audited(warehouse):
    code, out, err = answer(warehouse, "quality", "--json")
    assert code in (0, 1) and "fault" not in err and "internal error" not in err, err
    assert json.loads(out, parse_constant=pytest.fail)


def test_duckdb_has_no_time_for_the_extremes():
    """What the questions have to bear: the conversion refuses what no calendar has."""
    with pytest.raises(duckdb.ConversionException):
        duckdb.sql(f"SELECT epoch_ms(CAST({MOST} AS BIGINT))").fetchall()
