"""Spark's settings of an object store, from the `storage_options` with which the tables are opened,
and how Spark writes its checkpoints there (`StoreFiles.java`).
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from app.config.location import Location
from app.errors import UserError, reason
from app.tables.object_store import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = "weir.StoreFiles"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
REQUESTS = {
    "get": "action_http_get_request",
    "head": "action_http_head_request",
    "list": "object_list_request",
    "put": "object_put_request",
    "delete": "object_bulk_delete_request",
    "repeated": "store_io_retry",
}
"""Counters of Hadoop's connector."""

S3A = {
    "endpoint_override": "endpoint",
    "region": "endpoint.region",
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
}
"""Settings of Hadoop's connector by the arguments of pyarrow's S3 that mean the same."""


def confs(warehouse: Location) -> Mapping[str, str]:
    """Settings of Spark for the store of a warehouse; secrets are those of the environment."""
    if not warehouse.uri.startswith("s3a://"):
        return {}
    options = {name.upper(): value for name, value in warehouse.storage().items()}
    found = {S3A[argument]: options[name] for name, argument in S3.items() if name in options}
    if "AWS_WEB_IDENTITY_TOKEN_FILE" in os.environ and "access.key" not in found:
        # The role of a service account of Kubernetes: Hadoop's own list leaves it out.
        found["aws.credentials.provider"] = (
            "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
        )
    if "endpoint" in found:
        # As other stores than Amazon's have their buckets, and delta-rs addresses them.
        found |= {
            "path.style.access": "true",
            "connection.ssl.enabled": str(found["endpoint"].startswith("https:")).lower(),
        }
    return {
        MANAGER: FILES,
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in found.items()},
    }


def install(spark: SparkSession) -> None:
    """Give driver and executors the class that writes checkpoints, if it is the one that does.
    UserError without Hadoop's connector.
    """
    from py4j.protocol import Py4JJavaError

    if spark.conf.get(MANAGER, None) != FILES:
        return
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    try:
        compiler.cook(resources.files("app.run").joinpath("StoreFiles.java").read_text("utf-8"))
    except Py4JJavaError as error:
        raise UserError(
            f"warehouse: Spark has no connector for s3a://, or one of another release"
            f" ({reason(error.java_exception.getMessage())})\n"
            "name it: --packages org.apache.hadoop:hadoop-aws:3.4.1, or --jars (docs/operations.md)"
        ) from None
    jar = (
        f"{jvm.org.apache.spark.util.Utils.createTempDir(tempfile.gettempdir(), 'weir')}/store.jar"
    )
    with zipfile.ZipFile(jar, "w") as file:
        for name, content in compiler.getBytecodes().items():
            file.writestr(name.replace(".", "/") + ".class", content)
    loader.addURL(jvm.java.io.File(jar).toURI().toURL())
    spark.sparkContext._jsc.addJar(jar)


def requests(spark: SparkSession) -> dict[str, int]:
    """Requests that this process's Spark has made to a store, by kind; nothing of other file systems."""
    hadoop: Any = spark._jvm.org.apache.hadoop  # type: ignore[union-attr]
    counters = hadoop.fs.GlobalStorageStatistics.INSTANCE.get("s3a")
    return {kind: counters.getLong(name) or 0 for kind, name in REQUESTS.items() if counters}
