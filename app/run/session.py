"""The only builder of Spark sessions; sets every conf that Weir relies on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from app.config.shipped import ROOT
from app.jvm import own_confs
from app.run import s3a
from app.run.executors import await_cores
from app.terminal.printable import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

DELTA = "io.delta.sql.DeltaSparkSessionExtension"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"

OF_QUERY = "stream execution thread for"
"""Begin of the names of Spark's threads of queries."""
OF_MAINTENANCE = "state-store-maintenance-thread"
"""Begin of the names of those that maintain state stores; they wait between two tasks."""
OF_DAEMON = "start of Spark's Python daemon"
DAEMON = "app.setup.daemon"
"""The module that Spark's Python workers are forks of, where they run on this machine."""
END_S = 10.0
"""Time for the first to end and the second to finish their tasks."""

WORKER_PATH = "spark.executorEnv.PYTHONPATH"
WORKER_JOBS = "spark.executorEnv.WEIR_JOBS"
"""The jobs whose cores the daemon loads."""
OPERATOR_ROWS = 1000
"""Blobs that the stateful operator gets in one Arrow batch. With `app.engine.routing.BLOB_BYTES`
the batch stays below Arrow's limit of 2 GiB, whatever a trigger takes.
"""

REQUIRED = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    # Blobs of bytes and int64 columns go to Python through Arrow, never through rows.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark's only limit of rows for every Python stage; `app.sources.batches` joins what is parsed.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(OPERATOR_ROWS),
    # Else a run with an end takes everything in one batch where polls are beside the source.
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
}
"""Confs that the results depend on; the user cannot change them."""

NEVER_LOST = {
    "spark.storage.blockManagerHeartbeatTimeoutMs": str(100 * 365 * 86_400_000),
    "spark.executor.heartbeat.maxFailures": str(2**31 - 1),
}
"""Confs of a driver that is its own executor. Where its clock has stepped ahead for two minutes, the
machine has slept, or files of a shuffle are gone, Spark takes this executor for lost and does not let
it register again, so that the JVM would exit ten minutes later; all else goes on.
"""

PREFERRED = {
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting the rows of a store reads every state once more before it is written.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Payloads make large records: a task holds a few of these batches at a time.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # 50 by default: fifty tasks to read the log of a table of a few files.
    "spark.databricks.delta.snapshotPartitions": "1",
    # One JSON file per micro-batch: a checkpoint every tenth would be most of the work.
    "spark.databricks.delta.properties.defaults.checkpointInterval": "100",
    "spark.databricks.delta.history.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # 10 ms by default: a source without new records was asked a hundred times a second.
    "spark.sql.streaming.pollingDelay": "100",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
}
"""Confs that affect only speed: `--conf` and the cluster's own settings take precedence."""


def build_session(
    settings: Settings,
    app_name: str,
    *,
    master: str | None = None,
    warn: Callable[[str], None] | None = None,
) -> SparkSession:
    """The Spark session of this process, with Delta, UTC and the state store that Weir needs.

    Under spark-submit master, jars and environment come from its command line. Without it (tests,
    notebooks) `master` is local[2] unless given, and the session resolves its jars itself. A cluster is
    waited for until it has executors: their cores decide the partitions of a new warehouse.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        # Only a running JVM has the confs that the command line has set.
        SparkContext._ensure_initialized()
    conf = SparkConf().setAppName(app_name)
    if not submitted:
        conf.setMaster(master or "local[2]").setAll(own_confs())
    is_local = str(conf.get("spark.master", "")).startswith("local")
    of_local = NEVER_LOST if is_local else {}
    for key, value in {**PREFERRED, **of_local, **s3a.confs(settings.location)}.items():
        conf.setIfMissing(key, value)
    if is_local:
        path = [str(ROOT), conf.get(WORKER_PATH), os.environ.get("PYTHONPATH")]
        conf.set(WORKER_PATH, os.pathsep.join(filter(None, path)))
        conf.setIfMissing("spark.python.daemon.module", DAEMON)
    conf.set(WORKER_JOBS, ",".join(settings.jobs)).setAll(list(REQUIRED.items()))
    extensions = [e for e in (conf.get("spark.sql.extensions") or "").split(",") if e]
    if DELTA not in extensions:
        conf.set("spark.sql.extensions", ",".join([*extensions, DELTA]))
    if "://" not in settings.warehouse or settings.warehouse.startswith("file:"):
        # The other manager wants atomic renames of the stores that it was made for.
        conf.setIfMissing("spark.sql.streaming.checkpointFileManagerClass", LOCAL_CHECKPOINTS)
    earlier = signal.getsignal(signal.SIGINT)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler asks the JVM, which a Ctrl-C may have ended already.
        signal.signal(signal.SIGINT, earlier)
    s3a.install(spark)
    cores = await_cores(
        spark, settings.partitions is None, warn or partial(say, file=sys.stderr, flush=True)
    )
    spark.conf.set("spark.sql.shuffle.partitions", str(settings.partitions or cores))
    if spark.conf.get("spark.python.daemon.module", None) == DAEMON:
        threading.Thread(target=_start_daemon, args=(spark,), name=OF_DAEMON).start()
    return spark


def _start_daemon(spark: SparkSession) -> None:
    """Have Spark start its Python daemon, which loads for two to three seconds, while this process
    reads what the run needs.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    # What a task cannot do now the first of the run cannot either, and that one is reported.
    with suppress(PySparkException, Py4JError, OSError):
        spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()


@contextmanager
def spark_session(settings: Settings, app_name: str) -> Iterator[SparkSession]:
    """The Spark session of this process, stopped at the end unless it was there before."""
    from pyspark import SparkContext

    ours = SparkContext._active_spark_context is None
    spark = build_session(settings, app_name)
    try:
        yield spark
    finally:
        if ours:
            stop_session(spark)


def submitted_session(
    settings: Settings, app_name: str
) -> AbstractContextManager[SparkSession | None]:
    """That of a process that spark-submit has started; None in another process."""
    return (
        spark_session(settings, app_name) if "PYSPARK_GATEWAY_PORT" in os.environ else nullcontext()
    )


def stop_session(spark: SparkSession) -> None:
    """Stop the maintenance of Spark's state stores, then Spark.

    The maintenance thread lives as long as the JVM and would log an error once a minute without
    Spark. What it is at work on is only a faster start of the next run, and what Spark logs of
    threads that it stops itself carries no information.
    """
    for thread in threading.enumerate():
        if thread.name == OF_DAEMON:
            thread.join(END_S)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    deadline = time.monotonic() + END_S
    while (
        works := any(map(_is_at_work, jvm.java.lang.Thread.getAllStackTraces().keySet()))
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    log4j = jvm.org.apache.logging.log4j
    configurator = log4j.core.config.Configurator
    level = log4j.LogManager.getRootLogger().getLevel()
    configurator.setRootLevel(log4j.Level.OFF)
    try:
        if not works:  # else it waits for what has just been waited for, for minutes
            jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        spark.stop()
    finally:
        configurator.setRootLevel(level)


def _is_at_work(thread: Any) -> bool:
    """Whether a thread of the JVM still works on a query, which speaks to Spark after its end, or
    on a state store: `StateStore.stop` holds a lock that such a task needs, and waits for it up to
    six minutes.
    """
    name = thread.getName()
    return bool(
        name.startswith(OF_QUERY)
        or (name.startswith(OF_MAINTENANCE) and thread.getState().name() != "WAITING")
    )
