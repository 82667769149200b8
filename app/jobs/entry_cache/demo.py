"""What the demo compares on the archived trace: the caches of a bake-off."""

from __future__ import annotations

from app.config.settings import Settings
from app.jobs.entry_cache.whatif.command import BakeoffRequest, compare, keep_rows, rows
from app.read.relations import Warehouse, connect

_READS = "SELECT count(*) FROM cache_stats WHERE hits > 0 OR misses > 0"


def compared(settings: Settings) -> str | None:
    """A sentence on the comparison, which is kept as `bakeoff` does; None if no entry was read."""
    with connect(Warehouse.of(settings.location), _READS) as connection:
        ((reads,),) = connection.execute(_READS).fetchall()
    if not reads:
        return None
    result = compare(settings, BakeoffRequest())
    keep_rows(settings.location, rows(settings, result))
    policies, sizes = ({getattr(p, name) for p in result.points} for name in ("curve", "max_bytes"))
    return (
        f"{len(policies)} eviction policies at {len(sizes)} sizes are compared on the archived "
        "trace: the report draws their hit ratios."
    )
