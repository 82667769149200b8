"""Transactions that are open in partitions: whose they are, and since when (KIP-664).

A reader of committed data comes to the last stable offset of a partition, which is the first offset
of the oldest transaction that is open there. The leader knows the producer id of that, a
coordinator the transactional id and when it began.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.offsets import OffsetAnswers, OpenTransaction, Place
from app.sources.polling import noted

MOST_NAMED = 500
"""Most partitions of which one poll asks whose transaction is open."""
Kept = dict[str, list[int | str | None]]
"""By partition its last stable offset and the transaction, in the memory of the spool."""


class Coordinated(NamedTuple):
    """What a coordinator knows of a transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """When the transaction that is open began."""
    partitions: frozenset[Place]
    """Those to which it has written."""


def coordinated(
    client: KafkaClient, ids: Collection[int], deadline: float, problems: list[str]
) -> dict[int, Coordinated]:
    """By producer id what coordinators know of some of them; Unanswered without their lists.

    A transactional id that this user may not describe is left out, as one that does not exist.
    """
    listed = {str(name): int(pid) for name, pid, _ in client.transactions(ids, deadline)}
    names = sorted(listed)
    values, errors = client.described(names, deadline).result(deadline)
    problems += [f"transaction {names[n]}: {error.text}" for n, error in errors.items()]
    described = {}
    for name, value in zip(names, values, strict=True):
        if value is not None:
            pid, epoch, state, timeout_ms, start_ms, pairs = value
            places = frozenset(Place(*pair) for pair in pairs)
            described[pid] = Coordinated(name, pid, epoch, state, timeout_ms, start_ms, places)
    return described


def open_at(
    client: KafkaClient, stable: Mapping[Place, int], deadline: float, problems: list[str]
) -> dict[Place, OpenTransaction]:
    """By partition the transaction that begins at its last stable offset, as far as it is answered."""
    places = sorted(stable)[:MOST_NAMED]
    values, errors = client.producers(places, deadline).result(deadline)
    problems += [f"producers of {places[n].text}: {error.text}" for n, error in errors.items()]
    producers = {
        place: pid
        for place, states in zip(places, values, strict=True)
        for pid, _, _, _, start in states or ()
        if start == stable[place]
    }
    if not producers:
        return {}
    by_producer = coordinated(client, set(producers.values()), deadline, problems)
    transactions = {}
    for place, pid in producers.items():
        each = by_producer.get(pid)
        if each is None or place not in each.partitions:
            transactions[place] = OpenTransaction(pid)
        else:
            transactions[place] = OpenTransaction(pid, each.transactional_id, each.start_ms)
    return transactions


class StableOffsets(Protocol):
    """What is asked about the last stable offsets of partitions; GroupsClient asks a cluster."""

    def stable(
        self, places: Collection[Place], deadline: float, problems: list[str]
    ) -> dict[Place, int]:
        """The last stable offsets of some partitions, as far as they are answered."""
        ...

    def open_at(
        self, stable: Mapping[Place, int], deadline: float, problems: list[str]
    ) -> dict[Place, OpenTransaction]:
        """By partition the transaction that begins there, as far as it is answered."""
        ...


class Waiting:
    """Which groups stand at the last stable offset of a partition, from one poll to the next.

    A group passes there all the time. So only offsets that an earlier poll has seen are asked about:
    the transaction has then been open for an interval.
    """

    def __init__(self, client: StableOffsets) -> None:
        self._client = client
        self._stood: dict[tuple[str, Place], int] = {}
        """Offsets of groups behind the end of their log, at the poll before."""

    def poll(self, answers: OffsetAnswers, kept: Kept, deadline: float) -> Kept:
        """Add to the answers of a poll the groups that wait; `kept` is what this has returned at the
        poll before, in this process or another."""
        before = {
            Place.of_text(text): (int(offset), OpenTransaction(*named))  # type: ignore[arg-type]
            for text, (offset, *named) in kept.items()
        }
        now = {
            (group, place): offset
            for group, offsets in answers.committed.items()
            for place, offset in offsets.items()
            if place in answers.logs and offset < answers.logs[place].end
        }
        stood = {
            key: offset
            for key, offset in now.items()
            if self._stood.get(key) == offset or before.get(key[1], (None,))[0] == offset
        }
        self._stood = now
        stable = {place: offset for place, (offset, _) in before.items()}
        places = {place for _, place in stood}
        if places:
            with noted(answers.problems, "last stable offsets: "):
                stable |= self._client.stable(places, deadline, answers.problems)
        waits = {
            key
            for key, offset in stood.items()
            if offset == stable.get(key[1]) and offset < answers.logs[key[1]].end
        }
        named = {place: OpenTransaction() for _, place in waits}
        named |= {p: t for p, (at, t) in before.items() if p in named and at == stable[p]}
        unnamed = {place: stable[place] for place, t in named.items() if t.producer_id is None}
        if unnamed:
            with noted(answers.problems, "open transactions: "):
                named |= self._client.open_at(unnamed, deadline, answers.problems)
        answers.waits = {key: named[key[1]] for key in waits}
        return {place.text: [stable[place], *transaction] for place, transaction in named.items()}
