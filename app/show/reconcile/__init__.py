"""Compares what brokers count with what Weir wrote.

The command `reconcile`, and rounds beside a run.

Start with `comparing`: a round reads what is compared and appends the differences to the table
`reconciliation`. `brokers` are those of Pulsar: their metrics (`scrape`), the increases since the
reading before (`spans`), and the same spans in the tables (`counted`;
what a job has is in its room). `cluster` is one of Kafka:
its answers (`cluster_reading`), the tables (`group_tables`), and what a number can be between two readings
(`group_rows`). `recorded_numbers` are those that came with records; what is compared is in the room of the
job. Imports `app.read`, `app.config` and the clients of
`app.sources`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings


def reconcile(
    settings: Settings,
    as_json: bool = False,
    watch: bool = False,
    cluster: str | None = None,
) -> int:
    """Compare once, or repeatedly until SIGTERM or SIGINT; 1 if a number differs, of one cluster
    or all."""
    from app.show.reconcile.reconcile_command import reconcile_command

    return reconcile_command(settings, as_json, watch, cluster)
