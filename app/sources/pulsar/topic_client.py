"""Connections to Pulsar through its own client, by the options of a source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from app.config.pulsar import topic_names
from app.errors import NotNow, UserError
from app.sources.ports import Unreachable, refuse_wrong
from app.sources.pulsar.pulsar_port import brokers

if TYPE_CHECKING:
    import pulsar

Options = dict[str, str]
_clients: dict[tuple[tuple[str, str], ...], pulsar.Client] = {}
TIMEOUT_MS = 5000
"""Time limit of a request before Spark starts (ms)."""
SECURITY = "source.options: token and the tls* options define it"


def connect(options: Options, timeout_ms: int | None = None) -> pulsar.Client:
    """A new client; nothing is sent yet. `timeout_ms` limits each request, unless the options
    do. WrongAnswer where something else than Pulsar answers: the client allocates what that says.
    """
    import pulsar

    refuse_wrong(partial(brokers, options["serviceUrl"]))
    authentication = None
    if "token" in options:
        authentication = pulsar.AuthenticationToken(options["token"])
    elif "tlsCertificateFilePath" in options:
        authentication = pulsar.AuthenticationTLS(
            options["tlsCertificateFilePath"], options["tlsKeyFilePath"]
        )
    timeout_ms = int(options.get("operationTimeoutMs", timeout_ms or 30_000))
    return pulsar.Client(
        options["serviceUrl"],
        authentication,
        operation_timeout_seconds=max(round(timeout_ms / 1000), 1),
        connection_timeout_ms=int(options.get("connectionTimeoutMs", min(timeout_ms, 10_000))),
        tls_trust_certs_file_path=options.get("tlsTrustCertsFilePath"),
        tls_allow_insecure_connection=options.get("tlsAllowInsecureConnection") == "true",
        tls_validate_hostname=options.get("tlsHostnameVerificationEnable", "true") == "true",
        listener_name=options.get("listenerName"),
        # What is wrong comes back as an error; the client's own log goes nowhere.
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )


def client_of_process(options: Options) -> pulsar.Client:
    """The one client of this process for these options."""
    key = tuple(sorted(options.items()))
    if key not in _clients:
        _clients[key] = connect(options)
    return _clients[key]


@contextmanager
def closing(client: pulsar.Client) -> Iterator[pulsar.Client]:
    """Close the client at the end, whatever happens."""
    try:
        yield client
    finally:
        client.shutdown()


def partitions(client: pulsar.Client, topic: str) -> dict[int, str]:
    """The topics that a topic consists of, by partition; itself as 0 if it is not partitioned."""
    names = client.get_topic_partitions(topic)
    return {number_of(name, topic): name for name in names}


def number_of(name: str, topic: str) -> int:
    """The partition of a topic that a name stands for."""
    return 0 if name == topic else int(name.rpartition("-partition-")[2])


def check(options: Options, timeout_ms: int) -> dict[str, int]:
    """The number of partitions of each topic; UserError for topics that cannot be read."""
    import pulsar

    address = options["serviceUrl"]
    try:
        brokers(address)
    except Unreachable as error:
        raise error.of_user(
            f"Pulsar {error.how} {error}\n"
            "source.options: serviceUrl, token and the tls* options decide this"
        ) from None
    with closing(connect(options, timeout_ms)) as client:
        found = {}
        for topic in topic_names(options):
            try:
                there = partitions(client, topic)
                client.create_reader(
                    there[min(there)], pulsar.MessageId.latest, receiver_queue_size=1
                ).close()
            except pulsar.exceptions.PulsarException as error:
                raise refused(error, address, topic) from None
            found[topic] = len(there)
    return found


def refused(error: Exception, address: str, topic: str) -> UserError:
    """The UserError for an error of the client at a topic."""
    kind = type(error).__name__
    if kind in ("TopicNotFound", "NotFound"):
        return UserError(
            f"source.options.topics: {topic} does not exist at {address}\n"
            "create it, or name one that is there"
        )
    if kind in ("AuthenticationError", "AuthorizationError"):
        return UserError(
            f"Pulsar refuses this user at {address}, topic {topic}: {kind}\n{SECURITY}"
        )
    return NotNow(
        f"Pulsar does not answer at {address}: {reason(error)}\n"
        "source.options: serviceUrl, token and the tls* options decide this"
    )


def reason(error: Exception) -> str:
    """The words of the client for an error."""
    return str(error).removeprefix("Pulsar error: ")
