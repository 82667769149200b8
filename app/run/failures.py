"""Classifies a failed query: a user error, a passing error or an internal error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app import folders
from app.errors import UserError
from app.tables import manifest
from app.tables.small_files import MAKE_ROOM, MAKE_WRITABLE, local_path
from app.terminal.secrets import ENV, MASK, SECRET

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.config.throttle_feed import ThrottleFeedSettings

_OURS = re.compile(r"app\.[\w.]+\.(?:UserError|Damaged): ([^\n]+(?:\n(?!\s*(?:at |\n|$))[^\n]+)?)")
_PASSING = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network|BrokerNotAvailable"
    r"|LeaderNotAvailable|NotLeaderOrFollower|ReplicaNotAvailable"
    r"|NotEnoughReplicas(?:AfterAppend)?)Exception"
    r"|Cannot fetch record for offset|No resolvable bootstrap urls"
)
_ANSWERS = re.compile(r"ports\.WrongAnswer: ([^\n]+)")
_NO_KAFKA = re.compile(
    r"\b(?:InvalidReceive|CorrelationIdMismatch|Schema|SslAuthentication)Exception(?=: )"
    r"|OutOfMemoryError(?=[^\n]*\n(?:\s+at [^\n]*\n){0,9}\s+at org\.apache\.kafka\.common\.network\.)"
)
"""What Kafka's client meets at a port that has come to speak something else since it was asked."""
_PULSAR_PASSING = re.compile(
    r"_pulsar\.(Timeout|ConnectError|ReadError|NotConnected|LookupError|ServiceUnitNotReady"
    r"|TooManyLookupRequestException|BrokerMetadataError|BrokerPersistenceError|AlreadyClosed"
    r"|ConsumerBusy|ConsumerNotFound|UnknownError)\b"
)
_ARCHIVE = re.compile(r"ArchiveUnwritable: ((.+?): ([^\n]+))")
_NO_ROOM = re.compile(r"No space left on device|Read-only file system")
_GONE = re.compile(r"failOnDataLoss|OffsetOutOfRange")
_OVERFLOW = re.compile(r"ArithmeticException: long overflow")
KAFKA = ("kafka", "kafka_messages")
BEYOND = (
    "delete the records up to it (kafka-delete-records.sh), set source.options.failOnDataLoss false"
    " and start again; message.timestamp.after.max.ms keeps such records out"
)
_FIXABLE = (
    (
        re.compile(r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION"),
        "a topic or partition of source.options is gone\n"
        "a topic that was deleted and created again needs a new warehouse",
    ),
    (
        re.compile(r"(?:Topic|Group|Cluster)AuthorizationException|SaslAuthenticationException"),
        "Kafka refuses this user\nsource.options: the kafka.* security options define it",
    ),
    (
        re.compile(r"_pulsar\.TopicNotFound\b"),
        "a topic of source.options.topics is gone\n"
        "a topic that was deleted and created again needs a new warehouse",
    ),
    (
        re.compile(r"_pulsar\.Auth(?:entication|orization)Error\b"),
        "Pulsar refuses this user\nsource.options: token and the tls* options define it",
    ),
    (
        re.compile(r"DELTA_SOURCE_(?:TABLE_)?IGNORE_(?:CHANGES|DELETE)"),
        "rows of the source table were changed or deleted, which a stream cannot follow\n"
        "source.options.skipChangeCommits true skips such commits",
    ),
    (
        re.compile(r"state of (?P<job>\w+) has version \S+, this release reads \S+"),
        "{found}\ncontinue with the release that wrote it, or begin {new}",
    ),
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        f"no space left on the device of the warehouse\n{MAKE_ROOM}",
    ),
    (
        re.compile(r"Read-only file system"),
        f"the warehouse has become read-only\n{MAKE_WRITABLE}",
    ),
    (
        re.compile(
            r"CONCURRENT_(?:QUERY|STREAM_LOG_UPDATE)|Multiple streaming queries are concurrently using"
            r"|SparkConcurrentModificationException|DELTA_CONCURRENT_\w+|Concurrent(?:Transaction|Append|"
            r"DeleteRead|DeleteDelete|Write)Exception|CommitFailedError"
        ),
        "another process has written to the warehouse at the same time ({found})\n"
        "only one run may work on the queries of a warehouse: stop the other one, then start again",
    ),
)
_WORKER = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure"
    r"|EOFException occurred while reading the port number"
)
_FEED = re.compile(r'throttle_publisher\.py", line \d+, in publish')
_FEED_FIXABLE = (
    (
        re.compile(r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION"),
        "the topic of throttle_feed is gone\n"
        "create it again and start again: the run continues with the batch that could not be sent",
    ),
    (
        re.compile(r"(?:Topic|Cluster)AuthorizationException|SaslAuthenticationException"),
        "Kafka refuses this user\nthrottle_feed.options: the kafka.* security options define it",
    ),
)


class QueryFailed(Exception):
    """A streaming query ended by an internal error."""


class RecordsGone(UserError):
    """Kafka no longer has the records that come next."""


class TimeTooLarge(UserError):
    """Kafka has a record whose timestamp Spark cannot represent."""


class Passing(Exception):
    """A streaming query ended because an external service did not answer; it can start again."""

    what = "Kafka does not answer"
    remedy = "start again when it does: the run continues where it was"
    endless = True
    """Whether a run without an end restarts the query any number of times."""


class BeginsLater(Passing):
    """Records were deleted between the plan of a query's first batch and its reading."""

    what = "the first records were deleted before they were read"
    remedy = "give the topic a longer retention, or start at the latest offset"
    endless = False


class PulsarPassing(Passing):
    """A streaming query ended because Pulsar did not answer; it can start again."""

    what = "Pulsar does not answer"


class WrongPort(Passing):
    """A streaming query has not begun, or has ended, because a port answers something else."""

    what = "a broker's address answers otherwise"


class WorkerDied(Passing):
    """A streaming query ended because a Python worker or an executor was killed."""

    what = "a worker process died"
    remedy = (
        "the system kills processes when memory is short: give it more, or take fewer records in a "
        "batch (source.max_records_per_trigger), and start again: the run continues where it was"
    )
    endless = False


class ArchiveBlocked(Passing):
    """A streaming query ended because a table of the archive cannot be written."""

    what = "the archive cannot be written"
    remedy = "make room or put the table's folder back and start again: the run continues there"


def failure(name: str, text: str, settings: Settings) -> Exception:
    """The exception for the end of query `name` with the error `text`."""
    text = without_secrets(text, settings.source, settings.throttle_feed)
    ours = _OURS.search(text)
    if ours:
        return UserError(ours[1])
    blocked = _ARCHIVE.search(text)
    if blocked and not (_NO_ROOM.search(blocked[3]) and _beside_checkpoints(blocked[2], settings)):
        return ArchiveBlocked(blocked[1])
    feed = _FEED.search(text) is not None
    if not feed and _GONE.search(text):
        return RecordsGone(
            f"query {name}: Kafka no longer holds records that this run has not read yet\n"
            "give the topic a longer retention; with source.options.failOnDataLoss false they are "
            "skipped"
        )
    if not feed and _OVERFLOW.search(text) and settings.feed.format in KAFKA:
        return TimeTooLarge(
            f"query {name}: a record of Kafka has a timestamp beyond the year 294247, which Spark "
            f"cannot read\n{BEYOND}"
        )
    for pattern, message in _FEED_FIXABLE if feed else _FIXABLE:
        found = pattern.search(text)
        if found:
            shown = message.format(found=found[0], new=manifest.filled_anew(settings.location))
            return UserError(f"query {name}: {shown}")
    found = _ANSWERS.search(text)
    if found:
        return WrongPort(found[1])
    found = _NO_KAFKA.search(text)
    if found:
        return WrongPort(f"a broker's address does not answer as Kafka any more ({found[0]})")
    found = _PASSING.search(text)
    if found:
        return Passing(found[0].rpartition(".")[2] + (" of throttle_feed" if feed else ""))
    found = _PULSAR_PASSING.search(text)
    if found:
        return PulsarPassing(found[1])
    found = _WORKER.search(text)
    if found:
        return WorkerDied(found[0])
    return QueryFailed(f"query {name}: {_cause(text)}")


def _beside_checkpoints(folder: str, settings: Settings) -> bool:
    """Whether a table is on the device of the checkpoints, so that no query can go on."""
    root = local_path(settings.warehouse)
    if root is None:
        return False
    table, there = folders.look(Path(folder)), folders.look(root)
    return table is not None and there is not None and table.st_dev == there.st_dev


def without_secrets(
    text: str, source: Sequence[SourceSettings], feed: ThrottleFeedSettings | None
) -> str:
    """The text with every secret of the source's and the throttle feed's options masked."""
    for feed_settings in source:
        text = _masked(text, feed_settings.options, feed_settings.reader_options())
    return text if feed is None else _masked(text, feed.options, feed.writer_options())


def _masked(text: str, written: dict[str, str], resolved: dict[str, str]) -> str:
    for key, value in resolved.items():
        if value and (SECRET.search(key) or ENV.search(written[key])):
            text = text.replace(value, MASK)
    for match in (m for value in written.values() for m in ENV.finditer(value)):
        import os

        if os.environ.get(match[1]):
            text = text.replace(os.environ[match[1]], MASK)
    return text


def _cause(text: str) -> str:
    """The most specific line of a stack trace: the innermost cause."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception): ", line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (python[-1:] or causes[-1:] or lines[:1] or ["no message"])[0][:300]
