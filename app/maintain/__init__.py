"""Maintenance of a warehouse: compaction, retention, and the removal of what nobody needs.

The command `maintain`, and the process that runs beside `run`. Start with `upkeep`: it takes the
tables one by one; `compaction`, `retention`, `vacuum` and `logs` each do one thing to a table.
Imports `app.warehouse`, `app.config` and the payloads of `app.ingest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings


def maintain(settings: Settings, dry_run: bool = False, as_json: bool = False) -> int:
    """Maintain every table of the warehouse of `settings`; 1 if one could not be."""
    from app.maintain.command import maintain_command

    return maintain_command(settings, dry_run, as_json)
