"""Small traces of producer ids, shipped to the core as the router ships them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from state.producer_ids.operator import ProducerIds
from state.producer_ids.shard import COLUMNS, NAME
from tests.state.shipping import Row, called, params_of, read_by, shipped

PARAMS = params_of("producer_ids")


def blob(records: Sequence[Row], home: int = 1) -> bytes:
    """Records as one blob of `producer_ids`."""
    return shipped(records, COLUMNS, home)


def numbered(records: Iterable[Row]) -> list[Row]:
    """The records that the job reads, with an identity each."""
    return read_by(NAME, records)


def play(
    batches: Iterable[Sequence[Row]], params: dict[str, Any] | None = None,
    policies: Sequence[str] = (), until_ms: int | None = None, states: list[bytes] | None = None,
) -> dict[str, list[Row]]:
    """Rows by table of the core; see `shipping.called`."""
    chosen = {**PARAMS, **(params or {})}
    return called(
        ProducerIds(chosen, policies), batches, blob, chosen["idle_advance_ms"], until_ms, states
    )
