"""Spark's Python daemon with Weir's code loaded: `python -m app.setup.daemon pyspark.worker`.

Spark forks its Python workers from a daemon that has loaded no more than Spark. With the compiled
cores in the daemon a worker has them from its first task on and shares their memory with the others;
else each of them loads them in the first micro-batch, at the same time and for two to four seconds.
The variable WEIR_JOBS names the jobs of the run, separated by commas: 15 to 20 MB each.
"""

from __future__ import annotations

import gc
import os

from pyspark import daemon

from app.setup.warm import warm
from app.sources.worker import settle
from state.jobs import JOBS


def main() -> None:
    """Load everything, then do what Spark's daemon does. Standard output is Spark's."""
    os.setpgid(0, 0)  # as Spark's does: Ctrl-C is the driver's
    jobs = os.environ.get("WEIR_JOBS")
    warm(jobs.split(",") if jobs else JOBS)
    gc.collect()
    settle()  # last: what loading has freed returns to the system
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
