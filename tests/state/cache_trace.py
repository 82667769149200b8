"""Small traces of entry caches, shipped to the core as the router ships them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from state.entry_cache.operator import EntryCache
from state.entry_cache.shard import COLUMNS
from tests.reference.entry_cache import READ
from tests.state.shipping import Row, called, params_of, shipped

PARAMS = params_of("entry_cache")


def blob(records: Sequence[Row], home: int = 1) -> bytes:
    """Records as one blob of `entry_cache`."""
    return shipped(records, COLUMNS, home)


def numbered(records: Iterable[Row]) -> list[Row]:
    """The records that the job reads, with an identity each."""
    return [{**r, "source_offset": i} for i, r in enumerate(records) if r["event_type"] in READ]


def play(
    batches: Iterable[Sequence[Row]], params: dict[str, Any] | None = None,
    policies: Sequence[str] = (), until_ms: int | None = None, states: list[bytes] | None = None,
) -> dict[str, list[Row]]:
    """Rows by table of the core; see `shipping.called`."""
    chosen = {**PARAMS, **(params or {})}
    return called(
        EntryCache(chosen, policies), batches, blob, chosen["idle_advance_ms"], until_ms, states
    )
