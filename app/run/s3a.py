"""Spark's settings of an object store, from the `storage_options` with which the tables are opened."""

from __future__ import annotations

import os
from collections.abc import Mapping

from app.config.location import Location

S3A = {
    "AWS_ENDPOINT": "endpoint",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_DEFAULT_REGION": "endpoint.region",
    "AWS_REGION": "endpoint.region",
    "AWS_ACCESS_KEY_ID": "access.key",
    "AWS_SECRET_ACCESS_KEY": "secret.key",
    "AWS_SESSION_TOKEN": "session.token",
}
"""Settings of Hadoop's connector by the options of delta-rs that mean the same."""


def confs(warehouse: Location) -> Mapping[str, str]:
    """Settings of Spark for the store of a warehouse; secrets are those of the environment."""
    if not warehouse.uri.startswith("s3a://"):
        return {}
    options = {name.upper(): value for name, value in warehouse.storage().items()}
    found = {setting: options[name] for name, setting in S3A.items() if name in options}
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
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in found.items()}
