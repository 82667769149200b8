"""The DuckDB databases of a process.

One takes twenty milliseconds to make, and a connection to it half a millisecond, so connections with
the same settings share one. What each of them makes is temporary, which is its own.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

import duckdb

from app.terminal.interrupt import watch

SHARE = "50%"
"""Default bound on memory as a share of that of the machine or container."""
_PARSED: dict[str, duckdb.Statement] = {}
"""Statements of Weir and of alert rules, by their texts."""


def fileless() -> duckdb.DuckDBPyConnection:
    """A connection that reads no file."""
    return _fileless(os.getpid()).cursor()


def sealed(
    folder: Path | None, config: Mapping[str, str] | None = None, *, functions: bool = False
) -> duckdb.DuckDBPyConnection:
    """A connection that reads below a folder, if any, and neither writes nor loads anything.

    One that gets `functions` of Python is alone in its database, since they end with it.
    """
    settings = tuple(sorted((config or {}).items()))
    made = _sealed if functions else _kept
    database, spill = made(None if folder is None else str(folder.resolve()), settings, os.getpid())
    connection = database if functions else database.cursor()
    watch(connection, spill)
    return connection


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """One statement that is asked again and again, for `execute` of any connection. Where rows are few,
    parsing its text takes a fifth of its time, and two thirds of the time that a view takes to make.
    """
    if sql not in _PARSED:
        (_PARSED[sql],) = connection.extract_statements(sql)
    return _PARSED[sql]


@contextmanager
def time_limit(connection: duckdb.DuckDBPyConnection, limit_ms: float) -> Iterator[None]:
    """Within this context a statement that takes longer ends with duckdb.InterruptException."""
    timer = threading.Timer(limit_ms / 1000, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


@cache
def _fileless(_process: int) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"enable_external_access": "false", "memory_limit": SHARE})


def _sealed(
    folder: str | None, settings: tuple[tuple[str, str], ...], _process: int
) -> tuple[duckdb.DuckDBPyConnection, Path]:
    spill = Path(tempfile.gettempdir()) / f"weir-query-{secrets.token_hex(8)}"
    database = duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_persistent_secrets": "false",
            "enable_external_file_cache": "false",
            "python_enable_replacements": "false",
            "temp_directory": str(spill),
            "memory_limit": SHARE,
            **dict(settings),
        }
    )
    if folder is not None:
        database.execute(f"SET allowed_directories = [{literal(folder)}]")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database, spill


_kept = lru_cache(maxsize=8)(_sealed)
