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

import json
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import unquote_plus

from app.plain_text import is_digits
from state.events import EVERY_BROKER
from state.policies import FLAG, LIMIT_TYPES, NUMBER, limit_problem
from udfs.topics import normal_topic, split_topic

FEED = "pulsar_admin"

UNKNOWN_BROKER = "unknown"
"""The broker of a topic that neither the settings nor the poll name."""
QUOTA_LIMIT = {"destination_storage": "limitSize", "message_age": "limitTime"}
"""The limit that counts in each type of backlog quota; the document repeats the other one."""
PUBLISH_RATES = {
    "publishThrottlingRateInMsg": "publishRateInMsgs",
    "publishThrottlingRateInByte": "publishRateInBytes",
}
TTL = "message_ttl_in_seconds"
_NOT_ENCODED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_RANGE = re.compile(
    r"[\[(](-?[0-9]{1,18}):(-?[0-9]{1,18})(?:\.\.|\u2025)(-?[0-9]{1,18}):(-?[0-9]{1,18})[\])]"
)
_POSITION = re.compile(r"(0|[1-9][0-9]{0,18}):(-1|0|[1-9][0-9]{0,18})")
_MOST = 2**63 - 1
PERSISTED = 10_000
"""Acknowledged ranges of a cursor that a broker persists: `managedLedgerMaxUnackedRangesToPersist`."""
MOST_RANGES = 1_000_000
"""Of a cursor, cut at ledgers: overlapping ones would be as many as ranges times ledgers."""

Record = dict[str, Any]


@dataclass(frozen=True)
class PollNames:
    """Names that the documents lack: the cluster, and the broker if configured."""

    cluster: str
    broker: str | None = None


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


def policy_key(scope: str, name: str) -> str:
    """Scope and name of a policy as one text."""
    return f"{scope} {name}"


