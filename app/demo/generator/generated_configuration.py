"""The configuration that fits a trace, and its policies: what `run` needs to process it."""

from __future__ import annotations

from typing import Any

from app.demo.generator.trace import Trace
from app.jobs import parts


def document(
    trace: Trace, warehouse: str, source: dict[str, Any], policies: str, cache_bytes: int | None
) -> dict[str, Any]:
    """The configuration as YAML has it; `cache_bytes` where the trace does not name a size."""
    found: dict[str, Any] = {
        "warehouse": warehouse,
        "source": source,
        "queries": [trace.jobs],
        "policy_files": [policies],
    }
    sections = {job: part.section(trace, cache_bytes) for job, part in parts("scenario").items()}
    return found | {job: section for job, section in sections.items() if section}
