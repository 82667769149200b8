"""What Spark is told of an object store follows from the options of the tables."""

from __future__ import annotations

import pytest

from app.config.location import Location
from app.run.s3a import FILES, MANAGER, confs

AMAZONS = {"AWS_REGION": "eu-central-1", "aws_access_key_id": "id"}


def test_amazons_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hush")
    options = {**AMAZONS, "AWS_SECRET_ACCESS_KEY": "${env:SECRET}"}
    assert confs(Location("s3a://lake/weir", options)) == {
        MANAGER: FILES,
        "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
        "spark.hadoop.fs.s3a.access.key": "id",
        "spark.hadoop.fs.s3a.secret.key": "hush",
    }


@pytest.mark.parametrize(("endpoint", "tls"), [("http://h:9000", "false"), ("https://h", "true")])
def test_another_store(endpoint: str, tls: str) -> None:
    found = confs(Location("s3a://lake/weir", {"AWS_ENDPOINT_URL": endpoint}))
    assert found == {
        MANAGER: FILES,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": tls,
    }


def test_the_other_names_of_an_option() -> None:
    options = {"aws_endpoint": "http://h", "AWS_DEFAULT_REGION": "r"}
    found = confs(Location("s3a://lake/weir", options))
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://h"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "r"


def test_the_role_of_a_service_account_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/token")
    assert confs(Location("s3a://lake/weir", {"AWS_REGION": "r"})) == {
        MANAGER: FILES,
        "spark.hadoop.fs.s3a.endpoint.region": "r",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials."
        "WebIdentityTokenFileCredentialsProvider",
    }
    # Keys that are configured take precedence, as they do for delta-rs.
    assert "provider" not in repr(confs(Location("s3a://lake/weir", AMAZONS)))


@pytest.mark.parametrize("uri", ["weir-warehouse", "gs://lake/weir", "abfss://c@a/weir"])
def test_elsewhere_nothing_is_said(uri: str) -> None:
    assert confs(Location(uri, AMAZONS)) == {}
