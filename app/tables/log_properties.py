"""Table properties that bound the length of a log; every Delta writer follows them.

A reader opens the newest checkpoint and every later commit, at 0.5 ms of CPU a commit. The cost of
a checkpoint grows with the files of the table and those removed within the history: 16 ms for 300
and 3,600. At a commit a second the sum is least with about fifty commits between two checkpoints.
"""

from __future__ import annotations

from app.tables.definitions import TABLES

ARCHIVED = "events"
CHECKPOINT_COMMITS = 50
STATS = (
    "ts_wall_ms",
    "ts_mono_ns",
    "cluster",
    "broker",
    "topic",
    "event_type",
    "policy_json",
    "seq",
    "reason_code",
    "source_partition",
    "source_offset",
    "ingest_ms",
)
"""Columns of records that look-ups prune by."""


def log_properties(history_ms: int, name: str) -> dict[str, str]:
    """Properties of a table that keep the versions of the last `history_ms` readable."""
    kept = f"interval {-(-history_ms // 1000)} seconds"
    # Without it a reader gets the statistics of the first 32 columns, and the archive has more.
    pruned = ",".join(column for column in STATS if column in TABLES[name].names)
    by_columns = {"delta.dataSkippingStatsColumns": pruned} if name == ARCHIVED else {}
    return by_columns | {
        "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
        "delta.logRetentionDuration": kept,
        # Checkpoints list removed files for as long as this.
        "delta.deletedFileRetentionDuration": kept,
    }
