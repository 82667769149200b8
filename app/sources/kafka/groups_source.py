"""Offsets of a Kafka cluster's consumer groups and logs, polled.

Polls run on the driver beside the queries: `app.sources.kafka.groups_poll` writes the records of
each poll as one file into a spool folder. This module reads these files like any others, so records
keep their identity and a restarted run continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from app.config.kafka_groups import WHERE, KafkaGroupsSettings
from app.errors import UserError
from app.sources import polled
from app.sources.files import line_files
from app.sources.ports import Unreachable, knock
from state.engine.globs import TOPICS, Source, matching

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming import DataStreamReader

    from app.config.settings import Settings
    from app.sources.kafka.groups_poll import GroupPoller
    from app.sources.raw import Raw

NAME = "_weir/kafka_groups"


def check(settings: Settings) -> None:
    """UserError for a cluster that does not answer, or that denies the user a required right."""
    if settings.feed.path is not None:
        raise UserError(
            "source.path: format kafka_groups polls a cluster and reads no path\n"
            "the files of polls that were made before are read with format files"
        )
    with closing(_poller(settings)) as poller:
        try:
            knock(groups(settings).client_options()["bootstrap.servers"])
        except Unreachable as error:
            raise UserError(f"{WHERE}: {error}\noptions and timeout_ms decide this") from None
        poller.check()


def read(reader: DataFrameReader | DataStreamReader, settings: Settings) -> Raw:
    """The records of the polls in the spool folder."""
    records = spool_folder(settings) / "polls"
    records.mkdir(parents=True, exist_ok=True)
    return line_files.read_path(reader, str(records), settings.feed)


def polling(
    settings: Settings, endless: bool, say: Callable[[str], None] | None = None
) -> AbstractContextManager[None]:
    """Poll while the body runs; once before it if the run has an end.

    Does nothing for another source.
    """
    if settings.feed.format != "kafka_groups":
        return nullcontext()
    return polled.polling(_poller(settings, say), endless, say)


def groups(settings: Settings) -> KafkaGroupsSettings:
    """The settings of the polls."""
    found: KafkaGroupsSettings | None = getattr(settings.feed, "groups", None)
    if found is None:
        raise UserError(f"{WHERE}: is missing, format kafka_groups needs it")
    return found


def spool_folder(settings: Settings) -> Path:
    """The folder of the polls: as configured, else below a local warehouse."""
    return polled.spool_folder(settings, groups(settings).spool, WHERE, NAME)


class OwnQuotas(frozenset[str]):
    """Topics with a configured backlog quota. Topics that match a pattern are included, but not
    listed.
    """

    patterns: Sequence[Source] = ()

    def __contains__(self, topic: object) -> bool:
        return super().__contains__(topic) or bool(
            self.patterns and matching(self.patterns, "topic", str(topic))
        )


def own_quotas(settings: Settings) -> OwnQuotas:
    """Topics with a configured backlog quota."""
    named = [
        (policy["scope"], policy["name"])
        for policy in settings.policy_dicts()
        if "backlog_quota" in policy["limits"]
    ]
    found = OwnQuotas(name for scope, name in named if scope == "topic")
    found.patterns = [source for source in named if source[0] == TOPICS]
    return found


def _poller(settings: Settings, say: Callable[[str], None] | None = None) -> GroupPoller:
    from app.sources.kafka.groups_poll import GroupPoller  # with the client, which no worker needs

    return GroupPoller(groups(settings), spool_folder(settings), say, own_quotas(settings))
