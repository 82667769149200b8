"""Transactions that stay open in partitions, from one poll of producer states to the next.

Most transactions are shorter than an interval. One that a poll finds where the poll before has left
it is looked up at its coordinator. It hangs if its time is over, which a coordinator ends, or if no
coordinator has it: nobody will end it then, and readers of committed data wait (KIP-664).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_states import IdState, OwnerOf, Row
from app.sources.kafka.transactions import Coordinated

HANGING, UNCOORDINATED, ENDED = "hanging", "uncoordinated", "ended"
"""States beside those of a coordinator: `uncoordinated` is one that no coordinator names, and that
may still have ended since."""
LONGEST_MS = 900_000
"""transaction.max.timeout.ms of brokers, as they come: whoever wrote last before that is late."""
LATE_MS = 60_000
"""A coordinator looks for transactions that are late every 10 s, as brokers come."""
Kept = dict[str, list[list[Any]]]
"""By partition the fields of each PolledTransaction, in the memory of the spool."""
Ask = Callable[[set[int]], Mapping[int, Coordinated] | None]


class PolledTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    producer_id: int
    start_offset: int
    state: str | None = None
    """Of its newest row; None without one."""
    transactional_id: str | None = None
    start_ms: int | None = None
    timeout_ms: int | None = None


class PolledTransactions(NamedTuple):
    """Rows of a poll for the table `open_transactions`, without `number`, and what to remember."""

    rows: list[Row]
    kept: Kept


def poll(
    states: Mapping[Place, Sequence[IdState]],
    before: Kept,
    topics: frozenset[str],
    polled_ms: int,
    cluster: str,
    ask: Ask,
    owner_of: OwnerOf,
    whole: bool = False,
) -> PolledTransactions:
    """What a poll has found; `topics` are all of the cluster, `whole`: with rows for what has not
    changed. A partition without an answer keeps its transactions.
    """
    polled = PolledTransactions([], {})

    def put(place: Place, now: PolledTransaction, last_ms: int | None) -> None:
        user = owner_of(now.producer_id, place.topic).user
        polled.rows.append(
            {"polled_ms": polled_ms, "cluster": cluster, **_row(place, now, user, last_ms)}
        )

    earlier = {
        (Place.of_text(text), each[0], each[1]): PolledTransaction(*each)
        for text, several in before.items()
        for each in several
    }
    open_now = {
        (place, state.producer_id, state.transaction_start): state
        for place, held in states.items()
        for state in held
        if state.transaction_start is not None
    }
    stays = sorted(earlier.keys() & open_now.keys())
    answered = ask({pid for _, pid, _ in stays}) if stays else None
    for key in sorted(earlier.keys() | open_now.keys()):
        place, pid, start = key
        old, state = earlier.get(key), open_now.get(key)
        if state is None and old is not None and place not in states and place.topic in topics:
            now = old
        elif state is None:
            if old is not None and old.state is not None:
                put(place, old._replace(state=ENDED), None)
            continue
        elif old is None or answered is None:
            now = old or PolledTransaction(pid, start)
        else:
            now = _judged(old, place, state, answered.get(pid), polled_ms)
        if now.state is not None and (whole or old is None or now.state != old.state):
            put(place, now, state.last_ms if state is not None and state.last_ms >= 0 else None)
        polled.kept.setdefault(place.text, []).append(list(now))
    return polled


def _row(place: Place, now: PolledTransaction, user: str, last_ms: int | None) -> Row:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "user": user,
        "transactional_id": now.transactional_id,
        "producer_id": now.producer_id,
        "state": now.state,
        "start_offset": now.start_offset,
        "start_ms": now.start_ms,
        "timeout_ms": now.timeout_ms,
        "last_ms": last_ms,
    }


def _judged(
    old: PolledTransaction, place: Place, state: IdState, each: Coordinated | None, polled_ms: int
) -> PolledTransaction:
    """A transaction that stays open, by what its coordinator answers."""
    if each is None or place not in each.partitions:
        is_late = 0 <= state.last_ms < polled_ms - LONGEST_MS
        return old._replace(state=HANGING if is_late else UNCOORDINATED)
    ends_ms = None if each.start_ms is None else each.start_ms + each.timeout_ms + LATE_MS
    is_late = ends_ms is not None and ends_ms < polled_ms
    return old._replace(
        state=HANGING if is_late else each.state,
        transactional_id=each.transactional_id,
        start_ms=each.start_ms,
        timeout_ms=each.timeout_ms,
    )
