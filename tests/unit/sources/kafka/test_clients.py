"""What the clients make of answers: whose is missing, and who comes first in the next poll. A real
cluster answers in tests/servers/test_kafka_client.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from app.config.kafka_groups import KafkaGroupsSettings
from app.sources.kafka import groups_client, producers_client
from app.sources.kafka.groups_client import GroupsClient
from app.sources.kafka.kafka_client import Answered, KafkaClient, PolledRecords, RequestError
from app.sources.kafka.offsets import (
    GroupConsumer,
    GroupMembers,
    KafkaTopic,
    Log,
    LogPosition,
    OffsetAnswers,
    Oldest,
    Place,
)
from app.sources.kafka.producer_owners import Grant
from app.sources.kafka.producer_states import IdState
from app.sources.kafka.producers_client import ProducersClient, grants_of
from app.sources.polling import Unanswered

SLOW = RequestError(("TimeoutException",), "TimeoutException: too late")
DENIED = RequestError(("GroupAuthorizationException",), "GroupAuthorizationException: no")
GONE = RequestError(("UnknownTopicOrPartitionException",), "UnknownTopicOrPartitionException: x")


class Reply:
    """The answers of a request, there at once."""

    def __init__(self, values: list[Any], errors: dict[int, RequestError] | None = None) -> None:
        self._answered = Answered(values, errors or {})

    def result(self, deadline: float) -> Answered:
        return self._answered


class Fleet:
    """A cluster that answers the first `most` of what it is asked for, and remembers that."""

    def __init__(self, partitions: int = 4, most: int = 100) -> None:
        self.partitions, self.most = partitions, most
        self.asked: dict[str, list[list[Any]]] = {}
        self.limits: dict[str, float] = {}
        self.errors: dict[Any, RequestError] = {}
        self.listed = [
            ["a", "Stable", "Classic"],
            ["b", "Reconciling", "Consumer"],
            ["c", "New", None],
        ]
        self.unlisted: list[list[str]] = []
        """Errors of brokers whose groups are not listed."""
        self.committed_now: dict[str, Any] = {"orders": {"0": 5}}
        self.share_errors: dict[Any, RequestError] = {}
        self.shares: dict[str, Any] = {"orders": {"0": [4, 2], "1": [9, None], "9": [1, 1]}}

    def _reply(
        self, kind: str, items: Sequence[Any], deadline: float, value: Callable[[Any], Any]
    ) -> Reply:
        self.asked.setdefault(kind, []).append(list(items))
        self.limits[kind] = deadline
        late = dict.fromkeys(range(self.most, len(items)), SLOW)
        errors = late | {n: self.errors[i] for n, i in enumerate(items) if i in self.errors}
        return Reply([None if n in errors else value(i) for n, i in enumerate(items)], errors)

    def names(self, deadline: float) -> frozenset[str]:
        return frozenset({"orders"})

    def topics(self, names: list[str], deadline: float) -> Reply:
        leaders = [[n, "1"] for n in range(self.partitions)]
        return self._reply("topics", names, deadline, lambda _: ["id1", leaders])

    def groups(self, deadline: float) -> Reply:
        self.limits["groups"] = deadline
        return Reply([self.listed, self.unlisted])

    def error(self, texts: Sequence[str]) -> RequestError:
        return KafkaClient({}, 1000).error(texts)

    def committed(self, groups: list[str], deadline: float) -> Reply:
        return self._reply("committed", groups, deadline, lambda _: self.committed_now)

    def share_offsets(self, groups: list[str], deadline: float) -> Reply:
        self.errors |= self.share_errors
        return self._reply("share", groups, deadline, lambda _: self.shares)

    def consumers(self, groups: list[str], deadline: float) -> Reply:
        members = [["m2", "/10.0.0.2", [["orders", 1]]], ["m1", "/10.0.0.1", [["orders", 0]]]]
        return self._reply("consumers", groups, deadline, lambda _: [members, 7, 6])

    def share_consumers(self, groups: list[str], deadline: float) -> Reply:
        members = [[f"m{n}", f"/10.0.0.{n}", [["orders", 0]]] for n in (3, 1, 2)]
        return self._reply("share_consumers", groups, deadline, lambda _: [members, 2, 2])

    def offsets(self, places: list[Place], which: str, deadline: float) -> Reply:
        return self._reply(which, places, deadline, lambda _: {"first": 3, "next": 9}[which])

    def settings(self, topics: list[str], keys: Any, deadline: float) -> Reply:
        return self._reply("settings", topics, deadline, lambda _: dict.fromkeys(keys))

    def producers(self, places: list[Place], deadline: float) -> Reply:
        return self._reply("producers", places, deadline, lambda p: [[p.partition, 0, 1, 2]])


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()
    for module in (groups_client, producers_client):
        monkeypatch.setattr(module, "KafkaClient", lambda *_, **__: made)
    return made


def asked(client: GroupsClient, topics: Sequence[str] = (), seconds: float = 60) -> OffsetAnswers:
    return client.ask(topics, (), time.monotonic() + seconds)


def of(**keys: Any) -> GroupsClient:
    options = {"bootstrap.servers": "h:1"}
    return GroupsClient(KafkaGroupsSettings.model_validate({"options": options, **keys}))


def numbers(places: list[Place]) -> list[int]:
    return [place.partition for place in places]


def test_a_whole_poll(fleet: Fleet) -> None:
    answers = asked(of())
    p0 = Place("orders", 0)
    assert answers.topics == {"orders": KafkaTopic("id1", (0, 1, 2, 3))}
    assert answers.committed == {name: {p0: 5} for name in "abc"}
    assert answers.consumers == {"a": "stable", "b": "rebalancing"}
    assert answers.types == {"a": "classic", "b": "consumer"}
    assert "share" not in fleet.asked
    assert answers.logs == {Place("orders", n): Log(3, 9) for n in range(4)}
    assert answers.settings["orders"].keys() == {
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
    }
    assert (answers.listed, answers.problems, answers.refused) == (True, [], [])


def test_groups_of_the_brokers_that_answer_are_not_all_of_the_cluster(fleet: Fleet) -> None:
    fleet.unlisted = [["TimeoutException", "too late"]]
    answers = asked(of())
    assert answers.committed.keys() == {"a", "b", "c"}
    problem = "the list of groups: TimeoutException: too late"
    assert (answers.listed, answers.problems) == (False, [problem])


def test_a_share_group_has_start_offsets(fleet: Fleet) -> None:
    """They are asked for after the ends of logs, and are not beyond them."""
    fleet.listed = [["a", "Stable", "Classic"], ["s", "Stable", "Share"], ["t", "Empty", "Share"]]
    fleet.share_errors = {"t": SLOW}
    fleet.shares["orders"]["2"] = [11, 0]
    answers = asked(of())
    places = {n: Place("orders", n) for n in (0, 1, 2, 9)}
    assert answers.committed == {
        "a": {places[0]: 5},
        "s": {places[0]: 4, places[1]: 9, places[9]: 1, places[2]: 9},
    }
    assert answers.share_lags == {("s", places[n]): lag for n, lag in ((0, 2), (9, 1), (2, 0))}
    assert answers.consumers == {"a": "stable", "s": "stable", "t": "empty"}
    assert (fleet.asked["committed"], fleet.asked["share"]) == ([["a"]], [["s", "t"]])
    assert (answers.states, answers.problems) == ({}, ["share group t: TimeoutException: too late"])


@pytest.mark.parametrize(
    ("error", "committed", "states"),
    [
        (SLOW, None, {}),  # it may be a share group
        (GONE, {}, {"old": "unknown_group"}),
        (None, {Place("orders", 0): 4, Place("orders", 1): 9, Place("orders", 9): 1}, {}),
    ],
)
def test_a_group_that_is_not_listed_is_gone_if_it_is_no_share_group(
    fleet: Fleet,
    error: RequestError | None,
    committed: dict[Place, int] | None,
    states: dict[str, str],
) -> None:
    fleet.listed, fleet.committed_now = [["old", "Stable", "Share"]], {}
    client = of(groups=["old", "new"])
    assert asked(client).types == {"old": "share"}
    fleet.listed = []
    fleet.share_errors = {"old": error} if error else {}
    answers = asked(client)
    assert fleet.asked["share"] == [["old"]] * 2
    assert answers.states.pop("new", "unknown_group") == "unknown_group"
    assert answers.committed.get("old") == committed
    assert answers.states == states
    assert answers.listed == (not committed)
    assert answers.types == ({"old": "share"} if committed else {})


def test_members_are_asked_for_by_the_type_of_the_group(fleet: Fleet) -> None:
    client = of()
    members, problems = client.members(["a", "s"], {"s"}, time.monotonic() + 60)
    p0, p1 = Place("orders", 0), Place("orders", 1)
    assert members == {
        "a": GroupMembers(
            {p0: GroupConsumer("m1", "10.0.0.1"), p1: GroupConsumer("m2", "10.0.0.2")}, 7, 6
        ),
        "s": GroupMembers({p0: GroupConsumer("m1", "10.0.0.1")}, 2, 2),
    }
    assert problems == []
    assert (fleet.asked["consumers"], fleet.asked["share_consumers"]) == ([["a"]], [["s"]])
    client.members(["a"], (), time.monotonic() + 60)
    assert len(fleet.asked["share_consumers"]) == 1


class Log22(Fleet):
    """A log of 22 offsets: records, the last one a marker, and a transaction that is open at 5. Each
    partition takes 1,000 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[int] = []

    def offsets(self, places: list[Place], which: str, deadline: float) -> Reply:
        stable = {0: 5, 1: 22, 2: 5}
        return self._reply(which, places, deadline, lambda place: stable[place.partition])

    def records(
        self,
        spans: list[tuple[Place, int, int]],
        deadline: float,
        most: int,
        size: int,
        left: int,
        level: str,
    ) -> Iterator[PolledRecords]:
        self.asked.setdefault(level, []).append(spans)
        self.left.append(left)
        for number, (place, begin, end) in enumerate(spans):
            if place.partition == 2 and level == "read_uncommitted":
                yield PolledRecords([], [], [(number, SLOW)], 1)
                continue
            offsets = range(begin, min(end, 21))
            yield PolledRecords([(number, o, 1000 + o, 10, 0) for o in offsets], [], [], 1, 900)
            yield PolledRecords([], [(number, True)], [], 0, 100)


