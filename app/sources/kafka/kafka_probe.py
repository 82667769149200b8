"""Looks up the topics of a Kafka cluster before Spark starts, with short time-outs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from app.sources.ports import Unreachable, knock

TIMEOUT_S = 5.0
SAMPLED_PARTITIONS, SAMPLED_RECORDS = 16, 50
"""Partitions of a topic, and records of a partition, that are sampled for the size of records."""
SEARCH_S, SEARCHED_RECORDS = 60.0, 10_000
"""Time for a search among records, and how many are taken at once."""
WAIT_S = 0.5
"""The longest time for which records are awaited at once."""
PROBE = "weir-probe"
"""The group that a reader names and never joins."""
ENOUGH = 20
"""Sample size from which a single dominating record is left out."""
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Placeholder for a topic without an id."""
SAME = {
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "client.id",
    "ssl.endpoint.identification.algorithm",
}
"""Options of the Java client that librdkafka knows by the same name and meaning."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")


def topics(options: dict[str, str]) -> set[str] | None:
    """Names of the topics; None where only the Java client could log in, and a port answers.

    `options` are those of Spark's Kafka source. Raises Unreachable.
    """
    # A refused connection and an unknown host are known at once, and by their own words.
    knock(options["kafka.bootstrap.servers"])
    client = client_options(options)
    return None if client is None else _listed(client)


def topic_ids(options: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """The ids of some topics, which change when a topic is created again. Topics without a known id
    are left out: before Kafka 2.8, or if only the Java client can log in.
    """
    client = client_options(options)
    if client is None or not names:
        return {}
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
    found = {}
    with AdminClient({**client, **quiet}) as admin:
        asked = admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_S)
        for name, answer in asked.items():
            with suppress(KafkaException):
                found[name] = str(answer.result(TIMEOUT_S).topic_id)
    return {name: topic for name, topic in found.items() if topic != NO_ID}


def record_bytes(options: dict[str, str], names: list[str]) -> float | None:
    """Mean length of key and value (bytes) of the newest records of some topics.

    None if not known: topics selected by a pattern, empty topics, or a cluster where only the Java
    client can log in.
    """
    client = client_options(options)
    if client is None or not names:
        return None
    from confluent_kafka import KafkaException, TopicPartition

    newest = {}
    try:
        with consumer(client, PROBE) as opened:
            known = opened.list_topics(timeout=TIMEOUT_S).topics
            for name in (name for name in names if name in known):
                for partition in list(known[name].partitions)[:SAMPLED_PARTITIONS]:
                    place = TopicPartition(name, partition)
                    low, high = opened.get_watermark_offsets(place, timeout=TIMEOUT_S)
                    newest[name, partition] = max(low, high - SAMPLED_RECORDS), high
            return mean_bytes(
                [
                    len(message.value() or b"") + len(message.key() or b"")
                    for message in _records(opened, newest, TIMEOUT_S, SAMPLED_RECORDS)
                ]
            )
    except KafkaException:
        return None


def later_than(
    options: dict[str, str], begin: dict[str, Any], end: dict[str, Any], most_ms: int
) -> str | None:
    """Where the first record with a later timestamp is, between offsets as Spark records them
    (topic: partition: offset); None where there is none, or where only the Java client can log in.
    """
    client = client_options(options)
    if client is None:
        return None
    from confluent_kafka import KafkaException

    places = {
        (topic, int(number)): (begin.get(topic, {}).get(number, 0), last)
        for topic, parts in end.items()
        for number, last in parts.items()
    }
    try:
        with consumer(client, PROBE) as opened:
            for message in _records(opened, places, SEARCH_S, SEARCHED_RECORDS):
                if message.timestamp()[1] > most_ms:
                    return (
                        f"{message.topic()}, partition {message.partition()}, offset"
                        f" {message.offset()}: {message.timestamp()[1]} ms"
                    )
    except KafkaException:
        pass
    return None


@contextmanager
def consumer(client: Mapping[str, Any], group: str) -> Iterator[Any]:
    """A consumer that reads partitions to their ends and commits nothing; `client` are the options
    of the connection.
    """
    from confluent_kafka import Consumer

    opened = Consumer(
        {
            **client,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            "error_cb": lambda _: None,
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def _records(
    opened: Any, places: Mapping[tuple[str, int], tuple[int, int]], seconds: float, at_once: int
) -> Iterator[Any]:
    """The records of partitions between two offsets of each, as many as come in this time; so many
    are awaited at once.
    """
    from confluent_kafka import TopicPartition

    left = {place for place, (begin, end) in places.items() if begin < end}
    deadline = time.monotonic() + seconds
    opened.assign([TopicPartition(*place, places[place][0]) for place in sorted(left)])
    while left and time.monotonic() < deadline:
        for message in opened.consume(at_once, timeout=WAIT_S):
            place = str(message.topic()), int(message.partition() or 0)
            if message.error() is not None or message.offset() >= places[place][1] - 1:
                left.discard(place)
            if message.error() is None:
                yield message


def mean_bytes(sizes: Sequence[int]) -> float | None:
    """The mean of a sample; None if it is empty.

    A record that outweighs all others together is left out if there are enough others: a single
    record of 100 MB would make every batch small.
    """
    if not sizes:
        return None
    total, largest, count = sum(sizes), max(sizes), len(sizes)
    if count >= ENOUGH and largest > total - largest:
        total, count = total - largest, count - 1
    return total / count


def client_options(options: dict[str, str]) -> dict[str, Any] | None:
    """The same connection for librdkafka; None where it has no equal (JKS stores, Kerberos, …)."""
    kafka = {k.removeprefix("kafka."): v for k, v in options.items() if k.startswith("kafka.")}
    client: dict[str, Any] = {key: value for key, value in kafka.items() if key in SAME}
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    if "SASL" in protocol:
        if kafka.get("sasl.mechanism", "GSSAPI").upper() not in MECHANISMS:
            return None
        login = {
            key: quoted or single
            for key, quoted, single in _LOGIN.findall(kafka.get("sasl.jaas.config", ""))
        }
        client |= {f"sasl.{key}": re.sub(r"\\(.)", r"\1", value) for key, value in login.items()}
    if "SSL" in protocol:
        stores = {
            key: kafka.get(f"ssl.{key}.type", "JKS").upper()
            for key in ("truststore", "keystore")
            if f"ssl.{key}.location" in kafka
        }
        if any(kind != "PEM" for kind in stores.values()):
            return None
        if "truststore" in stores:
            client["ssl.ca.location"] = kafka["ssl.truststore.location"]
        if "ssl.truststore.certificates" in kafka:
            client["ssl.ca.pem"] = kafka["ssl.truststore.certificates"]
        if "keystore" in stores:
            client["ssl.certificate.location"] = kafka["ssl.keystore.location"]
            client["ssl.key.location"] = kafka["ssl.keystore.location"]
        if "ssl.key.password" in kafka:
            client["ssl.key.password"] = kafka["ssl.key.password"]
        client.setdefault("ssl.endpoint.identification.algorithm", "https")
        if client["ssl.endpoint.identification.algorithm"] == "":
            client["ssl.endpoint.identification.algorithm"] = "none"
    return client


def _listed(client: dict[str, Any]) -> set[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reasons: list[str] = []

    def on_error(error: Any) -> None:
        reasons.append(error.str())

    quiet: dict[str, Any] = {
        "log_level": 0,
        "error_cb": on_error,
        "socket.timeout.ms": int(TIMEOUT_S * 1000),
    }
    with AdminClient({**client, **quiet}) as admin:
        try:
            return set(admin.list_topics(timeout=TIMEOUT_S).topics)
        except KafkaException as error:
            admin.poll(0)  # now `on_error` is called with what led to it
            admin_reason = reasons[0] if reasons else error.args[0].str()
            raise Unreachable(_short(admin_reason, client)) from None


def _short(reason: str, client: dict[str, Any]) -> str:
    """The reason on one line, and without a password that a broker might repeat."""
    text = " ".join(reason.split())
    for key in ("sasl.password", "ssl.key.password"):
        if client.get(key):
            text = text.replace(client[key], "********")
    return text[:200]
