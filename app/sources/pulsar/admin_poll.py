"""Polls a Pulsar cluster at an interval and writes its answers into a spool folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from app.config.pulsar_admin import WHERE, PulsarAdminSettings
from app.errors import NotNow, UserError
from app.sources.poll_records import Record
from app.sources.polling import Begun, Polling, Report, Unanswered, noted
from app.sources.ports import missing
from app.sources.pulsar.admin_client import (
    AdminClient,
    NotAllowed,
    NotThere,
    Session,
    namespace_path,
    topic_path,
)
from app.sources.pulsar.admin_documents import FEED, PolledTopic, map_poll
from app.sources.pulsar.admin_policies import (
    PollNames,
    estimated_ages,
    other_name,
    pulsar_cluster,
)
from app.sources.turns import Turns
from udfs.topics import PERSISTENT, normal_topic, split_partition, split_topic

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.config.source import SourceSettings

STATS = "stats?getPreciseBacklog=false&subscriptionBacklogSize=true&getEarliestTimeInBacklog="
TOPIC_POLICIES = ("publishRate", "backlogQuotaMap", "messageTTL")
PORTION, PORTION_S = 100, 5.0
"""Topics that are asked together; records of a longer time are written before the others."""
HINT = "url, token, ca_file, timeout_ms, namespaces, topics and policies decide this"

Poll = dict[str, Any]
Each = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
"""Calls a function for every item, perhaps several at once; the answers in their order."""


@dataclass
class PollScope:
    """The scope of one poll."""

    topics: list[str] = field(default_factory=list)
    listed: dict[str, frozenset[str]] = field(default_factory=dict)
    """By namespace the topics that it has, as answered in this poll."""
    problems: list[str] = field(default_factory=list)


class AdminPoller(Polling[PulsarAdminSettings, AdminClient]):
    """Polls at the check interval, several topics at once; one file per poll."""

    feed, where, kept = FEED, WHERE, PolledTopic

    def __init__(
        self,
        settings: PulsarAdminSettings,
        spool_folder: Path | str,
        say: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(settings, spool_folder, say, lambda stop: AdminClient(settings, stop))
        self._names = PollNames(settings.cluster, settings.broker)
        self._turns = Turns()
        self._has_noted = False

    def check(self) -> str | None:
        """UserError for a broker that does not answer, or refuses the token; nothing is written.

        Returns what is worth a note about a topic that does not answer, the cluster's name and ages.
        """
        note = None
        plan = self._plan(None)
        problems = plan.problems
        if not problems:
            policies = _Policies(self._client, self._settings, None, problems)
            policies.ask(plan.topics[:1], lambda ask, names: [*map(ask, names)])
            note = policies.note(self._names.cluster)
            for topic in plan.topics[:1]:
                try:
                    self._client.session().get(f"{topic_path(topic)}/internalStats")
                except NotAllowed:
                    raise
                except (Unanswered, NotThere) as error:
                    # it does not prevent the start
                    note = "; ".join(filter(None, [f"{topic}: {error}", note]))
        if problems:
            if problems[0].startswith(WHERE):
                raise UserError(problems[0])
            kind = NotNow if ": status 5" in problems[0] else missing(self._settings.url)
            raise kind(f"{WHERE}: {', '.join(self._settings.url)}: {problems[0]}\n{HINT}")
        return note

    def _poll(self, begun: Begun, report: Report) -> Iterable[Record]:
        with ThreadPoolExecutor(self._settings.threads, "pulsar_admin") as pool:

            def each(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
                try:
                    return list(pool.map(function, items))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise

            plan = self._plan(begun.deadline)
            policies = _Policies(self._client, self._settings, begun.deadline, plan.problems)
            policies.ask(plan.topics, each)
            self._note(policies)
            records, answered = self._portions(plan, policies, each, begun, report)
        self._turns.end(answered, plan.topics)
        report.problems += plan.problems
        if plan.problems and not (report.polled or report.gone or report.records or records):
            raise Unanswered(report.problems.pop(0))
        return records

    def _portions(
        self, plan: PollScope, policies: _Policies, each: Each, begun: Begun, report: Report
    ) -> tuple[list[Record], set[str]]:
        """The records of the last portion, when those before are written, and the topics that were
        answered: records that wait for the end of a long poll would be behind those of other feeds.
        """
        asked, answered = plan.topics, set[str]()
        while True:
            until_s = time.monotonic() + PORTION_S
            polls: list[Poll | None] = []
            while asked and (not polls or time.monotonic() < until_s):
                some, asked = asked[:PORTION], asked[PORTION:]
                polls += each(lambda topic: self._ask(topic, plan, begun), some)
            found = [poll for poll in polls if poll is not None]
            answered |= {poll["topic"] for poll in found}
            report.skipped += len(polls) - len(found)
            records = self._map(found, policies, report)
            if not asked:
                return records, answered
            self._commit(begun, records, ends=False)

    def _note(self, policies: _Policies) -> None:
        note = policies.note(self._names.cluster)
        if note is not None and not self._has_noted:
            self._say(f"{self.title}: {note}")
            self._has_noted = True

    # What is polled

    def _plan(self, deadline: float | None) -> PollScope:
        """The topics of this poll: those listed, and those that were there before."""
        plan = PollScope()
        topics: set[str] = set()
        session = self._client.session(deadline)
        for namespace in self._settings.namespaces:
            with noted(plan.problems, f"namespace {namespace}: "):
                names = self._listed(session, namespace, plan.problems)
                plan.listed[namespace] = names
                topics |= {name for name in names if _is_persistent(name)}
        for topic in self._settings.topics:
            with noted(plan.problems, f"{topic}: "):
                topics |= self._partitions(session, topic)
        topics |= {topic for topic in self.spool.memory.topics if self._wanted(topic)}
        # Whoever was left out last time comes first.
        plan.topics = self._turns.sorted(topics)
        return plan

    def _listed(self, session: Session, namespace: str, problems: list[str]) -> frozenset[str]:
        """The topics of a namespace; none where it does not exist."""
        try:
            listed = session.get(f"persistent/{namespace_path(namespace)}")
        except NotThere as error:
            problems.append(f"namespace {namespace}: does not exist ({error})")
            listed = []
        if not isinstance(listed, list):
            raise Unanswered("the list of topics is not a list")
        return frozenset(str(name) for name in listed)

    def _partitions(self, session: Session, topic: str) -> set[str]:
        """The topics of a configured topic: itself, or its partitions."""
        parts = split_topic(topic)
        if parts is None or parts.partition is not None:
            return {topic}
        try:
            answer = session.get(f"{topic_path(topic)}/partitions")
        except NotThere:
            return {topic}
        count = answer.get("partitions") if isinstance(answer, dict) else None
        if not isinstance(count, int):
            raise Unanswered("partitions: is not a number of partitions")
        return {normal_topic(topic, n) for n in range(count)} if count > 0 else {topic}

    def _wanted(self, topic: str) -> bool:
        """Whether the settings include a topic."""
        return _namespace(topic) in self._settings.namespaces or any(
            name in (topic, _base(topic)) for name in self._settings.topics
        )

    # Asking

    def _ask(self, topic: str, plan: PollScope, begun: Begun) -> Poll | None:
        """The documents of a topic; None where one of them did not come."""
        poll: Poll = {"topic": topic}
        with noted(plan.problems, f"{topic}: "):
            found = self._documents(self._client.session(begun.deadline), topic_path(topic))
            if found is not None:
                poll.update(found)
            elif topic in plan.listed.get(_namespace(topic), frozenset()):
                raise Unanswered("is listed but not found")
            else:
                poll["gone"] = True
            poll["polled_ms"] = begun.clock_ms()
            return poll
        return None

    def _documents(self, session: Session, path: str) -> Poll | None:
        """The three documents of a topic; None where two answers are that it does not exist."""
        stats = f"{path}/{STATS}{str(self._settings.publish_times).lower()}"
        try:
            # In this order, whatever the first answer has is known to the others, too.
            found = {
                "internal": session.get(f"{path}/internalStats"),
                "info": session.get(f"{path}/internal-info"),
                "stats": session.get(stats),
            }
        except NotThere as error:
            try:
                session.get(stats)
            except NotThere:
                return None
            raise Unanswered(f"appears or disappears just now ({error})") from None
        for key, document in found.items():
            if not isinstance(document, dict):
                raise Unanswered(f"{key}: the answer is not an object")
        return found

    def _map(self, polls: list[Poll], policies: _Policies, report: Report) -> list[Record]:
        """Records of the polls in the order of their times; the memory moves on."""
        memory = self.spool.memory
        records: list[Record] = []
        for poll in sorted(polls, key=lambda poll: (poll["polled_ms"], poll["topic"])):
            topic = poll["topic"]
            before = memory.topics.get(topic)
            mapped = None
            with noted(report.problems, f"{topic}: "):
                document = {**poll, "policies": policies.of(topic)}
                mapped = map_poll(document, before, memory.policies, self._names)
            if mapped is None:
                report.skipped += 1
                continue
            report.problems += [f"{topic}: {text}" for text in mapped.problems]
            if "gone" not in poll:
                report.polled += 1
            elif before is not None:
                report.gone += 1
            else:
                report.lack("", [topic])
            memory.take(topic, mapped.known, mapped.policies, poll["polled_ms"])
            records += mapped.records
        return records


class _Policies:
    """The policies that hold for the topics of one poll, each asked for once."""

    def __init__(
        self,
        client: AdminClient,
        settings: PulsarAdminSettings,
        deadline: float | None,
        problems: list[str],
    ) -> None:
        self._client = client
        self._scopes = settings.policies
        self._deadline = deadline
        self._problems = problems
        self._broker: Any = None
        self._clusters: Any = None
        self._namespaces: dict[str, Any] = {}
        self._groups: dict[str, Any] = {}
        self._topics: dict[str, Any] = {}

    def ask(self, topics: Sequence[str], each: Each) -> None:
        """Ask for the policies of these topics, through `each`."""
        if "broker" in self._scopes:
            self._broker = self._get("brokers/configuration/runtime")
        names = sorted({_namespace(topic) for topic in topics})
        if "namespace" in self._scopes:
            if pulsar_cluster("", {"broker": self._broker}) is None:
                self._clusters = self._get("clusters", [])  # polls can do without
            found = each(lambda name: self._get(f"namespaces/{namespace_path(name)}"), names)
            self._namespaces = dict(zip(names, found, strict=True))
        groups = sorted({group for name in names if (group := self._group(name))})
        if "resource_group" in self._scopes:
            found = each(lambda name: self._get(f"resourcegroups/{quote(name, safe='')}"), groups)
            self._groups = dict(zip(groups, found, strict=True))
        if "topic" in self._scopes:
            bases = sorted({_base(topic) for topic in topics})
            self._topics = dict(zip(bases, each(self._of_topic, bases), strict=True))

    def of(self, topic: str) -> dict[str, Any]:
        """The documents for one topic, as `map_poll` takes them."""
        group = self._group(_namespace(topic))
        groups = {group: self._groups.get(group)} if group else {}
        return {
            **self.of_cluster(),
            "namespace": self._namespaces.get(_namespace(topic)),
            "resource_group": groups,
            "topic": self._topics.get(_base(topic)),
        }

    def of_cluster(self) -> dict[str, Any]:
        """The documents that hold for every topic."""
        return {"broker": self._broker, "clusters": self._clusters}

    def note(self, cluster: str) -> str | None:
        """What is worth a note about the cluster; None for nothing."""
        documents = self.of_cluster()
        notes = (other_name(cluster, documents), estimated_ages(documents))
        return "; ".join(filter(None, notes)) or None

    def _group(self, namespace: str) -> str | None:
        """The resource group of a namespace."""
        document = self._namespaces.get(namespace)
        name = document.get("resource_group_name") if isinstance(document, dict) else None
        return name if isinstance(name, str) and name else None

    def _of_topic(self, topic: str) -> dict[str, Any] | None:
        """The limits set for a topic itself; None where they are not answered."""
        session = self._client.session(self._deadline)
        with noted(self._problems), suppress(NotThere):
            return {key: session.get(f"{topic_path(topic)}/{key}") for key in TOPIC_POLICIES}
        return None

    def _get(self, path: str, problems: list[str] | None = None) -> Any:
        """One document; None where it is not answered, which is a problem."""
        with noted(self._problems if problems is None else problems), suppress(NotThere):
            return self._client.session(self._deadline).get(path)
        return None


def _namespace(topic: str) -> str:
    """Tenant and namespace of a topic with a full name."""
    tenant, namespace, _ = topic.partition("://")[2].split("/", 2)
    return f"{tenant}/{namespace}"


def _base(topic: str) -> str:
    """The topic that a partition belongs to."""
    return split_partition(topic)[0]


def _is_persistent(topic: str) -> bool:
    parts = split_topic(topic)
    return parts is not None and parts.scheme == PERSISTENT and "://" in topic


def check(feed: SourceSettings, folder: Path) -> str | None:
    """UserError for a cluster that does not answer, and a refused token; returns a note about the
    cluster's name and its ages.
    """
    with closing(AdminPoller(feed.polled, folder)) as asked:
        return asked.check()


def poller(
    settings: Settings, feed: SourceSettings, folder: Path, say: Callable[[str], None] | None
) -> AdminPoller:
    """The poller of a feed."""
    return AdminPoller(feed.polled, folder, say)
