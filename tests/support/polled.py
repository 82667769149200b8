"""The records of polls."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.unit.sources.pulsar.documents import valid

Json = dict[str, Any]


def lines(path: Path | None) -> list[Json]:
    """The records of a poll's file, which must be valid, but the last one, which is of the poll
    itself."""
    assert path is not None
    found = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    valid(found)
    *found, last = found
    assert last["event_type"] == "poll"
    return found


def of_kind(found: Iterable[Json], kind: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the records of a kind."""
    return [
        tuple(record.get(column) for column in columns)
        for record in found
        if record["event_type"] == kind
    ]
