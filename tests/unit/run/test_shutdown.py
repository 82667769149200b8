"""When a run that was asked to stop takes a batch for finished."""

from __future__ import annotations

from typing import Any

from app.run import shutdown
from app.run.shutdown import Stopping, finish


def report(number: int, *, waiting: bool = False) -> dict[str, Any]:
    """A report of Spark: of a batch that has ended, or of a query that waits for its records."""
    phases = {"latestOffset": 3} if waiting else {"latestOffset": 3, "addBatch": 40}
    return {"batchId": number, "durationMs": phases}


class Busy:
    """A query that always has a batch to run; a look at its status is as long as a batch."""

    name, isActive = "govern", True

    def __init__(self, last: dict[str, Any] | None) -> None:
        self.lastProgress = last
        self.looks = 0

    @property
    def status(self) -> dict[str, Any]:
        """Another batch has ended meanwhile, and the next one runs already."""
        self.looks += 1
        before = self.lastProgress
        number = 0 if before is None else before["batchId"] + shutdown.ended(before)
        self.lastProgress = report(number)
        return {"isTriggerActive": True, "message": "Processing new data"}

    def stop(self) -> None:
        """It ends."""
        self.isActive = False


def test_the_batch_that_runs_is_finished_and_no_other() -> None:
    for last in (None, report(4), report(5, waiting=True)):
        query = Busy(last)
        assert finish([query], Stopping()) == []  # type: ignore[list-item]
        assert query.looks == 1
