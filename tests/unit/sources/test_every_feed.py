"""What polls meet, for every polled feed alike: a cluster that does not answer, answers in part or
refuses, things that come, go and come back, a clock that goes back, a disk that is full, a poll whose
time is not enough, and all of it over restarts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.config.kafka_producers import KafkaProducersSettings
from app.config.kafka_quotas import KafkaQuotasSettings
from app.sources.kafka import groups_client, producers_client, quotas_poll
from app.sources.kafka.groups_poll import GroupPoller
from app.sources.kafka.kafka_client import Answered, KafkaClient, RequestError
from app.sources.kafka.offsets import Place
from app.sources.kafka.producers_poll import ProducerPoller
from app.sources.kafka.quotas_poll import QuotaPoller
from app.sources.poll_plan import PollPlan, PollReader
from app.sources.polling import AnyPolling, Unanswered
from app.sources.pulsar.admin_client import NotThere, Session
from app.sources.pulsar.admin_poll import AdminPoller
from app.sources.spool import Spool
from tests.support.polled import records
from tests.unit.sources.kafka import poll as groups
from tests.unit.sources.pulsar.conftest import MakeAdmin
from tests.unit.sources.pulsar.conftest import make_admin as make_admin
from tests.unit.sources.pulsar.conftest import server as server
from tests.unit.sources.pulsar.documents import info, internal, stats

AT = 1_700_000_000_000
GONE = RequestError(("UnknownTopicOrPartitionException",), "there is none")
WHY = {
    "silent": RequestError(("TimeoutException",), "TimeoutException: too late"),
    "refused": RequestError(("TopicAuthorizationException",), "TopicAuthorizationException: no"),
}


class Site(ABC):
    """A cluster with a few things, and the polls of it; the base of one class a feed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spool" / "feed.c"
        self.there: set[str] = set()
        self.failing: dict[str, str] = {}
        """By thing a key of WHY."""
        self.away = False
        self.wanted: list[str] = []
        """Those that the settings name."""
        self.most = 99
        """Things that are answered in the time of a poll."""

    @abstractmethod
    def made(self) -> AnyPolling:
        """A poller of the cluster."""

    @abstractmethod
    def known(self, one: AnyPolling) -> set[str]:
        """The things that the memory has."""


class Kafka(Site):
    """A cluster of Kafka, in place of its client; a topic has one partition, one group and one id."""

    def _reply(self, items: Sequence[Any], value: Callable[[Any], Any], cut: bool = False) -> Any:
        errors = {}
        for number, item in enumerate(items):
            name = item.topic if isinstance(item, Place) else item
            if name not in self.there and name != "g":
                errors[number] = GONE
            elif name in self.failing:
                errors[number] = WHY[self.failing[name]]
            elif cut and number >= self.most:
                errors[number] = WHY["silent"]
        values = [None if number in errors else value(item) for number, item in enumerate(items)]
        return Reply(values, errors)

    def names(self, deadline: float) -> frozenset[str]:
        if self.away:
            raise Unanswered("the list of topics: away")
        return frozenset(self.there)

    def topics(self, names: Sequence[str], deadline: float) -> Any:
        return self._reply(names, lambda name: [f"id of {name}", [[0, "1"]]])

    def groups(self, deadline: float) -> Any:
        return Reply([[["g", "Empty", "Classic"]], []], {})

    def committed(self, names: Sequence[str], deadline: float) -> Any:
        return self._reply(names, lambda _: {name: {"0": 9} for name in self.there})

    def offsets(self, places: Sequence[Place], which: str, deadline: float) -> Any:
        return self._reply(places, lambda _: 0 if which == "first" else 9, which == "next")

    def settings(self, names: Sequence[str], keys: Any, deadline: float) -> Any:
        limits = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        return self._reply(names, lambda _: limits)

    def producers(self, places: Sequence[Place], deadline: float) -> Any:
        return self._reply(places, lambda place: [[ord(place.topic), 0, 1, 2, None]], True)

    def quotas(self, deadline: float) -> Any:
        if self.away:
            raise Unanswered("client quotas: away")
        return [({"user": name}, {"producer_byte_rate": 9.0}) for name in sorted(self.there)]

    def features(self, deadline: float) -> dict[str, int]:
        return {"metadata.version": 29}

    def error(self, texts: Sequence[str]) -> RequestError:
        return KafkaClient({}, 1000).error(texts)

    def close(self) -> None:
        """There is no client."""


class Reply:
    """The answers of a request, there at once."""

    def __init__(self, values: list[Any], errors: dict[int, RequestError]) -> None:
        self._answered = Answered(values, errors)

    def result(self, deadline: float) -> Answered:
        return self._answered


