"""`python -m app.setup.launch WORD ...`: what spark-submit.sh runs, with any Python 3.11 at first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from app.setup.launch.home import Home
from app.setup.launch.start import main

if __name__ == "__main__":
    home = Home.of_environment(Path(os.environ["WEIR_HOME"]))
    sys.exit(main(sys.argv[1:], home, Path(os.environ["WEIR_LOCK"])))
