"""What is read of a broker's metrics, and at what time it holds."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from app.show.reconcile.scrape import on_its_clock, parsed
from app.sources.polling import Unanswered
from tests.support.throttle_rows import TOPIC
from tests.unit.show.reconcile.scrapes import BROKER

LINES = f"""
# TYPE pulsar_in_messages_total counter
pulsar_in_messages_total{{cluster="east",namespace="acme/orders",topic="{TOPIC}"}} 1500
pulsar_in_bytes_total{{cluster="east",namespace="acme/orders",topic="{TOPIC}"}} 4.3527E4
pulsar_in_bytes_total{{cluster="east",namespace="acme/orders"}} 99
pulsar_publish_rate_limit_times{{cluster="east",namespace="a/b",topic="persistent://a/b/odd \\"name\\""}} 2
pulsar_subscriptions_count{{cluster="east",namespace="a/b",topic="{TOPIC}"}} 3
pulsar_subscription_in_replay{{cluster="east",topic="{TOPIC}",subscription="a"}} 4
pulsar_subscription_in_replay{{cluster="east",topic="{TOPIC}",subscription="b"}} 2
pulsar_ml_cache_hits_rate{{cluster="east"}} 0.5
pulsar_ml_cache_used_size{{cluster="east"}} 84
process_start_time_seconds{{cluster="east"}} 1.795442256083E9
jvm_threads{{cluster="east"}} 7
pulsar_storage_backlog_quota_check_duration_seconds_bucket{{cluster="east",le="5.0"}} 11
pulsar_storage_backlog_quota_check_duration_seconds_bucket{{cluster="east",le="+Inf"}} 12
pulsar_storage_backlog_quota_check_duration_seconds_count{{cluster="east"}} 12
pulsar_storage_backlog_quota_check_duration_seconds_sum{{cluster="east"}} 6
""".splitlines()


def test_metrics_become_measures() -> None:
    found = parsed(LINES, BROKER, 10, 30)
    assert (found.cluster, found.started_s, found.at_ms) == ("east", 1795442256.083, 20)
    assert found.topics == {
        TOPIC: {"messages_in": 1500.0, "bytes_in": 43527.0, "subscriptions": 3.0, "in_replay": 6.0},
        'persistent://a/b/odd "name"': {"publish_limited_times": 2.0},
    }
    assert found.whole == {"cache_hits": 0.5, "cache_used_bytes": 84.0}
    assert found.checks == {"5.0": 11.0, "+Inf": 12.0, "count": 12.0, "sum": 6.0}


@pytest.mark.parametrize(
    ("labels", "topic"),
    [
        ('topic="persistent://a/b/t",partition="3"', "persistent://a/b/t-partition-3"),
        ('topic="persistent://a/b/t",partition="-1"', "persistent://a/b/t"),
        ('topic="persistent://a/b/t-partition-0"', "persistent://a/b/t-partition-0"),
        ('partition="12",topic="persistent://a/b/u"', "persistent://a/b/u-partition-12"),
        ('topic="__transaction_log_0",partition="-1"', None),
    ],
)
def test_a_partition_with_a_label_of_its_own_is_that_topic(labels: str, topic: str | None) -> None:
    """Brokers with `splitTopicAndPartitionLabelInPrometheus` split the name of every topic."""
    lines = [
        f'{name}{{cluster="east",{labels}}} 7'
        for name in ("pulsar_in_bytes_total", "pulsar_storage_backlog_size", "pulsar_msg_backlog")
    ]
    found = parsed(lines, BROKER, 10, 30)
    shown = {"bytes_in": 7.0, "backlog_bytes": 7.0, "backlog_entries": 7.0}
    assert found.topics == ({} if topic is None else {topic: shown})


def test_an_answer_that_is_not_of_a_broker_is_none() -> None:
    with pytest.raises(Unanswered, match="none of the metrics of a Pulsar broker"):
        parsed(["go_threads 3"], BROKER, 10, 30)


SECOND = 1_700_000_040_000


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "expected"),
    [
        # The date is of the second that the request is in: the clocks may be the same.
        (SECOND + 100, SECOND + 300, (SECOND + 100, SECOND + 300)),
        (SECOND + 999, SECOND + 1100, (SECOND + 999, SECOND + 1100)),
        (SECOND - 50, SECOND + 20, (SECOND - 50, SECOND + 20)),
        # A minute apart; where in its second the server was is not known.
        (SECOND - 60_100, SECOND - 59_900, (SECOND - 100, SECOND + 1100)),
        (SECOND + 59_900, SECOND + 60_100, (SECOND - 100, SECOND + 1100)),
    ],
)
def test_times_are_those_of_the_brokers_clock(
    from_ms: int, to_ms: int, expected: tuple[int, int]
) -> None:
    date = {"Date": formatdate(SECOND / 1000, usegmt=True)}
    assert on_its_clock(from_ms, to_ms, date) == expected


@pytest.mark.parametrize("headers", [{}, {"Date": "yesterday"}])
def test_without_a_date_the_clocks_are_the_same(headers: dict[str, str]) -> None:
    assert on_its_clock(1, 2, headers) == (1, 2)
