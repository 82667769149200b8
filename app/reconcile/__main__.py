"""One comparison in a process of its own, for the run beside it: settings come as JSON on the
standard input, the standard output is one line with the problems."""

from __future__ import annotations

import os
import sys
import threading

from app.background.rounds import NICENESS
from app.config.settings import Settings
from app.errors import UserError
from app.reconcile.command import until_next
from app.reconcile.rounds import one_round, own
from app.warehouse.run_lock import Busy, only_reconciliation

NAMED = 3
"""Problems that are named."""


def main() -> int:
    """Wait for the end of the interval and compare; 2 if that is refused."""
    settings = Settings.model_validate_json(sys.stdin.read())
    try:
        with only_reconciliation(settings):
            until_next(own(settings).interval_ms or 1, threading.Event())
            os.nice(NICENESS)
            done = one_round(settings)
    except Busy:
        return 0  # whoever compares does the same
    except UserError as error:
        print(str(error).splitlines()[0])
        return 2
    more = f" and {len(done.problems) - NAMED} more" if len(done.problems) > NAMED else ""
    if done.problems:
        print("; ".join(done.problems[:NAMED]) + more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
