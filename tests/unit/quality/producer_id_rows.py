"""Rows of the producer id tables, as the core makes them of the example of the semantics."""

from __future__ import annotations

from functools import cache
from typing import Any

from app.config.settings import Settings
from state.jobs import DECLARED
from tests.unit.docs.test_semantics_producer_ids import Rows, example

VARIANTS: dict[str, dict[str, Any]] = {
    "east": {"enforcement": "strict", "membership": "exact"},
    "west": {"enforcement": "permissive", "membership": "bloom", "refresh_on_hit": True},
    "north": {"membership": "bloom", "quota_math": "sampled_rate", "insert_rejected": True},
    "south": {"enforcement": "permissive", "membership": "exact", "defects": ["Q1"], "bound": 0},
}
"""What differs between the clusters."""


def switches(params: dict[str, Any]) -> list[tuple[str, str]]:
    """The column `switches` of a job with these parameters."""
    job = DECLARED["producer_ids"]
    own = {name: value for name, value in params.items() if name in job.switches}
    return sorted(Settings.model_validate({job.name: own}).switches(job.name).items())


@cache
def _all() -> Rows:
    found: Rows = {}
    for cluster, params in VARIANTS.items():
        about = {
            "job": "producer_ids",
            "params_hash": "abc",
            "cluster": cluster,
            "switches": switches(params),
        }
        for table, rows in example(**params).items():
            found.setdefault(table, []).extend({**row, **about} for row in rows)
    return found


def rows_of(table: str) -> list[dict[str, Any]]:
    """Rows of a table, those of `east` first."""
    return [dict(row) for row in _all()[table]]
