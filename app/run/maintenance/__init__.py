"""Maintenance of a warehouse: compaction, retention, and removal of unneeded files.

The commands `maintain` and `forget`. Start with `upkeep`, which
maintains one table after the other; `compaction`, `retention`, `vacuum` and `logs` each do one
step. `forgetting` replaces names by pseudonyms. Imports `app.read`, `app.config`
and the payloads of `app.engine`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings


def maintain(settings: Settings, dry_run: bool = False, as_json: bool = False) -> int:
    """Maintain every table of the warehouse of `settings`; returns 1 if one could not be
    maintained.
    """
    from app.run.maintenance.maintain_command import maintain_command

    return maintain_command(settings, dry_run, as_json)


def forget(
    settings: Settings,
    names: Mapping[str, Sequence[str]],
    dry_run: bool = False,
    erase: bool = False,
    as_json: bool = False,
) -> int:
    """Replace names, by kind, in every table of the warehouse; returns 1 if a table could not be
    done.
    """
    from app.run.maintenance.forget_command import forget_command

    return forget_command(settings, names, dry_run, erase, as_json)
