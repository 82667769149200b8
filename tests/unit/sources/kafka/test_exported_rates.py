"""What exporters show of client quotas, as records; two of the texts are those of real ones."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from app.config.exporters import ExporterMapping, shipped_mappings
from app.config.settings import load_settings
from app.errors import UserError
from app.sources.kafka.exported_rates import MOST, ExportedRates, thousandths
from app.sources.kafka.quotas_poll import exported, measured
from app.sources.polling import Unanswered
from tests.conftest import ROOT
from tests.support.servers.admin import AdminServer, status

TEXTS = Path(__file__).parents[3] / "data" / "exporters"


def lines(name: str) -> list[str]:
    return (TEXTS / f"{name}.txt").read_text("utf-8").splitlines()


def rates(name: str) -> ExportedRates:
    return ExportedRates(shipped_mappings()[name], "east", "1")


def shown(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The columns that differ."""
    names = ("quota_type", "principal", "client_id", "value_milli", "throttle_avg_milli")
    return [tuple(record.get(name) for name in names) for record in records]


def test_a_record_has_its_broker_and_time() -> None:
    first = rates("jmx-exporter").records(lines("jmx-exporter"), 5_000)[0]
    assert first == {
        "event_type": "client_rate",
        "source_feed": "kafka_quotas",
        "cluster": "east",
        "broker": "1",
        "ts_wall_ms": 5_000,
        "quota_type": "controller_mutation",
        "principal": "",
        "client_id": "1",
        "value_milli": 55_000,
    }


def test_the_jmx_exporter_with_its_rules_for_kafka() -> None:
    found = shown(rates("jmx-exporter").records(lines("jmx-exporter"), 0))
    assert found == [
        ("controller_mutation", "", "1", 55_000, None),
        ("controller_mutation", "", "maker", 53_710, None),
        ("controller_mutation", "", "reader", 55_000, None),
        ("fetch", "bob$1", "reader", 21_287_880, None),
        ("produce", "alice", "", 21_396_180, 201_200),
        ("produce", "bob$1", 'a:b"c,d', 959_943, None),
        ("request", "ANONYMOUS", "", 217, None),
        ("request", "alice", "", 911, None),
        ("request", "bob$1", "", 1_513, None),
    ]


@pytest.mark.parametrize("release", ["4.4.0", "4.1.0", "3.9.2"])
def test_the_jmx_exporter_on_brokers_of_three_releases(release: str) -> None:
    """Agent 1.0.1 with the rules to paste before all others, a page of each broker."""
    answers = rates("jmx-exporter")
    records = answers.records(lines(f"jmx-kafka-{release}"), 0)
    throttled = [("fetch", "", "reader", 1_997_711, 5_010_500)] if release == "3.9.2" else []
    assert [each for each in shown(records) if each[0] == "fetch"] == throttled
    assert [each[:3] for each in shown(records) if each[0] != "fetch"] == [
        ("produce", "ANONYMOUS", ""),
        ("produce", "ANONYMOUS", 'a:b"c,d'),
        ("request", "ANONYMOUS", ""),
    ]
    assert all(record["value_milli"] > 1000 for record in records)
    assert list(answers.left.problems()) == [] and not answers.unruled


def test_rules_that_take_two_tags_for_one_are_seen() -> None:
    """Those of the JMX exporter before it had rules for users."""
    answers = rates("jmx-exporter")
    line = 'kafka_server_quota_byte_rate{resource="Produce, user=bob",clientId="app",} 960.0'
    assert shown(answers.records([*lines("jmx-exporter"), line], 0)) == shown(
        rates("jmx-exporter").records(lines("jmx-exporter"), 0)
    )
    assert answers.unparted == 'resource="Produce, user=bob"'
    answers.records(lines("jmx-exporter"), 15_000)
    assert answers.unparted is None


