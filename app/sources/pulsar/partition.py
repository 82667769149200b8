"""A partition of a Pulsar topic on the driver: its end, and the position of a query in it.

A durable subscription of each query retains unprocessed entries; it advances when a batch has
ended. A position is the last processed entry. Whether records between it and the next entry are
missing can be seen while the position's ledger exists; the broker removes the ledger when every
subscription is past it. Without the ledger nothing is missing if the position was the partition's
last entry at the poll before, or if the subscription continues at the next existing entry.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from app.errors import UserError
from app.sources.pulsar.message_positions import START, Position, bounded
from app.sources.pulsar.topic_client import SECURITY

if TYPE_CHECKING:
    import pulsar

SAMPLED, SAMPLED_ENTRIES = 500, 20
"""Most messages and entries, from the newest on, that are sampled for their size."""
WAIT_MS = 2000
BUSY_S = 30.0
"""Time for the broker to close the connection of an earlier run."""
GONE = "records of source.options.topics are gone"


class Partition:
    """One partition on the driver: its subscription, and where the query is in it."""

    def __init__(
        self,
        client: pulsar.Client,
        topic: str,
        subscription: str,
        ended: Position | None,
        strict: bool,
    ) -> None:
        """`ended` is the position of earlier runs in the partition, if any have read it. `strict`: no
        record after it may be missing.
        """
        self._client, self.topic, self._strict = client, topic, strict
        self._consumer = _subscribe(client, topic, subscription, ended is not None)
        self.position = ended or START
        self._held = self._done = self._at_end = False
        if ended is not None:
            self._resume()

    def last(self) -> Position:
        """The partition's last entry; START if it is empty."""
        at = self._consumer.get_last_message_id()
        if at.ledger_id() < 0 or at.entry_id() < 0:
            return START
        return Position(at.ledger_id(), at.entry_id(), at.batch_index())

    def next_end(self, last: Position, entries: int) -> Position:
        """The end of the next range of at most `entries` entries; `last` is after the position."""
        begin = self.position
        if begin.ledger != last.ledger:
            begin = self._before_next() or begin
        return bounded(begin, last, entries)

    def seen(self, last: Position) -> None:
        """Record the result of a poll."""
        self._at_end = last.place <= self.position.place

    def planned(self, position: Position) -> None:
        """Continue after a position up to which a batch has been planned."""
        if position.place != self.position.place:
            self.position, self._held, self._at_end = position, True, False
            self._done = False

    def processed(self) -> None:
        """Record that a batch up to the position is being processed."""
        self._done = True

    def acknowledge(self) -> None:
        """Advance the subscription to the position, if a batch up to it has ended."""
        if self._done and self._held and self.position.ledger >= 0:
            self._consumer.acknowledge_cumulative(_id(self.position))
            self._held = False

    def sample(self, last: Position) -> list[tuple[int, int]]:
        """Entry and size (bytes) of some of the newest messages."""
        begin = Position(last.ledger, max(last.entry - SAMPLED_ENTRIES, -1))
        found: list[tuple[int, int]] = []
        for message, at in self._after(begin, queue=SAMPLED):
            if len(found) >= SAMPLED or at.place > last.place:
                break
            found.append((at.entry, len(message.data())))
            if at.place == last.place and at.last == last.last:
                break
        return found

    def _resume(self) -> None:
        """Set the subscription to the position of earlier runs, if its ledger exists."""
        self._done = self._held = True
        if self.last().place <= self.position.place:
            self._at_end = True
            return
        self._held = self.position.ledger >= 0 and self._is_there(self.position.ledger)
        if self._held:
            self._consumer.seek(_id(self.position))

    def _before_next(self) -> Position | None:
        """The position before the next message, in its ledger; None if no message comes."""
        there = self._first(self.position)
        if there is None:
            return None
        if there.ledger != self.position.ledger and not self._is_there(self.position.ledger):
            self._require_all(there)
        return Position(there.ledger, there.entry - 1)

    def _is_there(self, ledger: int) -> bool:
        """Whether the topic still has a ledger."""
        there = self._first(Position(ledger, -1))
        return there is not None and there.ledger == ledger

    def _require_all(self, there: Position) -> None:
        """UserError if records between the position, whose ledger is gone, and the next entry may
        be missing.
        """
        if self.position.ledger < 0 or self._at_end or not self._strict:
            return
        if not self._held and self._continues() == there.place:
            return
        raise UserError(
            f"{GONE}: of {self.topic} nothing is left between {self.position}, which this "
            f"warehouse has read last, and {there}\n"
            "the namespace's retention, time to live or backlog quota has removed them, or the "
            "topic or its subscription was created again: take a new warehouse; with "
            "source.options.failOnDataLoss false the run continues with what is there"
        )

    def _continues(self) -> tuple[int, int] | None:
        """The position at which the subscription continues."""
        import pulsar

        try:
            at = self._consumer.receive(WAIT_MS).message_id()
        except pulsar.Timeout:
            return None
        return at.ledger_id(), at.entry_id()

    def _first(self, begin: Position) -> Position | None:
        """The first message after a position."""
        return next((at for _, at in self._after(begin, queue=2)), None)

    def _after(self, begin: Position, queue: int) -> Iterator[tuple[pulsar.Message, Position]]:
        """Messages after a position, each with its own; ends where none comes."""
        import pulsar

        start = _id(begin) if begin.ledger >= 0 else pulsar.MessageId.earliest
        reader = self._client.create_reader(self.topic, start, receiver_queue_size=queue)
        try:
            while True:
                try:
                    message = reader.read_next(WAIT_MS)
                except pulsar.Timeout:
                    return
                at = message.message_id()
                position = Position(at.ledger_id(), at.entry_id(), at.batch_index())
                if position.place > begin.place:
                    yield message, position
        finally:
            reader.close()


def _id(position: Position) -> Any:
    import pulsar

    return pulsar.MessageId(-1, position.ledger, position.entry, -1)._msg_id


def _subscribe(
    client: pulsar.Client, topic: str, subscription: str, resumed: bool
) -> pulsar.Consumer:
    """The consumer that holds the subscription. A subscription that is missing although the
    partition has been read begins at the end, which differs from where the records continue.
    """
    import pulsar

    deadline = time.monotonic() + BUSY_S
    position = pulsar.InitialPosition.Latest if resumed else pulsar.InitialPosition.Earliest
    while True:
        try:
            return client.subscribe(
                topic,
                subscription,
                consumer_type=pulsar.ConsumerType.Exclusive,
                initial_position=position,
                receiver_queue_size=1,
            )
        except pulsar.ConsumerBusy:
            if time.monotonic() > deadline:
                raise UserError(
                    f"source.options.topics: another run reads {topic} with the subscription "
                    f"{subscription}\nstop it, or take another warehouse"
                ) from None
            time.sleep(0.5)
        except (pulsar.AuthorizationError, pulsar.AuthenticationError) as error:
            raise UserError(
                f"Pulsar refuses this user at topic {topic}, subscription {subscription}: "
                f"{type(error).__name__}\n{SECURITY}"
            ) from None
