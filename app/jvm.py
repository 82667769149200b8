"""The JVM of this process, in which Spark and Kafka's client run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from app import folders
from app.errors import UserError
from app.jars import IN_SPARK, coordinates
from app.terminal import stray_lines

POLLS_ALONE = 90
"""Exit code of the check before Spark starts, for a run that is well and only polls: little is to be
compiled, and all of its work waits.
"""


def may_start() -> bool:
    """Whether this process may start a JVM: not while spark-submit.sh only checks the input."""
    return "WEIR_PREFLIGHT" not in os.environ


def driver_jvm() -> Any:
    """The gateway's view of the JVM that spark-submit, or a Spark session, has started; of one that
    starts now if there is none, which a later session uses, too."""
    from pyspark import SparkContext

    if SparkContext._jvm is None:
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            SparkContext._ensure_initialized()
        else:
            start()
    return SparkContext._jvm


def start() -> None:
    """Start a JVM; UserError if it does not."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(own_confs())
    filtered = stray_lines.start(sys.executable, ["text"], stdin=subprocess.PIPE, stdout=2)
    assert filtered.stdin is not None
    try:
        gateway = launch_gateway(conf, popen_kwargs={"stderr": filtered.stdin})
    except PySparkRuntimeError:
        raise UserError(
            "no JVM started for Kafka's client (see above)\n"
            "it needs Java 17 to 21, found by JAVA_HOME or PATH"
        ) from None
    finally:
        filtered.stdin.close()  # the JVM has it
    SparkContext._ensure_initialized(gateway=gateway)


def own_confs() -> list[tuple[str, Any]]:
    """Confs of a JVM that this process starts itself."""
    confs = [
        ("spark.driver.extraJavaOptions", os.environ.get("WEIR_JAVA_OPTIONS", "-Xss4m")),
        ("spark.driver.memory", os.environ.get("WEIR_DRIVER_MEMORY", "2g")),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.ui.enabled", "false"),
    ]
    jars = (
        folders.matching(Path(os.environ["WEIR_JARS"]), "*.jar")
        if "WEIR_JARS" in os.environ
        else []
    )
    if jars:
        return [*confs, ("spark.jars", ",".join(map(str, jars)))]
    return [
        *confs,
        ("spark.jars.packages", ",".join(coordinates())),
        ("spark.jars.excludes", ",".join(IN_SPARK)),
    ]
