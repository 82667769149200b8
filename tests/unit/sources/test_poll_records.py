"""Every poll leaves its record, whatever happens in it, and the next one goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.config.kafka_producers import KafkaProducersSettings
from app.config.kafka_quotas import KafkaQuotasSettings
from app.errors import UserError
from app.sources.kafka import quotas_poll
from app.sources.kafka.groups_poll import GroupPoller
from app.sources.kafka.kafka_client import answer_time_ms
from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_states import IdState
from app.sources.kafka.producers_poll import ProducerPoller
from app.sources.kafka.quotas_poll import QuotaPoller
from app.sources.kafka.transactions import Coordinated
from app.sources.polling import AnyPolling, Unanswered
from tests.support.polled import records
from tests.unit.sources.kafka import poll as groups
from tests.unit.sources.kafka.answers import P0, answers

AT = 1_700_000_000_000
WEIRD = "http://weir:hush@h:9/metrics \ud800\x1b[2J\u2028two\nlines" + "x" * 5000


class Strange(Exception):
    """An exception that no boundary names."""


class Failing:
    """A client whose call `number` (from 0) raises; all methods but `close` count."""

    def __init__(self, client: Any, number: int, error: BaseException) -> None:
        self._client, self._left, self._error = client, number, error
        self.raised = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found) or name in ("close", "deadline_in"):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                self.raised = True
                raise self._error
            return found(*given, **named)

        return call


class Limits:
    """A cluster with one limit."""

    def quotas(self, deadline: float) -> list[Any]:
        return [({"user": "alice"}, {"producer_byte_rate": 1000.0})]

    def features(self, deadline: float) -> dict[str, int]:
        return {"metadata.version": 29}

    def close(self) -> None:
        """There is no client."""


class Producers:
    """A cluster with a producer id in a transaction."""

    def names(self, deadline: float) -> frozenset[str]:
        return frozenset({"orders"})

    def leaders(self, topics: Any, deadline: float, problems: list[str]) -> Any:
        return {"orders": {0: "1"}}

    def states(self, places: Any, deadline: float, problems: list[str]) -> Any:
        return {Place("orders", 0): [IdState(1, 0, 0, 1000, 7)]}

    def coordinated(self, ids: Any, deadline: float) -> Any:
        return {
            each: Coordinated("t", each, 0, "Ongoing", 9000, 5, frozenset({Place("orders", 0)}))
            for each in ids
        }

    def grants(self, deadline: float) -> Any:
        return []

    def close(self) -> None:
        """There is no client."""


class Rows:
    """Tables that take everything."""

    def append(self, application: str, table: str, rows: list[Any]) -> None:
        """They are not read here."""


def poller(feed: str, folder: Path, client: Any, **exporters: str) -> AnyPolling:
    if feed == "kafka_groups":
        return GroupPoller(groups.settings(publish_times=True), folder, client=client)
    if feed == "kafka_producers":
        settings = KafkaProducersSettings(acls=True)
        live: Any = Rows()
        return ProducerPoller(settings, {}, folder, live, admin=lambda _: client)
    return QuotaPoller(KafkaQuotasSettings(exporters=exporters), {}, folder, client=client)


def cluster(feed: str) -> Any:
    if feed == "kafka_groups":
        scripted = groups.Scripted()
        scripted.now = answers(committed={"fast": {P0: 5}})
        return scripted
    if feed == "kafka_producers":
        return Producers()
    return Limits()


ERRORS = [
    Strange(WEIRD),
    ValueError(),
    OverflowError("int too large"),
    MemoryError(),
    RecursionError("deep"),
    KeyError("a"),
    StopIteration(),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"),
    Unanswered(WEIRD),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("feed", ["kafka_groups", "kafka_producers", "kafka_quotas"])
def test_an_exception_at_any_call_leaves_the_record_of_the_poll(
    tmp_path: Path, feed: str, error: Exception
) -> None:
    for number in range(20):
        client = Failing(cluster(feed), number, error)
        one = poller(feed, tmp_path / str(number), client)
        *_, last = records(one.poll_once(AT))
        *_, second = records(one.poll_once(AT + 15_000))
        if not client.raised:
            one.close()
            break
        failed = [each["problem"] for each in (last, second) if each["problem"]]
        # Oldest messages that are not read in time are read by a later poll.
        assert failed or isinstance(error, Unanswered)
        assert all(text.isprintable() and len(text) <= 1000 for text in failed)
        assert not any("hush" in text for text in failed)
        if not isinstance(error, Unanswered):
            assert type(error).__name__ in failed[0]
        *_, third = records(one.poll_once(AT + 30_000))
        assert third["dropped"] is not None
        one.close()
    assert number, "no call was made"


def test_rows_that_a_table_does_not_take_cost_no_poll(tmp_path: Path) -> None:
    live: Any = Failing(Rows(), 1, OverflowError("a number exceeds 64 bits"))
    settings, client = KafkaProducersSettings(), Producers()
    one = ProducerPoller(settings, {}, tmp_path, live, admin=lambda _: client)
    for poll in range(3):
        *_, last = records(one.poll_once(AT + poll * 15_000))
        assert last["dropped"] == 0
        assert one.last.problems == (
            ["producer_id_live: OverflowError: a number exceeds 64 bits"] if poll == 0 else []
        )
    one.close()


def test_limits_leave_time_for_what_follows_from_them(tmp_path: Path) -> None:
    """A poll has 15 s, and a broker a sixth of it for an answer."""

    class Timed(Limits):
        def quotas(self, deadline: float) -> list[Any]:
            left["quotas"] = deadline - time.monotonic()
            return super().quotas(deadline)

        def features(self, deadline: float) -> dict[str, int]:
            left["features"] = deadline - time.monotonic()
            return super().features(deadline)

    left: dict[str, float] = {}
    one = poller("kafka_quotas", tmp_path, Timed())
    one.poll_once(AT)
    one.close()
    assert left["quotas"] < 7.5 < left["features"] < 15
    assert answer_time_ms(KafkaQuotasSettings(), 2) == 2500


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_what_ends_the_process_passes(tmp_path: Path, error: BaseException) -> None:
    one = poller("kafka_groups", tmp_path, Failing(cluster("kafka_groups"), 0, error))
    with pytest.raises(type(error)):
        one.poll_once(AT)
    one.close()


def test_a_mistake_of_the_configuration_is_raised_after_the_record(tmp_path: Path) -> None:
    error = UserError("source.groups.options: no such file\nallowed: a file")
    one = poller("kafka_groups", tmp_path, Failing(cluster("kafka_groups"), 0, error))
    with pytest.raises(UserError, match="no such file"):
        one.poll_once(AT)
    (path,) = one.records.iterdir()
    (record,) = records(path)
    assert (record["dropped"], record["problem"]) == (
        None,
        "not polled: source.groups.options: no such file\\nallowed: a file",
    )
    one.close()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exporter_that_fails_costs_its_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """At the first line, or in the middle of the page."""
    line = 'kafka_server_quota_byte_rate{resource="Produce",user="alice"} 9'
    for lines in ([], [line]):

        def page(url: str, seconds: float, lines: list[str] = lines) -> Iterator[str]:
            yield from lines
            if url.endswith("/a"):
                raise error
            yield line

        monkeypatch.setattr(quotas_poll, "exported", page)
        at = {"1": "http://h:1/a", "2": "http://h:1/b"}
        one = poller("kafka_quotas", tmp_path / str(len(lines)), Limits(), **at)
        found = records(one.poll_once(AT))
        assert [(r["event_type"], r["broker"]) for r in found] == [
            ("policy", "*"),
            ("client_rate", "2"),
            ("poll", "*"),
        ]
        assert found[-1]["dropped"] == 1
        assert found[-1]["problem"].startswith("exporter of 1: ")
        one.close()
