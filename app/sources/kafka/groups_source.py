"""Offsets of a Kafka cluster's consumer groups and logs, polled.

Polls run on the driver beside the queries: `app.sources.kafka.groups_poll` writes the records of
each poll as one file into a spool folder, which `app.sources.poll_stream` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from app.config.kafka_groups import WHERE, KafkaGroupsSettings
from app.errors import UserError
from app.jvm import may_start
from app.sources import polled
from app.sources.kafka.knocking import answering
from app.sources.ports import Unreachable
from state.engine.globs import TOPICS, Source, matching

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings
    from app.sources.kafka.groups_poll import GroupPoller


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a cluster that does not answer, or that denies the user a required right."""
    polled.refuse_path(feed)
    with closing(_poller(feed, warehouse)) as asked:
        try:
            answering(groups(feed).client_options())
        except Unreachable as error:
            raise error.of_user(f"{WHERE}: {error}\noptions and timeout_ms decide this") from None
        if may_start():  # else the driver asks, which has a JVM
            asked.check()


def poller(
    settings: Settings, feed: SourceSettings, say: Callable[[str], None] | None = None
) -> GroupPoller:
    """The poller of the feed."""
    # A check is made when the clock of its key passes it.
    ticks = (
        settings.job_params("backlog")["backlogQuotaCheckIntervalInSeconds"] * 1000,
        settings.idle_advance_ms + settings.allowed_lateness_ms,
    )
    return _poller(feed, settings.location, settings.policy_dicts(), say, ticks)


def _poller(
    feed: SourceSettings,
    warehouse: Location,
    policies: Sequence[Mapping[str, Any]] = (),
    say: Callable[[str], None] | None = None,
    ticks: tuple[int, int] | None = None,
) -> GroupPoller:
    # with the client, which no worker needs
    from app.sources.kafka.groups_poll import GroupPoller, Ticks

    chosen = groups(feed)
    return GroupPoller(
        chosen,
        polled.spool_folder(feed, warehouse),
        say,
        own_quotas(policies),
        ticks=None if ticks is None else Ticks(*ticks),
    )


def groups(feed: SourceSettings) -> KafkaGroupsSettings:
    """The settings of the polls."""
    found: KafkaGroupsSettings | None = getattr(feed, "groups", None)
    if found is None:
        raise UserError(f"{WHERE}: is missing, format kafka_groups needs it")
    return found


class OwnQuotas(frozenset[str]):
    """Topics with a configured backlog quota. Topics that match a pattern are included, but not
    listed.
    """

    patterns: Sequence[Source] = ()

    def __contains__(self, topic: object) -> bool:
        return super().__contains__(topic) or bool(
            self.patterns and matching(self.patterns, "topic", str(topic))
        )


def own_quotas(policies: Sequence[Mapping[str, Any]]) -> OwnQuotas:
    """Topics with a configured backlog quota."""
    named = [
        (policy["scope"], policy["name"])
        for policy in policies
        if "backlog_quota" in policy["limits"]
    ]
    found = OwnQuotas(name for scope, name in named if scope == "topic")
    found.patterns = [source for source in named if source[0] == TOPICS]
    return found
