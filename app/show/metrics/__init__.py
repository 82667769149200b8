"""Metrics for Prometheus: the command `metrics` serves them, and `run` where it is configured.

Start with `exporter`; `catalogue` lists every metric, `kept_figures` keeps figures up to date with the
tables, `health` with the queries of a run. Imports `app.read`, `app.config`, `app.show.alerts` and
`app.sources`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from app.terminal.printable import printable, say

if TYPE_CHECKING:
    from app.config.settings import Settings


def metrics(settings: Settings, once: bool = False, as_json: bool = False) -> int:
    """Serve the metrics of a warehouse until stopped, or print them `once`; 0."""
    from app.show.metrics.serve import print_once, serve

    return print_once(settings, as_json) if once else serve(settings)


def say_to_log(text: str) -> None:
    """A line of the exporter's log."""
    say(printable(f"weir: {text}"), file=sys.stderr, flush=True)
