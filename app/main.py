"""What spark-submit runs: the commands of `app.cli`, nothing else."""

from __future__ import annotations

import sys

try:
    from pathlib import Path

    HERE = Path(__file__).resolve().parent
    # A script's own folder comes first in the path; there app/errors.py would be a module `errors`.
    sys.path[:] = [p for p in sys.path if not p or Path(p).resolve() != HERE]
    if (HERE / "__init__.py").exists():
        sys.path.insert(0, str(HERE.parent))

    from app.terminal import driver_stderr

    driver_stderr.take()
    from app.cli import main
except KeyboardInterrupt:
    print("weir: interrupted", file=sys.stderr)
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
