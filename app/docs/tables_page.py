"""The page docs/tables.md, written from the tables and views of the jobs and of `app.read`."""

from __future__ import annotations

import pyarrow as pa

from app.read.relations import Warehouse, connect_to
from app.tables.definitions import COMMON_OUTPUT, TABLES, VIEWS, Table, TableColumn, View

HEAD = """\
# Tables and views

Written by `python -m app.docs` from `state/<job>/outputs.py`, `app/jobs/<job>/views.py`,
`app/tables/definitions.py` and `views.py`; change those.

Each table is a Delta table `<warehouse>/<name>` (reader version 1, writer version 2). Times are
bigint: `_ms` in milliseconds since the epoch (UTC), `_ns` in nanoseconds of a broker's monotonic
clock. `./spark-submit.sh query "SQL"` reads them, and whatever reads Delta
([other engines](#other-engines)).

```sh
./spark-submit.sh tables throttle_intervals --warehouse weir-demo/warehouse         # its columns
./spark-submit.sh tables throttle_intervals --warehouse weir-demo/warehouse --sql   # of a view
```
"""

COMMON = """\
## Columns that every output of a job begins with

Rows of one key and time are ordered by `row_no`; `cluster`, `broker`, the two times and `row_no`
name a row.
"""


ENGINES = """\
## Other engines

Whatever reads Delta reads the tables. `tables --ddl` prints the statements that register tables and
views in Spark's catalogue, `--engine duckdb` for DuckDB with its extension `delta`.

```python
# pandas
from deltalake import DeltaTable

table = DeltaTable("weir-warehouse/topic_throttle_stats")
rows = table.to_pandas(columns=["topic", "limited_times", "collateral_ns"])
```

```python
# duckdb
import duckdb
from deltalake import DeltaTable

owners = DeltaTable("weir-warehouse/producer_id_owners").to_pyarrow_dataset()
rows = duckdb.sql(
    'SELECT "user", count(*) AS ids FROM owners GROUP BY ALL ORDER BY ids DESC'
).fetchall()
```

Trino and Athena read the tables with their Delta connectors; that has not been tried:

```sql
CALL delta.system.register_table(schema_name => 'weir', table_name => 'throttle_events',
  table_location => 's3://lake/weir/throttle_events');
```

Weir appends rows and never updates them; maintenance changes files. What a Spark stream that reads a
table, or its change data feed, sees:

* **A batch**: new rows; in the feed inserts.
* **Compaction**: nothing (`dataChange = false`).
* **Retention and `forget`**: the stream stops with an error unless it has `skipChangeCommits`
  (`ignoreDeletes` is not enough, since a file with older and newer rows is written anew). The feed
  has the rows of these files as deletes and inserts.
* **Vacuum and log clean-up**: whoever is more than `history_ms` behind has lost files or versions.

```python
spark.readStream.format("delta").option("skipChangeCommits", "true").load(
    "weir-warehouse/throttle_events"
)
```

A change data feed is switched on per table:
`ALTER TABLE … SET TBLPROPERTIES (delta.enableChangeDataFeed = true)`. Other writers must leave the
tables alone: a restart compares them with its checkpoints.
"""


def render() -> str:
    """The whole page."""
    outputs = [t for t in TABLES.values() if t.job is not None]
    others = [t for t in TABLES.values() if t.job is None]
    parts = [HEAD, COMMON, _columns(COMMON_OUTPUT)]
    parts += [_table(t, _shown(t)) for t in outputs]
    parts += _views()
    parts += [_table(t, t.columns) for t in others]
    parts.append(ENGINES)
    return "\n".join(parts)


def type_name(kind: pa.DataType) -> str:
    """The name of a type in SQL."""
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    names = {"int64": "bigint", "int32": "int", "bool": "boolean", "date32[day]": "date"}
    return names.get(str(kind), str(kind))


def _shown(table: Table) -> tuple[TableColumn, ...]:
    """Columns of an output that are shown with it: those that no table shown before it has."""
    before = COMMON_OUTPUT if table.live is None else TABLES[table.live].columns
    return tuple(column for column in table.columns if column not in before)


def _table(table: Table, columns: tuple[TableColumn, ...]) -> str:
    notes = []
    if table.job is not None:
        begins = "the columns above" if table.live is None else f"those of `{table.live}`"
        notes.append(f"Written by the job `{table.job}`; begins with {begins}.")
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


def _views() -> list[str]:
    """Every view with its columns, as DuckDB describes them over empty tables."""
    with connect_to(Warehouse(".", {}), dict.fromkeys(TABLES), {}) as connection:
        return [
            _view(
                view, [name for name, *_ in connection.execute(f"DESCRIBE {view.sql}").fetchall()]
            )
            for view in VIEWS.values()
        ]


def _view(view: View, names: list[str]) -> str:
    reads = ", ".join(f"`{name}`" for name in view.reads)
    columns = ", ".join(f"`{name}`" for name in names)
    return f"## {view.name} (view)\n\n{view.meaning} Reads {reads}.\n\nColumns: {columns}.\n"
