"""Compares what brokers count with what Weir wrote.

The command `reconcile`, and rounds beside a run.

Start with `rounds`: a round reads the metrics of every broker (`scrape`), takes the increases since
the reading before (`spans`), counts the same spans in the tables (`counted`), and appends the
differences to the table `reconciliation`. Imports `app.warehouse`, `app.config`, `app.background`
and the client of `app.ingest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings


def reconcile(settings: Settings, as_json: bool = False, watch: bool = False) -> int:
    """Compare once, or repeatedly until SIGTERM or SIGINT; 1 if a number differs."""
    from app.reconcile.command import reconcile_command

    return reconcile_command(settings, as_json, watch)
