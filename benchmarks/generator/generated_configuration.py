"""The configuration that fits a trace, and its policies: what `run` needs to process it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.generator.trace import Trace
from benchmarks.generator.write import write_policies, write_yaml

POLICIES = "policies.yaml"
FILES_PER_BATCH = 10
"""Several micro-batches, as in a service, so that late records are quarantined."""
CACHE_BYTES = 8 << 20
"""Of the caches of a trace that does not name a size."""
OWNERS = [
    {"namespace": "shop/orders", "team": "team-orders"},
    *({"tenant": name, "team": f"team-{name}"} for name in ("shop", "media", "bank")),
    {"principal": "etl-*", "team": "team-data"},
    {"principal": "pricing", "team": "team-pricing"},
]
"""Who owns the topics and users of the demo's fleet."""


def document(trace: Trace, warehouse: str, events: str) -> dict[str, Any]:
    """The configuration as YAML has it, of the events in a folder."""
    found: dict[str, Any] = {
        "warehouse": warehouse,
        "source": {
            "format": "files",
            "path": events,
            "options": {"maxFilesPerTrigger": FILES_PER_BATCH},
        },
        "queries": [trace.jobs],
        "policy_files": [POLICIES],
    }
    if trace.cache is not None:
        # The trace has the times of reads and releases; without them a dispatch is both.
        found["entry_cache"] = {
            "release_event": "entry_released",
            "max_bytes": trace.cache.max_bytes or CACHE_BYTES,
        }
    return found | {"owners": OWNERS}


def write_config(trace: Trace, out: Path) -> Path:
    """Write policies and configuration of a run on the events in `out/events`; the path of the
    configuration."""
    write_policies(trace, out / POLICIES)
    path, here = out / "weir.yaml", out.absolute()
    found = document(trace, str(here / "warehouse"), str(here / "events"))
    write_yaml(path, "# For `run --config FILE --available-now --drain`.", found)
    return path
