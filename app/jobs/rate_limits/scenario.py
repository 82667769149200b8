"""The section of the job in the configuration of a generated trace."""

from __future__ import annotations

from typing import Any

from app.demo.generator.trace import Trace


def section(trace: Trace, cache_bytes: int | None) -> dict[str, Any]:
    """With the throttle command where the trace has clients that know it."""
    if any(spec.name == "throttle-command" for spec in trace.scenario.incidents):
        return {"protocol": "pip385", "receipt_model": "observed"}
    return {}
