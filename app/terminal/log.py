"""The log of a service on standard error: a time and a level on every line, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from app.terminal.printable import in_json, printable
from app.terminal.secrets import without_secrets

Format = Literal["text", "json"]
NAME = "weir"
BETWEEN = " | "
"""Between the lines of a message, which are one line of the log."""


def begin(log_format: Format = "text", out: TextIO | None = None) -> logging.Logger:
    """The logger of the service, which writes to `out` (standard error)."""
    lines = logging.StreamHandler(out)
    lines.setFormatter(_Json() if log_format == "json" else _Text())
    logger = logging.getLogger(NAME)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [lines]
    return logger


def end() -> None:
    """End the log of the service; later messages do not belong to it."""
    logging.getLogger(NAME).handlers = []


def error(text: str) -> bool:
    """Log why the service ends; False if no service has begun its log."""
    logger = logging.getLogger(NAME)
    if logger.handlers:
        logger.error(text)
    return bool(logger.handlers)


class _Text(logging.Formatter):
    """`2026-01-31T12:00:00.000Z WARNING message`, one line each: what others wrote begins none."""

    def format(self, record: logging.LogRecord) -> str:
        text = BETWEEN.join(map(printable, _message(record).strip("\n").split("\n")))
        return f"{_time(record)} {record.levelname:7} {text}"


class _Json(logging.Formatter):
    """An object a message: `time`, `level`, `message`, and the fields that go with it."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        found = {"time": _time(record), "level": record.levelname, "message": _message(record)}
        return in_json(json.dumps({**found, **fields}, ensure_ascii=False))


def _message(record: logging.LogRecord) -> str:
    """The message without secrets, and the exception that goes with it in a line."""
    error = record.exc_info[1] if record.exc_info else None
    return str(without_secrets(record.getMessage() + (f": {error!r}" if error else "")))


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
