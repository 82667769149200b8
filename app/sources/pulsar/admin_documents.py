"""Polled documents of one topic, turned into records of the event contract.

A poll is a mapping with `polled_ms` (the time of its last answer), `topic`, and the
answers: `internal` (the path internalStats), `info` (internal-info), `stats`, and `policies`, an
object with the raw documents `namespace`, `topic`, `resource_group` by name, `broker` and
`clusters`. A missing answer is absent or null; `gone` is true where the broker answered that the
topic does not exist.

What a poll does not contain is not made up. Above all, a ledger, a cursor or a producer is only
gone if the list that should have it was answered completely.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_plus

from app.plain_text import is_digits
from app.sources.poll_records import Record, common, plain, policy_key, policy_record, policy_text
from app.sources.pulsar.admin_policies import PollNames, changed_limits
from app.sources.pulsar.document_values import (
    count,
    count_in,
    is_position,
    is_text,
    time_in,
    whole,
)
from state.events import EVERY_BROKER
from udfs.topics import normal_topic, split_topic

FEED = "pulsar_admin"
UNKNOWN_BROKER = "unknown"
"""The broker of a topic that neither the settings nor the poll name."""
_NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RANGE = re.compile(
    r"[\[(](-?[0-9]{1,18}):(-?[0-9]{1,18})(?:\.\.|\u2025)(-?[0-9]{1,18}):(-?[0-9]{1,18})[\])]"
)
PERSISTED = 10_000
"""Acknowledged ranges of a cursor that a broker persists: `managedLedgerMaxUnackedRangesToPersist`."""
MOST_RANGES = 1_000_000
"""Of a cursor, cut at ledgers: overlapping ones would be as many as ranges times ledgers."""
K = TypeVar("K")
T = TypeVar("T", list[Any], dict[str, Any])


class Producer(NamedTuple):
    """One producer of a topic, by its connection and its number there."""

    address: str
    number: int
    name: str | None


@dataclass(frozen=True)
class PolledTopic:
    """What the previous poll had of a topic."""

    broker: str = UNKNOWN_BROKER
    ledgers: tuple[int, ...] = ()
    cursors: dict[str, bool] = field(default_factory=dict)
    """Whether each cursor is durable."""
    producers: tuple[Producer, ...] = ()


@dataclass
class MappedTopic:
    """The result of one poll of one topic."""

    records: list[Record] = field(default_factory=list)
    """Policies, then deletions, then states; all of one time, without `seq`."""
    known: PolledTopic | None = None
    """The state that the next poll is compared with; None where the topic does not exist."""
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The limits that changed, by scope and name (`policy_key`)."""
    problems: list[str] = field(default_factory=list)
    """The parts that could not be used, with their paths."""


def map_poll(
    poll: dict[str, Any],
    before: PolledTopic | None,
    policies: dict[str, dict[str, Any]],
    names: PollNames,
) -> MappedTopic:
    """The records of one poll; `before` and `policies` are the state after earlier polls."""
    mapped = MappedTopic(known=before)
    at = whole(poll.get("polled_ms"))
    name = poll.get("topic")
    if at is None or at < 0:
        mapped.problems.append("polled_ms: is not a time in milliseconds")
        return mapped
    if not is_text(name) or split_topic(name) is None:
        mapped.problems.append(f"topic: {name!r} is not [persistent://]tenant/namespace/name")
        return mapped
    _TopicMapping(mapped, at, normal_topic(name, None), before, names).run(poll, policies)
    return mapped


