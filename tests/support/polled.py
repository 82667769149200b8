"""The records of polls."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.unit.sources.pulsar.documents import valid

Json = dict[str, Any]


def records(path: Path | None) -> list[Json]:
    """The records of a poll's file, which must be valid; the last one is of the poll itself."""
    assert path is not None
    found = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    valid(found)
    assert [r["event_type"] == "poll" for r in found] == [False] * (len(found) - 1) + [True]
    return found


def lines(path: Path | None) -> list[Json]:
    """The same without that of the poll."""
    return records(path)[:-1]


def of_kind(found: Iterable[Json], kind: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the records of a kind."""
    return [
        tuple(record.get(column) for column in columns)
        for record in found
        if record["event_type"] == kind
    ]
