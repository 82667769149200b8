"""How long the log of a table is, as properties of the table that every writer of Delta follows.

A reader opens the newest checkpoint and every commit after it, at 0.5 ms of CPU a commit; a writer
pays for a checkpoint by the files that are there and those removed within the history, 16 ms for
300 and 3,600. At a commit a second both together cost least with about fifty commits between two
checkpoints.
"""

from __future__ import annotations

CHECKPOINT_COMMITS = 50


def log_properties(history_ms: int) -> dict[str, str]:
    """The properties of a table whose versions of the last `history_ms` can be read."""
    kept = f"interval {-(-history_ms // 1000)} seconds"
    return {
        "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
        "delta.logRetentionDuration": kept,
        # Checkpoints list removed files for as long as this.
        "delta.deletedFileRetentionDuration": kept,
    }
