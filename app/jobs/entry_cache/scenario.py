"""The section of the job in the configuration of a generated trace."""

from __future__ import annotations

from typing import Any

from app.demo.generator.trace import Trace


def section(trace: Trace, cache_bytes: int | None) -> dict[str, Any]:
    """The trace has the times of reads and releases; without them a dispatch is both. `cache_bytes`
    is the size where the trace does not name one.
    """
    if trace.cache is None:
        return {}
    size = trace.cache.max_bytes or cache_bytes
    return {
        "release_event": "entry_released",
        **({} if size is None else {"max_bytes": size}),
    }