def map_poll(
    poll: dict[str, Any],
    before: PolledTopic | None,
    policies: dict[str, dict[str, Any]],
    names: PollNames,
) -> MappedTopic:
    """The records of one poll; `before` and `policies` are the state after earlier polls."""
    mapped = MappedTopic(known=before)
    at = _whole(poll.get("polled_ms"))
    name = poll.get("topic")
    if at is None or at < 0:
        mapped.problems.append("polled_ms: is not a time in milliseconds")
        return mapped
    if not _text(name) or split_topic(name) is None:
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
        if self._names.broker is None and _text(stats.get("ownerBroker")):
            self._broker = stats["ownerBroker"]
        answered = self._object(poll, "policies")
        self._persisted = _persisted(answered.get("broker"))
        self._policies(answered, policies)
        if poll.get("gone") is True:
            self._gone()
            known = None
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
        listed = self._list(internal, "internal", "ledgers")
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
        return self._without("ledger", self._before.ledgers, tuple(found), whole)

    def _listed(
        self, listed: list[Any], internal: dict[str, Any], info: dict[str, Any]
    ) -> tuple[list[Any], bool]:
        """The ledgers, and whether they are all. A broker always lists the one that it has open;
        where it does not, those of its metadata count, and none is gone."""
        held, entries = internal.get("lastConfirmedEntry"), internal.get("currentLedgerEntries")
        number = int(held.partition(":")[0]) if _is_position(held) and _count(entries) else None
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
        entries, size = _count(ledger.get("entries")), _count(ledger.get("size"))
        if current and not entries:
            # While no ledger is open, the last one is closed and has figures of its own.
            return _count(current.get("currentLedgerEntries")), _count(
                current.get("currentLedgerSize")
            )
        return entries, size

    def _close_times(self, info: dict[str, Any]) -> dict[int, int]:
        """By ledger when it was closed; the last one shows the time of the request."""
        times = {}
        for i, ledger in enumerate((self._list(info, "info", "ledgers") or [])[:-1]):
            number = _ledger(ledger)
            if number is None:
                self._problem(f"info.ledgers[{i}]", "has no ledgerId")
            elif at := _count(ledger.get("timestamp")):
                times[number] = at
        return times

    # Cursors

    def _cursors(self, internal: dict[str, Any], stats: dict[str, Any]) -> dict[str, bool]:
        before = self._before.cursors
        listed = self._mapping(internal, "internal", "cursors")
        if listed is None:
            return before
        subscriptions = self._mapping(stats, "stats", "subscriptions")
        transactions = _count(stats.get("ongoingTxnCount")) or 0
        found: dict[str, bool] = {}
        unknown: list[str] = []
        names: set[str] = set()
        for raw, cursor in listed.items():
            place = f"internal.cursors[{raw!r}]"
            name = cursor_name(raw, subscriptions or {})
            if not _text(name):
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
            places = self._positions(cursor, place)
            if not places or durable is None:
                continue
            self._state(
                "cursor_state",
                subscription=name,
                durable=durable,
                **places,
                publish_time_ms=_time(shown, "earliestMsgPublishTimeInBacklog"),
                acked_ranges=self._acked(cursor, place),
                expired_messages=_count_in(shown, "totalMsgExpired"),
                remarks=_remarks(shown, cursor, transactions, self._persisted),
            )
        if unknown:
            self._problem(
                "stats.subscriptions",
                f"has no durability of {', '.join(unknown)}; left out",
            )
        for name in before:
            if name not in names:
                self._deletion("cursor_deleted", subscription=name)
        return found

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
            if _is_position(value):
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
        listed = self._list(stats, "stats", "publishers")
        if listed is None:
            return before
        found: dict[tuple[str, int], Producer] = {}
        whole = True
        for i, publisher in enumerate(listed):
            shown = publisher if isinstance(publisher, dict) else {}
            address, number = shown.get("address"), _count(shown.get("producerId"))
            if not _text(address) or number is None:
                self._problem(f"stats.publishers[{i}]", "has no address or no producerId")
                whole = False
                continue
            name = shown.get("producerName")
            found[address, number] = Producer(address, number, name if _text(name) else None)
        old = {producer[:2] for producer in before}
        kept = []
        for producer in before:
            if producer[:2] in found:
                continue
            if whole:
                self._deletion("producer_closed", **_producer(producer))
            else:
                kept.append(producer)
        for key, producer in found.items():
            if key not in old:
                self._state("producer_created", **_producer(producer))
        return (*found.values(), *kept)

    # Policies

    def _policies(self, answered: dict[str, Any], before: dict[str, dict[str, Any]]) -> None:
        parts = split_topic(self._topic)
        if parts is None:
            return
        namespace = f"{parts.tenant}/{parts.namespace}"
        base = f"{parts.scheme}://{namespace}/{parts.name}"
        groups = self._object(answered, "resource_group", "policies.")
        found = [
            ("broker", self._names.broker or EVERY_BROKER, answered.get("broker"), _broker_limits),
            *(("resource_group", name, group, _group_limits) for name, group in groups.items()),
            (
                "namespace",
                namespace,
                answered.get("namespace"),
                lambda document: self._namespace_limits(document, answered),
            ),
            ("topic", base, answered.get("topic"), _topic_limits),
        ]
        for scope, name, document, limits_of in found:
            if document is None:
                continue
            place = f"policies.{scope} {name}"
            if not isinstance(document, dict) or not _text(name):
                self._problem(place, "is not an object with a name")
                continue
            if isinstance(document.get("reason"), str):
                self._problem(place, f"is an error: {document['reason'][:200]}")
                continue
            earlier = before.get(policy_key(scope, name), {})
            limits = self._merged(scope, place, limits_of(document), earlier)
            if limits == earlier:
                continue
            self._mapped.policies[policy_key(scope, name)] = limits
            policy = {"scope": scope, "name": name, "limits": limits}
            record = self._record("policy", policy_json=_json(policy))
            del record["topic"]
            record["broker"] = name if scope == "broker" else EVERY_BROKER
            self._mapped.records.append(record)

    def _merged(
        self, scope: str, place: str, new: dict[str, Any], earlier: dict[str, Any]
    ) -> dict[str, Any]:
        """The limits in force: those of this poll, and earlier ones where it has none."""
        limits = {}
        for key in LIMIT_TYPES[scope]:
            value = new.get(key, earlier.get(key))
            if value is None:
                continue
            wrong = limit_problem(scope, key, value)
            if wrong is not None:
                self._problem(place, f"{key} {wrong}")
                value = earlier.get(key)
            if value is not None:
                limits[key] = value
        return limits

    def _namespace_limits(
        self, document: dict[str, Any], answered: dict[str, Any]
    ) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        if "publishMaxMessageRate" in document:
            limits.update(_rates(self._own_rates(document, answered), PUBLISH_RATES))
        if "backlog_quota_map" in document:
            limits["backlog_quota"] = _quotas(document["backlog_quota_map"])
        if limits or "resource_group_name" in document or TTL in document:
            # Left out of the document where a namespace has none.
            limits["resource_group"] = document.get("resource_group_name") or None
            limits[TTL] = _on(document.get(TTL))
        return limits

    def _own_rates(self, document: dict[str, Any], answered: dict[str, Any]) -> Any:
        """The publish rates of a namespace under the name that its cluster has for Pulsar."""
        rates = document["publishMaxMessageRate"] or {}
        if not isinstance(rates, dict):
            return rates
        known = pulsar_cluster(self._names.cluster, answered)
        if known is None and rates and self._names.cluster not in rates:
            self._problem(
                "policies.namespace.publishMaxMessageRate",
                f"has rates of {', '.join(map(repr, rates))}, none of cluster"
                f" {self._names.cluster!r}; source.admin.cluster is the name in Pulsar",
            )
        return rates.get(known or self._names.cluster)

    # Records

    def _gone(self) -> None:
        for ledger in self._before.ledgers:
            self._deletion("ledger_deleted", ledger_id=ledger)
        for cursor in self._before.cursors:
            self._deletion("cursor_deleted", subscription=cursor)
        for producer in self._before.producers:
            self._deletion("producer_closed", **_producer(producer))

    def _without(
        self, kind: str, before: tuple[int, ...], found: tuple[int, ...], whole: bool
    ) -> tuple[int, ...]:
        """What is known now; what a complete list lacks is recorded as gone."""
        missing = [number for number in before if number not in set(found)]
        if not whole:
            return (*missing, *found)
        for number in missing:
            self._deletion(f"{kind}_deleted", **{f"{kind}_id": number})
        return found

    def _record(self, kind: str, **columns: Any) -> Record:
        common = {
            "event_type": kind,
            "source_feed": FEED,
            "cluster": self._names.cluster,
            "broker": self._broker,
            "ts_wall_ms": self._at,
            "topic": self._topic,
        }
        return {**common, **{k: v for k, v in columns.items() if v is not None}}

    def _deletion(self, kind: str, **columns: Any) -> None:
        self._deletions.append(self._record(kind, **columns))

    def _state(self, kind: str, **columns: Any) -> None:
        self._states.append(self._record(kind, **columns))

    # Documents

    def _object(self, holder: dict[str, Any], key: str, above: str = "") -> dict[str, Any]:
        value = holder.get(key)
        if value is not None and not isinstance(value, dict):
            self._problem(f"{above}{key}", "is not an object")
        return value if isinstance(value, dict) else {}

    def _list(self, document: dict[str, Any], name: str, key: str) -> list[Any] | None:
        value = document.get(key)
        if document and not isinstance(value, list):
            self._problem(f"{name}.{key}", "is missing" if value is None else "is not a list")
        return value if isinstance(value, list) else None

    def _mapping(self, document: dict[str, Any], name: str, key: str) -> dict[str, Any] | None:
        value = document.get(key)
        if document and not isinstance(value, dict):
            self._problem(f"{name}.{key}", "is missing" if value is None else "is not an object")
        return value if isinstance(value, dict) else None

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


