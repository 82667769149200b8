"""Table properties that bound the length of a log; every Delta writer follows them.

A reader opens the newest checkpoint and every later commit, at 0.5 ms of CPU a commit. The cost of
a checkpoint grows with the files of the table and those removed within the history: 16 ms for 300
and 3,600. At a commit a second the sum is least with about fifty commits between two checkpoints.
"""

from __future__ import annotations

CHECKPOINT_COMMITS = 50


def log_properties(history_ms: int) -> dict[str, str]:
    """Properties that keep the versions of the last `history_ms` readable."""
    kept = f"interval {-(-history_ms // 1000)} seconds"
    return {
        "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
        "delta.logRetentionDuration": kept,
        # Checkpoints list removed files for as long as this.
        "delta.deletedFileRetentionDuration": kept,
    }
