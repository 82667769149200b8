"""The commands `tables` and `query`: list tables and run SQL over them, without Spark.

`query` also takes the names of the ready questions in `app.read.questions`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import duckdb

from app import folders
from app.errors import UserError, did_you_mean
from app.read.ddl import ENGINES, ddl
from app.read.memory import bounded, default_bytes
from app.read.question import MOST, Question, given
from app.read.questions import QUESTIONS
from app.read.relations import (
    ANY_ORDER,
    Warehouse,
    connect,
    connect_once,
    first_lines,
    only_select,
    state,
    states,
)
from app.read.table_relation import GONE
from app.tables.definitions import TABLES, VIEWS
from app.tables.manifest import load as load_manifest
from app.terminal.interrupt import stoppable
from app.terminal.printable import say
from app.terminal.program import PROGRAM
from app.terminal.rows import SHOWN_ROWS, WRITERS, ShownColumns, write_json, write_table

if TYPE_CHECKING:
    from app.config.settings import Settings

Output = Literal["table", "json", "csv", "spreadsheet"]
FIRST_WORDS = frozenset({"from", "select", "with", "describe", "show", "summarize", "values"})
"""Words that begin SQL and no question."""


def tables(
    settings: Settings,
    name: str | None = None,
    sql: bool = False,
    as_json: bool = False,
    ddl: bool = False,
    engine: str = "spark",
) -> int:
    """List tables and views with their rows, describe one, or print the statements that register
    them; returns 0.
    """
    if name is not None and name not in TABLES and name not in VIEWS:
        raise UserError(f"tables: there is no {name} ({did_you_mean(name, [*TABLES, *VIEWS])})")
    if ddl:
        return _ddl(_required(Warehouse.of(settings.location)), engine, name, as_json)
    if name is None:
        return _list(_required(Warehouse.of(settings.location)), bool(settings.shadows), as_json)
    if sql:
        if name not in VIEWS:
            raise UserError(f"tables --sql: {name} is a table; views are {', '.join(VIEWS)}")
        text = VIEWS[name].sql
        say(json.dumps({"name": name, "sql": text}) if as_json else text)
        return 0
    return _describe(_required(Warehouse.of(settings.location)), name, as_json)


class AnswerLimits(NamedTuple):
    """What an answer may take."""

    timeout_ms: int | None = None
    memory_bytes: int | None = None
    """About so much memory; None for half of the machine's."""
    wide: bool = False
    """Whether a printed answer has all columns."""


def query(
    settings: Settings,
    sql: str,
    output: Output = "table",
    as_of_ms: int | None = None,
    params: Sequence[str] = (),
    limits: AnswerLimits | None = None,
    rows: int | None = None,
    cluster: str | None = None,
) -> int:
    """Answer a ready question, or one reading statement over the tables and views; returns 0.

    It ends at once at a signal or at its limits. With `cluster` tables have only its rows. `rows` is
    the number of rows to show. Without it JSON and CSV have all rows, and a printed table reports the
    number of omitted ones.
    """
    timeout_ms, memory_bytes, wide = limits or AnswerLimits()
    with stoppable(timeout_ms):
        warehouse = Warehouse.of(settings.location, settings.owners).of_cluster(cluster)
        return _query(
            warehouse, sql, output, as_of_ms, params, memory_bytes or default_bytes(), rows, wide
        )


def _query(
    warehouse: Warehouse,
    sql: str,
    output: Output,
    as_of_ms: int | None,
    params: Sequence[str],
    memory_bytes: int,
    shown_rows: int | None,
    wide: bool,
) -> int:
    question = QUESTIONS.get(sql.strip())
    values: dict[str, Any] = {}
    if question is not None:
        question = question.asked(given(params))
        sql, values = question.sql, question.values(given(params))
        if "rows" in values:
            chosen = "rows" in given(params)
            usual = values["rows"] if chosen or output == "table" else None
            shown_rows = shown_rows or usual
            values["rows"] = MOST  # what is left out is counted
    elif params:
        raise UserError("--param: goes with a ready question; query --all lists them")
    else:
        _require_sql(sql)
    warehouse = _required(warehouse).at(as_of_ms)
    only_select(sql, "query")
    config = {"memory_limit": f"{memory_bytes}B", **({} if question is None else ANY_ORDER)}
    try:
        connection = connect_once(
            warehouse, sql, values, config=config, calendar=question is not None
        )
        with connection, bounded(memory_bytes, "query"):
            connection.execute(sql, values)
            names = [column[0] for column in connection.description or []]
            found = _rows(connection)
            if output == "table":
                write_table(
                    names,
                    found,
                    sys.stdout,
                    shown_rows or SHOWN_ROWS,
                    reason=None
                    if question is None
                    else partial(_reason, warehouse, question, bool(params)),
                    columns=None
                    if question is None
                    else ShownColumns(question.units, None if wide else question.first),
                )
            else:
                WRITERS[output](names, islice(found, shown_rows), sys.stdout)
    except duckdb.IOException as error:
        raise UserError(f"query: {first_lines(error)}\n{GONE}") from error
    except duckdb.Error as error:
        raise UserError(f"query: {first_lines(error)}") from error
    return 0


def _reason(warehouse: Warehouse, question: Question, chosen: bool) -> str:
    """Why a question has no rows; empty if only its parameters may be the cause, which the caller
    has `chosen`."""
    reads = {
        table
        for name in question.reads
        for table in (VIEWS[name].reads if name in VIEWS else (name,))
        if table in TABLES
    }
    filled = any(
        state(warehouse, name, delta).rows
        for name, delta in warehouse.open_all(sorted(reads)).items()
    )
    if filled and chosen:
        return ""
    if question.needs or filled or not reads:
        return question.needs
    return f"nothing has been written to {', '.join(sorted(reads))} yet"