def pulsar_cluster(configured: str, policies: dict[str, Any]) -> str | None:
    """The name that a cluster has for Pulsar, by the configuration of a broker or the list of
    clusters; None where neither was answered.
    """
    broker, clusters = policies.get("broker"), policies.get("clusters")
    name = broker.get("clusterName") if isinstance(broker, dict) else None
    if _text(name):
        return name
    names = [n for n in clusters if _text(n)] if isinstance(clusters, list) else []
    if configured in names:
        return configured
    return names[0] if len(names) == 1 else None


def other_name(configured: str, policies: dict[str, Any]) -> str | None:
    """The note about a cluster that has another name for Pulsar, in one sentence; None for none."""
    name = pulsar_cluster(configured, policies)
    if name is None or name == configured:
        return None
    return (
        f"source.admin.cluster is {configured}, Pulsar's clusterName is {name}; publish rates of"
        f" namespaces are read under {name}, and records keep {configured}"
    )


def estimated_ages(policies: dict[str, Any]) -> str | None:
    """The note about brokers that estimate ages, in one sentence; None for none."""
    broker = policies.get("broker")
    precise = broker.get("preciseTimeBasedBacklogQuotaCheck") if isinstance(broker, dict) else None
    if str(precise).lower() != "false":
        return None
    return (
        "age_s is -1 while the oldest message is in the open ledger, as at the brokers;"
        " preciseTimeBasedBacklogQuotaCheck=true in broker.conf gives its age"
    )


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
        if _is_position(place)
    ]
    return next(iter(numbers), 0)


