"""Polls the producer states of a Kafka cluster at an interval, into a spool folder and two tables."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from app.config.kafka_producers import WHERE, KafkaProducersSettings
from app.errors import UserError
from app.sources.kafka import open_transactions
from app.sources.kafka.kafka_client import ATTEMPTS, deadline_in
from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_owners import Grant, OwnersOf, RequestLogs
from app.sources.kafka.producer_states import (
    FEED,
    InMemory,
    MappedProducers,
    ProducerAnswers,
    ProducerRules,
    Row,
    map_answers,
    numbered,
)
from app.sources.kafka.producers_client import ProducersClient
from app.sources.kafka.transactions import Coordinated
from app.sources.kafka.turns import share
from app.sources.polling import Begun, Polling, Report, Unanswered, noted, told
from app.sources.spool import Spool

ID, LAST, WHOLE, OPEN = "id", "last", "whole_ms", "open"
"""Keys of the memory besides topics: the id of the spool, the newest record of a new id, the time of
the newest poll with rows for unchanged states, and the open transactions.
"""
TABLES = {
    "producer_id_live": ("number", "rows"),
    "open_transactions": ("open_number", "open_rows"),
}
"""By table the keys of the memory that have the number of its newest row, and the rows that it may
lack, by poll."""
WHOLE_MS = 900_000
"""Time after which rows for unchanged states are written again, so that a reader of recent rows has
all of them.
"""
HINT = "the kafka.* options, the user's rights and source.producers decide this"
MOST_WAITING = 1000
"""Most polls whose rows wait for a table that cannot be written; the newest are kept."""


class Live(Protocol):
    """The tables `producer_id_live` and `open_transactions`."""

    def append(self, application: str, table: str, rows: list[Row]) -> None:
        """Append the rows of a poll to a table, in the order of their `number`, unless the table has them;
        without rows only create it. Raises UserError where it cannot be written."""
        ...


class ProducerPoller(Polling):
    """Polls all topics together; one file per poll."""

    feed = FEED
    where = WHERE
    what = "partitions"

    def __init__(
        self,
        settings: KafkaProducersSettings,
        options: Mapping[str, str],
        spool_folder: Path | str,
        live: Live,
        say: Callable[[str], None] | None = None,
        tick_ms: int = 0,
        admin: Callable[[threading.Event], ProducersClient] | None = None,
    ) -> None:
        """`options` are those of the client; `tick_ms` as in Rules."""
        super().__init__(
            settings, Spool(Path(spool_folder), settings.cluster, WHERE, InMemory), say
        )
        self._settings = settings
        self._live = live
        # Topics, leaders and states are asked of brokers of which one may hang.
        longest_ms = max(settings.interval_ms, settings.timeout_ms)
        answer_ms = min(settings.timeout_ms, max(longest_ms // (2 * ATTEMPTS), 1))
        make = admin or (lambda stop: ProducersClient(options, answer_ms, stop))
        self._admin = make(self._stopping)
        self._rules = ProducerRules(
            settings.cluster, settings.bytes_per_state, settings.wants_topic, tick_ms
        )
        logs = settings.request_logs
        self._logs = None if logs is None else RequestLogs(logs, settings.time_zone)
        self._grants: list[Grant] = []
        self._unknown = 0

    def close(self) -> None:
        """End the client, and let another process poll into the folder."""
        self._admin.close()
        super().close()

    def _poll(self, begun: Begun, report: Report) -> Path | None:
        memory = self.spool.memory
        self._write_rows(report)
        answers = self.ask(begun.deadline)
        answers.polled_ms = begun.clock_ms()
        owners = self._owners(answers, begun.deadline)
        since_ms = memory.last_poll_ms if memory.last_poll_ms >= 0 else None
        extra = memory.extra = {
            ID: uuid.uuid4().hex,
            LAST: None,
            WHOLE: 0,
            OPEN: {},
            **{number: 0 for number, _ in TABLES.values()},
            **{rows: [] for _, rows in TABLES.values()},
            **memory.extra,
        }
        whole = abs(answers.polled_ms - extra[WHOLE]) >= WHOLE_MS
        if whole:
            extra[WHOLE] = answers.polled_ms
        mapped = map_answers(
            answers, memory.topics, since_ms, extra[LAST], self._rules, owners, whole
        )
        memory.topics = dict(mapped.known)
        memory.last_poll_ms = max(memory.last_poll_ms, answers.polled_ms)
        extra[LAST] = mapped.last
        opened = open_transactions.poll(
            answers.states,
            extra[OPEN],
            answers.names,
            answers.polled_ms,
            self._settings.cluster,
            lambda ids: self._coordinated(ids, begun.deadline, answers.problems),
            owners.of,
            whole,
        )
        extra[OPEN] = opened.kept
        self._keep_rows("producer_id_live", mapped.rows)
        self._keep_rows("open_transactions", opened.rows)
        self._report(report, answers, mapped)
        path = self._commit(begun, mapped.records)
        self._write_rows(report)
        return path

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
        found = map_answers(answers, {}, None, None, self._rules, owners)
        return (
            f"{len(answers.states)} partitions, {found.ids} live producer ids, "
            f"{found.unknown} of them without an owner"
        )

    def ask(self, deadline: float) -> ProducerAnswers:
        """The producer states of the cluster; Unanswered without a list of its topics."""
        answers = ProducerAnswers(names=self._admin.names(deadline))
        wanted = {name for name in answers.names if self._settings.wants_topic(name)}
        answers.leaders = self._admin.leaders(wanted, deadline, answers.problems)
        places = [
            Place(topic, n)
            for topic, leaders in sorted(answers.leaders.items())
            for n in sorted(leaders)
        ]
        # A leader that does not answer leaves time for the ACLs.
        ends = share(deadline, 2) if self._settings.acls else deadline
        answers.states = self._admin.states(places, ends, answers.problems)
        return answers

    def _owners(self, answers: ProducerAnswers, deadline: float) -> OwnersOf:
        """The present source of owners."""
        if self._logs is not None:
            self._logs.read(answers.problems)
        if self._settings.acls:
            problems: list[str] = []
            with noted(problems):
                self._grants = self._admin.grants(deadline)
            answers.problems += [f"{text}; those of an earlier poll are used" for text in problems]
        return OwnersOf(self._settings.owners, self._logs, self._grants)

    def _coordinated(
        self, ids: Collection[int], deadline: float, problems: list[str]
    ) -> Mapping[int, Coordinated] | None:
        """What coordinators know of producer ids; None without an answer."""
        with noted(problems):
            return self._admin.coordinated(ids, deadline)
        return None

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

    def _report(self, report: Report, answers: ProducerAnswers, mapped: MappedProducers) -> None:
        report.records = len(mapped.records)
        report.skipped = len(mapped.skipped)
        report.gone = len(mapped.gone)
        report.polled = len(answers.states)
        report.problems += answers.problems
        if mapped.unknown and not self._unknown:
            self._say(
                f"{self.title}: {mapped.unknown} of {mapped.ids} live producer ids have no owner and "
                f"are counted as unknown; {WHERE}.owners, acls and request_logs name owners"
            )
        self._unknown = mapped.unknown
