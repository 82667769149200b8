"""Rows of the backlog tables, as the core makes them of the example of the semantics."""

from __future__ import annotations

from functools import cache
from typing import Any

from app.config.settings import Settings
from state.jobs import DECLARED
from tests.unit.docs.test_semantics_backlog import PRECISE, Rows, example, stands
from tests.unit.state.backlog_trace import EVICTION, quota

VARIANTS: dict[str, dict[str, Any]] = {
    "east": {"eviction_count_rule": "every_call"},
    "west": {PRECISE: True, "apply_evictions": True, "eviction_count_rule": "evicted_only"},
    "north": {
        "limits": quota(8_000, 200, EVICTION),
        "age_reset": "keep",
        "age_when_empty": "zero",
        "size_estimate": "ledger_sum",
    },
    "south": {
        "limits": quota(None, 200, EVICTION),
        PRECISE: True,
        "check_rows": "all",
        "age_without_quota": "quota_only",
    },
    "dedup": {
        "limits": quota(1, None, "producer_exception"),
        "more": [stands(0, "pulsar.dedup", "1:-1")],
    },
    "jumps": {
        "limits": quota(None, 200, EVICTION),
        "age_without_quota": "quota_only",
        "eviction_count_rule": "evicted_only",
    },
}
"""What differs between the clusters."""


def switches(params: dict[str, Any]) -> list[tuple[str, str]]:
    """The column `switches` of a job with these parameters."""
    own = {name: value for name, value in params.items() if name in DECLARED["backlog"].switches}
    return sorted(Settings.model_validate({"backlog": own}).switches("backlog").items())


@cache
def _all() -> Rows:
    found: Rows = {}
    for cluster, params in VARIANTS.items():
        about = {
            "job": "backlog",
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
