"""Every configuration that README and docs show runs as it stands, against the real source.

Only what a reader must replace is replaced: addresses, paths, secrets. All jobs run, as they do
by default; the first configuration of each source runs twice: a first start and a second, the
others run with `--slow`. Alerts are judged beside those that name them: their process takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import yaml

from app import sources
from app.config.settings import load_settings
from app.config.source import listed
from app.run.service import run
from tests.support.broker_log_lines import batch, completed
from tests.support.broker_logs import put
from tests.support.readme import PAGES, blocks
from tests.support.servers import pulsar_plugin
from tests.support.servers.exporter import exporter
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import ServerFailed
from tests.support.servers.pulsar import Pulsar
from tests.support.traces import identities, punctual_trace, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["exporter"]
pytestmark = pytest.mark.kafka

Json = dict[str, Any]
SECRETS = {"KAFKA_PASSWORD": "secret", "KAFKA_JAAS": "secret", "PULSAR_TOKEN": "secret"}
EVENTS, SENT = 18_000, 4_000
"""Of a trace, and those of its beginning that are sent; the pages of `pulsar` share a topic."""


def documented() -> Iterator[Any]:
    """The configurations of all pages that name a source."""
    begun: set[str] = set()
    for page in PAGES:
        for number, text in enumerate(blocks(page, "yaml")):
            found = yaml.safe_load(text)
            feeds = listed(found.get("source")) if isinstance(found, dict) else []
            if feeds and all("format" in feed for _, feed in feeds):
                source = " ".join(dict.fromkeys(feed["format"] for _, feed in feeds))
                is_first = source not in begun
                begun.add(source)
                yield pytest.param(
                    found,
                    2 if is_first else 1,
                    id=f"{page.name} {number}: {source}",
                    marks=() if is_first else pytest.mark.slow,
                )


@cache
def first_lines() -> list[tuple[int, bytes]]:
    """The first records of a fleet, each with its partition."""
    lines = (
        (broker % 6, line)
        for part in punctual_trace(EVENTS).slices()
        for broker, line in zip(part.brokers.tolist(), part.lines(), strict=True)
    )
    return list(islice(lines, SENT))


@pytest.fixture
def here(kafka: Kafka, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Json], Json]:
    """A configuration with this machine's addresses and paths instead of the reader's."""

    def replace(config: Json) -> Json:
        feeds = [feed for _, feed in listed(config["source"])]
        for feed in feeds:
            at_place(feed)
        source = feeds if feeds[1:] else feeds[0]
        return {**config, "source": source, "warehouse": str(tmp_path / "warehouse")}

    def at_place(source: Json) -> None:
        place = {
            "kafka": fleet,
            "kafka_messages": messages,
            "kafka_logs": logs,
            "pulsar": topics,
            "pulsar_messages": messages_of_pulsar,
            "files": plug_in,
            "pulsar_admin": admin,
            "kafka_groups": groups,
            "kafka_producers": producers,
            "kafka_quotas": quotas,
        }.get(source["format"])
        assert place is not None, f"no real source for {source['format']}"
        place(source)

    def topic(source: Json, lines: list[tuple[int, bytes]]) -> None:
        source["options"]["kafka.bootstrap.servers"] = kafka.servers
        name = source["options"]["subscribe"]
        shared_topic(name)
        kafka.produce_to(name, lines)

    def shared_topic(name: str) -> None:
        """A topic that several pages may have."""
        if not kafka.has_topic(name):
            kafka.create_topic(name, 6)

    def fleet(source: Json) -> None:
        """What a fleet sends: policies for every broker alone in one partition."""
        topic(source, first_lines())

    def messages(source: Json) -> None:
        topic(source, [(n % 6, b"message %d" % n) for n in range(60)])

    def logs(source: Json) -> None:
        source["path"] = str(tmp_path / "logs")
        produce = completed(requestHeader={"requestApiKey": 0, "clientId": "app"})
        put(tmp_path / "logs" / "1" / "requests", produce, completed(7))
        put(tmp_path / "logs" / "1" / "dump", batch(), batch(baseOffset=13))

    def topics(source: Json) -> None:
        pulsar: Pulsar = request.getfixturevalue("pulsar")
        name = source["options"]["topics"]
        with suppress(ServerFailed):  # another page has the same topic
            pulsar.namespace(name.rpartition("/")[0])
            pulsar.create_topic(name, 6)
        source["options"]["serviceUrl"] = pulsar.service_url
        source["options"].pop("tlsTrustCertsFilePath", None)
        pulsar.produce_to(name, first_lines())

    def messages_of_pulsar(source: Json) -> None:
        pulsar: Pulsar = request.getfixturevalue("pulsar")
        name = source["options"]["topics"]
        pulsar.namespace(name.rpartition("/")[0])
        pulsar.create_topic(name, 6)
        source["options"] |= {"serviceUrl": pulsar.service_url, "adminUrl": pulsar.url}
        pulsar.produce_to(name, [(n % 6, b"message %d" % n) for n in range(60)])

    def plug_in(source: Json) -> None:
        pulsar: Pulsar = request.getfixturevalue("pulsar")
        folder = tmp_path / "records"
        source["path"] = str(folder)
        pulsar_plugin.start(pulsar, folder)
        pulsar.produce_to("public/default/orders", [(0, b"message")] * 3, partitioned=False)
        pulsar.run_with()  # a broker that ends has delivered what it had

    def admin(source: Json) -> None:
        pulsar: Pulsar = request.getfixturevalue("pulsar")
        pulsar.run_with()
        source["admin"] |= {"url": pulsar.url, "cluster": "standalone"}
        source["admin"].pop("token", None)
        for number, namespace in enumerate(source["admin"]["namespaces"]):
            tenant = namespace.partition("/")[0]
            if tenant not in pulsar.ask("GET", "tenants"):
                pulsar.ask("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
            if namespace not in pulsar.ask("GET", f"namespaces/{tenant}"):
                pulsar.ask("PUT", f"namespaces/{namespace}", {})
            name = f"{namespace}/{tmp_path.name}-{number}"
            pulsar.ask("PUT", f"persistent/{name}", {})
            pulsar.ask("PUT", f"persistent/{name}/subscription/slow")
            pulsar.publish(name, ["message"] * 3)

    def groups(source: Json) -> None:
        source.pop("options", None)
        source["groups"]["options"] = {"bootstrap.servers": kafka.servers}
        for name in ("orders", "billing-1"):
            shared_topic(name)
            kafka.produce_to(name, [(0, b"message")])
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "documented"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()

    def quotas(source: Json) -> None:
        source["options"] = {"kafka.bootstrap.servers": kafka.servers}
        source["quotas"]["exporters"] = {"1": request.getfixturevalue("exporter")}

    def producers(source: Json) -> None:
        source["options"] = {"kafka.bootstrap.servers": kafka.servers}
        name = f"billing-{uuid4().hex[:8]}"
        kafka.create_topic(name)
        before = load_settings(None, {"warehouse": str(tmp_path / "warehouse"), "source": source})
        poller = sources.poller(before, before.feed)
        assert poller is not None
        with closing(poller):  # what is there then is not new
            poller.poll_once(0)
        kafka.produce_to(name, [(0, b"message")])

    return replace


@pytest.mark.parametrize(("config", "starts"), list(documented()))
def test_a_documented_configuration_runs_as_it_stands(
    config: Json,
    starts: int,
    here: Callable[[Json], Json],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "weir.yaml"
    file.write_text(yaml.safe_dump(here(config)))
    settings = load_settings(file, {} if "alerts" in config else {"alerts": None})

    assert run(settings, available_now=True) == 0
    polled = bool(settings.polled)
    first = identities(settings.warehouse)
    assert first
    for _ in range(starts - 1):
        assert run(settings, available_now=True) == 0
        again = identities(settings.warehouse)
        assert len(again) >= len(first) if polled else again == first
    assert not rows_of(settings.warehouse, "quarantine") or settings.streamed
