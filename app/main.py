"""What spark-submit runs: the commands of `app.cli`, nothing else."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A script's own folder comes first in the path; there app/tables.py would be a module `tables`.
sys.path[:] = [p for p in sys.path if not p or Path(p).resolve() != HERE]
if (HERE / "__init__.py").exists():
    sys.path.insert(0, str(HERE.parent))

from app.cli import main  # noqa: E402

if __name__ == "__main__":
    if "WEIR_DRIVER_PID" in os.environ:
        # The script that started Spark passes signals on to this process; see its last lines.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        Path(os.environ["WEIR_DRIVER_PID"]).write_text(str(os.getpid()), encoding="ascii")
    sys.exit(main())
