"""The jars that Spark needs, downloaded once.

Imports nothing outside the standard library and `app`: it is used before the environment exists.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from importlib import metadata
from itertools import chain
from pathlib import Path

from app import folders

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
SCALA = "2.13"
IN_SPARK = (
    "at.yawk.lz4:*",
    "com.fasterxml.jackson.core:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "commons-logging:*",
    "commons-pool:*",
    "io.airlift:*",
    "javax.annotation:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.lz4:*",
    "org.roaringbitmap:*",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
"""Artifacts that Spark ships in its own versions; leaving them out saves three quarters of the
download.
"""
KAFKA_CLIENT = "org.apache.kafka:kafka-clients:4.4.0"
"""The client that asks Kafka (app.sources.kafka). It is on no class path: Spark's connector has an
earlier release there.
"""
OF_KAFKA_CLIENT = "kafka-client"
"""Its folder, in that of the other jars."""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        found = re.search(rf"^{package}==([0-9.]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
        if not found:
            raise LookupError(f"{package} is neither installed nor in {LOCK.name}") from None
        return found[1]


def coordinates() -> tuple[str, ...]:
    """Maven coordinates of the jars that fit the installed pyspark and delta-spark.

    The Kafka connector is that of the first release of the Spark line: the releases of a line are
    compatible, and not every mirror has the later ones.
    """
    line = ".".join(_version("pyspark").split(".")[:2])
    return (
        f"io.delta:delta-spark_{line}_{SCALA}:{_version('delta-spark')}",
        f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{line}.0",
    )


def client_jar() -> Path | None:
    """The jar of KAFKA_CLIENT: in the folder of the jars, or where Spark has brought it to a driver
    on a cluster.
    """
    folder = Path(os.environ.get("WEIR_JARS") or f"{sys.prefix}/share/weir/jars")
    return next(chain(client_jars(folder / OF_KAFKA_CLIENT), client_jars(Path.cwd())), None)


def client_jars(folder: Path) -> list[Path]:
    """The jars of KAFKA_CLIENT in a folder; Ivy puts the organisation before their names."""
    _, name, version = KAFKA_CLIENT.split(":")
    return folders.matching(folder, f"*{name}-{version}.jar")


def fetch(folder: Path, options: list[str]) -> list[Path]:
    """Resolve the jars through Spark's own Ivy, with its cache and settings, into `folder`.

    `options` are those of spark-submit, for mirrors. The folder appears complete or not at all.
    """
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    # Two resolutions: one would leave out the older client.
    _resolve(coordinates(), partial, options)
    _resolve((KAFKA_CLIENT,), partial / OF_KAFKA_CLIENT, options)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folders.matching(folder, "*.jar")


def _resolve(packages: tuple[str, ...], folder: Path, options: list[str]) -> None:
    from pyspark.java_gateway import launch_gateway

    wanted = ["--packages", ",".join(packages), "--exclude-packages", ",".join(IN_SPARK)]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
        ["--master", "local", *wanted, *options, "pyspark-shell"]
    )
    gateway = launch_gateway()
    try:
        found = gateway.jvm.java.lang.System.getProperty("spark.jars") or ""
    finally:
        gateway.shutdown()
    folder.mkdir(parents=True)
    for name in found.split(","):
        path = Path(name.removeprefix("file:").replace("//", "/"))
        shutil.copy2(path, folder / path.name)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        fetch(Path(sys.argv[1]), sys.argv[2:])
    else:
        print(",".join(coordinates()), ",".join(IN_SPARK), sep="\n")
