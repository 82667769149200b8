"""Rows of the cache tables, as the core makes them of two minutes of a small fleet."""

from __future__ import annotations

from functools import cache
from typing import Any

from app.config.settings import Settings
from tests.unit.state.cache_trace import numbered, play
from tests.unit.state.trace import record

Rows = dict[str, list[dict[str, Any]]]
TOPICS = ("persistent://t/ns/a", "persistent://t/ns/b")
SECOND_NS = 1_000_000_000
MINUTE_MS = 60_000
CACHES = [
    {"policy": "expected_reads", "max_bytes": 600},
    {"policy": "fifo", "max_bytes": 600},
    {"policy": "lru"},
]
"""Two that are too small for what is added in a burst, and one without a size check."""


def _trace() -> list[dict[str, Any]]:
    """Bursts of entries of two topics; `tail` reads at once, `slow` later, or never."""
    found = [
        record("cursor_state", 0, 0, topic=topic, subscription=name, read_pos="1:0", active=True)
        for topic in TOPICS
        for name in ("slow", "tail")
    ]
    for burst in range(24):
        at = SECOND_NS * 5 * burst
        for i in range(8):
            entry = {"topic": TOPICS[i % 2], "ledger_id": 1, "entry_id": 4 * burst + i // 2}
            found.append(record("entry_added", at + i, entry_bytes=100, **entry))
            tail = {"subscription": "tail", "entry_bytes": 100}
            found.append(record("entry_read", at + 100 + i, **entry, **tail))
            found.append(record("entry_released", at + 200 + i, **entry))
            if burst % 3 == 0:
                slow = {"subscription": "slow", "entry_bytes": 100}
                found.append(record("entry_read", at + SECOND_NS // 2 + i, **entry, **slow))
    found.append(record("entry_invalidated", SECOND_NS * 115 + 300, topic=TOPICS[0], ledger_id=1))
    return sorted(found, key=lambda r: r["ts_mono_ns"])


@cache
def _all() -> Rows:
    extra = ["cache_evictions", "cache_reads"]
    settings = Settings.model_validate(
        {
            "entry_cache": {
                "release_event": "entry_released",
                "variants": CACHES,
                "extra_outputs": extra,
            }
        }
    )
    params = settings.job_params("entry_cache")
    records = [{**r, "seq": n} for n, r in enumerate(_trace())]
    end_ms = max(r["ts_wall_ms"] for r in records) + 2 * MINUTE_MS
    switches = sorted(settings.switches("entry_cache").items())
    about = {"job": "entry_cache", "params_hash": "abc", "cluster": "east", "switches": switches}
    return {
        table: [{**row, **about} for row in rows]
        for table, rows in play([numbered(records)], params, until_ms=end_ms).items()
    }


def rows_of(table: str) -> list[dict[str, Any]]:
    """Rows of a table."""
    return [dict(row) for row in _all()[table]]
