"""Detects by their ids topics that were deleted and created again.

The offsets of the new topic begin at 0, and Spark continues at the old ones: once the new topic has
as many records, those before would be missing without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.errors import LastingError
from app.sources.kafka.kafka_probe import topic_ids
from app.tables import manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.config.location import Location
    from app.config.source import SourceSettings


def check(feed: SourceSettings, warehouse: Location, names: Sequence[str]) -> None:
    """LastingError for a topic that has been created again since the warehouse began to read it."""
    options = feed.reader_options()
    kept = _kept(warehouse)
    if not kept or options.get("failOnDataLoss", "true").lower() == "false":
        return
    now = topic_ids(options, [name for name in names if name in kept])
    for name, topic in now.items():
        if topic != kept[name]:
            raise LastingError(
                f"source.options: topic {name} was deleted and created again since this warehouse "
                f"has read it (id {kept[name]}, now {topic})\n"
                "take a new warehouse: the tables have the records of the old topic; with "
                "source.options.failOnDataLoss false the run continues at the old offsets"
            )


def claim(feed: SourceSettings, warehouse: Location, names: Sequence[str]) -> None:
    """Record the ids of the topics that the warehouse reads from now on."""
    manifest.keep_topics(warehouse, {**_kept(warehouse), **topic_ids(feed.reader_options(), names)})


def _kept(warehouse: Location) -> dict[str, str]:
    there = manifest.load(warehouse)
    return (there.topics or {}) if there else {}