def test_what_lies_behind_an_open_transaction_is_read_as_uncommitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is unread to a reader of uncommitted records, as clients are by default (KIP-664)."""
    fleet = Log22()
    monkeypatch.setattr(groups_client, "KafkaClient", lambda *_, **__: fleet)
    p0, p1, p2 = (Place("orders", n) for n in range(3))
    problems: list[str] = []
    at = [LogPosition(*each) for each in ((p0, 3), (p0, 5), (p1, 20), (p2, 4), (p0, 21))]
    logs = dict.fromkeys((p0, p1, p2), Log(0, 22))
    assert of().read(at, logs, time.monotonic() + 60, problems) == {
        at[0]: Oldest(1003, 18, 180, True, True),
        at[1]: Oldest(1005, 16, 160, True, True),
        at[2]: Oldest(1020, 1, 10, True),
        at[3]: Oldest(1004, 1, 10, False, True),  # what lies behind is not known
        at[4]: Oldest(None, 0, 0, True, True),  # a marker alone
    }
    assert fleet.asked["read_uncommitted"][0] == [(p0, 5, 22), (p2, 5, 22)]
    assert len(problems) == 1


def test_reads_take_no_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 for the poll of two seconds: what stands behind the open transaction is not asked for, nor
    is a second position of a partition; the next poll has its own."""
    fleet = Log22()
    monkeypatch.setattr(groups_client, "KafkaClient", lambda *_, **__: fleet)
    places = [Place("orders", n) for n in range(3)]
    at = [LogPosition(place, 3) for place in places] + [LogPosition(places[0], 20)]
    logs, client = dict.fromkeys(places, Log(0, 22)), of(publish_bytes=90_000, interval_ms=2000)
    for _ in range(2):
        assert client.read(at, logs, time.monotonic() + 60, []).keys() == set(at[:3])
    assert fleet.left == [3000, 3000] and fleet.asked.keys() == {"stable", "read_committed"}


