"""Polls the producer states of a Kafka cluster at an interval, into a spool folder and two tables."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config.kafka_producers import WHERE, KafkaProducersSettings
from app.errors import UserError
from app.sources.kafka import open_transactions
from app.sources.kafka.kafka_client import answer_time_ms, deadline_in, named
from app.sources.kafka.kafka_probe import of_client, require
from app.sources.kafka.live_tables import TABLES, LiveTables
from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_owners import Grant, OwnersOf, RequestLogs
from app.sources.kafka.producer_states import (
    FEED,
    InMemory,
    ProducerAnswers,
    ProducerRules,
    Row,
    map_answers,
    numbered,
)
from app.sources.kafka.producers_client import ProducersClient
from app.sources.kafka.transactions import Coordinated
from app.sources.poll_records import Record
from app.sources.polling import Begun, Polling, Report, Unanswered, noted, told
from app.sources.turns import share

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.config.source import SourceSettings

ID, LAST, WHOLE, OPEN = "id", "last", "whole_ms", "open"
"""Keys of the memory besides topics: the id of the spool, the newest record of a new id, the time of
the newest poll with rows for unchanged states, and the open transactions.
"""
WHOLE_MS = 900_000
"""Time after which rows for unchanged states are written again, so that a reader of recent rows has
all of them.
"""
STAGES = 2
"""Waits of a poll for all brokers: topics with their leaders, and states."""
HINT = "the kafka.* options, the user's rights and source.producers decide this"
MOST_WAITING = 1000
"""Most polls whose rows wait for a table that cannot be written; the newest are kept."""


class ProducerPoller(Polling[KafkaProducersSettings, ProducersClient]):
    """Polls all topics together; one file per poll."""

    feed, where, what, kept = FEED, WHERE, "partitions", InMemory

    def __init__(
        self,
        settings: KafkaProducersSettings,
        options: Mapping[str, str],
        spool_folder: Path | str,
        live: LiveTables,
        say: Callable[[str], None] | None = None,
        tick_ms: int = 0,
        admin: Callable[[threading.Event], ProducersClient] | None = None,
    ) -> None:
        """`options` are those of the client; `tick_ms` as in Rules."""
        answer_ms = answer_time_ms(settings, STAGES)
        make = admin or (lambda stop: ProducersClient(options, answer_ms, stop))
        super().__init__(settings, spool_folder, say, make)
        self._live = live
        self._rules = ProducerRules(
            settings.cluster, settings.bytes_per_state, settings.wants_topic, tick_ms
        )
        logs = settings.request_logs
        self._logs = None if logs is None else RequestLogs(logs, settings.time_zone)
        self._grants: list[Grant] = []
        self._unknown = 0

    def _poll(self, begun: Begun, report: Report) -> Iterable[Record]:
        memory = self.spool.memory
        self._write_rows(report)
        answers = self.ask(begun.deadline)
        answers.polled_ms = begun.clock_ms()
        owners = self._owners(answers, begun.deadline)
        since_ms = memory.last_poll_ms if memory.last_poll_ms >= 0 else None
        extra = memory.extra = {**_nothing_kept(), **memory.extra}
        whole = abs(answers.polled_ms - extra[WHOLE]) >= WHOLE_MS
        if whole:
            extra[WHOLE] = answers.polled_ms
        mapped = map_answers(
            answers, memory.topics, since_ms, extra[LAST], self._rules, owners.of, whole
        )
        memory.topics = dict(mapped.known)
        memory.last_poll_ms = max(memory.last_poll_ms, answers.polled_ms)
        extra[LAST] = mapped.last
        self._keep_rows("producer_id_live", mapped.rows)
        self._transactions(answers, owners, whole, begun.deadline)
        report.count(len(answers.states), mapped.skipped, mapped.gone, answers.problems)
        report.lack("topic ", named(self._settings.topics) - answers.names - mapped.gone)
        if mapped.unknown and not self._unknown:
            self._say(
                f"{self.title}: {mapped.unknown} of {mapped.ids} live producer ids have no owner and "
                f"are counted as unknown; {WHERE}.owners, acls and request_logs name owners"
            )
        self._unknown = mapped.unknown
        return mapped.records

    def _transactions(
        self, answers: ProducerAnswers, owners: OwnersOf, whole: bool, deadline: float
    ) -> None:
        """Keep what is known of open transactions, and its rows."""

        def coordinated(ids: Collection[int]) -> Mapping[int, Coordinated] | None:
            """What coordinators know of producer ids; None without an answer."""
            with noted(answers.problems):
                return self._client.coordinated(ids, deadline)
            return None

        opened = open_transactions.poll(
            answers.states,
            self.spool.memory.extra[OPEN],
            answers.names,
            answers.polled_ms,
            self._settings.cluster,
            coordinated,
            owners.of,
            whole,
        )
        self.spool.memory.extra[OPEN] = opened.kept
        self._keep_rows("open_transactions", opened.rows)

    def _ended(self, report: Report) -> None:
        self._write_rows(report)

    def _known(self) -> int:
        return sum(len(known.parts or ()) for known in self.spool.memory.topics.values())

    def look(self) -> str:
        """The result of a first poll in words; nothing is written.

        Raises UserError if a request is not answered.
        """
        deadline = deadline_in(2 * self._settings.timeout_ms / 1000)
        try:
            answers = self.ask(deadline)
        except Unanswered as error:
            raise UserError(f"{error}\n{HINT}") from None
        owners = self._owners(answers, deadline)
        if answers.problems:
            raise UserError(f"{answers.problems[0]}\n{HINT}")
        found = map_answers(answers, {}, None, None, self._rules, owners.of)
        return (
            f"{len(answers.states)} partitions, {found.ids} live producer ids, "
            f"{found.unknown} of them without an owner"
        )

    def ask(self, deadline: float) -> ProducerAnswers:
        """The producer states of the cluster; Unanswered without a list of its topics."""
        answers = ProducerAnswers(names=self._client.names(deadline))
        wanted = {name for name in answers.names if self._settings.wants_topic(name)}
        answers.leaders = self._client.leaders(wanted, deadline, answers.problems)
        places = [
            Place(topic, n)
            for topic, leaders in sorted(answers.leaders.items())
            for n in sorted(leaders)
        ]
        # A leader that does not answer leaves time for the ACLs.
        ends = share(deadline, 2) if self._settings.acls else deadline
        answers.states = self._client.states(places, ends, answers.problems)
        return answers

    def _owners(self, answers: ProducerAnswers, deadline: float) -> OwnersOf:
        """The present source of owners."""
        if self._logs is not None:
            self._logs.read(answers.problems)
        if self._settings.acls:
            problems: list[str] = []
            with noted(problems):
                self._grants = self._client.grants(deadline)
            answers.problems += [f"{text}; those of an earlier poll are used" for text in problems]
        return OwnersOf(self._settings.owners, self._logs, self._grants)

    def _keep_rows(self, table: str, unnumbered: list[Row]) -> None:
        """Put rows of a poll into the memory, until they are in their table."""
        if unnumbered:
            extra = self.spool.memory.extra
            number, waiting = TABLES[table]
            rows = list(numbered(unnumbered, extra[number] + 1))
            extra[number] += len(rows)
            extra[waiting] = [*extra[waiting], rows][-MOST_WAITING:]

    def _write_rows(self, report: Report) -> None:
        """Append rows that the tables may lack, and remove the appended ones from the memory."""
        extra = self.spool.memory.extra
        if not extra:
            return
        for table, (_, waiting) in TABLES.items():
            try:
                for rows in [[], *extra.get(waiting, [])]:
                    self._live.append(f"weir-{FEED}-{extra[ID]}", table, rows)
                    extra[waiting] = [each for each in extra.get(waiting, []) if each is not rows]
            except Exception as error:  # noqa: BLE001 - the poll goes on without its rows
                report.problems.append(f"{table}: {told(error)}")


def _nothing_kept() -> dict[str, Any]:
    """The memory of a spool that begins."""
    numbers = {number: 0 for number, _ in TABLES.values()}
    rows: dict[str, list[Any]] = {rows: [] for _, rows in TABLES.values()}
    return {ID: uuid.uuid4().hex, LAST: None, WHOLE: 0, OPEN: {}, **numbers, **rows}


def check(feed: SourceSettings, folder: Path) -> None:
    """UserError for a cluster that does not answer, or refuses the login.

    It is asked before there is a JVM, so rights on topics are reported by the polls.
    """
    require(feed.reader_options())


def poller(
    settings: Settings, feed: SourceSettings, folder: Path, say: Callable[[str], None] | None
) -> ProducerPoller:
    """The poller of a feed; it asks from the JVM of this process' Spark session."""
    options = of_client(feed.reader_options())
    live = LiveTables(settings.location, settings.maintenance.history_ms)
    # A window's rows are written when the clock of its key passes its end.
    tick_ms = settings.stats_window_ms + settings.idle_advance_ms + settings.allowed_lateness_ms
    return ProducerPoller(feed.producers, options, folder, live, say, tick_ms)
