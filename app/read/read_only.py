"""Restricts SQL from users to one statement that reads tables only.

DuckDB itself refuses files outside the warehouse (`app.read.relations.connect`). That is not
enough: a COPY in a WITH clause counts as a SELECT and writes, some table functions run their
argument as SQL, DuckDB has views on its settings, and an unknown table name may be a file of the
warehouse. So the parsed statement is checked against lists of harmless nodes, functions and views
of DuckDB; additions of a later DuckDB are refused until they are listed.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from typing import Any

import duckdb

from app.errors import UserError
from app.read.databases import fileless
from app.read.sql_functions import is_allowed

NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
"""Nodes of a query that only read; COPY, INSERT, UPDATE, DELETE and MERGE are others."""
TABLE_FUNCTIONS = frozenset(
    {
        "range",
        "generate_series",
        "generate_subscripts",
        "unnest",
        "repeat",
        "repeat_row",
        "json_each",
        "json_tree",
        "histogram",
        "histogram_values",
        "summary",
        "duckdb_columns",
        "duckdb_functions",
        "duckdb_keywords",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_views",
        "icu_calendar_names",
        "pg_timezone_names",
        "pragma_table_info",
        "pragma_version",
    }
)
"""Table functions that neither read a file nor run their argument as SQL."""
CATALOG_VIEWS = frozenset(
    {
        "duckdb_columns",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_views",
        "columns",
        "schemata",
        "tables",
        "views",
    }
)
"""Views of DuckDB and of information_schema that SQL of users may read: those on tables and types."""
SHOWN = frozenset({"tables", "__show_tables_expanded"})
"""What SHOW lists: the tables."""
SCHEMAS = frozenset({"", "main", "temp", "information_schema"})
CATALOGS = frozenset({"", "system", "temp"})
ALLOWED = "allowed is one statement that reads: SELECT, WITH, DESCRIBE"


@lru_cache
def only_select(sql: str, where: str) -> None:
    """UserError unless `sql` is one statement that only reads; `where` begins its message."""
    connection = fileless()
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise UserError(f"{where}: {first_lines(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UserError(f"{where}: {ALLOWED}")
    # In extended form a string literal cannot end early, whatever it holds.
    (text,) = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchone() or ("{}",)
    nodes: list[dict[str, Any]] = []

    def kept(node: dict[str, Any]) -> dict[str, Any]:
        nodes.append(node)
        return node

    tree = json.loads(text, object_hook=kept)
    if tree.get("error", True):
        raise UserError(f"{where}: {ALLOWED}\n{tree.get('error_message', '')}")
    for node in reversed(nodes):
        kind = node.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in NODES:
            raise UserError(f"{where}: {ALLOWED}")
        name = node.get("function_name")
        if isinstance(name, str) and not is_allowed(name) and name.lower() not in TABLE_FUNCTIONS:
            raise UserError(
                f"{where}: the function {name} is not allowed: SQL computes values from the tables"
                " and views of the warehouse"
            )
        if kind in ("BASE_TABLE", "SHOW_REF"):
            _require_table(node, where)
        if kind == "TABLE_FUNCTION":
            name = str(node.get("function", {}).get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise UserError(
                    f"{where}: the table function {name} is not allowed: SQL reads the tables and"
                    " views of the warehouse, no files"
                )


def _require_table(node: dict[str, Any], where: str) -> None:
    """UserError if a table of a statement is one of DuckDB's own that is not listed, or may be a
    file: DuckDB opens an unknown name, such as x.json, as one.
    """
    catalog, schema, table = (
        str(node.get(f"{part}_name") or "") for part in ("catalog", "schema", "table")
    )
    name = table.strip('"').lower()
    special = node.get("show_type") == "SHOW_SPECIAL"
    own = name in SHOWN if special else name in CATALOG_VIEWS or name not in _of_duckdb()
    plain = re.fullmatch(r"\w*", name) is not None and own
    if catalog.lower() not in CATALOGS or schema.lower() not in SCHEMAS or not plain:
        name = ".".join(part for part in (catalog, schema, table) if part)
        raise UserError(
            f"{where}: there is no table {name}: SQL reads the tables and views of the warehouse,"
            " no files"
        )


@cache
def _of_duckdb() -> frozenset[str]:
    """The names that this DuckDB has itself: its views, and functions, which may be read as tables."""
    with fileless() as connection:
        rows = connection.execute(
            "SELECT lower(view_name) FROM duckdb_views() WHERE internal UNION"
            " SELECT lower(function_name) FROM duckdb_functions()"
            " WHERE function_type NOT IN ('scalar', 'aggregate', 'macro')"
        )
        return frozenset(name for (name,) in rows.fetchall())


def first_lines(error: duckdb.Error) -> str:
    """The useful part of a DuckDB message: the error, and the nearest name if any."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    near = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate"))]
    return "\n".join([lines[0] if lines else type(error).__name__, *near[:1]])
