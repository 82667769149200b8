"""The section of the configuration on the source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from app.config import kafka_options, pulsar
from app.config.base import Model, Positive, TimeZone, as_text, resolved, shown
from app.config.kafka_groups import KafkaGroupsSettings
from app.config.kafka_producers import KafkaProducersSettings
from app.config.kafka_quotas import KafkaQuotasSettings
from app.config.pulsar_admin import PulsarAdminSettings
from app.errors import UserError, did_you_mean
from app.terminal.secrets import without_secrets

POLLED = {
    "kafka_groups": "groups",
    "kafka_producers": "producers",
    "kafka_quotas": "quotas",
    "pulsar_admin": "admin",
}
"""Formats of polled feeds, with their sections; a run can have several of them."""
_NAMES_CLUSTER = POLLED | {
    "kafka_logs": "logs",
    "kafka_messages": "messages",
    "pulsar_messages": "messages",
}

KAFKA_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
)


class HeaderNames(Model):
    """Names of the headers with values for columns of the contract."""

    principal: str = "principal"
    producer_name: str = "producer_name"
    producer_id: str = "producer_id"
    uuid: str = "uuid"
    chunk_id: str = "chunk_id"
    num_chunks: str = "num_chunks"
    total_chunk_bytes: str = "total_chunk_bytes"

    @model_validator(mode="after")
    def _apart(self) -> HeaderNames:
        named = list(self.model_dump().values())
        for name in named:
            if named.count(name) > 1:
                raise ValueError(f"{name!r} is the header of more than one column")
        return self


class MessagesSettings(Model):
    """Values for records from ordinary messages (formats kafka_messages and pulsar_messages)."""

    cluster: Annotated[str, Field(min_length=1)] = "kafka"
    broker: Annotated[str, Field(min_length=1)] = "kafka"
    subscription: str | None = None
    headers: HeaderNames = HeaderNames()


BY_FOLDER = "<folder>"


class KafkaLogsSettings(Model):
    """Values for records from a Kafka broker's logs (source format kafka_logs)."""

    cluster: Annotated[str, Field(min_length=1)] = "kafka"
    broker: Annotated[str, Field(min_length=1)] = "kafka"
    """`BY_FOLDER`: each broker's files are in a folder of its name, below the path."""
    time_zone: TimeZone = "UTC"
    """Time zone of the request log's times without an offset."""
    charge_time: Literal["answered", "logged"] = "answered"
    """Time of a client's request: when it was answered, or that of its line."""

    def broker_of(self, file: str) -> str:
        """The broker of a file, which is named from the path on."""
        if self.broker != BY_FOLDER:
            return self.broker
        folder, below, _ = file.partition("/")
        if not below:
            raise UserError(
                f"{file}: is in no folder\nwith source.logs.broker {BY_FOLDER} the files of each"
                " broker are in a folder of its name"
            )
        return folder


GIVES = {
    "kafka_groups": ("ledger_state", "group_state"),
    "kafka_producers": ("produce_batch",),
    "kafka_quotas": ("client_rate",),
    "kafka_logs": ("produce_batch",),
    "kafka_messages": ("publish", "dispatch", "produce_batch"),
    "pulsar_messages": ("publish", "dispatch"),
    "pulsar_admin": ("ledger_state",),
}
"""Kinds of events by format, as far as jobs are fed by them; records of others are of any kind."""
ON_REQUEST = {"kafka_logs": ("client_request",)}
"""Kinds by format that it gives only where a job reads them."""


def listed(document: Any) -> list[tuple[str, Any]]:
    """The feeds of `source` as they are written, each with its place: the list, or the only one.
    One whose `format` is a list stands for a feed of each, and `cluster` may stand at its top.
    """
    if document is None:
        return []
    if not isinstance(document, list):
        return [("", each) for each in _each(document)]
    return [(f"[{n}]", each) for n, feed in enumerate(document) for each in _each(feed)]


def _each(feed: Any) -> list[Any]:
    if not isinstance(feed, dict):
        return [feed]
    formats = feed.get("format")
    if not isinstance(formats, list) or not formats:
        return [_with_cluster(feed)]
    pairs = [(name, POLLED.get(str(name), "")) for name in formats]
    of_others = {section for _, section in pairs}
    return [
        _with_cluster(
            {section: {}}
            | {key: feed[key] for key in feed if key == section or key not in of_others}
            | {"format": name}
        )
        if section
        else _with_cluster({**feed, "format": name})
        for name, section in pairs
    ]


def _with_cluster(feed: dict[str, Any]) -> dict[str, Any]:
    """The feed with the cluster in the section of its format."""
    section = _NAMES_CLUSTER.get(str(feed.get("format")))
    inner = feed.get(section, {}) if section else None
    if "cluster" not in feed or not section or not isinstance(inner, dict) or "cluster" in inner:
        return feed
    rest = {key: value for key, value in feed.items() if key != "cluster"}
    return {**rest, section: {**inner, "cluster": feed["cluster"]}}


