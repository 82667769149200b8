"""Sizes of requests, against the message schemas of the client that Weir ships: for every version."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pytest

from app.sources.kafka import kafka_client
from app.sources.kafka.client_requests import FETCH, NEWEST, PRODUCE, parse
from tests.support.broker_log_lines import completed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """
package weir;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public final class MessageSizes {
    static final ObjectMapper JSON = new ObjectMapper();

    public static String versions(int api) {
        ApiKeys key = ApiKeys.forId(api);
        return "[" + key.oldestVersion() + ", " + key.latestVersion() + "]";
    }

    /** The size of a request with its header, and what a broker logs of it. */
    public static String produce(String text, int version, String client) throws Exception {
        short v = (short) version;
        ProduceRequestData data = ProduceRequestDataJsonConverter.read(JSON.readTree(text), v);
        RequestHeaderData header = new RequestHeaderData().setRequestApiKey((short) 0)
            .setRequestApiVersion(v).setClientId(client);
        int size = data.size(new ObjectSerializationCache(), v)
            + header.size(new ObjectSerializationCache(), ApiKeys.PRODUCE.requestHeaderVersion(v));
        return "[" + size + ", " + ProduceRequestDataJsonConverter.write(data, v, false) + "]";
    }

    /** The size of an answer with its correlation id, and what a broker logs of it. */
    public static String fetch(String text, int version) throws Exception {
        short v = (short) version;
        FetchResponseData data = FetchResponseDataJsonConverter.read(JSON.readTree(text), v);
        int size = 4 + data.size(new ObjectSerializationCache(), v);
        return "[" + size + ", " + FetchResponseDataJsonConverter.write(data, v, false) + "]";
    }
}
"""
SIZES = [[], [0], [1, 126], [127, 128, 16_382], [16_383, 16_384], [None, 5], [3] * 200]
"""Bytes of records by partition, on either side of each length of a varint."""
NAMES = ["a", "ü€" * 40, "x" * 249]
ID = "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> Any:
    """Kafka's own messages, in the class loader of the client."""
    assert kafka_client.release()  # which compiles the class that has the loader
    jvm: Any = spark._jvm
    loader = jvm.java.lang.System.getProperties().get("weir.KafkaRequests").getClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(SOURCE)
    return compiler.getClassLoader().loadClass("weir.MessageSizes").newInstance()


def records(size: int | None) -> str | None:
    return None if size is None else base64.b64encode(bytes(size)).decode()


def topics(by_id: bool, name: str, parts: str, of: Any) -> Iterator[list[dict[str, Any]]]:
    """Lists of topics with partitions of all sizes."""
    named = {"topicId": ID} if by_id else {name: NAMES[0]}
    yield []
    for sizes in SIZES:
        yield [{**named, parts: [of(n, size) for n, size in enumerate(sizes)]}]
    yield [
        {**({"topicId": ID} if by_id else {name: each}), parts: [of(0, 9)]}
        for each in NAMES * (1 if by_id else 60)
    ]


def charged(api: int, name: str, version: int, client: str | None, **parts: Any) -> int | None:
    header = {
        "requestApiKey": api,
        "requestApiVersion": version,
        "requestApiKeyName": name,
        "correlationId": 1,
        "clientId": client,
    }
    line = completed(requestHeader=header, throttleTimeMs=0, **parts)
    return parse(line, UTC, False, dict).charged_bytes


@pytest.mark.parametrize("api", [PRODUCE, FETCH])
def test_the_newest_versions_are_those_of_the_client(messages: Any, api: int) -> None:
    assert json.loads(messages.versions(api))[1] == NEWEST[api]


def test_a_produce_has_the_size_of_its_message(messages: Any) -> None:
    oldest, newest = json.loads(messages.versions(PRODUCE))
    seen = 0
    for version in range(oldest, newest + 1):
        given = topics(
            version >= 13,
            "name",
            "partitionData",
            lambda n, size: {"index": n, "records": records(size)},
        )
        for each in given:
            for client, transactional_id in ((None, None), ("app", "t€"), ("ü" * 99, "x" * 128)):
                request = {"transactionalId": transactional_id, "acks": -1, "timeoutMs": 1}
                text = json.dumps({**request, "topicData": each})
                size, logged = json.loads(messages.produce(text, version, client))
                assert charged(PRODUCE, "PRODUCE", version, client, request=logged) == size
                seen += 1
    assert seen == 27 * (newest + 1 - oldest)


@pytest.mark.parametrize("tagged", [False, True])
def test_an_answer_to_a_fetch_has_the_size_of_its_message(messages: Any, tagged: bool) -> None:
    oldest, newest = json.loads(messages.versions(FETCH))
    for version in range(oldest, newest + 1):
        more = _tagged() if tagged and version >= 12 else {}
        aborted: Any = [{"producerId": 1, "firstOffset": 2}] * 130 if tagged else None

        def partition(n: int, size: int | None, of: Any = (aborted, more)) -> dict[str, Any]:
            aborted, more = of
            return {
                "partitionIndex": n,
                "errorCode": 0,
                "highWatermark": 1,
                "lastStableOffset": 1,
                "logStartOffset": 0,
                "abortedTransactions": aborted if n == 0 else [],
                "preferredReadReplica": -1,
                "records": records(size),
                **more,
            }

        leader = {"nodeId": 1, "host": "kafka-ü", "port": 9092, "rack": None}
        endpoints = [leader, {**leader, "rack": "r" * 130}] * tagged if version >= 16 else []
        for each in topics(version >= 13, "topic", "partitions", partition):
            head = {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 0}
            tail = {"nodeEndpoints": endpoints} if endpoints else {}
            text = json.dumps({**head, "responses": each, **tail})
            size, logged = json.loads(messages.fetch(text, version))
            found = charged(FETCH, "FETCH", version, "app", request={}, response=logged)
            assert found == size, (version, each)


def _tagged() -> dict[str, Any]:
    return {
        "divergingEpoch": {"epoch": 3, "endOffset": 4},
        "currentLeader": {"leaderId": 1, "leaderEpoch": 2},
        "snapshotId": {"endOffset": 5, "epoch": 6},
    }
