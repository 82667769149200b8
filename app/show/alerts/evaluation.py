"""Evaluates alert rules on the committed tables, on a read-only connection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from app.config.alert_rule import Rule
from app.config.alerts import AlertSettings
from app.errors import UserError, reason
from app.read.databases import parsed, time_limit
from app.read.relations import Recent, Warehouse, connect, first_lines, only_select
from app.show.alerts.episodes import (
    ACTIVE,
    SEVERITIES,
    AlertChange,
    Labels,
    Last,
    Stretch,
    bounded,
    changes,
)
from app.tables.definitions import TABLES
from app.terminal.moments import instant_of
from app.terminal.templates import text_of, written

NEEDED = ("start_ms", "end_ms", "value")
SEVERITY = "severity"
"""Column that overrides the severity of the rule for a row."""
RESERVED = ("alertname", SEVERITY)
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_ROWS = 100_000
"""Rows of a rule that are evaluated; of more, those of the alerts with the highest priority."""
GROUPS = 2
"""Then so many times the limit of the rule is the number of alerts that are evaluated."""
_ALL, _KEPT = "_weir_rule_rows", "_weir_rule_alerts"
CONFIG = {"threads": "1", "memory_limit": "1GB"}
"""Resource limits of the SQL of rules: it runs at the same time as the stream."""
_WINDOWS = """
SELECT min(newest) FROM (
  SELECT max(window_start_ms + window_ms) AS newest, max(window_ms) AS window_ms,
    max(max(window_start_ms + window_ms)) OVER () AS front
  FROM {table} GROUP BY cluster, broker
) WHERE newest >= front - window_ms
"""


class RuleError(UserError):
    """A rule does not fit the rows of its SQL."""


@dataclass(frozen=True)
class Evaluated:
    """A rule, the time at which it was evaluated, and its changes up to then."""

    rule: Rule
    now_ms: int
    history: list[AlertChange]
    left_out: int = 0
    """The number of alerts suppressed by the limit of the rule."""


@dataclass(frozen=True)
class Evaluation:
    """The results of a round over all rules, and the errors of rules without a result."""

    evaluated: list[Evaluated]
    broken: list[str]
    empty: list[str]
    """Rules whose tables have no rows yet."""


def evaluate_all(
    warehouse: Warehouse,
    rules: Sequence[Rule],
    settings: AlertSettings,
    recorded: Mapping[tuple[str, Labels], Last],
    at_ms: int | None = None,
) -> Evaluation:
    """Evaluate every rule at `at_ms` (ms since the epoch; None: the time its tables have reached).

    A rule that cannot be evaluated is reported by name; the others are evaluated.
    """
    evaluated: list[Evaluated] = []
    broken: list[str] = []
    empty: list[str] = []
    for rule, connection in _connections(warehouse, rules, settings, at_ms):
        known = {labels: last for (name, labels), last in recorded.items() if name == rule.name}
        try:
            if isinstance(connection, UserError):
                raise UserError(f"alert rule {rule.name}: {connection}") from connection
            found = evaluate(connection, rule, at_ms, known, settings)
        except UserError as error:
            broken.append(str(error))
        except Exception as error:  # noqa: BLE001 - the other rules are evaluated
            broken.append(f"alert rule {rule.name}: {type(error).__name__}: {reason(error)}")
        else:
            if found is None:
                empty.append(rule.name)
            else:
                evaluated.append(found)
    return Evaluation(evaluated, broken, empty)


def evaluate(
    connection: duckdb.DuckDBPyConnection,
    rule: Rule,
    at_ms: int | None,
    known: Mapping[Labels, Last],
    settings: AlertSettings,
) -> Evaluated | None:
    """Evaluate one rule; None while its tables are empty."""
    where = f"alert rule {rule.name}"
    if rule.for_ms > settings.lookback_ms // 2:
        raise UserError(
            f"{where}: for: {rule.for_ms} ms is more than half of alerts.lookback_ms "
            f"({settings.lookback_ms}), so the rows of that time may be out of reach"
        )
    clock = clock_sql(rule, where)
    for sql in (rule.sql, clock):
        only_select(sql, where)
    try:
        with time_limit(connection, settings.query_timeout_ms):
            if at_ms is None:
                reached = connection.execute(parsed(connection, clock)).fetchone()
                at_ms = _whole(reached[0], "now", where) if reached else None
            if at_ms is None:
                return None
            connection.execute(parsed(connection, rule.sql))
            names = [column[0] for column in connection.description or []]
            labels = _label_names(rule, names, where)
            rows, beyond = connection.fetchmany(MOST_ROWS + 1), 0
            if len(rows) > MOST_ROWS:
                rows, beyond = _most_important(connection, rule, labels, at_ms, known)
    except duckdb.InterruptException as error:
        raise UserError(
            f"{where}: took longer than alerts.query_timeout_ms ({settings.query_timeout_ms} ms)"
        ) from error
    except duckdb.Error as error:
        raise UserError(f"{where}: {first_lines(error)}") from error
    if len(rows) > MOST_ROWS:
        raise UserError(
            f"{where}: sql gives more than {MOST_ROWS:,} rows for {GROUPS * rule.limit:,} alerts;"
            " group or filter them"
        )
    stretches = [_stretch(dict(zip(names, row, strict=True)), labels, rule, where) for row in rows]
    history, left_out = bounded(changes(stretches, rule.for_ms, at_ms), known, rule.limit)
    return Evaluated(rule, at_ms, history, left_out + beyond)


def _most_important(
    connection: duckdb.DuckDBPyConnection,
    rule: Rule,
    labels: Sequence[str],
    at_ms: int,
    known: Mapping[Labels, Last],
) -> tuple[list[tuple[Any, ...]], int]:
    """The rows of a rule for the alerts it may keep, and the number of further ones that hold.

    Alerts that are recorded as holding come first, then those that hold and began first, and of
    those that have ended the newest. `bounded` selects among them.
    """
    names = [f'"{name}"' for name in labels]
    active = [dict(about) for about, last in known.items() if last.state in ACTIVE]
    texts = {
        f"known_{i}": [about.get(name, "") for about in active] for i, name in enumerate(labels)
    }
    listed = ", ".join(f"unnest(CAST(${key} AS VARCHAR[])) AS {key}" for key in texts)
    same = " AND ".join(
        f"coalesce(CAST({name} AS VARCHAR), '') = {key}"
        for name, key in zip(names, texts, strict=True)
    )
    is_known = f"EXISTS (FROM (SELECT {listed}) WHERE {same})" if active and labels else "false"
    sql = rule.sql.rstrip().rstrip(";")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {_ALL} AS\n{sql}")
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE {_KEPT} AS
        SELECT *, {is_known} AS is_known, row_number() OVER (
          PARTITION BY ends_ms >= $now ORDER BY CASE WHEN ends_ms >= $now THEN starts_ms END,
            ends_ms DESC, {", ".join(names) or "1"}) AS place
        FROM (SELECT {"".join(f"{name}, " for name in names)}min(start_ms) AS starts_ms,
          max(end_ms) AS ends_ms FROM {_ALL} WHERE start_ms < $now
          GROUP BY {", ".join(names) or "()"})
    """,
        {"now": at_ms, **(texts if active and labels else {})},
    )
    chosen = f"(is_known OR place <= {GROUPS * rule.limit})"
    (beyond,) = connection.execute(
        f"SELECT count(*) FROM {_KEPT} WHERE ends_ms >= $now AND NOT {chosen}", {"now": at_ms}
    ).fetchone() or (0,)
    joined = " AND ".join(f"a.{name} IS NOT DISTINCT FROM k.{name}" for name in names) or "true"
    rows = connection.execute(
        f"SELECT a.* FROM {_ALL} AS a SEMI JOIN (FROM {_KEPT} WHERE {chosen}) AS k ON {joined}"
        " WHERE a.start_ms < $now",
        {"now": at_ms},
    ).fetchmany(MOST_ROWS + 1)
    for table in (_ALL, _KEPT):
        connection.execute(f"DROP TABLE {table}")
    return rows, int(beyond)


