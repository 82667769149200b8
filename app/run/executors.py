"""The cores that a cluster gives this application."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTLED_S, PROMISED_S = 5.0, 60.0
"""How long no further executor must have come: of any number, and of one that is configured."""
SILENT_S = 20.0


def come_by_themselves(spark: SparkSession) -> bool:
    """Whether a cluster gives executors before there are tasks, as it does without dynamic allocation."""
    return not (
        (spark.sparkContext.master or "local").startswith("local")
        or spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    )


def await_cores(spark: SparkSession, all_of_them: bool, warn: Callable[[str], None]) -> int:
    """Wait for the first executor, or until no more come; the number of cores then."""
    context = spark.sparkContext
    registered: Any = context._jsc.sc()
    wanted = int(context.getConf().get("spark.executor.instances") or 0)
    most = int(context.getConf().get("spark.cores.max") or 0)
    begun = since = time.monotonic()
    found, told = 0, False
    if all_of_them and spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        warn(
            "dynamic allocation gives no executors before there are tasks: a warehouse that begins"
            f" now has {context.defaultParallelism} partitions for its life; set partitions to the"
            " cores that the run may have, or spark.dynamicAllocation.enabled=false"
        )
    while come_by_themselves(spark):
        now, executors = time.monotonic(), registered.getExecutorMemoryStatus().size() - 1
        if executors != found:
            found, since = executors, now
        if found and (
            not all_of_them
            or found >= wanted > 0
            or context.defaultParallelism >= most > 0
            or now - since >= (PROMISED_S if wanted else SETTLED_S)
        ):
            break
        if not found and not told and now - begun >= SILENT_S:
            warn(
                f"{context.master} has given this application no executor for {SILENT_S:.0f} s: all"
                " cores are taken (limit each application by spark.cores.max), or no worker has the"
                " memory of one (spark.executor.memory)"
            )
            told = True
        time.sleep(0.1)
    return context.defaultParallelism
