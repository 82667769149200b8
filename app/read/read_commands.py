"""Commands that read the tables. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from app.command_line import (
    AsOf,
    Cluster,
    Config,
    Json,
    Warehouse,
    app,
    configured,
    duration,
    moment,
)
from app.errors import UserError

LEAST_MEMORY = 64_000_000
"""Bytes below which a statement cannot begin."""


@app.command()
def tables(
    name: Annotated[str | None, Argument(help="One table or view, with its columns.")] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    sql: Annotated[bool, Option("--sql", help="Print the SQL of a view.")] = False,
    ddl: Annotated[
        bool, Option("--ddl", help="Print statements that register tables in an engine.")
    ] = False,
    engine: Annotated[
        str, Option(help="Engine of --ddl: spark (any of its catalogues) or duckdb.")
    ] = "spark",
    as_json: Json = False,
) -> int:
    """List the tables and views, and describe their columns."""
    from app.read.query import tables as run_tables

    return run_tables(
        configured(config, warehouse), name=name, sql=sql, as_json=as_json, ddl=ddl, engine=engine
    )


@app.command()
def query(
    sql: Annotated[
        str | None, Argument(help="SQL over the tables and views, or a ready question.")
    ] = None,
    config: Config = None,
    warehouse: Warehouse = None,
    cluster: Cluster = None,
    as_of: AsOf = None,
    param: Annotated[
        list[str] | None, Option(help="Parameter of a ready question: name=value.")
    ] = None,
    by: Annotated[
        str | None, Option(help="What a ready question's rows are about: --param by=VALUE.")
    ] = None,
    every: Annotated[bool, Option("--all", help="List all ready questions.")] = False,
    since: Annotated[
        str | None, Option(help="From this time on: --param since=TIME of a ready question.")
    ] = None,
    until: Annotated[
        str | None, Option(help="Before this time: --param until=TIME of a ready question.")
    ] = None,
    wide: Annotated[
        bool, Option("--wide", help="Show all columns of a ready question's answer.")
    ] = False,
    statement: Annotated[bool, Option("--sql", help="Print the SQL of a ready question.")] = False,
    as_json: Json = False,
    csv: Annotated[bool, Option("--csv", help="Answer as CSV.")] = False,
    spreadsheet: Annotated[
        bool,
        Option("--spreadsheet", help="Answer as CSV without formulas: = + - @ get an apostrophe."),
    ] = False,
    timeout: Annotated[str | None, Option(help="Time limit, such as 30s. Default: none.")] = None,
    memory: Annotated[
        str | None, Option(help="Memory limit, such as 2GB. Default: half of the machine's.")
    ] = None,
    rows: Annotated[
        int | None,
        Option(
            min=1,
            help="Row limit. Default: 20 for a question, 200 for SQL, all with --json or --csv.",
        ),
    ] = None,
) -> int:
    """Run SQL over the warehouse (DuckDB over the Delta tables), or a ready question; without
    either, list the questions that answer most."""
    from app.read.query import AnswerLimits, Output, list_questions, print_statement
    from app.read.query import query as run_query

    forms: dict[Output, bool] = {"json": as_json, "csv": csv, "spreadsheet": spreadsheet}
    chosen = [form for form, wanted in forms.items() if wanted]
    if len(chosen) > 1:
        raise UserError(f"query: --{chosen[0]} and --{chosen[1]} exclude each other")
    output: Output = chosen[0] if chosen else "table"
    if every or sql is None:
        from app.read.relations import Warehouse as Tables

        return list_questions(output, every, Tables.of(configured(config, warehouse).location))
    as_of_ms, settings = moment(as_of, "--as-of"), configured(config, warehouse)
    named = {"by": by, "since": since, "until": until}
    params = [*(param or []), *(f"{name}={text}" for name, text in named.items() if text)]
    if statement:
        return print_statement(sql, params)
    return run_query(
        settings,
        sql,
        output,
        as_of_ms,
        params,
        AnswerLimits(
            None if timeout is None else duration(timeout, "--timeout"),
            None if memory is None else _memory(memory),
            wide,
        ),
        rows,
        cluster,
    )


def _memory(text: str) -> int:
    """Bytes of a size on the command line; a UserError if it is none, or too small to start."""
    from app.terminal.sizes import read_size

    found = read_size(text)
    if found is None or found < LEAST_MEMORY:
        raise UserError(f"--memory {text}: allowed: a size from 64MB on, such as 512MB or 2GB")
    return found
