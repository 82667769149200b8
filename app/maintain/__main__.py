"""One round of maintenance in a process of its own, beside a run. Settings come as JSON on standard
input; standard output is one line with the problems.
"""

from __future__ import annotations

import os
import sys

from app.background.rounds import NICENESS
from app.config.settings import Settings
from app.errors import UserError
from app.maintain.upkeep import upkeep
from app.warehouse.run_lock import Busy, only_maintenance


def main() -> int:
    """Maintain the warehouse; returns 2 if that is refused."""
    os.nice(NICENESS)
    settings = Settings.model_validate_json(sys.stdin.read())
    try:
        with only_maintenance(settings):
            done = upkeep(settings)
    except Busy:
        return 0  # whoever maintains it does the same
    except UserError as error:
        print(str(error).splitlines()[0])
        return 2
    problems = [f"{kept.table}: {kept.problem}" for kept in done.tables if kept.problem]
    if problems:
        print("; ".join(problems))
    return 0


if __name__ == "__main__":
    sys.exit(main())
