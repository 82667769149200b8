"""The command `doctor`: checks that everything that Weir needs is installed and compatible."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import sources
from app.config.settings import shards_for
from app.jars import coordinates
from app.run import integrity
from app.run.session import build_session, stop_session
from app.setup.check import Check, checked
from app.setup.validate import unset_variables
from app.sources.kafka.kafka_client import release
from app.tables import formats, manifest, writable
from app.tables.small_files import local_path
from app.terminal.printable import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings

PACKAGES = (
    "pyspark",
    "delta-spark",
    "deltalake",
    "duckdb",
    "pyarrow",
    "numpy",
    "numba",
    "pandas",
)


def doctor(settings: Settings, as_json: bool) -> int:
    """Run every check; exit code 1 if one fails."""
    spark = build_session(settings, "weir-doctor")
    location = settings.location
    checks = [
        _python(),
        _java(spark),
        _spark(spark),
        _delta(spark),
        _kafka(spark),
        checked("kafka client", release),
        _workers(spark),
        checked("warehouse", lambda: _writable(location)),
        checked("formats", lambda: _last_release(location, settings.jobs)),
        checked(
            "partitions",
            lambda: _numbers(settings.location, settings.partitions, settings.shards, spark),
        ),
        _tables(settings),
        _environment(settings),
    ]
    for feed in settings.polled:
        if feed.format == "kafka_producers":
            checks.append(checked("producers", partial(first_poll, settings, feed)))
    stop_session(spark)
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    for check in () if as_json else checks:
        say(f"{'ok  ' if check.ok else 'FAIL'} {check.name:12} {check.found}")
        if not check.ok and check.remedy:
            say(f"     {'':12} {check.remedy}")
    return 0 if all(check.ok for check in checks) else 1


def _python() -> Check:
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return Check("python", True, f"{platform.python_version()}: {packages}")


def _java(spark: SparkSession) -> Check:
    jvm: Any = spark._jvm
    found = jvm.java.lang.System.getProperty("java.version")
    fits = 17 <= int(found.split(".")[0]) <= 21
    return Check("java", fits, found, "Spark 4.0 needs Java 17 to 21")


def _spark(spark: SparkSession) -> Check:
    line = ".".join(version("pyspark").split(".")[:2])
    context = spark.sparkContext
    found = f"{spark.version} on {context.master}, {context.defaultParallelism} cores"
    return Check("spark", spark.version.startswith(line + "."), found, f"the jars are for {line}.x")


def _delta(spark: SparkSession) -> Check:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table")
        if not (spark.sparkContext.master or "").startswith("local"):
            # Executors elsewhere do not see this folder: having the classes is what can be tested.
            jvm: Any = spark._jvm
            there = type(jvm.io.delta.tables.DeltaTable).__name__ == "JavaClass"
            return Check("delta", there, coordinates()[0], "its jar is not on the class path")
        spark.range(3).coalesce(1).write.format("delta").save(path)
        rows = spark.read.format("delta").load(path).count()
    return Check("delta", rows == 3, coordinates()[0], "a table came back with other rows")


def _kafka(spark: SparkSession) -> Check:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}
    spark.readStream.format("kafka").options(**options).load()
    return Check("kafka", True, coordinates()[1])


def _workers(spark: SparkSession) -> Check:
    """Python, numba and Weir's own code on the workers, as in queries."""
    parts = spark.sparkContext.defaultParallelism
    rows = spark.range(parts, numPartitions=parts).mapInArrow(_on_worker, "found string").collect()
    found = sorted({row.found for row in rows})
    return Check("workers", len(found) == 1, "; ".join(found), "the workers' versions differ")


def _on_worker(batches):  # type: ignore[no-untyped-def]
    import numba
    import numpy as np
    import pyarrow as pa

    from state.events import COLUMNS

    @numba.njit
    def total(values):  # type: ignore[no-untyped-def]
        result = 0
        for value in values:
            result += value
        return result

    for _ in batches:
        compiled = total(np.arange(4)) == 6
        text = f"python {platform.python_version()}, numba {numba.__version__}"
        columns = f"{len(COLUMNS)} event columns" if compiled else "compiled code is wrong"
        yield pa.record_batch({"found": pa.array([f"{text}, {columns}"])})


def _writable(warehouse: Location) -> str:
    folder = local_path(warehouse.uri)
    if folder is None:
        return f"{warehouse.uri} (an object store: not tried)"
    writable.require(warehouse)
    return f"{folder.absolute()} ({'there' if folder.exists() else 'not yet there'})"


def _last_release(warehouse: Location, jobs: Sequence[str]) -> str:
    """Whether this release continues what the last run wrote."""
    formats.check(warehouse, jobs)
    kept = formats.load(warehouse)
    return "no run yet" if kept is None else f"of Weir {kept.weir}"


def _numbers(
    warehouse: Location, partitions: int | None, shards: int | None, spark: SparkSession
) -> str:
    """Whether the configured numbers fit the manifest, which supplies those not configured."""
    kept = manifest.check(warehouse, partitions, shards)
    if kept is None:
        now = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
        return f"{now}, shards {shards_for(now, shards)} (no manifest yet)"
    return f"{kept.partitions}, shards {kept.shards}"


def _tables(settings: Settings) -> Check:
    """Whether everything is there that belongs to the warehouse and its checkpoints, and the tables
    have what the checkpoints have committed to them.
    """
    found = [text.partition("\n") for text in integrity.of_warehouse(settings)]
    firsts = "; ".join(first for first, _, _ in found)
    return Check(
        "tables",
        not found,
        firsts or "as the queries left them",
        "; ".join(dict.fromkeys(remedy for _, _, remedy in found)),
    )


def first_poll(settings: Settings, feed: SourceSettings) -> str:
    """Producer states and their owners, asked for from the JVM as the polls do; nothing is written."""
    from app.sources.kafka.producers_poll import ProducerPoller

    poller = sources.poller(settings, feed)
    assert isinstance(poller, ProducerPoller)
    with closing(poller):
        return poller.look()


def _environment(settings: Settings) -> Check:
    unset = unset_variables(settings)
    found = ", ".join(unset) + " not set" if unset else "every variable of the options is set"
    return Check("environment", not unset, found, "export them before the start")
