"""The checks of `validate --connect`: paths, brokers, topics and sinks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import folders, http, sources
from app.engine import throttle_publisher
from app.errors import UserError
from app.setup.check import Check, checked
from app.sources.kafka import kafka_probe, quotas_poll
from app.sources.kafka.kafka_client import KafkaClient, deadline_in
from app.sources.kafka.kafka_probe import TIMEOUT_S
from app.sources.kafka.kafka_records import chosen
from app.sources.kafka.offsets import Place
from app.sources.polling import Unanswered
from app.sources.ports import Unreachable, knock
from app.sources.pulsar import topic_client
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
    yield from _sources(settings)
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


def _sources(settings: Settings) -> Iterator[Check]:
    """As a run asks: it starts without a polled feed that fails, unless all feeds do."""
    found = [
        checked(
            f"source {feed.title}" if settings.source[1:] else "source",
            partial(_source, feed, settings.location),
        )
        for feed in settings.feeds
    ]
    starts = any(each.ok for each in found)
    for feed, each in zip(settings.feeds, found, strict=True):
        yield replace(each, needed=not (feed.is_polled and starts))


def _source(feed: SourceSettings, warehouse: Location) -> str:
    note = sources.check(feed, warehouse)
    if feed.format == "kafka_quotas":
        note = quotas_poll.measured(feed)
    if feed.format in ("kafka", "kafka_messages"):
        return _kafka(feed.reader_options())
    if feed.format in ("pulsar", "pulsar_messages"):
        return _pulsar(feed.reader_options())
    if feed.format == "files":
        return _files(str(feed.path))
    if feed.path is not None:
        return f"{feed.path} can be read"
    return "; ".join(filter(None, [f"{feed.format} answers", note]))


def _files(path: str) -> str:
    """Opens one of the files: to list a folder takes less permission than to read."""
    place = Path(path.removeprefix("file://"))
    if "://" in path or not place.exists():
        return f"{path} is there"
    found = [place] if place.is_file() else (file.path for file in folders.files_below(place))
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
    servers, topics = options["kafka.bootstrap.servers"], chosen(options)
    if not topics:
        return f"{servers} answers and has topics that match {options['subscribePattern']}"
    try:
        with kafka_probe.client(options) as opened:
            return ", ".join(_topic(opened, topic) for topic in topics) + f" at {servers}"
    except Unanswered as error:
        raise UserError(
            f"source.options: {', '.join(topics)} at {servers}: {error}\n"
            "the user of the kafka.* security options needs READ and DESCRIBE on the topics"
        ) from None


def _topic(opened: KafkaClient, topic: str) -> str:
    deadline = deadline_in(TIMEOUT_S)
    _, leaders = opened.topics([topic], deadline).only(topic, deadline)
    places = [Place(topic, partition) for partition, _ in leaders]
    ends = kafka_probe.spans(opened, places)
    partition = next((place for place, (low, high) in ends.items() if high > low), None)
    if partition is not None:
        low, high = ends[partition]
        deadline = time.monotonic() + TIMEOUT_S
        parts = list(opened.records([(partition, low, high)], deadline, records=1))
        errors = [error for part in parts for _, error in part.errors]
        if errors:
            raise Unanswered(errors[0].text)
        # Its end is reached behind markers of transactions, which takes the same permission.
        if not any(part.ended for part in parts):
            raise Unanswered(f"no record came within {TIMEOUT_S:.0f} s")
    records = sum(high - low for low, high in ends.values())
    return f"topic {topic} with {len(places)} partitions and {records:,} records"


def _broker(chosen: ReconcileSettings, broker: str) -> str:
    """The metrics of a broker."""
    from app.show.reconcile.scrape import NO_TOPICS, scrape

    try:
        found = scrape(chosen, broker)
    except Unanswered as error:
        address = chosen.brokers[broker]
        raise UserError(f"{address}: {error}\nbrokers, token and timeout_ms decide this") from None
    topics = f"{len(found.topics)} topics" if found.topics else NO_TOPICS
    return f"cluster {found.cluster}, {topics}"


def _sink(sink: Any) -> str:
    """Opens a connection; nothing is sent, because that would be an alert."""
    try:
        origin = http.address(sink.address()).origin
        knock(f"{origin.host}:{origin.port}")
    except (http.NoAnswer, Unreachable) as error:
        raise UserError(f"{sink.title}: {error}\nits host and port decide this") from None
    return f"{sink.title} accepts connections"
