"""The checks of `validate --connect`: paths, brokers, topics and sinks."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from app import sources
from app.config.base import ENV
from app.engine import throttle_publisher
from app.errors import UserError
from app.setup.check import Check, checked
from app.sources.kafka.kafka_probe import TIMEOUT_S, client_options, consumer
from app.sources.kafka.kafka_records import chosen
from app.sources.polling import Unanswered
from app.sources.ports import Unreachable
from app.sources.pulsar import admin_source, topic_client
from app.tables import manifest, writable

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.reconcile import ReconcileSettings
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.config.throttle_feed import ThrottleFeedSettings


def ask(settings: Settings, unset: Sequence[str]) -> Iterator[Check]:
    """A check per part of the configuration that depends on something outside it."""
    if unset:
        # Whatever needs one of them could not be opened.
        names = ", ".join(unset)
        yield Check("environment", False, f"{names} not set", "export them before the start")
    yield checked(
        "warehouse", lambda: _warehouse(settings.location, settings.partitions, settings.shards)
    )
    yield checked("source", lambda: _source(settings.feed, settings.location))
    if settings.throttle_feed is not None:
        yield checked("throttle_feed", partial(_throttle_feed, settings.throttle_feed))
    if settings.reconcile is not None:
        for broker in settings.reconcile.brokers:
            yield checked(
                f"reconcile.brokers.{broker}", partial(_broker, settings.reconcile, broker)
            )
    for number, sink in enumerate(settings.alerts.http_sinks):
        yield checked(f"alerts.sinks[{number}]", partial(_sink, sink))


def _throttle_feed(feed: ThrottleFeedSettings) -> str:
    throttle_publisher.check(feed)
    return f"topic {feed.topic} is there"


def _warehouse(warehouse: Location, partitions: int | None, shards: int | None) -> str:
    manifest.check(warehouse, partitions, shards)
    writable.require(warehouse)
    return f"{warehouse.uri} can be written"


def _source(feed: SourceSettings, warehouse: Location) -> str:
    if feed.format == "pulsar_admin":
        note = admin_source.answer(feed, warehouse)
        if feed.path is None:
            return "; ".join(filter(None, ["pulsar_admin answers", note]))
    else:
        sources.check(feed, warehouse)
    if feed.format in ("kafka", "kafka_messages"):
        return _kafka(feed.reader_options())
    if feed.format in ("pulsar", "pulsar_messages"):
        return _pulsar(feed.reader_options())
    if feed.format == "files":
        return _files(str(feed.path))
    return f"{feed.format} answers" if feed.path is None else f"{feed.path} can be read"


def _files(path: str) -> str:
    """Opens one of the files: to list a folder takes less permission than to read."""
    place = Path(path.removeprefix("file://"))
    if "://" in path or not place.exists():
        return f"{path} is there"
    found = [place] if place.is_file() else (p for p in sorted(place.rglob("*")) if p.is_file())
    first = next(iter(found), None)
    if first is None:
        return f"{path} has no files yet"
    try:
        with first.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UserError(
            f"source.path: {first} cannot be read ({error.strerror})\n"
            "the user of the run needs to read every file"
        ) from error
    return f"{path} can be read"


def _pulsar(options: dict[str, str]) -> str:
    """The topics, which a reader can be opened on."""
    found = topic_client.check(options, topic_client.TIMEOUT_MS)
    topics = (f"topic {topic} with {count} partitions" for topic, count in found.items())
    return ", ".join(topics) + f" at {options['serviceUrl']}"


def _kafka(options: dict[str, str]) -> str:
    """The end offsets of the topics, as a consumer gets them; a record is read if there is one."""
    servers = options["kafka.bootstrap.servers"]
    client, topics = client_options(options), chosen(options)
    if client is None:
        return f"{servers} accepts connections (only the Java client can log in)"
    if not topics:
        return f"{servers} answers and has topics that match {options['subscribePattern']}"
    from confluent_kafka import KafkaException

    try:
        return ", ".join(_topic(client, topic) for topic in topics) + f" at {servers}"
    except (KafkaException, Unreachable) as error:
        inner = error.args[0]
        reason = inner.str() if hasattr(inner, "str") else str(inner)
        raise UserError(
            f"source.options: {', '.join(topics)} at {servers}: {reason}\n"
            "the user of the kafka.* security options needs READ and DESCRIBE on the topics"
        ) from None


def _topic(client: dict[str, Any], topic: str) -> str:
    from confluent_kafka import KafkaException, TopicPartition

    with consumer(client, "weir-validate") as opened:
        found = opened.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        ends = {
            p: opened.get_watermark_offsets(TopicPartition(topic, p), timeout=TIMEOUT_S)
            for p in found.partitions
        }
        partition = next((p for p, (low, high) in ends.items() if high > low), None)
        if partition is not None:
            opened.assign([TopicPartition(topic, partition, ends[partition][0])])
            message = opened.poll(TIMEOUT_S)
            if message is None:
                raise Unreachable(f"no record came within {TIMEOUT_S:.0f} s")
            # -191: its end has been reached, which takes the same permission.
            error = message.error()
            if error is not None and error.code() != -191:
                raise KafkaException(error)
    records = sum(high - low for low, high in ends.values())
    return f"topic {topic} with {len(ends)} partitions and {records:,} records"


def _broker(chosen: ReconcileSettings, broker: str) -> str:
    """The metrics of a broker."""
    from app.show.reconcile.scrape import scrape

    try:
        found = scrape(chosen, broker)
    except Unanswered as error:
        address = chosen.brokers[broker]
        raise UserError(f"{address}: {error}\nbrokers, token and timeout_ms decide this") from None
    return f"cluster {found.cluster}, {len(found.topics)} topics"


def _sink(sink: Any) -> str:
    """Opens a connection; nothing is sent, because that would be an alert."""
    address = sink.address() if ENV.search(sink.url) else sink.url
    parts = urlsplit(address)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=TIMEOUT_S).close()
    except OSError as error:
        raise UserError(
            f"{sink.title}: {error.strerror or error}\nits host and port decide this"
        ) from None
    return f"{sink.title} accepts connections"
