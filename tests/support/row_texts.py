"""Whole rows as text, to be compared."""

from __future__ import annotations

import pyarrow as pa


def row_texts(table: pa.Table) -> list[str]:
    """Every column of each row by name, sorted; a row that is there twice twice."""
    names = sorted(table.column_names)
    form = ", ".join(f"{name}=%r" for name in names)
    columns = (table.column(name).to_pylist() for name in names)
    return sorted(form % row for row in zip(*columns, strict=True))
