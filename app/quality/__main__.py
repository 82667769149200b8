"""One audit in a process of its own, for the run beside it: settings come as JSON on the standard
input, the standard output is one line with the result."""

from __future__ import annotations

import os
import sys

from app.background.rounds import NICENESS
from app.config.settings import Settings
from app.errors import UserError
from app.quality.command import audit_warehouse
from app.warehouse.tables import TABLES

NAMED = 5
"""Failed expectations that are named."""


def main() -> int:
    """Audit new data; 2 if that fails."""
    os.nice(NICENESS)
    try:
        rows = audit_warehouse(Settings.model_validate_json(sys.stdin.read()), list(TABLES))
    except UserError as error:
        print(str(error).splitlines()[0])
        return 2
    failed = [f"{row['table']}: {row['expectation']}" for row in rows if not row["success"]]
    more = f" and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    if failed:
        names = "; ".join(failed[:NAMED])
        print(f"{len(failed)} of {len(rows)} expectations failed ({names}{more})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
