"""One round of forecasts in a process of its own, for the run beside it: settings come as JSON on
the standard input; the standard output is empty, or one line with the error."""

from __future__ import annotations

import os
import sys

from app.background.rounds import NICENESS
from app.config.settings import Settings
from app.errors import UserError
from app.forecast.rounds import one_round
from app.warehouse.run_lock import Busy, only_forecast


def main() -> int:
    """Forecast the newest hour and keep the results; 2 if that is refused."""
    os.nice(NICENESS)
    settings = Settings.model_validate_json(sys.stdin.read())
    try:
        with only_forecast(settings):
            one_round(settings).keep(settings)
    except Busy:
        return 0  # the other process forecasts the same hour
    except UserError as error:
        print(str(error).splitlines()[0])
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
