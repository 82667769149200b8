"""Polls of limits and exporters, of a real broker: the limits become policies, the rates rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from app import sources
from app.errors import UserError
from app.run.service import run
from tests.support import backlog_views
from tests.support.servers.exporter import exporter
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import free_ports
from tests.support.servers.raw_kafka import Entity
from tests.unit.sources.kafka.poll import lines

if TYPE_CHECKING:
    from app.config.settings import Settings

__all__ = ["exporter"]

pytestmark = pytest.mark.kafka
USER: Entity = {"user": "quotas-kay"}
NONE = {"producer_byte_rate": None, "consumer_byte_rate": None}


@pytest.fixture
def limited(kafka: Kafka) -> Iterator[None]:
    assert kafka.limit(USER, {"producer_byte_rate": 1000}) == ""
    yield
    assert kafka.limit(USER, NONE) == ""


def given(make: Callable[..., Settings], kafka: Kafka, **exporters: str) -> Settings:
    return make(
        source={
            "format": "kafka_quotas",
            "options": {"kafka.bootstrap.servers": kafka.servers},
            "quotas": {"cluster": "east", "exporters": exporters, "timeout_ms": 5000},
        }
    )


@pytest.mark.usefixtures("spark", "limited")
def test_limits_are_told_when_they_change_and_rates_at_every_poll(
    kafka: Kafka, exporter: str, make_settings: Callable[..., Settings]
) -> None:
    settings = given(make_settings, kafka, b1=exporter)
    assert settings.jobs == ("client_quotas",)
    poller = sources.poller(settings, settings.feed)

    def policies(at_ms: int) -> list[dict[str, Any]]:
        found = lines(poller.poll_once(at_ms))
        assert poller.last.problems == []
        kinds = [r["event_type"] for r in found]
        assert "policy" not in kinds[kinds.index("client_rate") :]  # rates are judged by them
        assert {r["broker"] for r in found if r["event_type"] == "client_rate"} == {"b1"}
        return [r for r in found if "quotas-kay" in r.get("policy_json", "")]

    (first,) = policies(1)
    assert '"producer_byte_rate": 1000' in first["policy_json"]
    assert '"quota_kinds": "remembered"' in first["policy_json"]  # Kafka 4.1
    assert policies(2) == []
    assert kafka.limit(USER, {"consumer_byte_rate": 7}) == ""
    (second,) = policies(3)
    assert '"consumer_byte_rate": 7' in second["policy_json"]
    assert kafka.limit(USER, NONE) == ""
    poller.close()
    again = sources.poller(settings, settings.feed)  # what was there is in the folder
    gone = [r for r in lines(again.poll_once(4)) if "quotas-kay" in r.get("policy_json", "")]
    assert ['"limits": {}' in r["policy_json"] for r in gone] == [True]
    again.close()


@pytest.mark.usefixtures("spark", "limited")
def test_an_exporter_that_is_away_costs_its_broker_alone(
    kafka: Kafka, exporter: str, make_settings: Callable[..., Settings]
) -> None:
    away = f"http://127.0.0.1:{free_ports(1)[0]}/metrics"
    settings = given(make_settings, kafka, b1=exporter, b2=away)
    sources.check(settings.feed, settings.location)
    assert run(settings, available_now=True, drain=True) == 0
    stats = backlog_views.stored(settings, ["client_quota_stats", "coverage_polls", "quarantine"])
    assert {row["broker"] for row in stats["client_quota_stats"]} == {"b1"}
    assert {row["basis"] for row in stats["client_quota_stats"]} == {"metrics"}
    (poll,) = stats["coverage_polls"]
    assert poll["dropped"] == 1 and poll["problem"].startswith("exporter of b2: cannot be reached")
    assert stats["quarantine"] == []
    with pytest.raises(UserError, match=r"source\.quotas\.exporters\.b2: cannot be reached"):
        sources.check(given(make_settings, kafka, b2=away).feed, settings.location)


@pytest.mark.usefixtures("spark")
def test_series_that_an_exporter_does_not_part_by_user_and_client_are_told(
    kafka: Kafka, exporter: str, make_settings: Callable[..., Settings]
) -> None:
    settings = given(make_settings, kafka, b1=exporter.replace("/metrics", "/older"))
    with closing(sources.poller(settings, settings.feed)) as poller:
        poller.poll_once(1)
        (problem,) = poller.last.problems
    assert problem.startswith('exporter of b1: resource="Fetch, user=bob" is left out')


@pytest.mark.parametrize(
    ("quotas", "said"),
    [
        ({"exporters": {"1": "kafka-1:7071"}}, "source.quotas.exporters.1: kafka-1:7071 is no"),
        (
            {"mapping": "jmx"},
            "source.quotas.mapping: jmx cannot be read (No such file or directory) (allowed: a file,"
            " jmx-exporter",
        ),
        ({"interval": 5}, "source.quotas.interval: unknown key"),
    ],
)
def test_what_cannot_be_polled_is_refused(
    quotas: dict[str, Any], said: str, make_settings: Callable[..., Settings]
) -> None:
    options = {"kafka.bootstrap.servers": "h:1"}
    with pytest.raises(UserError) as refused:
        make_settings(source={"format": "kafka_quotas", "options": options, "quotas": quotas})
    assert said in str(refused.value)