class SourceSettings(Model):
    """A feed: where records come from."""

    format: Literal[
        "kafka",
        "kafka_messages",
        "kafka_logs",
        "kafka_groups",
        "kafka_producers",
        "kafka_quotas",
        "pulsar",
        "pulsar_messages",
        "pulsar_admin",
        "files",
        "delta",
    ]
    path: str | None = None
    options: dict[str, str] = {}
    max_records_per_trigger: Positive = 500_000
    max_bytes_per_trigger: Positive = 512 << 20
    messages: MessagesSettings = MessagesSettings()
    logs: KafkaLogsSettings = KafkaLogsSettings()
    admin: PulsarAdminSettings | None = None
    groups: KafkaGroupsSettings | None = None
    producers: KafkaProducersSettings = KafkaProducersSettings()
    quotas: KafkaQuotasSettings = KafkaQuotasSettings()

    _text = field_validator("options", mode="before")(as_text)

    @model_validator(mode="before")
    @classmethod
    def _options_of_groups(cls, document: Any) -> Any:
        """Options of kafka_groups may stand where those of the other Kafka sources do."""
        if not isinstance(document, dict) or document.get("format") != "kafka_groups":
            return document
        options, groups = document.get("options"), document.get("groups", {})
        if not isinstance(options, dict) or not isinstance(groups, dict) or "options" in groups:
            return document
        left = {key: value for key, value in options.items() if not key.startswith("kafka.")}
        clients = {key.removeprefix("kafka."): options[key] for key in options.keys() - left}
        return {**document, "options": left, "groups": {**groups, "options": clients}}

    @model_validator(mode="after")
    def _complete(self) -> SourceSettings:
        kafka_options.refuse(self.options, "kafka.")
        if self.format == "kafka_groups" and self.options:
            raise ValueError(
                f"options.{min(self.options)}: format kafka_groups takes kafka.*, unless "
                "groups.options has them"
            )
        if self.format in ("files", "delta", "kafka_logs") and not self.path:
            raise ValueError(f"path: is missing, format {self.format} needs it")
        if self.format == "kafka_groups" and self.groups is None:
            raise ValueError("options.kafka.bootstrap.servers: is missing (host:port,...)")
        if self.format == "pulsar_admin" and self.admin is None:
            raise ValueError("admin: is missing, format pulsar_admin needs it")
        if self.format == "pulsar":
            pulsar.refuse_wrong(self.options, pulsar.PULSAR_OPTIONS)
        if self.format == "pulsar_messages":
            pulsar.refuse_wrong(self.options, pulsar.MESSAGES_OPTIONS)
        if self.format in ("kafka", "kafka_messages"):
            if "kafka.bootstrap.servers" not in self.options:
                raise ValueError("options.kafka.bootstrap.servers: is missing (host:port,...)")
            chosen = [k for k in ("subscribe", "subscribePattern", "assign") if k in self.options]
            if len(chosen) != 1:
                raise ValueError("options: exactly one of subscribe, subscribePattern, assign")
            for key in self.options:
                if not key.startswith("kafka.") and key not in KAFKA_OPTIONS:
                    hint = did_you_mean(key, ("kafka.*", *KAFKA_OPTIONS))
                    raise ValueError(f"options.{key}: unknown option ({hint})")
        if self.format in ("kafka_producers", "kafka_quotas"):
            if "kafka.bootstrap.servers" not in self.options:
                raise ValueError("options.kafka.bootstrap.servers: is missing (host:port,...)")
            for key in self.options:
                if not key.startswith("kafka."):
                    raise ValueError(
                        f"options.{key}: unknown option (format {self.format} takes kafka.*)"
                    )
        return self

    @property
    def is_polled(self) -> bool:
        """Whether the driver polls a cluster for it."""
        return self.format in POLLED and self.path is None

    def feeds(self, kinds: Sequence[str], otherwise: bool) -> bool:
        """Whether it gives events of one of these kinds; `otherwise` where it may give any."""
        given = GIVES.get(self.format)
        return otherwise if given is None else not set(given).isdisjoint(kinds)

    def gives_any(self, kinds: Collection[str]) -> bool:
        """Whether it may give an event of one of the kinds that a job reads."""
        given = GIVES.get(self.format)
        return given is None or not {*given, *self.on_request}.isdisjoint(kinds)

    @property
    def on_request(self) -> tuple[str, ...]:
        """Further kinds, which are read only for jobs that read them."""
        return ON_REQUEST.get(self.format, ())

    @property
    def section(self) -> str:
        """The name of the section on the polls, for a format of `POLLED`."""
        return POLLED[self.format]

    @property
    def polled(self) -> Any:
        """That section."""
        return getattr(self, self.section)

    @property
    def title(self) -> str:
        """The source's name in the log: its cluster, topics or path, without secrets."""
        if self.is_polled:
            return f"{self.format} {self.polled.cluster}"
        topics = (
            self.options.get(key) for key in ("subscribe", "subscribePattern", "assign", "topics")
        )
        place = next(filter(None, (*topics, self.path)), None)
        return self.format if place is None else f"{self.format} {without_secrets(place)}"

    def reader_options(self) -> dict[str, str]:
        """Options for the reader, with secrets from the environment."""
        return resolved(self.options, "source.options")

    def display(self) -> dict[str, Any]:
        """These settings for printing, secrets masked."""
        plain = {**self.model_dump(), "options": shown(self.options)}
        if self.admin is not None:
            plain["admin"] = self.admin.display()
        if self.groups is not None:
            plain["groups"] = self.groups.display()
        return plain

    def __repr_args__(self) -> Any:
        return [
            (name, shown(self.options) if name == "options" else value)
            for name, value in super().__repr_args__()
        ]
