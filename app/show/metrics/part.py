"""The base of every group of metrics: it reads new rows of its tables and returns samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import duckdb

from app.read.databases import parsed
from app.show.metrics.entities import Bounds, Entities

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]
"""Name of the metric, values of its labels in their order, value; an empty label is left out."""


class MetricsPart(ABC):
    """Metrics of one job; rows are kept as counters and newest values."""

    reads: tuple[str, ...] = ()
    """Tables whose new rows it reads."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    @abstractmethod
    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        """Add the rows of `fresh`: the tables it reads, with only their new rows."""

    @abstractmethod
    def samples(self) -> Iterator[Sample]:
        """The current samples."""

    def families(self) -> dict[str, Entities]:
        """Its kinds of entities, by the name that `weir_exporter_entities` gives them."""
        return {}


class Sums:
    """Counters whose labels are few by themselves."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._sums: dict[Labels, list[float]] = {}

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of labels followed by one amount per name."""
        count = len(self._names)
        for row in rows:
            sums = self._sums.setdefault(labels(row[:-count]), [0.0] * count)
            for index, amount in enumerate(row[-count:]):
                sums[index] += float(amount or 0)

    def samples(self) -> Iterator[Sample]:
        """A sample per name and labels."""
        for key, sums in self._sums.items():
            for name, value in zip(self._names, sums, strict=True):
                yield name, key, value


def rows(
    connection: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """The answer to a statement."""
    return list(connection.execute(parsed(connection, sql), params).fetchall())


def scalar(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """The one value of the answer to a statement."""
    ((value,),) = rows(connection, sql)
    return value


def labels(values: Iterable[Any]) -> Labels:
    """Label values as text; null is empty."""
    return tuple("" if value is None else str(value) for value in values)