class _TopicMapping:
    """The mapping of one poll, list by list."""

    def __init__(
        self, mapped: MappedTopic, at: int, topic: str, before: PolledTopic | None, names: PollNames
    ) -> None:
        self._mapped = mapped
        self._at = at
        self._topic = topic
        self._before = before or PolledTopic()
        self._names = names
        self._broker = names.broker or self._before.broker
        self._sizes: dict[int, int] = {}
        """Entries of each ledger of this poll."""
        self._persisted = PERSISTED
        self._deletions: list[Record] = []
        self._states: list[Record] = []

    def run(self, poll: dict[str, Any], policies: dict[str, dict[str, Any]]) -> None:
        """Read every document of the poll."""
        stats, internal, info = (self._object(poll, key) for key in ("stats", "internal", "info"))
        if self._names.broker is None and is_text(stats.get("ownerBroker")):
            self._broker = stats["ownerBroker"]
        answered = self._object(poll, "policies")
        self._persisted = _persisted(answered.get("broker"))
        for scope, name, limits in changed_limits(
            self._topic, answered, policies, self._names, self._problem
        ):
            self._mapped.policies[policy_key(scope, name)] = limits
            text = policy_text({"scope": scope, "name": name, "limits": limits})
            broker = name if scope == "broker" else EVERY_BROKER
            self._mapped.records.append(
                policy_record(FEED, self._names.cluster, self._at, text, broker)
            )
        if poll.get("gone") is True:
            known, before = None, self._before
            self._lost("ledger_deleted", before.ledgers, lambda number: {"ledger_id": number})
            self._lost("cursor_deleted", before.cursors, lambda name: {"subscription": name})
            self._lost("producer_closed", before.producers, _producer)
        else:
            known = PolledTopic(
                self._broker,
                self._ledgers(internal, info),
                self._cursors(internal, stats),
                self._producers(stats),
            )
            if not (stats or internal) and self._mapped.known is None:
                known = None
        self._mapped.known = known
        self._mapped.records += self._deletions + self._states

    # Ledgers

    def _ledgers(self, internal: dict[str, Any], info: dict[str, Any]) -> tuple[int, ...]:
        listed = self._part(internal, "internal", "ledgers", list)
        if listed is None:
            return self._before.ledgers
        closed = self._close_times(info)
        found: list[int] = []
        listed, whole = self._listed(listed, internal, info)
        for i, ledger in enumerate(listed):
            place = f"internal.ledgers[{i}]"
            number = _ledger(ledger)
            if number is None:
                self._problem(place, "has no ledgerId")
                whole = False
                continue
            found.append(number)
            last = i == len(listed) - 1
            entries, size = self._size(ledger, internal if last else {})
            self._sizes[number] = entries or 0
            if entries is None or size is None:
                self._problem(place, "has no number of entries or no size")
                continue
            self._state(
                "ledger_state",
                ledger_id=number,
                ledger_entries=entries,
                ledger_bytes=size,
                ledger_close_ms=None if last else closed.get(number),
            )
        if not listed and whole:
            # An open topic whose last ledger was closed and trimmed: it has no entries.
            number = _last_ledger(internal)
            found.append(number)
            self._state("ledger_state", ledger_id=number, ledger_entries=0, ledger_bytes=0)
        there = set(found)
        lost = [number for number in self._before.ledgers if number not in there]
        return (
            *self._lost("ledger_deleted", lost, lambda number: {"ledger_id": number}, whole),
            *found,
        )

    def _listed(
        self, listed: list[Any], internal: dict[str, Any], info: dict[str, Any]
    ) -> tuple[list[Any], bool]:
        """The ledgers, and whether they are all. A broker always lists the one that it has open;
        where it does not, those of its metadata count, and none is gone."""
        held, entries = internal.get("lastConfirmedEntry"), internal.get("currentLedgerEntries")
        number = int(held.partition(":")[0]) if is_position(held) and count(entries) else None
        if internal.get("state") != "LedgerOpened" or (
            listed and (number is None or number in map(_ledger, listed))
        ):
            return listed, True
        others = info.get("ledgers")
        others = others if isinstance(others, list) else listed
        self._problem("internal.ledgers", "lacks the open ledger; what was known before stays")
        if number is None:
            return others, False
        return [*(e for e in others if _ledger(e) != number), {"ledgerId": number}], False

    @staticmethod
    def _size(ledger: dict[str, Any], current: dict[str, Any]) -> tuple[int | None, int | None]:
        """Entries and bytes of a ledger; those of the open one are in `current`."""
        entries, size = count(ledger.get("entries")), count(ledger.get("size"))
        if current and not entries:
            # While no ledger is open, the last one is closed and has figures of its own.
            return count(current.get("currentLedgerEntries")), count(
                current.get("currentLedgerSize")
            )
        return entries, size

    def _close_times(self, info: dict[str, Any]) -> dict[int, int]:
        """By ledger when it was closed; the last one shows the time of the request."""
        times = {}
        for i, ledger in enumerate((self._part(info, "info", "ledgers", list) or [])[:-1]):
            number = _ledger(ledger)
            if number is None:
                self._problem(f"info.ledgers[{i}]", "has no ledgerId")
            elif at := count(ledger.get("timestamp")):
                times[number] = at
        return times

    # Cursors

    def _cursors(self, internal: dict[str, Any], stats: dict[str, Any]) -> dict[str, bool]:
        before = self._before.cursors
        listed = self._part(internal, "internal", "cursors", dict)
        if listed is None:
            return before
        subscriptions = self._part(stats, "stats", "subscriptions", dict)
        transactions = count(stats.get("ongoingTxnCount")) or 0
        found, unknown, names = dict[str, bool](), list[str](), set[str]()
        for raw, cursor in listed.items():
            place = f"internal.cursors[{raw!r}]"
            name = cursor_name(raw, subscriptions or {})
            if not is_text(name):
                self._problem(place, "has no name")
                continue
            if name in names:
                self._problem(place, f"is {name!r} decoded, like another cursor")
                continue
            names.add(name)
            shown = (subscriptions or {}).get(name)
            durable = self._durable(name, shown, subscriptions is not None)
            if durable is None:
                unknown.append(name)
            else:
                found[name] = durable
            self._cursor(name, durable, cursor, shown, place, transactions)
        if unknown:
            self._problem(
                "stats.subscriptions",
                f"has no durability of {', '.join(unknown)}; left out",
            )
        self._lost(
            "cursor_deleted",
            [name for name in before if name not in names],
            lambda name: {"subscription": name},
        )
        return found

    def _cursor(
        self,
        name: str,
        durable: bool | None,
        cursor: Any,
        shown: Any,
        place: str,
        transactions: int,
    ) -> None:
        places = self._positions(cursor, place)
        if places and durable is not None:
            self._state(
                "cursor_state",
                subscription=name,
                durable=durable,
                **places,
                publish_time_ms=time_in(shown, "earliestMsgPublishTimeInBacklog"),
                acked_ranges=self._acked(cursor, place),
                expired_messages=count_in(shown, "totalMsgExpired"),
                remarks=_remarks(shown, cursor, transactions, self._persisted),
            )

    def _acked(self, cursor: dict[str, Any], place: str) -> str | None:
        """The entries that a cursor has acknowledged one by one; None where it does not say."""
        text, count = (
            cursor.get(key)
            for key in ("individuallyDeletedMessages", "totalNonContiguousDeletedMessagesRange")
        )
        if text is None and not count:
            return None
        ranges = self._ranges(text) if isinstance(text, str) else None
        if ranges is None:
            shown = "is missing" if text is None else f"{str(text)[:60]!r} is not a list of ranges"
            self._problem(f"{place}.individuallyDeletedMessages", f"{shown}; ranges: {count!r}")
            return None
        return ",".join(f"{ledger}:{first}..{last}" for ledger, first, last in ranges)

    def _ranges(self, text: str) -> list[tuple[int, int, int]] | None:
        """Ranges of positions as ledger, first and last entry each; None for another text."""
        listed = text.strip()
        if _RANGE.sub("", listed).replace(",", "").replace(" ", "") != "[]":
            return None
        found: list[tuple[int, int, int]] = []
        ledgers = sorted(self._sizes)
        for match in _RANGE.finditer(listed):
            ledger, entry, end, last = (int(number) for number in match.groups())
            first = max(entry + (match[0][0] == "("), 0)
            last -= match[0][-1] == ")"
            # A range over ledgers, as brokers without open cache sets show it, is cut at them.
            for between in ledgers[bisect_left(ledgers, ledger) : bisect_left(ledgers, end)]:
                start = first if between == ledger else 0
                found.append((between, start, self._sizes[between] - 1))
            found.append((end, first if ledger == end else 0, last))
            if len(found) > MOST_RANGES:
                return None
        return sorted(each for each in found if each[0] >= 0 and each[1] <= each[2])

    def _durable(self, name: str, shown: Any, answered: bool) -> bool | None:
        """Whether a cursor is durable; None if unknown."""
        for key in ("isDurable", "durable"):
            if isinstance(shown, dict) and isinstance(shown.get(key), bool):
                return bool(shown[key])
        if name in self._before.cursors:
            return self._before.cursors[name]  # a reader that closed between two answers
        return True if answered and shown is None else None

    def _positions(self, cursor: Any, place: str) -> dict[str, Any]:
        """The positions of a cursor; empty if neither is valid."""
        if not isinstance(cursor, dict):
            self._problem(place, "is not an object")
            return {}
        places: dict[str, Any] = {}
        for column, key in (("mark_delete", "markDeletePosition"), ("read_pos", "readPosition")):
            value = cursor.get(key)
            if is_position(value):
                places[column] = value
            elif value is not None:
                self._problem(f"{place}.{key}", f"{value!r} is not ledger:entry")
        if not places:
            self._problem(place, "has neither markDeletePosition nor readPosition")
        elif isinstance(cursor.get("active"), bool):
            places["active"] = cursor["active"]
        return places

    # Producers

    def _producers(self, stats: dict[str, Any]) -> tuple[Producer, ...]:
        before = self._before.producers
        listed = self._part(stats, "stats", "publishers", list)
        if listed is None:
            return before
        found: dict[tuple[str, int], Producer] = {}
        whole = True
        for i, publisher in enumerate(listed):
            shown = publisher if isinstance(publisher, dict) else {}
            address, number = shown.get("address"), count(shown.get("producerId"))
            if not is_text(address) or number is None:
                self._problem(f"stats.publishers[{i}]", "has no address or no producerId")
                whole = False
                continue
            name = shown.get("producerName")
            found[address, number] = Producer(address, number, name if is_text(name) else None)
        old = {producer[:2] for producer in before}
        lost = [producer for producer in before if producer[:2] not in found]
        for key, producer in found.items():
            if key not in old:
                self._state("producer_created", **_producer(producer))
        return (*found.values(), *self._lost("producer_closed", lost, _producer, whole))

    # Records

    def _lost(
        self, kind: str, lost: Iterable[K], columns: Callable[[K], Record], whole: bool = True
    ) -> Iterable[K]:
        """What a list lacks of what was known: gone if the list is complete, else still known."""
        self._deletions += [self._record(kind, **columns(each)) for each in lost if whole]
        return () if whole else lost

    def _record(self, kind: str, **columns: Any) -> Record:
        shared = common(FEED, self._names.cluster, self._broker, self._at)
        return plain({"event_type": kind, **shared, "topic": self._topic, **columns})

    def _state(self, kind: str, **columns: Any) -> None:
        self._states.append(self._record(kind, **columns))

    # Documents

    def _object(self, holder: dict[str, Any], key: str) -> dict[str, Any]:
        value = holder.get(key)
        if value is not None and not isinstance(value, dict):
            self._problem(key, "is not an object")
        return value if isinstance(value, dict) else {}

    def _part(self, document: dict[str, Any], name: str, key: str, kind: type[T]) -> T | None:
        """A list or an object of a document; None where an answered document has none."""
        value = document.get(key)
        if isinstance(value, kind):
            return value
        if document:
            wrong = "is not a list" if kind is list else "is not an object"
            self._problem(f"{name}.{key}", "is missing" if value is None else wrong)
        return None

    def _problem(self, place: str, text: str) -> None:
        self._mapped.problems.append(f"{place}: {text}")


