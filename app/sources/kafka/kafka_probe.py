"""Looks up topics and records of a Kafka cluster for a start, with short time-outs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from app.errors import UserError
from app.jvm import may_start
from app.sources.kafka.kafka_client import ATTEMPTS, KafkaClient, deadline_in
from app.sources.kafka.knocking import answering
from app.sources.kafka.offsets import Place
from app.sources.polling import Unanswered
from app.sources.ports import Unreachable

TIMEOUT_S = 5.0
SAMPLED_PARTITIONS, SAMPLED_RECORDS = 16, 50
"""Partitions of a topic, and records of a partition, that are sampled for the size of records."""
EVERY = 2**31 - 1
"""No limit of records."""
SEARCH_S = 60.0
"""Time for a search among records."""
ENOUGH = 20
"""Sample size from which a single dominating record is left out."""


def topics(options: Mapping[str, str]) -> frozenset[str] | None:
    """Names of the topics; None where no JVM may start, and a port answers.

    `options` are those of Spark's Kafka source. Raises Unreachable.
    """
    # What does not answer, or not as Kafka, is known at once, and by its own words.
    servers = options["kafka.bootstrap.servers"]
    answering(of_client(options))
    if not may_start():
        return None
    try:
        with client(options) as opened:
            return opened.names(_deadline())
    except Unanswered as error:
        raise Unreachable(f"{servers}: {error}") from None


def topics_or_refusal(options: Mapping[str, str], section: str) -> frozenset[str] | None:
    """As `topics`; UserError in place of Unreachable, with the section of the configuration that has
    the options."""
    try:
        return topics(options)
    except Unreachable as error:
        raise error.of_user(
            f"Kafka {error.how} {error}\n"
            f"{section}: kafka.bootstrap.servers and the kafka.* security options decide this"
        ) from None


def topic_ids(options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The ids of some topics, which change when a topic is created again. Topics without a known id
    are left out: before Kafka 2.8.
    """
    if not names:
        return {}
    with client(options) as opened:
        found, _ = opened.topics(names, _deadline()).result(_deadline())
    return {
        name: topic[0]
        for name, topic in zip(names, found, strict=True)
        if topic is not None and topic[0] is not None
    }


def record_bytes(options: Mapping[str, str], names: Sequence[str]) -> float | None:
    """Mean length of key and value (bytes) of the newest records of some topics.

    None if not known: topics selected by a pattern, empty topics, or no answer.
    """
    if not names:
        return None
    try:
        with client(options) as opened:
            found, _ = opened.topics(names, _deadline()).result(_deadline())
            places = [
                Place(name, partition)
                for name, topic in zip(names, found, strict=True)
                for partition, _ in (topic or (None, ()))[1][:SAMPLED_PARTITIONS]
            ]
            newest = [
                (place, max(low, high - SAMPLED_RECORDS), high)
                for place, (low, high) in spans(opened, places).items()
                if high > low
            ]
            parts = opened.records(newest, _deadline(), SAMPLED_RECORDS)
            return mean_bytes([size for part in parts for _, _, _, size, _ in part.records])
    except (Unanswered, UserError):
        return None


def later_than(
    options: Mapping[str, str], begin: dict[str, Any], end: dict[str, Any], most_ms: int
) -> str | None:
    """Where the first record with a later timestamp is, between offsets as Spark records them
    (topic: partition: offset); None where there is none, or none is found in time.
    """
    places = [
        (Place(topic, int(number)), begin.get(topic, {}).get(number, 0), last)
        for topic, parts in end.items()
        for number, last in parts.items()
    ]
    asked = [each for each in places if each[1] < each[2]]
    try:
        with client(options) as opened:
            deadline = deadline_in(SEARCH_S)
            for part in opened.records(asked, deadline, records=EVERY):
                for number, offset, time_ms, _, _ in part.records:
                    if time_ms is not None and time_ms > most_ms:
                        place = asked[number][0]
                        return (
                            f"{place.topic}, partition {place.partition}, offset {offset}:"
                            f" {time_ms} ms"
                        )
    except (Unanswered, UserError):
        pass
    return None


def require(options: Mapping[str, str]) -> None:
    """UserError for a cluster that does not answer, or refuses the login; as `topics`."""
    try:
        topics(options)
    except Unreachable as error:
        raise error.of_user(f"source.options: {error}\nthe kafka.* options decide this") from None


def of_client(options: Mapping[str, str]) -> dict[str, str]:
    """The `kafka.*` options of Spark's Kafka source by the client's own names."""
    return {k.removeprefix("kafka."): v for k, v in options.items() if k.startswith("kafka.")}


def spans(opened: KafkaClient, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
    """By partition the first offset and the next one; of those that answer."""
    deadline = _deadline()
    requests = [opened.offsets(places, which, deadline) for which in ("first", "next")]
    low, high = (request.result(deadline).values for request in requests)
    return {
        place: (low[n], high[n])
        for n, place in enumerate(places)
        if low[n] is not None and high[n] is not None
    }


@contextmanager
def client(options: Mapping[str, str]) -> Iterator[KafkaClient]:
    """A client with the `kafka.*` options of Spark's Kafka source."""
    opened = KafkaClient(of_client(options), int(TIMEOUT_S * 1000 / ATTEMPTS))
    try:
        yield opened
    finally:
        opened.close()


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


def _deadline() -> float:
    return deadline_in(TIMEOUT_S)
