"""The audit of committed tables: what must hold of them, checked by Great Expectations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.settings import Settings


def quality(settings: Settings, as_json: bool = False) -> int:
    """Audit the warehouse of `settings` in a Spark session of its own; 1 if anything failed."""
    from app.quality.audit import quality_command
    from app.session import build_session
    from app.warehouse import Warehouse

    warehouse = Warehouse.of(settings)
    # Before a JVM starts: a wrong path is answered at once.
    warehouse.require()
    spark = build_session(settings, "weir-quality")
    try:
        return quality_command(spark, warehouse, as_json)
    finally:
        spark.stop()