def cursor_name(raw: str, subscriptions: dict[str, Any]) -> str:
    """The name of a cursor of internalStats, where the broker shows most of them percent-encoded
    (`Codec.encode`); a reader's is shown as it is, which its subscription in stats tells.
    """
    if _NOT_ENCODED.search(raw):
        return raw
    name = unquote_plus(raw)
    return raw if raw in subscriptions and name not in subscriptions else name


def _last_ledger(internal: dict[str, Any]) -> int:
    """The newest ledger that a topic without ledgers has had; 0 where nothing shows one."""
    cursors = internal.get("cursors")
    shown = (
        [c.get("markDeletePosition") for c in cursors.values() if isinstance(c, dict)]
        if (isinstance(cursors, dict))
        else []
    )
    numbers = [
        int(place.partition(":")[0])
        for place in (internal.get("lastConfirmedEntry"), *shown)
        if is_position(place)
    ]
    return next(iter(numbers), 0)


def _producer(producer: Producer) -> Record:
    return {
        "cnx_id": producer.address,
        "producer_id": producer.number,
        "producer_name": producer.name,
    }


def _persisted(broker: Any) -> int:
    """How many acknowledged ranges of a cursor outlast a restart of the broker."""
    text = broker.get("managedLedgerMaxUnackedRangesToPersist") if isinstance(broker, dict) else ""
    return int(text) if isinstance(text, str) and is_digits(text) else PERSISTED


def _remarks(shown: Any, cursor: Any, transactions: int, persisted: int) -> str | None:
    """What keeps or brings back the backlog of a subscription, by the numbers of its topic; an open
    transaction where messages wait and no consumer has any."""
    waiting, held, delayed, again = (
        count_in(shown, key)
        for key in ("msgBacklog", "unackedMessages", "msgDelayed", "msgInReplay")
    )
    ranges = count_in(cursor, "totalNonContiguousDeletedMessagesRange") or 0
    counts = (
        (
            transactions if waiting and not held else 0,
            ("transaction is", "transactions are"),
            "open on the topic, and nothing behind is delivered",
        ),
        (delayed, ("message is", "messages are"), "delayed"),
        (again, ("message waits", "messages wait"), "to be sent again"),
    )
    found = [f"{n:,} {words[n > 1]} {what}" for n, words, what in counts if n]
    if ranges > persisted:
        found.append(
            f"of {ranges:,} acknowledged ranges {persisted:,} outlast a restart of the broker"
        )
    return "; ".join(found) or None


def _ledger(shown: Any) -> int | None:
    """The number of a ledger of a list."""
    return count_in(shown, "ledgerId")
