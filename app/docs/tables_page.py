"""The page docs/tables.md, written from the tables and views of the jobs and of `app.read`."""

from __future__ import annotations

import pyarrow as pa

from app.tables.definitions import COMMON_OUTPUT, TABLES, VIEWS, Table, TableColumn, View

HEAD = """\
# Tables and views

Written by `python -m app.docs` from `state/<job>/outputs.py`, `app/jobs/<job>/views.py`,
`app/tables/definitions.py` and `views.py`; change those.

Each table is a Delta table `<warehouse>/<name>` (reader version 1, writer version 2). Times are
bigint: `_ms` in milliseconds since the epoch (UTC), `_ns` in nanoseconds of a broker's monotonic
clock. `./spark-submit.sh tables NAME` shows one, `./spark-submit.sh query "SQL"` reads them.
"""

COMMON = """\
## Columns that every output of a job begins with

Rows of one key and time are ordered by `row_no`; `cluster`, `broker`, the two times and `row_no`
name a row.
"""


def render() -> str:
    """The whole page."""
    outputs = [t for t in TABLES.values() if t.job is not None]
    others = [t for t in TABLES.values() if t.job is None]
    parts = [HEAD, COMMON, _columns(COMMON_OUTPUT)]
    parts += [_table(t, t.columns[len(COMMON_OUTPUT) :]) for t in outputs]
    parts += [_view(view) for view in VIEWS.values()]
    parts += [_table(t, t.columns) for t in others]
    return "\n".join(parts)


def type_name(kind: pa.DataType) -> str:
    """The name of a type in SQL."""
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    names = {"int64": "bigint", "int32": "int", "bool": "boolean", "date32[day]": "date"}
    return names.get(str(kind), str(kind))


def _table(table: Table, columns: tuple[TableColumn, ...]) -> str:
    notes = []
    if table.job is not None:
        notes.append(f"Written by the job `{table.job}`; begins with the columns above.")
    if not table.default:
        notes.append("Off unless the job's `extra_outputs` names it.")
    if table.partition_by:
        notes.append(f"Partitioned by `{'`, `'.join(table.partition_by)}`.")
    if table.commit_interval_ms:
        seconds = table.commit_interval_ms // 1000
        notes.append(f"A run without an end commits its rows every {seconds} s.")
    text = f"## {table.name}\n\n{' '.join([table.meaning, *notes])}\n"
    return text + "\n" + _columns(columns)


def _columns(columns: tuple[TableColumn, ...]) -> str:
    lines = ["| column | type | meaning |", "| --- | --- | --- |"]
    for column in columns:
        kind = type_name(column.type).replace("<", "&lt;").replace(">", "&gt;")
        lines.append(f"| `{column.name}` | {kind} | {column.meaning} |")
    return "\n".join(lines) + "\n"


def _view(view: View) -> str:
    reads = ", ".join(f"`{name}`" for name in view.reads)
    return (
        f"## {view.name} (view)\n\n{view.meaning} Reads {reads}. The same text runs in Spark and"
        f" DuckDB:\n\n```sql\n{view.sql}\n```\n"
    )
