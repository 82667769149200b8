"""Small traces for tests: records as dictionaries, shipped to a core as the router ships them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.support import records
from tests.unit.state.shipping import Shipper, params_of

PARAMS = params_of("rate_limits", extra_outputs=("publish_verdicts",))
START_MS = 1_767_621_600_000
START_NS = 10_368_000_000_000_001
"""120 days of uptime and one nanosecond: above 2**53."""


def record(kind: str, at_ns: int, seq: int | None = None, **columns: Any) -> dict[str, Any]:
    """A record of broker b1 at `at_ns` after the start of the trace."""
    return records.record(kind, START_MS + at_ns // 1_000_000, START_NS + at_ns, seq=seq, **columns)


def publish(
    at_ns: int,
    topic: str = "persistent://t/ns/a",
    cnx: str = "c1",
    producer: int = 1,
    messages: int = 1,
    size: int = 1,
    **columns: Any,
) -> dict[str, Any]:
    """A publish request."""
    return record(
        "publish",
        at_ns,
        cnx_id=cnx,
        topic=topic,
        producer_id=producer,
        num_messages=messages,
        entry_bytes=size,
        producer_name=f"p{producer}",
        **columns,
    )


_SHIPPER = Shipper("rate_limits", PARAMS)
blob = _SHIPPER.blob


def play(
    batches: Iterable[Sequence[dict[str, Any]]],
    params: dict[str, Any] | None = None,
    policies: Sequence[str] = (),
    drain_ms: int | None = None,
    states: list[bytes] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Rows by table of the core; see `shipping.called`. At the end the stream's clock is moved to
    `drain_ms` after the trace's start, if given."""
    until_ms = None if drain_ms is None else START_MS + drain_ms
    return _SHIPPER.play(batches, params, policies, until_ms, states)