def summary(rule: Rule, change: AlertChange) -> str:
    """The summary of a change; a UserError if its template names a column that no row has."""
    words: dict[str, Any] = {
        **dict(change.words),
        **dict(change.labels),
        "since": instant_of(change.since_ms),
        "until": instant_of(change.until_ms),
        "seconds": (change.until_ms - change.since_ms) // 1000,
        "value": change.value,
    }
    with filling(rule, "summary", words):
        return written(rule.summary, words)


@contextmanager
def filling(rule: Rule, key: str, words: Iterable[str]) -> Iterator[None]:
    """For filling in a template of a rule: a UserError where it does not fit these words."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RuleError(
            f"alert rule {rule.name}: {key}: {error} cannot be filled in; allowed: {', '.join(words)}"
        ) from error


def _connections(
    warehouse: Warehouse, rules: Sequence[Rule], settings: AlertSettings, at_ms: int | None
) -> Iterator[tuple[Rule, duckdb.DuckDBPyConnection | UserError]]:
    """Each rule with a connection: one for all, or one each where a table cannot be read."""
    recent = Recent(settings.lookback_ms, at_ms)

    def open_for(several: Sequence[Rule]) -> duckdb.DuckDBPyConnection:
        text = " ".join(f"{rule.sql} {rule.now}" for rule in several)
        return connect(warehouse, text, recent=recent, config=CONFIG, calendar=True)

    warehouse.require()
    try:
        shared = open_for(rules)
    except UserError:
        for rule in rules:
            try:
                connection = open_for([rule])
            except UserError as error:
                yield rule, error
            else:
                with connection:
                    yield rule, connection
        return
    with shared:
        for rule in rules:
            yield rule, shared


def clock_sql(rule: Rule, where: str) -> str:
    if not re.fullmatch(r"\w+", rule.now):
        return rule.now
    windows = [
        name
        for name, table in TABLES.items()
        if {"window_start_ms", "window_ms", "cluster", "broker"} <= set(table.names)
    ]
    if rule.now not in windows:
        raise UserError(
            f"{where}: now: {rule.now} is no table of windows (allowed: {', '.join(windows)}, or"
            " SQL)"
        )
    return _WINDOWS.format(table=rule.now)


def _label_names(rule: Rule, names: Sequence[str], where: str) -> list[str]:
    """The columns that are labels, checked."""
    for name in NEEDED:
        if name not in names:
            raise UserError(f"{where}: sql gives no {name}; needed: {', '.join(NEEDED)}")
    free = [name for name in names if name not in (*NEEDED, SEVERITY)]
    labels = rule.labels if rule.labels is not None else free
    for name in labels:
        if name not in names or name in NEEDED:
            columns = ", ".join(free)
            raise UserError(f"{where}: labels: {name} is no column of sql (allowed: {columns})")
        if name in RESERVED or not LABEL.fullmatch(name):
            raise UserError(
                f"{where}: sql: {name} cannot be a label (allowed: letters, digits and _, but not"
                f" {' or '.join(RESERVED)})"
            )
    return labels


def _stretch(row: dict[str, Any], labels: Sequence[str], rule: Rule, where: str) -> Stretch:
    start, end = (_whole(row[name], name, where) for name in ("start_ms", "end_ms"))
    if start is None or end is None:
        raise UserError(f"{where}: sql gives a null start_ms or end_ms; both are needed")
    value = row["value"]
    try:
        number = float("nan") if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: sql gives {value!r} as value, which is no number") from error
    about = tuple(sorted((name, text_of(row[name])) for name in labels))
    severity = row.get(SEVERITY, rule.severity)
    if severity not in SEVERITIES:
        raise UserError(
            f"{where}: sql gives {severity!r} as severity (allowed: {', '.join(SEVERITIES)})"
        )
    taken = (*NEEDED, SEVERITY, *labels)
    words = tuple((k, text_of(v)) for k, v in row.items() if k not in taken)
    return Stretch(about, start, end, number, words, severity)


def _whole(value: Any, name: str, where: str) -> int | None:
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(
            f"{where}: {name} is {value!r}, which is no number of milliseconds since the epoch"
        ) from error
