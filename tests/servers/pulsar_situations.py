"""What keeps or hides a backlog, all on one broker: quotas that are switched off, eviction that skips
nothing, a large message that was handed back, an open transaction, delayed messages."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pulsar as client

from tests.support.recording.scene import Scene, name_of, path
from tests.support.servers.pulsar import Pulsar, jars
from tests.support.waiting import wait_for

OFF, OFF_TOPIC = name_of("off", "t"), name_of("small", "t")
"""Without a quota of size by their namespace, and by the topic's own policy."""
EVICTED, NACKED, OPEN, DELAYED = (
    name_of(name, "t") for name in ("evicts", "large", "open", "delayed")
)
SPLIT = name_of("split", "t")
"""Two partitions, which the broker's metrics give a label of their own."""
PERSISTED = 10
MAX_MESSAGE = 50_000
DEFAULT_BYTES, SMALL_BYTES, EVICT_BYTES = 20_000_000, 100_000, 20_000
SETTINGS = {
    "backlogQuotaDefaultLimitBytes": str(DEFAULT_BYTES),
    "managedLedgerMaxUnackedRangesToPersist": str(PERSISTED),
    "maxMessageSize": str(MAX_MESSAGE),
    "splitTopicAndPartitionLabelInPrometheus": "true",
    "transactionCoordinatorEnabled": "true",
}
"""Settings of the broker that they need."""
REMARKS = {
    OPEN: "transaction is open",
    DELAYED: "are delayed",
    NACKED: "1 message waits to be sent again",
}
TRANSACTION = """
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.PulsarClient;

class Transaction {
    public static void main(String[] given) throws Exception {
        PulsarClient client =
            PulsarClient.builder().serviceUrl(given[0]).enableTransaction(true).build();
        var open = client.newTransaction().withTransactionTimeout(2, TimeUnit.HOURS).build().get();
        var producer = client.newProducer().topic(given[1]).sendTimeout(0, TimeUnit.SECONDS).create();
        producer.newMessage(open).value(new byte[100]).send();
        System.out.println("open");
        System.in.read();
        System.exit(0);
    }
}
"""


def prepare(scene: Scene, namespaces: tuple[str, ...]) -> None:
    """Namespaces, topics and quotas."""
    ask = scene.pulsar.ask
    for name in namespaces:
        scene.namespace(name)
    for topic in (OFF, OFF_TOPIC, EVICTED, NACKED, OPEN, DELAYED):
        scene.topic(topic)
    scene.pulsar.create_topic(SPLIT.split("://")[1], 2)
    for name, limit, policy in (
        ("off", -1, "producer_request_hold"),
        ("small", SMALL_BYTES, "producer_request_hold"),
        ("evicts", EVICT_BYTES, "consumer_backlog_eviction"),
    ):
        ask("POST", f"namespaces/public/{name}/backlogQuota", quota(limit, policy))
    where = f"{path(OFF_TOPIC)}/backlogQuota"
    ask("POST", where, quota(-1, "producer_request_hold"))
    wait_for(lambda: ask("GET", f"{path(OFF_TOPIC)}/backlogQuotaMap"))


def quota(size: int, policy: str) -> dict[str, object]:
    """A quota of size; -1 switches it off."""
    return {"limitSize": size, "limitTime": -1, "policy": policy}


def begin(one: client.Client) -> list[client.Consumer]:
    """Everything but the transaction; consumers that stay."""
    shared = {"consumer_type": client.ConsumerType.Shared, "negative_ack_redelivery_delay_ms": 1000}
    for topic in (OFF, OFF_TOPIC):
        one.subscribe(topic, "idle").close()
        send(one, topic, DEFAULT_BYTES * 5 // 4 // 45_000, 45_000)
    evicted = one.subscribe(EVICTED, "workers", **shared)
    send(one, EVICTED, 4 * EVICT_BYTES // 100, 100)
    for number in range(4 * EVICT_BYTES // 100):
        message = evicted.receive(60_000)
        if number:
            evicted.acknowledge(message)
    nacked = one.subscribe(NACKED, "workers", **shared)
    large = one.create_producer(NACKED, chunking_enabled=True, batching_enabled=False)
    large.send(random.Random(1).randbytes(5 * MAX_MESSAGE // 2))
    nacked.negative_acknowledge(nacked.receive(60_000))
    time.sleep(3)
    for seed in (2, 3):  # what waits behind it
        large.send(random.Random(seed).randbytes(5 * MAX_MESSAGE // 2))
    delayed = one.subscribe(DELAYED, "workers", **shared)
    producer = one.create_producer(DELAYED, batching_enabled=False)
    for _ in range(5):
        producer.send(b"later", deliver_after=timedelta(hours=2))
    return [evicted, nacked, delayed]


def go_on(scene: Scene, stalled: client.Consumer) -> None:
    """The large message that was handed back is skipped, and those behind it are read."""
    scene.pulsar.ask("POST", f"{path(NACKED)}/subscription/workers/skip/3")
    for _ in range(2):
        stalled.acknowledge(stalled.receive(60_000))


def send(one: client.Client, topic: str, count: int, size: int) -> None:
    """So many messages, each an entry of its own."""
    producer = one.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for _ in range(count):
        producer.send_async(b"x" * size, None)
    producer.flush()
    producer.close()


@contextlib.contextmanager
def transaction(broker: Pulsar, one: client.Client, folder: Path) -> Iterator[None]:
    """A transaction that has published and stays open, and messages behind it."""
    program = folder / "Transaction.java"
    program.write_text(TRANSACTION)
    reader = one.subscribe(OPEN, "reader")
    process = subprocess.Popen(
        [
            str(shutil.which("java")),
            f"-Dlog4j2.configurationFile={folder / 'broker' / 'log4j2.xml'}",
            "-cp",
            f"{jars()}/*",
            *(str(program), broker.service_url, OPEN),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        send(one, OPEN, 50, 100)
        yield
    finally:
        process.stdin.close()
        process.wait(60)
        reader.close()
