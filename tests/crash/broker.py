"""Kafka: away, with more partitions, with another topic of the same name, with expired records."""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.crash.disaster import Disaster
from tests.crash.service import Failed
from tests.crash.site import PARTITIONS, Site
from tests.support.waiting import PATIENCE_S

GONE_S = 60.0
MORE = 4


def gone(site: Site) -> None:
    """A broker that is away for a minute: the run waits and goes on."""
    assert site.kafka is not None
    site.produce(0, 0.5)
    with site.running() as run:
        run.wait_for_batches(1)
        site.kafka.stop()
        try:
            time.sleep(GONE_S)
        finally:
            site.kafka.start()
        site.produce(0.5, 1)
        run.wait_to_read(_ends(site))
        run.stop()
    site.finish()


def _read_half(site: Site) -> None:
    """A run that reads the first half of the records and is stopped."""
    site.produce(0, 0.5)
    with site.running() as run:
        run.wait_to_read(_ends(site))
        run.stop()


def partitions_added(site: Site) -> None:
    """New partitions are read from their beginning, without a restart."""
    site.produce(0, 0.5)
    with site.running() as run:
        run.wait_to_read(_ends(site))  # a broker's records that move must not overtake
        with _admin(site) as admin:
            admin.create_partitions([NewPartitions(site.topic, MORE)])[site.topic].result(
                PATIENCE_S
            )
        site.produce(0.5, 1, MORE)
        run.wait_to_read(_ends(site))
        run.stop()
    site.finish()


def recreated_in_a_run(site: Site) -> None:
    """A topic that is deleted and made again during a run."""
    site.produce(0, 0.5)
    with site.running() as run:
        run.wait_to_read(_ends(site))
        _recreate(site)
        site.produce()
        said = run.refused()
    _new_topic(said)
    _new_topic(site.refused())
    site.take_another_warehouse()
    site.finish()


def recreated_between_runs(site: Site) -> None:
    """A topic that was made again, and may hold more than the old one."""
    _read_half(site)
    _recreate(site)
    site.produce(0, site.chance.choice((0.25, 1)))
    _new_topic(site.refused())
    site.produce(len(site.sent) / len(site.records.lines), 1)
    site.take_another_warehouse()
    site.finish()


def expired(site: Site) -> None:
    """Records that the retention has removed before they were read."""
    _read_half(site)
    read = _ends(site)
    site.produce(0.5, 1)
    first = {name: end + site.chance.randint(1, 500) for name, end in read.items()}
    with _admin(site) as admin:
        wanted = [TopicPartition(site.topic, int(p), at) for p, at in first.items()]
        for done in admin.delete_records(wanted).values():
            done.result(PATIENCE_S)
    with site.running() as run:
        said = run.refused(90)
    if "no longer holds records" not in said[0] or "failOnDataLoss false" not in said[-1]:
        raise Failed(f"stopped by {said}")
    source = site.settings.model_dump()["source"]
    options = {**source["options"], "failOnDataLoss": "false"}
    site.write_config(source={"format": "kafka", "options": options})
    site.without = frozenset(
        at for at, (name, offset) in site.sent.items() if read[name] <= offset < first[name]
    )
    site.finish()


def _ends(site: Site) -> dict[str, int]:
    """The end of each partition that has records."""
    return dict(Counter(name for name, _ in site.sent.values()))


def _admin(site: Site) -> AdminClient:
    assert site.kafka is not None
    return AdminClient({"bootstrap.servers": site.kafka.servers})


def _recreate(site: Site) -> None:
    assert site.kafka is not None
    with _admin(site) as admin:
        admin.delete_topics([site.topic])[site.topic].result(PATIENCE_S)
        while site.topic in admin.list_topics(timeout=PATIENCE_S).topics:
            time.sleep(0.2)
    site.kafka.create_topic(site.topic, PARTITIONS)
    site.sent.clear()


def _new_topic(said: list[str]) -> None:
    if "created again" not in " ".join(said) or "new warehouse" not in said[-1]:
        raise Failed(f"stopped by {said}")


DISASTERS = [
    Disaster("kafka-gone", gone, "goes on", "kafka"),
    Disaster("partitions-added", partitions_added, "goes on", "kafka"),
    Disaster("topic-recreated-in-a-run", recreated_in_a_run, "stops", "kafka"),
    Disaster("topic-recreated-between-runs", recreated_between_runs, "stops", "kafka"),
    Disaster("offsets-expired", expired, "stops", "kafka"),
]