def test_partitions_that_were_left_out_come_first(fleet: Fleet) -> None:
    """Within a few polls all of a cluster are answered, of which one poll answers a third."""
    fleet.partitions, fleet.most = 6, 2
    client = of()
    answered = [numbers(list(asked(client).logs)) for _ in range(3)]
    assert answered == [[0, 1], [2, 3], [4, 5]]
    assert [numbers(each) for each in fleet.asked["next"]] == answered
    assert numbers(fleet.asked["first"][1]) == [2, 3, 4, 5, 0, 1]


def test_groups_that_were_left_out_come_first(fleet: Fleet) -> None:
    fleet.most = 2
    client = of()
    assert sorted(asked(client).committed) == ["a", "b"]
    answers = asked(client)
    assert fleet.asked["committed"] == [["a", "b", "c"], ["c", "a", "b"]]
    assert answers.problems[0] == "group b: TimeoutException: too late"


def test_producers_that_were_left_out_come_first(fleet: Fleet) -> None:
    fleet.most = 1
    client = ProducersClient({}, 1000)
    places = [Place("orders", n) for n in range(2)]
    problems: list[str] = []
    found = [client.states(places, time.monotonic() + 1, problems) for _ in range(2)]
    assert found == [{place: [IdState(place.partition, 0, 1, 2)]} for place in places]
    assert problems == [f"partition orders/{n}: TimeoutException: too late" for n in (1, 0)]


