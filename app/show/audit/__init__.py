"""The audit of committed tables: what must hold of them, checked by Great Expectations.

Start with `audit`; `suites` has the checks of every table: what each job declares, what `record_suites`
lists of the others, and what follows from the table definitions. Imports `app.jobs`,
`app.read`, `app.config` and `app.contract`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings


def quality(
    settings: Settings, as_json: bool = False, tables: Sequence[str] = (), again: bool = False
) -> int:
    """Audit the warehouse of `settings`, or some of its tables; 1 if anything failed."""
    from app.show.audit.audit_command import quality_command

    return quality_command(settings, as_json, tables, again)
