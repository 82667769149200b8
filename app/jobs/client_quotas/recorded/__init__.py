"""What brokers themselves say of client quotas, against the tables of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.jobs.client_quotas.recorded.limits import compare_limits
from app.jobs.client_quotas.recorded.rates import compare_rates
from app.jobs.client_quotas.recorded.throttle_times import compare_throttling
from app.jobs.client_quotas.recorded.windows import RequestWindows, windows_of
from app.show.reconcile.recorded_numbers import Comparison, RecordedSide, Until
from app.show.reconcile.spans import Row
from app.terminal.program import PROGRAM

_REMEDIES = {
    "agreeing": "Weir judges requests as the broker does not. Compare the limits in force"
    f' ({PROGRAM} query "FROM client_quotas_now") and quota.window.num of the broker; look for lines that'
    " the log lacks",
    "rate": "Weir has not the requests that the broker measures: look for what the log leaves out,"
    f" and for {PROGRAM} query coverage",
    "limit": "the cluster's limit holds (0: it has none). Set the file's with"
    f" {PROGRAM} policy export --format kafka-configs, or change the file",
}


def compare_windows(side: RecordedSide) -> tuple[list[Row], Until]:
    """Throttle times and rates of the windows that requests cover whole."""
    windows = windows_of(side)
    if not windows.reasons:
        return [], {}
    each: tuple[Callable[[RecordedSide, RequestWindows], Iterator[Row]], ...] = (
        compare_throttling,
        compare_rates,
    )
    return [row for compare in each for row in compare(side, windows)], windows.until


def remedy(measure: str) -> str:
    """What to do where a number differs."""
    if measure.endswith(("agreeing", "_throttle_ms")):
        return _REMEDIES["agreeing"]
    return _REMEDIES["rate" if "_rate_avg" in measure or "_rate_max" in measure else "limit"]


COMPARISONS: tuple[Comparison, ...] = (compare_limits, compare_windows)