def test_a_topic_without_a_description_costs_itself(fleet: Fleet) -> None:
    fleet.errors = {"orders": SLOW}
    client = ProducersClient({}, 1000)
    problems: list[str] = []
    assert client.leaders({"orders", "a"}, time.monotonic() + 1, problems) == {
        "a": dict.fromkeys(range(4), "1")
    }
    assert problems == ["topic orders: TimeoutException: too late"]


def test_no_wait_for_all_brokers_takes_the_time_of_the_others(fleet: Fleet) -> None:
    began = time.monotonic()
    asked(of(), seconds=36)
    limits = {kind: round(limit - began) for kind, limit in fleet.limits.items()}
    assert limits == {  # the last quarter is for open transactions
        "groups": 9,
        "topics": 9,
        "first": 12,
        "committed": 12,
        "next": 18,
        "settings": 18,
    }


def test_what_is_denied_or_gone(fleet: Fleet) -> None:
    fleet.errors = {"a": DENIED, "old": GONE, "typo": GONE, Place("orders", 1): SLOW}
    answers = asked(of(topics=["orders", "old", "typo"]), ["old"])
    assert (answers.gone, answers.absent) == ({"old"}, {"typo"})
    assert answers.refused == ["group a: GroupAuthorizationException: no"]
    assert answers.problems == [*answers.refused, "partition orders/1: TimeoutException: too late"]
    assert sorted(answers.committed) == ["b", "c"]
    assert numbers(list(answers.logs)) == [0, 2, 3]


def test_secrets_are_not_in_an_error() -> None:
    options = {"sasl.jaas.config": 'm required password="hu\\"sh";', "ssl.key.password": "quiet"}
    client = KafkaClient(options, 1000)
    error = client.error(["ExecutionException", "SaslAuthenticationException", 'quiet\nhu\\"sh'])
    assert error.text == "SaslAuthenticationException: ******** ********"
    assert error.refused and not error.gone


@pytest.mark.parametrize(
    ("request_", "texts", "told"),
    [
        (
            "quotas",
            ["ClusterAuthorizationException", "Cluster authorization failed."],
            "Cluster authorization failed: the user of options needs DescribeConfigs on Cluster",
        ),
        (
            "producers",
            ["TopicAuthorizationException", "Topic authorization failed."],
            "Topic authorization failed: the user of options needs Read on Topic",
        ),
        ("committed", ["TopicAuthorizationException", "no."], "no."),  # of another right
        (
            "quotas",
            ["DisconnectException", "Cancelled describeClientQuotas request with correlation id 7"],
            "the broker closed the connection, or its answer took longer than timeout_ms",
        ),
    ],
)
def test_an_error_names_the_right_that_is_missing(
    request_: str, texts: list[str], told: str
) -> None:
    error = KafkaClient({"bootstrap.servers": "h:1"}, 10).error(texts, request_)
    assert error.text == f"{texts[0]}: {told}"


def test_no_request_is_sent_after_its_time() -> None:
    client = KafkaClient({"bootstrap.servers": "h:1"}, 1000)
    with pytest.raises(Unanswered, match="no time left in this poll"):
        client.names(time.monotonic() - 1)


def test_grants() -> None:
    acls = [
        ["orders", "LITERAL", "User:CN=a, host=b,O=c", "WRITE", "ALLOW"],
        ["pay", "PREFIXED", "User:bob", "ALL", "ALLOW"],
        ["orders", "LITERAL", "User:carol", "READ", "ALLOW"],
    ]
    assert grants_of(acls) == [
        Grant("orders", "LITERAL", "User:CN=a, host=b,O=c", "WRITE"),
        Grant("pay", "PREFIXED", "User:bob", "ALL"),
    ]
