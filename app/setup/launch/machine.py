"""Whether the Java and the Spark of this machine fit Weir."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from app import folders
from app.errors import UserError

JAVA = range(17, 22)
"""Java versions that Spark 4.0 runs on."""
INSTALL_JAVA = (
    "install it with: apt-get install openjdk-17-jre-headless, "
    "dnf install java-17-openjdk-headless, or brew install openjdk@17"
)


def require_java(spark: str) -> None:
    """UserError unless there is a Java that runs this line of Spark, such as 4.0."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        version = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    except OSError:
        version = None
    if version is None:
        where = f" in JAVA_HOME={home}" if home else ""
        raise UserError(f"Java 17 is missing{where}\n{INSTALL_JAVA}")
    if int(version[1]) not in JAVA:
        raise UserError(
            f"Java {version[1]} ({java}) does not fit Spark {spark}: "
            f"it needs {JAVA[0]} to {JAVA[-1]}\n{INSTALL_JAVA}"
        )


def require_spark_home(home: str, spark: str, scala: str) -> None:
    """UserError unless Spark and Scala of SPARK_HOME are those that the jars are built for."""
    remedy = "unset SPARK_HOME to use Weir's own Spark"
    if not os.access(f"{home}/bin/spark-submit", os.X_OK):
        raise UserError(f"SPARK_HOME={home} has no bin/spark-submit\n{remedy}")
    cores = [path.stem for path in folders.matching(Path(home, "jars"), "spark-core_*.jar")]
    found_scala, _, found_spark = (
        cores[0].removeprefix("spark-core_").partition("-") if cores else ("", "", "")
    )
    if found_scala != scala or not found_spark.startswith(f"{spark}."):
        raise UserError(
            f"Spark {found_spark or 'of unknown version'} with Scala {found_scala or 'unknown'} in "
            f"SPARK_HOME={home} does not fit: Weir's jars are for Spark {spark}.x, Scala {scala}\n"
            f"{remedy}"
        )
