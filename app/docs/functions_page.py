"""The page docs/functions.md, written from the functions in `udfs.functions`."""

from __future__ import annotations

import json
from typing import Any

from udfs.functions import FUNCTIONS, Function
from udfs.spark import spark_type

HEAD = """\
# Functions

Written by `python -m app.docs` from `udfs/functions.py`; change that.

Functions for topics, positions, principals, payloads and the bytes of Pulsar. Weir's own tables are
made with them, so their results join with the columns of the tables. They have the same names and
results in Spark and in `query` (DuckDB).

They are available in `query` and in the SQL of alert rules:

```sh
./spark-submit.sh query "
  SELECT weir_topic_tenant(topic) AS tenant, count(*) AS marks
  FROM throttle_events WHERE action = 'mark' GROUP BY tenant ORDER BY marks DESC, tenant"
```

In Spark and in a separate DuckDB they must be registered first. `udfs` and `state` are folders of
this repository: put it on `PYTHONPATH`. On a cluster the workers need both folders
(`zip -r functions.zip udfs state`, then `--py-files functions.zip`) and the packages of
`requirements.lock`.

```python
from udfs import register

register(spark)
spark.sql(\"\"\"
    SELECT weir_topic_namespace(topic) AS namespace, weir_user(principal) AS user,
      count(*) AS batches
    FROM events WHERE event_type = 'produce_batch'
    GROUP BY ALL ORDER BY batches DESC, namespace, user
\"\"\").show(truncate=False)
```

```python
import duckdb
from udfs import register_duckdb

connection = duckdb.connect()
register_duckdb(connection)
connection.sql("SELECT weir_shard('acme/orders/created', 16) AS shard").show()
```

Null returns null. A function that returns a struct returns one with null fields for null, and for
bytes or text without the expected content.

"""


def render() -> str:
    """The whole page."""
    rows = ["| function | gives | meaning |", "| --- | --- | --- |"]
    examples = ["## Examples", "", "| call | gives |", "| --- | --- |"]
    for function in FUNCTIONS.values():
        rows.append(f"| `{_signature(function)}` | {_given(function)} | {function.meaning} |")
        examples.append(f"| `{function.example}` | {_shown(function.answer)} |")
    return HEAD + "\n".join(["## All functions", "", *rows, "", *examples, ""])


def _signature(function: Function) -> str:
    taken = ", ".join(f"{name} {spark_type(kind)}" for name, kind in function.takes)
    return f"{function.name}({taken})"


def _given(function: Function) -> str:
    return spark_type(function.gives).replace("<", "&lt;").replace(">", "&gt;")


def _shown(answer: Any) -> str:
    if isinstance(answer, bytes):
        return f"the bytes of `{answer.decode()}`"
    return f"`{json.dumps(answer)}`" if isinstance(answer, dict) else f"`{answer}`"