@pytest.mark.parametrize(
    ("mapping", "page", "why"),
    [
        (
            "jmx-exporter",
            "strimzi-reporter",
            r"it has kafka_server_\w+: mapping is strimzi-reporter",
        ),
        (
            "strimzi-reporter",
            "jmx-exporter",
            r"it has kafka_server_quota_\w+: mapping is jmx-exporter",
        ),
        (  # the same brokers with rules in the order of kafka-kraft-3_0_0.yml
            "jmx-exporter",
            "jmx-kraft-rules-4.4.0",
            r"it has kafka_server_produce_user_anonymous_byte_rate: a rule before the quota rules",
        ),
        (
            "jmx-exporter",
            "kafka_server_produce__user_alice__client_id_app_byte_rate 960.0",
            r"it has kafka_server_produce__user_alice__client_id_app_byte_rate: a rule before the quota"
            r" rules takes user and client id into the name, .* Put the quota rules",
        ),
        (  # rules of one's own
            "jmx-exporter",
            'kafka_quota_fetch_byte_rate{user="alice"} 960.0',
            "it has kafka_quota_fetch_byte_rate, which the mapping lacks: name it in a mapping",
        ),
        (
            "jmx-exporter",
            'kafka_server_socket_server_metrics_incoming_byte_rate{listener="REPLICATION"} 1\n'
            "kafka_server_replica_fetcher_metrics_outgoing_byte_rate 7",
            "no quota of its type was ever set",
        ),
    ],
)
def test_why_a_page_shows_no_client(mapping: str, page: str, why: str) -> None:
    text = page.splitlines() if " " in page else lines(page)
    answers = rates(mapping)
    assert answers.records(text, 0) == [] and re.match(why, answers.unmeasured())


def test_a_check_counts_the_clients_that_are_measured() -> None:
    with AdminServer() as exporter:
        exporter.answers["/metrics"] = "\n".join(lines("jmx-exporter"))
        exporter.answers["/other"] = "\n".join(lines("strimzi-reporter"))
        urls = {"1": f"{exporter.url}/metrics", "2": f"{exporter.url}/other"}
        options = {"kafka.bootstrap.servers": "h:1"}
        source = {"format": "kafka_quotas", "options": options, "quotas": {"exporters": urls}}
        settings = load_settings(None, {"source": source})
        (feed,) = settings.feeds
        one, two = measured(feed).split("; ")
    assert one == "exporter of 1: 8 measured clients"
    assert two.endswith("mapping is strimzi-reporter")


def test_a_check_has_the_rules_to_paste() -> None:
    """Where one rule takes user and client id into the name, or both for one tag; the page has the same."""
    block = (ROOT / "configs/exporters/rules/jmx-exporter.yml").read_text("utf-8")
    page = (ROOT / "docs/feeds/kafka-quotas.md").read_text("utf-8")
    assert block in page.replace("\n  ", "\n").replace("\n- pattern", "\n- pattern")
    with AdminServer() as exporter:
        exporter.answers["/kraft"] = "kafka_server_fetch_user_alice_byte_rate 1.0\n"
        exporter.answers["/older"] = 'kafka_server_quota_byte_rate{resource="Fetch, user=a"} 1.0\n'
        exporter.answers["/right"] = "\n".join(lines("jmx-exporter"))
        for path, with_rules in (("kraft", True), ("older", True), ("right", False)):
            quotas = {"exporters": {"1": f"{exporter.url}/{path}"}}
            options = {"kafka.bootstrap.servers": "h:1"}
            source = {"format": "kafka_quotas", "options": options, "quotas": quotas}
            (feed,) = load_settings(None, {"source": source}).feeds
            said, _, rules = measured(feed).partition("\n")
            assert (rules == block.rstrip()) is with_rules
            assert ("before all others" in said) is with_rules


