"""What `policy export` writes, applied with the tools of real brokers and read back."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import yaml

from app import sources
from app.cli import main
from app.config.pulsar_admin import PulsarAdminSettings
from app.sources.pulsar.admin_poll import AdminPoller
from app.whatif.policy_document import document
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import serving
from tests.support.servers.pulsar import Pulsar
from tests.support.servers.tools import kafka_tools, pulsar_tools, together
from tests.unit.sources.kafka.poll import lines

if TYPE_CHECKING:
    from app.config.settings import Settings

Capture = pytest.CaptureFixture[str]
Json = dict[str, Any]
DEFAULT = "<default>"
ODD = 'it\'s a "user" = $HOME `x` \\ 100 %, größe 用户'
KAFKA: list[Json] = [
    # the eight levels
    {"scope": "user", "name": "alice", "limits": {"producer_byte_rate": 1048576}},
    {"scope": "user", "name": DEFAULT, "limits": {"request_percentage": 12.5}},
    {"scope": "user", "name": "alice", "client_id": "app", "limits": {"consumer_byte_rate": 7}},
    {"scope": "user", "name": "alice", "client_id": DEFAULT, "limits": {"producer_byte_rate": 8}},
    {"scope": "user", "name": DEFAULT, "client_id": "app", "limits": {"consumer_byte_rate": 9}},
    {"scope": "user", "name": DEFAULT, "client_id": DEFAULT, "limits": {"producer_byte_rate": 1}},
    {
        "scope": "client",
        "name": "app",
        "limits": {
            "producer_byte_rate": 10,
            "consumer_byte_rate": 9007199254740992,
            "request_percentage": 200,
            "controller_mutation_rate": 0.1,
        },
    },
    {"scope": "client", "name": DEFAULT, "limits": {"controller_mutation_rate": 5}},
    # names that shells and tools read in their own way
    document("user", ODD, {"producer_byte_rate": 11}, ODD),
    document("user", "a*b?[c]", {"producer_byte_rate": 12}),
    document("user", "-x", {"producer_byte_rate": 13}),
    {"scope": "client", "name": "--entity-default", "limits": {"producer_byte_rate": 14}},
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker whose limits are those of a test alone."""
    with serving(lambda: Kafka(tmp_path_factory.mktemp("kafka")), "Kafka broker") as one:
        yield one


def applied(policies: Path, format_: str, tool: Path, **environment: str) -> None:
    """Export policies and run the script with the tool of a broker."""
    run = together(tool)
    script = policies.with_suffix(".sh")
    assert main(["policy", "export", str(policies), "--format", format_, "--out", str(script)]) == 0
    words = {"PATH": f"{tool.parent}:{os.environ['PATH']}", "LC_ALL": "C", **environment}
    done = subprocess.run(
        ["sh", str(script)],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr


def written(path: Path, documents: Sequence[Json]) -> Path:
    path.write_text(yaml.safe_dump(list(documents), allow_unicode=True), encoding="utf-8")
    return path


def polled(found: Sequence[Json]) -> list[Json]:
    """The documents of a poll as a file has them, in which names are patterns."""
    documents = [json.loads(r["policy_json"]) for r in found if r["event_type"] == "policy"]
    return [document(d["scope"], d["name"], d["limits"], d.get("client_id")) for d in documents]


def assert_same(documents: Sequence[Json], policies: Path, capsys: Capture) -> None:
    """`policy diff` finds no difference between what was polled and a file."""
    read_back = written(policies.with_name("read-back.yaml"), documents)
    capsys.readouterr()
    assert main(["policy", "diff", str(policies), str(read_back), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_limits_of_kafka_are_read_back_as_they_were_exported(
    broker: Kafka, make_settings: Callable[..., Settings], tmp_path: Path, capsys: Capture
) -> None:
    policies = written(tmp_path / "limits.yaml", KAFKA)
    tool = kafka_tools(tmp_path / "tools") / "bin" / "kafka-configs.sh"
    applied(policies, "kafka-configs", tool, BOOTSTRAP_SERVER=broker.servers)
    options = {"kafka.bootstrap.servers": broker.servers}
    settings = make_settings(source={"format": "kafka_quotas", "options": options})
    with closing(sources.poller(settings, settings.feed)) as poller:
        assert_same(polled(lines(poller.poll_once(1))), policies, capsys)


NAMESPACE, TOPIC = "public/exported", "persistent://public/exported/größe 1"
PULSAR: list[Json] = [
    {
        "scope": "namespace",
        "name": NAMESPACE,
        "limits": {
            "publishRateInMsgs": 100,
            "resource_group": "exported",
            "message_ttl_in_seconds": 3600,
            "backlog_quota": {
                "destination_storage": {"limitSize": 1000000, "policy": "producer_exception"},
                "message_age": {"limitTime": 60, "policy": "consumer_backlog_eviction"},
            },
        },
    },
    {
        "scope": "topic",
        "name": TOPIC,
        "limits": {
            "publishRateInBytes": 5000,
            "message_ttl_in_seconds": 60,
            "backlog_quota": {
                "destination_storage": {"limitSize": 7, "policy": "producer_request_hold"}
            },
        },
    },
    {"scope": "resource_group", "name": "exported", "limits": {"publishRateInBytes": 70000}},
    {"scope": "broker", "name": "*", "limits": {"maxPublishRatePerTopicInMessages": 500}},
]
OF_BROKER = "brokers/configuration/maxPublishRatePerTopicInMessages"


@pytest.fixture
def limited(pulsar: Pulsar) -> Iterator[Pulsar]:
    """The broker, whose own limit is gone behind the test: others use it, too."""
    pulsar.run_with()
    yield pulsar
    pulsar.ask("POST", f"{OF_BROKER}/0")
    pulsar.ask("DELETE", OF_BROKER)


def test_limits_of_pulsar_are_read_back_as_they_were_exported(
    limited: Pulsar, tmp_path: Path, capsys: Capture
) -> None:
    pulsar = limited
    pulsar.ask("PUT", f"namespaces/{NAMESPACE}", {})
    pulsar.create_topic(quote(TOPIC.removeprefix("persistent://")))
    policies = written(tmp_path / "limits.yaml", PULSAR)
    tool = pulsar_tools(tmp_path / "tools", pulsar) / "bin" / "pulsar-admin"
    applied(policies, "pulsar-admin", tool)
    poller = AdminPoller(
        PulsarAdminSettings(cluster="standalone", url=[pulsar.url], namespaces=[NAMESPACE]),
        tmp_path / "polls",
    )
    documents = polled(lines(poller.poll_once(1)))
    # a broker's own settings come with the one that was exported
    for each in documents:
        if each["scope"] == "broker":
            each["name"] = "*"
            each["limits"] = {k: v for k, v in each["limits"].items() if k in PULSAR[3]["limits"]}
    assert_same(documents, policies, capsys)