def print_statement(name: str, params: Sequence[str]) -> int:
    """Print the SQL of a ready question, as these parameters choose it; returns 0."""
    question = QUESTIONS.get(name)
    if question is None:
        raise UserError(
            f"query --sql: there is no question {name} ({did_you_mean(name, list(QUESTIONS))})"
        )
    say(question.asked(given(params)).sql)
    return 0


def list_questions(
    output: Output = "table", every: bool = True, warehouse: Warehouse | None = None
) -> int:
    """Print the ready questions, each with its parameters and their defaults, or those that are
    asked most; of a local `warehouse` that is there those about tables that it has; returns 0."""
    names = ["name", "parameters", "meaning"]
    questions = [question for question in QUESTIONS.values() if _is_about(question, warehouse)]
    rows = [
        [q.name, " ".join(f"{p.name}={p.shown_default}" for p in q.params), q.meaning]
        for q in questions
        if every or q.usual
    ]
    if output == "json":
        print(
            json.dumps(
                [
                    {
                        "name": q.name,
                        "meaning": q.meaning,
                        "reads": q.reads,
                        "sql": {value: each.sql for value, each in q.by.items()} or q.sql,
                        "parameters": {p.name: p.meaning for p in q.params},
                    }
                    for q in questions
                    if every or q.usual
                ],
                indent=1,
            )
        )
        return 0
    if output == "table":
        rows = [
            [name, ", ".join(p.name for p in QUESTIONS[name].params), meaning]
            for name, _, meaning in rows
        ]
    WRITERS[output](names, rows, sys.stdout)
    if output == "table" and not every:
        say(
            f"\n{len(questions) - len(rows)} more with --all; SQL over the tables: {PROGRAM} tables"
        )
    return 0


def _is_about(question: Question, warehouse: Warehouse | None) -> bool:
    """Whether a warehouse has a table that a question reads; of one that cannot be seen it has."""
    folder = None if warehouse is None else warehouse.folder
    there = (
        set()
        if folder is None
        else {log.parent.name for log in folders.matching(folder, "*/_delta_log")}
    )
    if not there:
        return True
    read = {
        table
        for name in question.reads
        for table in (VIEWS[name].reads if name in VIEWS else [name])
        if table in TABLES
    }
    of_jobs = {table for table in read if TABLES[table].job is not None}
    return not read or not (of_jobs or read).isdisjoint(there)


def _required(warehouse: Warehouse) -> Warehouse:
    """The warehouse; UserError if this release does not know its layout."""
    warehouse.require()
    load_manifest(warehouse)
    return warehouse


def _require_sql(text: str) -> None:
    """UserError for words that can only be meant as the name of a question."""
    words = re.findall(r"[\w-]+", text)
    if not words or re.fullmatch(r"[\w\s-]+", text) is None:
        return
    if len(words) > 1 and words[0].lower() in FIRST_WORDS:
        return
    name = "-".join(words).replace("_", "-").lower()
    if len(words) > 1 and not get_close_matches(name, QUESTIONS, n=1, cutoff=0.75):
        return  # SQL, or a mistake that its parser reports
    if text.strip().lower() in (*TABLES, *VIEWS):
        raise UserError(
            f"query: {text.strip()} is a table or view, not a question\n"
            f'read it with query "FROM {text.strip().lower()} LIMIT 20"'
        )
    raise UserError(
        f"query: {text.strip()} is neither SQL nor a ready question"
        f" ({did_you_mean(name, list(QUESTIONS))})"
    )


def _list(warehouse: Warehouse, shadowed: bool, as_json: bool) -> int:
    """Tables of shadow policies are listed if they exist or if shadows are configured (`shadowed`)."""
    names = ["name", "kind", "rows", "bytes", "meaning"]
    rows: list[list[Any]] = [
        [s.name, "table", 0 if s.version is None else s.rows, s.bytes or 0, TABLES[s.name].meaning]
        for s in states(warehouse)
        if shadowed or s.version is not None or TABLES[s.name].live is None
    ]
    rows += [[view.name, "view", None, None, view.meaning] for view in VIEWS.values()]
    (write_json if as_json else write_table)(names, rows, sys.stdout)
    return 0


def _describe(warehouse: Warehouse, name: str, as_json: bool) -> int:
    meanings = {c.name: c.meaning for c in TABLES[name].columns} if name in TABLES else {}
    described = connect(warehouse, name).execute(f"DESCRIBE {name}").fetchall()
    rows = [[column, kind.lower(), meanings.get(column, "")] for column, kind, *_ in described]
    if not as_json:
        say((TABLES[name] if name in TABLES else VIEWS[name]).meaning + "\n")
    (write_json if as_json else write_table)(["column", "type", "meaning"], rows, sys.stdout)
    return 0


def _ddl(warehouse: Warehouse, engine: str, name: str | None, as_json: bool) -> int:
    if engine not in ENGINES:
        raise UserError(f"--engine {engine}: allowed: {', '.join(ENGINES)}")
    statements, missing = ddl(warehouse, engine, name)
    if as_json:
        print(json.dumps({"engine": engine, "statements": statements, "missing": missing}))
        return 0
    for statement in statements:
        say(f"{statement};")
    for table in missing:
        say(f"-- {table}: nothing has been written yet")
    return 0


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    while block := connection.fetchmany(2000):
        yield from block
