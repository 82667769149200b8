"""Transactions that are open in partitions: whose they are, and since when (KIP-664).

A reader of committed data comes to the last stable offset of a partition, which is the first offset
of the oldest transaction that is open there. The leader knows the producer id of that, a
coordinator the transactional id and when it began. A transaction may have the next offsets of a group,
too: they are in a partition of the topic __consumer_offsets, which follows from the name of the group,
and its coordinator answers that they are not settled (KIP-447).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.offsets import PENDING_OFFSETS, SHARE, OffsetAnswers, OpenTransaction, Place
from app.sources.polling import Unanswered, noted
from app.sources.turns import share

if TYPE_CHECKING:
    from app.sources.kafka.groups_client import GroupsClient

MOST_NAMED = 500
"""Most partitions of which one poll asks whose transaction is open."""
OFFSETS = "__consumer_offsets"
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""States of a transaction that has not ended."""
Kept = list[list[Any]]
"""Of each group that waits its name, topic, partition, offset and transaction, in the memory of the
spool."""
Held = tuple[str, Place]
"""A group and a partition."""


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
    client: KafkaClient, ids: Collection[int], deadline: float
) -> dict[int, Coordinated]:
    """By producer id what coordinators know of some of them; Unanswered where one does not answer, since
    its transactions would look like those of nobody.

    A transactional id that this user may not describe is left out, as one that does not exist.
    """
    names, missing = client.transactions(ids, deadline)
    described = _described(client, names, deadline, missing)
    if missing:
        raise Unanswered(missing[0])
    return described


def _described(
    client: KafkaClient, names: Sequence[str], deadline: float, missing: list[str]
) -> dict[int, Coordinated]:
    """By producer id what coordinators know of transactional ids; what is not answered is `missing`."""
    found = client.described(names, deadline).result(deadline).of(names, "transaction", missing)
    described = [
        Coordinated._make([name, *value[:-1], frozenset(Place(*pair) for pair in value[-1])])
        for name, value in found.items()
    ]
    return {each.producer_id: each for each in described}


def open_at(
    client: KafkaClient, stable: Mapping[Place, int], deadline: float, problems: list[str]
) -> dict[Place, OpenTransaction]:
    """By partition the transaction that begins at its last stable offset, as far as it is answered."""
    places = sorted(stable)[:MOST_NAMED]
    held_in = client.producers(places, deadline).result(deadline)
    producers = {
        place: pid
        for place, states in held_in.of(places, "producers of", problems).items()
        for pid, _, _, _, start in states
        if start == stable[place]
    }
    if not producers:
        return {}
    by_producer = coordinated(client, set(producers.values()), deadline)
    transactions = {place: OpenTransaction(pid) for place, pid in producers.items()}
    for place, pid in producers.items():
        each = by_producer.get(pid)
        if each is not None and place in each.partitions:
            transactions[place] = OpenTransaction(pid, each.transactional_id, each.start_ms)
    return transactions


def held(
    client: KafkaClient,
    stood: Iterable[Held],
    before: Mapping[Held, OpenTransaction],
    since_ms: int,
    deadline: float,
    problems: list[str],
) -> dict[Held, OpenTransaction]:
    """Of groups that stand in partitions those whose next offset is in a transaction that was open at
    `since_ms`; one without a name where more than one may have it. Where an answer is missing, those
    that were held `before` are so still."""
    names, missing = client.transactions((), share(deadline, 2), OPEN)
    missing = [text for text in missing if "UnsupportedVersion" not in text]  # brokers before 3.0
    if len(names) > MOST_NAMED:
        problems.append(
            f"pending offsets: {len(names) - MOST_NAMED:,} of {len(names):,} open transactions"
            " are left out"
        )
    open_in = [
        (
            place.partition,
            OpenTransaction(t.producer_id, t.transactional_id, t.start_ms, PENDING_OFFSETS),
        )
        for t in _described(client, names[:MOST_NAMED], deadline, missing).values()
        for place in t.partitions
        if place.topic == OFFSETS and t.start_ms is not None and t.start_ms <= since_ms
    ]
    found: dict[Held, OpenTransaction] = {}
    if open_in:
        _, leaders = client.topics([OFFSETS], deadline).only(OFFSETS, deadline)
        asked: dict[str, list[Place]] = {}
        by_group: dict[str, OpenTransaction] = {}
        for group, place in stood:
            partition = offsets_partition(group, len(leaders))
            if named := [transaction for n, transaction in open_in if n == partition]:
                by_group[group] = (
                    named[0] if len(named) == 1 else OpenTransaction(holds=PENDING_OFFSETS)
                )
                asked.setdefault(group, []).append(place)
        answered = client.settled(asked, deadline).result(deadline)
        found = {
            (group, place): by_group[group]
            for group, settled in answered.of(list(asked), "group", missing).items()
            for place in asked[group]
            if str(place.partition) not in settled.get(place.topic, {})
        }
    problems += missing
    return {**before, **found} if missing else found


def offsets_partition(group: str, partitions: int) -> int:
    """The partition of the topic of offsets in which a group has its own: Java's hash of its name."""
    text, number = group.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(text), 2):
        number = (31 * number + int.from_bytes(text[at : at + 2], "big")) & 0xFFFFFFFF
    return min(number, 0x100000000 - number) % (1 << 31) % partitions


class Waiting:
    """Which groups a transaction holds, from one poll to the next: at the last stable offset of a
    partition, or because it has their next offset.

    A group passes there all the time. So only offsets that an earlier poll has seen are asked about:
    the transaction has then been open for an interval.
    """

    def __init__(self, client: GroupsClient) -> None:
        self._client = client
        self._stood: dict[Held, int] = {}
        """Offsets of groups behind the end of their log, at the poll before."""

    def poll(self, answers: OffsetAnswers, kept: Kept, since_ms: int, deadline: float) -> Kept:
        """Add to the answers of a poll the groups that wait; `kept` is what this has returned at the
        poll before, at `since_ms`, in this process or another."""
        held_at = {(row[0], Place(*row[1:3])): int(row[3]) for row in kept}
        were = {(row[0], Place(*row[1:3])): OpenTransaction(*row[4:]) for row in kept}
        before = {
            key[1]: (held_at[key], each)
            for key, each in were.items()
            if each.holds != PENDING_OFFSETS
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
            if offset in (self._stood.get(key), held_at.get(key), before.get(key[1], (None,))[0])
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
        rest = {key for key in stood.keys() - waits if answers.types.get(key[0]) != SHARE}
        pending = {
            key: each for key, each in were.items() if key in rest and each.holds == PENDING_OFFSETS
        }
        if rest:
            with noted(answers.problems, "pending offsets: "):
                pending = self._client.held(rest, pending, since_ms, deadline, answers.problems)
        named = {place: OpenTransaction() for _, place in waits}
        named |= {p: t for p, (at, t) in before.items() if p in named and at == stable[p]}
        unnamed = {place: stable[place] for place, t in named.items() if t.producer_id is None}
        if unnamed:
            with noted(answers.problems, "open transactions: "):
                named |= self._client.open_at(unnamed, deadline, answers.problems)
        answers.waits = pending | {key: named[key[1]] for key in waits}
        return [[key[0], *key[1], now[key], *each] for key, each in answers.waits.items()]
