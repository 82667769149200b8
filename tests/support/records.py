"""A record as tests write it by hand."""

from __future__ import annotations

from typing import Any


def record(kind: str, wall_ms: int, mono_ns: int | None = None, **columns: Any) -> dict[str, Any]:
    """A record of the event contract: of broker b1 of cluster c, if the columns name no other."""
    return {
        "event_type": kind,
        "source_feed": "contract",
        "cluster": "c",
        "broker": "b1",
        "seq": None,
        "ts_mono_ns": mono_ns,
        "ts_wall_ms": wall_ms,
        **columns,
    }