class Groups(Kafka):
    def made(self) -> AnyPolling:
        return GroupPoller(groups.settings(publish_times=False, topics=self.wanted), self.folder)

    def known(self, one: AnyPolling) -> set[str]:
        return {text.partition("/")[0] for text in one.spool.memory.topics}


class Producers(Kafka):
    def made(self) -> AnyPolling:
        tables: Any = Tables()
        return ProducerPoller(KafkaProducersSettings(topics=self.wanted), {}, self.folder, tables)

    def known(self, one: AnyPolling) -> set[str]:
        return {name for name, topic in one.spool.memory.topics.items() if topic.parts is not None}


class Tables:
    """Tables that take everything."""

    def append(self, application: str, table: str, rows: list[Any]) -> None:
        """They are not read here."""


class Quotas(Kafka):
    def made(self) -> AnyPolling:
        return QuotaPoller(KafkaQuotasSettings(), {}, self.folder)

    def known(self, one: AnyPolling) -> set[str]:
        return {user for user, _, _ in one.spool.memory.extra.get("limits", [])}


class Pulsar(Site):
    """A cluster of Pulsar, behind a session that a test answers."""

    def __init__(self, folder: Path, make: MakeAdmin) -> None:
        super().__init__(folder)
        self._make, self._asked = make, 0

    def made(self) -> AnyPolling:
        return AdminPoller(self._make(threads=1, **self._named()), self.folder)

    def known(self, one: AnyPolling) -> set[str]:
        return {name.rpartition("/")[2] for name in one.spool.memory.topics}

    def _named(self) -> dict[str, Any]:
        names = [f"persistent://public/n1/{name}" for name in self.wanted]
        return {"topics": names, "namespaces": []} if names else {}

    def get(self, path: str) -> Any:
        if self.away:
            raise Unanswered(f"{path}: away")
        if path == "persistent/public/n1":
            self._asked = 0
            return [f"persistent://public/n1/{name}" for name in sorted(self.there)]
        *_, name, document = path.split("/")
        if name not in self.there:
            raise NotThere("not found")
        self._asked += document == "internalStats"
        if name in self.failing or self._asked > self.most:
            raise Unanswered(WHY[self.failing.get(name, "silent")].text)
        of = {
            "internalStats": internal,
            "internal-info": info,
            "partitions": lambda: {"partitions": 0},
        }
        return of.get(document, stats)()


FEEDS = ["kafka_groups", "kafka_producers", "kafka_quotas", "pulsar_admin"]
one_by_one = pytest.mark.parametrize(
    "site", [feed for feed in FEEDS if feed != "kafka_quotas"], indirect=True
)
"""Of feeds that ask for each thing. One request has all limits; a test of what exporters lack is in
test_poll_records.py."""


@pytest.fixture(params=FEEDS)
def site(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_admin: MakeAdmin,
) -> Site:
    if request.param == "pulsar_admin":
        pulsar = Pulsar(tmp_path, make_admin)
        monkeypatch.setattr(Session, "get", lambda _, path: pulsar.get(path))
        return pulsar
    made = {"kafka_groups": Groups, "kafka_producers": Producers, "kafka_quotas": Quotas}
    site = made[request.param](tmp_path)
    for module in (groups_client, producers_client, quotas_poll):
        monkeypatch.setattr(module, "KafkaClient", lambda *_, **__: site)
    return site


@pytest.fixture(params=["one process", "a process a poll"])
def polls(request: pytest.FixtureRequest, site: Site) -> Iterator[Callable[[int], AnyPolling]]:
    """Polls at a second, and gives the poller; its record has the numbers of the report."""
    made: list[AnyPolling] = []

    def poll(at_s: int) -> AnyPolling:
        if not made or request.param != "one process":
            if made:
                made.pop().close()
            made.append(site.made())
        (one,) = made
        *_, last = records(one.poll_once(AT + at_s * 1000))
        assert last["dropped"] == (one.last.skipped if one.last.answered else None)
        assert last.get("problem") == (one.last.problems[0] if one.last.problems else None)
        return one

    yield poll
    for one in made:
        one.close()


def told(one: AnyPolling) -> tuple[int, int, int]:
    return one.last.polled, one.last.skipped, one.last.gone


def deletions(folder: Path) -> list[str]:
    found = [record for path in sorted((folder / "polls").iterdir()) for record in records(path)]
    return [record["topic"][-1] for record in found if record["event_type"] == "ledger_deleted"]


def test_things_come_go_and_come_back(site: Site, polls: Callable[[int], AnyPolling]) -> None:
    for second, (names, numbers) in enumerate(
        [("ab", (2, 0, 0)), ("abc", (3, 0, 0)), ("ac", (2, 0, 1)), ("abc", (3, 0, 0))]
    ):
        site.there = set(names)
        one = polls(second)
        assert (told(one), site.known(one), one.last.problems) == (numbers, set(names), [])


