"""Rows of the chunk tables for tests, as the core makes them of the example of the semantics."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.unit.docs.test_semantics_chunks import START_MS, UPSTREAM, Rows, example

__all__ = ["START_MS", "rows_of"]


@cache
def _both() -> Rows:
    found: Rows = {}
    for cluster, defects in (("east", UPSTREAM), ("west", [])):
        about = {
            "job": "chunks",
            "params_hash": "abc",
            "cluster": cluster,
            "switches": [("defects", ",".join(defects))],
        }
        for table, rows in example(defects).items():
            found.setdefault(table, []).extend({**row, **about} for row in rows)
    return found


def rows_of(table: str) -> list[dict[str, Any]]:
    """Rows of a table: cluster `east` with the defects of released clients, `west` without."""
    return [dict(row) for row in _both()[table]]
