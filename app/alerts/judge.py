"""Judges alert rules on the committed tables and keeps the changes of their states."""

from __future__ import annotations

import json
import math
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa

from app.alerts.episodes import FIRING, Change, Labels, Stretch, changes, latest, unrecorded
from app.alerts.rule_files import Rule, load_rules
from app.errors import UserError
from app.tables import TABLES
from app.warehouse import Warehouse, connect, first_lines, only_select

TABLE = TABLES["alerts"]
NEEDED = ("start_ms", "end_ms", "value")


def check_command(
    warehouse: Warehouse, rules_dir: Path, as_json: bool = False, at_ms: int | None = None
) -> int:
    """Judge every rule at `at_ms` (ms since the epoch; None: the time its tables have reached).

    1 while one fires, else 0. A rule that cannot be judged is reported by name and does not keep
    the others from being judged; it is a UserError if nothing fires.
    """
    rules = load_rules(rules_dir)
    connection = connect(warehouse, " ".join(f"{r.sql} {r.now} {TABLE.name}" for r in rules))
    recorded = _recorded(connection)
    firing: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []
    broken: list[str] = []
    for rule in rules:
        try:
            now_ms, history = judge(connection, rule, at_ms)
            known = {labels: last for (name, labels), last in recorded.items() if name == rule.name}
            rows = [_row(rule, c) for c in latest(history).values() if c.state == FIRING]
            fresh = [_row(rule, c) for c in unrecorded(history, known, now_ms)]
        except UserError as error:
            broken.append(str(error))
        else:
            firing += rows
            new += fresh
    if new:
        deltalake.write_deltalake(
            warehouse.location(TABLE.name), pa.Table.from_pylist(new, schema=TABLE.schema),
            mode="append", storage_options=warehouse.storage_options,
        )
    _print(len(rules), firing, new, broken, as_json)
    if broken and not firing:
        raise UserError.of_many(broken, "./spark-submit.sh alerts rules")
    for problem in broken:
        print(f"weir: {problem}", file=sys.stderr)
    return 1 if firing else 0


def judge(
    connection: duckdb.DuckDBPyConnection, rule: Rule, at_ms: int | None
) -> tuple[int, list[Change]]:
    """The time at which a rule is judged and all changes of its alerts up to then."""
    where = f"alert rule {rule.name}"
    for sql in (rule.sql, rule.now):
        only_select(connection, sql, where)
    try:
        if at_ms is None:
            reached = connection.execute(rule.now).fetchone()
            at_ms = reached[0] if reached else None
        if at_ms is None:
            return 0, []
        connection.execute(rule.sql)
        names = [column[0] for column in connection.description or []]
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise UserError(f"{where}: sql gives no {missing[0]}; needed: {', '.join(NEEDED)}")
        rows = [dict(zip(names, row, strict=True)) for row in connection.fetchall()]
    except duckdb.Error as error:
        raise UserError(f"{where}: {first_lines(error)}") from error
    return int(at_ms), changes(map(_stretch, rows), rule.for_ms, int(at_ms))


def _stretch(row: dict[str, Any]) -> Stretch:
    labels = tuple(sorted((k, str(v)) for k, v in row.items() if k not in NEEDED))
    value = float("nan") if row["value"] is None else float(row["value"])
    return Stretch(labels, int(row["start_ms"]), int(row["end_ms"]), value)


def _recorded(
    connection: duckdb.DuckDBPyConnection,
) -> dict[tuple[str, Labels], tuple[int, str]]:
    rows = connection.execute(
        f"SELECT alert, labels, at_ms, state FROM {TABLE.name} ORDER BY at_ms, state"
    ).fetchall()
    return {
        (alert, tuple(sorted(labels.items()))): (at, state) for alert, labels, at, state in rows
    }


def _row(rule: Rule, change: Change) -> dict[str, Any]:
    words = {
        **dict(change.labels), "since": _utc(change.since_ms), "until": _utc(change.until_ms),
        "seconds": (change.until_ms - change.since_ms) // 1000, "value": change.value,
    }
    try:
        summary = rule.summary.format_map(words)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise UserError(
            f"alert rule {rule.name}: summary: {error} cannot be filled in;"
            f" allowed: {', '.join(words)}"
        ) from error
    return {
        "alert": rule.name, "labels": list(change.labels), "state": change.state,
        "at_ms": change.at_ms, "since_ms": change.since_ms,
        "value": None if math.isnan(change.value) else change.value,
        "severity": rule.severity, "summary": summary, "runbook": rule.runbook,
        "checked_ms": time.time_ns() // 1_000_000,
    }


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _print(
    rules: int, firing: list[dict[str, Any]], new: list[dict[str, Any]], broken: list[str],
    as_json: bool,
) -> None:
    if as_json:
        shown = [[{**row, "labels": dict(row["labels"])} for row in part] for part in (firing, new)]
        answer = {"rules": rules, "firing": shown[0], "changes": shown[1], "broken": broken}
        print(json.dumps(answer, ensure_ascii=False))
        return
    for row in firing:
        print(f"firing    {row['alert']} ({row['severity']}): {row['summary']}")
        if row["runbook"]:
            print(f"          what to do: {row['runbook']}")
    for row in new:
        if row["state"] != FIRING:
            print(f"resolved  {row['alert']} at {_utc(row['at_ms'])}: {row['summary']}")
    print(f"{rules} rule{'s' if rules != 1 else ''} checked, {len(firing)} firing")