def test_a_cluster_that_is_away_changes_nothing(
    site: Site, polls: Callable[[int], AnyPolling]
) -> None:
    site.there = {"a", "b"}
    seen = site.known(polls(0))
    site.away = True
    site.there = set()
    one = polls(1)
    assert (one.last.answered, one.last.gone, site.known(one)) == (False, 0, seen)
    assert one.last.problems[0].endswith("away")
    site.away = False
    one = polls(2)
    assert (one.last.gone, site.known(one), one.last.problems) == (2, set(), [])


@one_by_one
@pytest.mark.parametrize("why", WHY)
def test_what_is_not_answered_costs_itself(
    site: Site, polls: Callable[[int], AnyPolling], why: str
) -> None:
    site.there = {"a", "b"}
    seen = site.known(polls(0))
    site.failing = {"b": why}
    for second in (1, 2):
        one = polls(second)
        assert (told(one), site.known(one)) == ((1, 1, 0), seen)
        assert any(WHY[why].text in text for text in one.last.problems)
    site.failing = {}
    one = polls(3)
    assert (told(one), site.known(one), one.last.problems) == ((2, 0, 0), seen, [])


def test_a_clock_that_goes_back_loses_no_poll(
    site: Site, polls: Callable[[int], AnyPolling]
) -> None:
    """A reader takes each file once, and what is gone by then is told."""
    reader = PollReader(PollPlan((str(site.folder.parent),), None, 1))
    read, end = list[str](), reader.initialOffset()
    site.there = {"a", "b"}
    for second, numbers in ((0, (2, 0, 0)), (-3600, (2, 0, 0)), (-3590, (1, 0, 1)), (9, (1, 0, 0))):
        site.there -= {"b"} if second == -3590 else set()
        one = polls(second)
        assert told(one) == numbers
        assert AT <= one.spool.memory.last_poll_ms < AT + (10_000 if second == 9 else 5_000)
        end = reader.next(end)
        read += end["files"]
    assert len(read) == len(set(read)) == 4


def test_a_poll_that_fails_half_way_is_made_by_the_next_one(
    site: Site,
    polls: Callable[[int], AnyPolling],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind the answers, or in writing them: what the memory of the process has by then is not kept."""
    site.there = {"a", "b"}
    seen = site.known(polls(0))
    kind, error = type(polls(1)), OSError(28, "No space left on device")
    for of, name, gone in ((kind, "_poll", "b"), (Spool, "commit", "a")):
        real, failing = getattr(of, name), [True]

        def half(*given: Any, real: Any = real, failing: Any = failing) -> Any:
            done = list(real(*given)) if real.__name__ == "_poll" else list(given[-1])
            if failing and failing.pop():
                raise error
            return done if real.__name__ == "_poll" else real(*given[:-1], done)

        monkeypatch.setattr(of, name, half)
        site.there -= {gone}
        one = polls(2)
        assert (one.last.answered, site.known(one)) == (False, seen)
        one = polls(3)
        seen = site.known(one)
        assert (told(one), seen) == ((len(site.there), 0, 1), site.there)
        if not isinstance(site, Quotas | Producers):  # whose records are of other kinds
            assert deletions(site.folder)[-1] == gone


@one_by_one
def test_what_is_named_and_not_there_is_told_by_every_poll(
    site: Site, polls: Callable[[int], AnyPolling]
) -> None:
    site.there, site.wanted = {"a"}, ["a", "z"]
    for second, numbers in enumerate([(1, 0, 0), (1, 0, 0), (2, 0, 0), (1, 0, 1)]):
        site.there = {"a", "z"} if second == 2 else {"a"}
        one = polls(second)
        # what goes is gone once before it is absent
        absent = [text for text in one.last.problems if text.endswith("z: does not exist")]
        assert (told(one), len(absent), one.last.absent) == (numbers, *2 * [int(second < 2)])


@one_by_one
def test_what_was_answered_longest_ago_comes_first(site: Site) -> None:
    """A poll has time for one thing of three; turns are those of a process, not of its clock."""
    site.there, site.most = {"a", "b", "c"}, 1
    one = site.made()
    answered = []
    for second in range(6):
        one.poll_once(AT - second * 3_600_000)
        assert (one.last.polled, one.last.skipped) == (1, 2)
        answered += site.there - {_thing(text) for text in one.last.problems}
    assert answered == [*"abcabc"]
    one.close()


def _thing(problem: str) -> str:
    """The thing in `partition a/0: why` and `persistent://public/n1/a: why`."""
    return problem.partition(": ")[0].removesuffix("/0")[-1]
