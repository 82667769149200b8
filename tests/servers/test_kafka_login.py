"""Logins of both releases of Kafka's client in one JVM: that of Spark's connector, and Weir's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.knocking import answering
from app.sources.ports import WrongAnswer
from tests.support.servers.kafka import MECHANISM, PASSWORD, USER, Kafka
from tests.support.servers.process import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
SECURITY = "org.apache.kafka.common.security"
OAUTH = (
    f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="weir";'
)
SCRAM = f'{SECURITY}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that takes tokens that nobody has signed, too."""
    accepts = {
        "sasl.enabled.mechanisms": f"{MECHANISM},OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": OAUTH,
    }
    folder = tmp_path_factory.mktemp("broker")
    with serving(lambda: Kafka(folder, accepts), "Kafka broker") as made:
        yield made


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", MECHANISM])
@pytest.mark.parametrize("weir_first", [True, False])
def test_both_releases_log_in(
    broker: Kafka, spark: SparkSession, mechanism: str, weir_first: bool
) -> None:
    options = {
        "bootstrap.servers": broker.secure_servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(broker.certificate),
        "ssl.endpoint.identification.algorithm": "",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": OAUTH if mechanism == "OAUTHBEARER" else SCRAM,
    }

    def weirs() -> None:
        with closing(KafkaClient(options, 5000)) as client:
            assert client.names(time.monotonic() + 20) is not None

    def sparks() -> None:
        jvm: Any = spark._jvm
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(options)
        admin.describeCluster().clusterId().get(20, jvm.java.util.concurrent.TimeUnit.SECONDS)
        admin.close()

    for logs_in in (weirs, sparks, weirs) if weir_first else (sparks, weirs, sparks):
        logs_in()


def test_a_broker_itself_says_which_key_is_missing(broker: Kafka) -> None:
    secure, plain = broker.secure_servers, broker.servers
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM}

    def said(servers: str, **options: str) -> str:
        found = {key.replace("_", "."): value for key, value in options.items()}
        with pytest.raises(WrongAnswer) as error:
            answering({"bootstrap.servers": servers, **found})
        return str(error.value).removeprefix(f"{servers}: ")

    assert answering({"bootstrap.servers": plain}).servers == [plain]
    assert answering({"bootstrap.servers": secure, **given}).servers == [secure]
    assert said(secure) == "answers as TLS: set security.protocol to SSL or SASL_SSL"
    assert said(secure, security_protocol="SSL").startswith("asks for SASL (")
    assert said(secure, security_protocol="SASL_SSL").startswith("does not take GSSAPI: set sasl.")
    assert said(plain, security_protocol="SASL_PLAINTEXT") == (
        "takes no login: set security.protocol to PLAINTEXT"
    )
    assert said(plain, security_protocol="SSL") == (
        "answers without TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
    )
