"""The page docs/queries.md, written from the ready questions."""

from __future__ import annotations

import textwrap

from app.read.question import Question
from app.read.questions import QUESTIONS
from app.read.read_only import TABLE_FUNCTIONS

HEAD = """\
# Queries

Written by `python -m app.docs` from `app/jobs/<job>/questions` and `app/read/questions`;
change those.

`query` runs a ready question by its name, or a SQL statement, with DuckDB over the Delta tables,
without Spark. [tables.md](tables.md) has the tables and views.

```sh
./spark-submit.sh query
./spark-submit.sh query --all
./spark-submit.sh query blame --by victim --param since=2026-01-05T14:00:00Z --param rows=5
./spark-submit.sh query freshness --json
./spark-submit.sh query "SELECT topic, max(ts_wall_ms) FROM throttle_events GROUP BY topic" --csv
```

**Parameters** are `--param name=value`. `since` and `until` take a time; windows are selected by
their start. A table that a warehouse does not have yet is empty; a printed answer without rows
names where they would come from.

**Times** are ISO 8601 (UTC without an offset), a duration before now (`-10m`), or milliseconds
since the epoch. **Durations** are `500ms`, `10s`, `5m`, `2h`, `1d` or several of them (`1h30m`).
Every command and parameter accepts these forms.

**Time travel.** `--as-of T` reads every table as of T: the newest version that was committed at or
before T, by the time that the commit carries. A table that was created later is empty. T is a time
of commits, not of events. Versions can be read for an hour after the next one
(`maintenance.history_ms`); [maintenance](maintenance.md) removes the files and commits of older
ones.

```sh
./spark-submit.sh query "SELECT count(*) AS marks FROM throttle_events" --as-of 2026-01-05T14:05:00Z
```

**Speed.** Files are skipped by the statistics of the log if a statement compares an integer column
with a number, so that a query for ten seconds of an archive opens few files. Write
`ts_wall_ms BETWEEN 1767621600000 AND 1767621610000` or
`ts_wall_ms >= epoch_ms(TIMESTAMP '2026-01-05 14:00:00')`, not `epoch_ms(ts_wall_ms) >= ...`.

**Read-only.** One statement that reads is allowed. It sees the tables, the views and
`weir_tables` and `weir_queries`; no file, network, extension, setting or variable of the
environment. Of table functions there are
FUNCTIONS.

**`weir_tables`** has a row per table, from the logs alone: `name`, `version`, `committed_ms` of the
newest commit that changed rows, `files`, `rows`, `bytes`, and `newest_ms`, the time of the newest
row by the files' statistics. **`weir_queries`** has a row per streaming query, from its checkpoint
where the warehouse is a folder: `query`, its newest `batch`, `begun_ms`, `committed_ms` of the
newest that has ended, and `is_open`, whether the newest has not.

**Output.** The printed table has 20 rows of a question and 200 of SQL, and the total number;
`--rows N` prints more. `--json` and `--csv` have every row unless `--rows` is given. Names come
from clients: `--spreadsheet` writes CSV in which a text that begins with `=`, `+`, `-` or `@`,
which a spreadsheet would compute, begins with an apostrophe. On a terminal
a table that is too wide is printed with a line per value. Times are UTC:
`2026-01-05T14:03:07Z`, and `2026-01-05T14:03:07.120Z` where it is no whole second. Numbers of a
printed table are rounded and have units (`941 kB`, 1 kB = 1,000 bytes; `3 min 59 s`; `43 %`;
`350/s`), by the name of their column: `_bytes`, `_s`, `_ms`, `_ns`, `_per_s`, `rate`, `ratio`,
`usage`, `share`. Columns of durations are headed without it (`age` of `age_s`). Whole numbers
without a unit, offsets and times are exact. `--json` and `--csv` have the columns' names and all
digits.

**Limits.** Ctrl-C ends a statement at once. `--timeout 30s` ends it after that time; without the
option it may take as long as it needs. A statement takes up to half of the memory of the machine or
container, or what `--memory 2GB` allows; sorts and aggregations that need more go to the temporary
folder of the system (`TMPDIR`), which is emptied at the end.

**Exit codes**: 0 success, 2 an error to correct (the SQL, a name, the warehouse) or a limit
reached, 3 an internal error, 130 Ctrl-C, 143 SIGTERM.

A warehouse or table that a newer Weir has written is read, with its new columns, if its rows are
still those of its files; otherwise the error names the unknown feature.

**Other engines.** `tables --ddl` prints statements that register the tables and views in Spark's
catalogue, `--engine duckdb` for DuckDB with its extension `delta`:

```sh
./spark-submit.sh tables --ddl
./spark-submit.sh tables --ddl --engine duckdb
```

## The ready questions
"""


def render() -> str:
    """The whole page."""
    functions = textwrap.fill(", ".join(f"`{name}`" for name in sorted(TABLE_FUNCTIONS)), 100)
    return "\n".join(
        [HEAD.replace("FUNCTIONS", functions), *(_question(q) for q in QUESTIONS.values())]
    )


def _question(question: Question) -> str:
    reads = ", ".join(f"`{name}`" for name in question.reads)
    params = "".join(
        f"| `{p.name}` | {p.meaning}{_allowed(p.allowed)} | {p.shown_default} |\n"
        for p in question.params
    )
    if params:
        params = f"\n| parameter | meaning | default |\n| --- | --- | --- |\n{params}"
    sql = {f"`by={value}`\n\n": each.sql for value, each in question.by.items()}
    blocks = "\n".join(
        f"{title}```sql\n{text}\n```\n" for title, text in (sql or {"": question.sql}).items()
    )
    return f"### {question.name}\n\n{question.meaning} Reads {reads}.\n{params}\n{blocks}"


def _allowed(words: tuple[str, ...]) -> str:
    return f" ({', '.join(words)})" if words else ""