def test_the_reporter_of_strimzi() -> None:
    records = rates("strimzi-reporter").records(lines("strimzi-reporter"), 0)
    assert shown([r for r in records if "exempt" not in r]) == [
        ("controller_mutation", "", "1", 55_000, None),
        ("controller_mutation", "", "maker", 55_000, None),
        ("controller_mutation", "", "reader", 55_000, None),
        ("fetch", "bob$1", "reader", 21_348_390, None),
        ("produce", "alice", "", 22_361_549, 209_053),
        ("produce", "bob$1", 'a:b"c,d', 1_103_072, None),
        ("request", "ANONYMOUS", "", 97, None),
        ("request", "alice", "", 1_196, None),
        ("request", "bob$1", "", 1_147, None),
    ]
    assert shown([r for r in records if r.get("exempt")]) == [("request", "", "", 0, None)]


def test_counters_of_redpanda_are_rates_from_the_second_answer_on() -> None:
    poll = rates("redpanda")
    text = lines("redpanda")
    assert poll.records(text, 10_000) == []
    later = [
        line.replace("} 40000", "} 90000").replace("} 500", "} 750").replace("} 7000", "} 10")
        for line in text
    ]
    # Of the reader the broker counts anew.
    assert shown(poll.records(later, 15_000)) == [("produce", "a%b", "app", 10_000_000, 50_000)]
    assert shown(poll.records(later, 20_000)) == [
        ("fetch", "", "reader", 0, None),
        ("produce", "a%b", "app", 0, 0),
    ]


@pytest.mark.parametrize("bound", ["+Inf", "-1", "0"])
def test_counters_of_several_threads_are_one_series(bound: str) -> None:
    """And a bound that throttles nobody is the largest: brokers before 3.5 took 0 and -1."""
    mapping = ExporterMapping.model_validate(
        {
            "principal": "user",
            "client_id": "client",
            "metrics": [
                {"metric": "m", "quota_type": "fetch", "column": "value_milli", "counter": True},
                {"metric": "b", "quota_type": "fetch", "column": "bound_milli"},
            ],
        }
    )
    poll = ExportedRates(mapping, "c", "b")
    poll.records(['m{client="x",shard="0"} 1', 'm{client="x",shard="1"} 2'], 0)
    (record,) = poll.records(
        ['m{client="x",shard="0"} 5', 'm{client="x",shard="1"} 8', f'b{{client="x"}} {bound}'],
        1_000,
    )
    assert (record["value_milli"], record["bound_milli"]) == (10_000, MOST)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1.2345, 1_234), (-3.0, -3_000), (9.3e18, MOST), (-9.3e18, -MOST - 1), (float("inf"), MOST)],
)
def test_thousandths_stay_within_64_bits(number: float, expected: int) -> None:
    assert thousandths(number) == expected


@pytest.mark.parametrize("url", ["kafka-1:7071", "ftp://kafka-1", "http://kafka-1:7071/m http://k"])
def test_what_is_no_address_is_refused_by_its_broker(url: str) -> None:
    quotas = {"exporters": {"7": url}}
    with pytest.raises(UserError, match=r"source\.quotas\.exporters\.7: .* is no address \(http"):
        load_settings(None, {"source": {"format": "kafka_quotas", "quotas": quotas}})


def test_an_exporter_has_its_login_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with AdminServer() as exporter, AdminServer() as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        exporter.answers["/metrics"] = "a 1\n"
        exporter.answers["/moved"] = status(302, Location=f"{other.url}/metrics")
        url = exporter.url.replace("://", "://me:p%40w@")
        assert list(exported(f"{url}/metrics", 5)) == ["a 1"]
        with pytest.raises(Unanswered, match="answers 302"):
            list(exported(f"{url}/moved", 5))
        with pytest.raises(Unanswered, match="its address is not http"):
            list(exported(f"{other.url}\\\\@{exporter.url}/metrics", 5))
        login = "Basic " + b64encode(b"me:p@w").decode()
        assert [headers["authorization"] for headers in exporter.headers] == [login] * 2
        assert other.asked == []