def _topic_limits(document: dict[str, Any]) -> dict[str, Any]:
    """Each limit of a topic's own policies; None where it is off."""
    limits: dict[str, Any] = {}
    if "publishRate" in document:
        limits.update(_rates(document["publishRate"], PUBLISH_RATES))
    if "backlogQuotaMap" in document:
        limits["backlog_quota"] = _quotas(document["backlogQuotaMap"])
    if "messageTTL" in document:
        limits[TTL] = _on(document["messageTTL"])
    return limits


def _group_limits(document: dict[str, Any]) -> dict[str, Any]:
    names = {key: key for key in LIMIT_TYPES["resource_group"] if key in document}
    return _rates(document, names)


def _broker_limits(document: dict[str, Any]) -> dict[str, Any]:
    """Limits of the broker's configuration, in which every value is text."""
    return {
        key: _value(document[key], kind)
        for key, kind in LIMIT_TYPES["broker"].items()
        if document.get(key) not in (None, "")
    }


def _rates(document: Any, names: dict[str, str]) -> dict[str, Any]:
    """Rates under our names; of what is no object, values that will be refused."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        return {name: {} for name in names.values()}
    return {name: _on(document.get(key)) for key, name in names.items()}


def _quotas(document: Any) -> Any:
    """The backlog quotas of a level; None if it has none. One below 0 switches its type off."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        return document
    kept = {kind: _quota(document.get(kind), key) for kind, key in QUOTA_LIMIT.items()}
    return {kind: quota for kind, quota in kept.items() if quota is not None} or None


def _quota(quota: Any, key: str) -> Any:
    """A backlog quota with the limit that counts; None where it has no limit."""
    if not isinstance(quota, dict):
        return quota
    limit = quota.get(key)
    if limit is None and key == "limitSize":
        limit = quota.get("limit")  # its name before release 2.8
    if limit is None:
        return None
    return {key: limit, **({"policy": quota["policy"]} if quota.get("policy") else {})}


def _on(limit: Any) -> Any:
    """A limit; None for one below 0, by which the broker shows that there is none."""
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    return None if number and limit < 0 else limit


def _value(value: Any, kind: str) -> Any:
    """A value of the configuration in its type; as it is where it does not have it."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == FLAG:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind != NUMBER:
        return text
    try:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else float(text)
    except ValueError:
        return text


def _producer(producer: Producer) -> dict[str, Any]:
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
        _count_in(shown, key)
        for key in ("msgBacklog", "unackedMessages", "msgDelayed", "msgInReplay")
    )
    ranges = _count_in(cursor, "totalNonContiguousDeletedMessagesRange") or 0
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


def _time(document: Any, key: str) -> int | None:
    """A time in ms; 0 and -1, which mean none, are None."""
    return (_count(document.get(key)) or None) if isinstance(document, dict) else None


def _count_in(document: Any, key: str) -> int | None:
    return _count(document.get(key)) if isinstance(document, dict) else None


def _whole(value: Any) -> int | None:
    """A whole number of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not -_MOST <= value <= _MOST:
        return None
    return value


def _count(value: Any) -> int | None:
    """A whole number that is not negative."""
    number = _whole(value)
    return None if number is None or number < 0 else number


def _ledger(shown: Any) -> int | None:
    """The number of a ledger of a list."""
    return _count_in(shown, "ledgerId")


def _is_position(value: Any) -> TypeGuard[str]:
    found = _POSITION.fullmatch(value) if isinstance(value, str) else None
    return found is not None and int(found[1]) <= _MOST and int(found[2]) <= _MOST


def _text(value: Any) -> TypeGuard[str]:
    """Whether a value is a text that can be written."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
