"""`python -m app.setup.launch HOME built|unbuilt WORD ...`: what spark-submit.sh runs.

`HOME compile WORD ...` compiles the cores for it, beside the rest of an installation.
"""

from __future__ import annotations

import sys
from pathlib import Path

from app.setup.launch.home import Home
from app.setup.launch.start import compile_cores, main

if __name__ == "__main__":
    folder, state, *words = sys.argv[1:]
    home = Home.of_environment(Path(folder))
    if state == "compile":
        sys.exit(compile_cores(words, home))
    sys.exit(main(words, home, built=state == "built"))
