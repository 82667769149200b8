"""Runs the suites on the committed tables, keeps what was found in `quality_results`."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from app.quality.suites import ACROSS, SUITES, Check
from app.query import write_json, write_table
from app.tables import TABLES
from app.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = TABLES["quality_results"]
SAMPLE = 3
"""Rows that a failed expectation shows."""


def quality_command(spark: SparkSession, warehouse: Warehouse, as_json: bool = False) -> int:
    """Audit every table that has a suite, append the results, print them; 1 if anything failed."""
    warehouse.require()
    run_id, checked_ms = uuid.uuid4().hex, time.time_ns() // 1_000_000
    rows: list[dict[str, Any]] = []
    frames = {table: _read(spark, warehouse, table) for table in SUITES}
    for table, frame in frames.items():
        # What one table says of another is asked by the other's name.
        frame.createOrReplaceTempView(table)
    for table, checks in SUITES.items():
        found = audit(frames[table], table, [*checks, *ACROSS.get(table, [])])
        rows += [{"run_id": run_id, "checked_ms": checked_ms, **row} for row in found]
    deltalake.write_deltalake(
        warehouse.location(RESULTS.name), pa.Table.from_pylist(rows, schema=RESULTS.schema),
        mode="append", storage_options=warehouse.storage_options,
    )
    _print(rows, as_json)
    return 0 if all(row["success"] for row in rows) else 1


def audit(frame: DataFrame, table: str, checks: list[Check]) -> list[dict[str, Any]]:
    """One result per check of `table`: its columns of `quality_results` besides run and time."""
    # Set before the import, which would otherwise call home.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations import expectations
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)  # type: ignore[assignment]
    # The frame is cached and released here; Great Expectations would keep it.
    source = context.data_sources.add_spark("committed", persist=False)
    batch = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("snapshot")
    suite = context.suites.add(gx.ExpectationSuite(name=table))
    for number, check in enumerate(checks):
        arguments = {**check.arguments, "meta": {"number": number}}
        suite.add_expectation(getattr(expectations, check.kind)(**arguments))
    frame.cache()
    try:
        outcome = batch.get_batch(batch_parameters={"dataframe": frame}).validate(suite)
    finally:
        frame.unpersist()
    # Great Expectations answers in an order of its own.
    results = sorted(outcome.results, key=lambda r: r.expectation_config.meta["number"])
    return [_row(table, check, result) for check, result in zip(checks, results, strict=True)]


def _read(spark: SparkSession, warehouse: Warehouse, table: str) -> DataFrame:
    delta = warehouse.open(table)
    if delta is None:
        return spark.createDataFrame(TABLES[table].schema.empty_table())
    return spark.read.format("delta").load(warehouse.location(table))


def _row(table: str, check: Check, result: Any) -> dict[str, Any]:
    found = result.result
    config = result.expectation_config
    seen = {
        "observed": found.get("observed_value"),
        "examples": found.get("partial_unexpected_list", [])[:SAMPLE]
        or (found.get("details") or {}).get("unexpected_rows", [])[:SAMPLE],
        "error": _error(result.exception_info),
    }
    count = found.get("unexpected_count")
    if check.name and not result.success and seen["observed"] is not None:
        count = int(seen["observed"])
    return {
        "table": table,
        "expectation": check.name or config.type,
        "column": check.column,
        "success": bool(result.success),
        "observed": json.dumps({k: v for k, v in seen.items() if v}, default=str),
        "unexpected_count": count,
    }


def _error(info: dict[str, Any]) -> str | None:
    """What kept an expectation from being judged, such as a column that is missing."""
    nested = [info] if "raised_exception" in info else list(info.values())
    messages = [i["exception_message"] for i in nested if i.get("raised_exception")]
    return str(messages[0]).splitlines()[0] if messages else None


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    names = ["table", "expectation", "column", "success", "unexpected_count", "observed"]
    failed = [row for row in rows if not row["success"]]
    shown = rows if as_json else failed
    lines = [[row[name] for name in names] for row in shown]
    if as_json:
        write_json(names, lines, sys.stdout)
        return
    if lines:
        write_table(names, lines, sys.stdout)
    for table in SUITES:
        checks = [row for row in rows if row["table"] == table]
        held = sum(row["success"] for row in checks)
        print(f"{table}: {held} of {len(checks)} expectations hold")
