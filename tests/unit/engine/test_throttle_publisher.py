"""The records of the throttle feed, and the settings that turn it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.config.settings import load_settings
from app.engine.govern import Committer
from app.engine.messages import MessageKind, encode
from app.engine.operators import operators
from app.engine.throttle_publisher import MESSAGES, ThrottleFeed, messages
from app.errors import UserError
from app.run.failures import Passing, failure, without_secrets
from app.setup.validate import unset_variables
from app.sources.ports import WrongAnswer
from tests.reference.words import words
from tests.support.servers.kafka_port import port, says
from tests.support.throttle_command import decode_command
from tests.support.throttle_publisher import command
from tests.support.throttle_rows import TOPIC, frame
from udfs.wire import Fields, ThrottleCommand, encode_command

BIG = 2**53 + 1
ON = {"topic": "commands", "options": {"kafka.bootstrap.servers": "a:1"}}
PIP = {"protocol": "pip385", "receipt_model": "supported"}


def told(*rows: dict[str, Any], fields: Fields | None = None) -> list[dict[str, Any]]:
    """The records for rows, headers as a dictionary."""
    found = messages(frame("producer_throttle", list(rows)), fields or Fields())
    assert found.schema == MESSAGES
    return [
        {**r, "headers": {h["key"]: h["value"] for h in r["headers"]}} for r in found.to_pylist()
    ]


def test_a_command_byte_for_byte() -> None:
    row = command(ts_mono_ns=5, row_no=3, partition=4, topic=f"{TOPIC}-partition-4")
    assert told(row) == [
        {
            "key": b'{"broker":"b1","cluster":"east","cnx_id":"c1","request_id":1,"row_no":3,'
            b'"ts_mono_ns":5}',
            "value": b'{"broker":"b1","cluster":"east","cnx_id":"c1","end_ms":1700000040250,'
            b'"partition":4,"pause_ms":250,"producer_id":1,"producer_name":"p",'
            b'"reason":"TopicProduceQuotaExceeded","reason_number":0,"request_id":1,'
            b'"rule":"bucket_empty","start_ms":1700000040000,'
            b'"topic":"persistent://acme/orders/created-partition-4","ts_mono_ns":5}',
            "headers": {
                "command": bytes.fromhex("08 01 10 01 20 00 28 fa 01"),
                "content-type": b"application/json",
            },
        }
    ]


def test_timed_out_sends_are_no_commands() -> None:
    timeout = {"sequence_id": 9, "exception": "ProducerThrottledException"}
    assert told(command(**timeout), command(request_id=None)) == []
    assert len(told(command(**timeout), command(row_no=1))) == 1
    assert messages(frame("producer_throttle", [])).schema == MESSAGES


def test_records_are_in_order_whatever_the_order_of_the_rows() -> None:
    rows = [
        command(cluster=cluster, broker=broker, ts_mono_ns=at, row_no=n)
        for cluster in ("east", "west")
        for broker in ("b1", "b2")
        for at in (5, BIG, BIG + 1)
        for n in (2, 10)
    ]
    assert told(*reversed(rows)) == told(*rows)
    keys = [json.loads(r["key"]) for r in told(*rows[::2], *rows[1::2])]
    assert [(k["cluster"], k["broker"], k["ts_mono_ns"], k["row_no"]) for k in keys] == [
        (r["cluster"], r["broker"], r["ts_mono_ns"], r["row_no"]) for r in rows
    ]


def test_an_unknown_pause_is_0_on_the_wire_and_null_in_the_value() -> None:
    (record,) = told(command(pause_ms=None, start_ms=None, end_ms=None))
    assert decode_command(record["headers"]["command"]).pause_ms == 0
    value = json.loads(record["value"])
    assert [value[name] for name in ("pause_ms", "start_ms", "end_ms")] == [None] * 3


def test_large_numbers_are_exact() -> None:
    (record,) = told(command(producer_id=2**63 - 1, ts_mono_ns=BIG, pause_ms=BIG, request_id=BIG))
    value, key = json.loads(record["value"]), json.loads(record["key"])
    assert (value["producer_id"], value["ts_mono_ns"], value["pause_ms"]) == (2**63 - 1, BIG, BIG)
    assert (key["ts_mono_ns"], key["request_id"]) == (BIG, BIG)
    assert decode_command(record["headers"]["command"]) == ThrottleCommand(
        BIG, 2**63 - 1, "TopicProduceQuotaExceeded", BIG
    )


def test_a_reused_request_id_has_another_key() -> None:
    again = (command(), command(ts_mono_ns=1), command(row_no=1), command(cnx_id="c2"))
    assert len({r["key"] for r in told(*again)}) == len(again)


def test_names_that_are_not_ascii_and_every_reason_come_back() -> None:
    (record,) = told(command(producer_name='ü"\u2028\n'))
    assert json.loads(record["value"])["producer_name"] == 'ü"\u2028\n'
    reasons = words(
        "TopicProduceQuotaExceeded ResourceGroupProduceQuotaExceeded"
        " ConnectionPendingMessagesBreach MessageBufferSizeBreach BrokerProduceQuotaExceeded"
    )
    found = told(*(command(reason=reason, row_no=n) for n, reason in enumerate(reasons)))
    assert [json.loads(r["value"])["reason_number"] for r in found] == [0, 1, 2, 3, 4]
    assert [decode_command(r["headers"]["command"]).reason for r in found] == list(reasons)


def test_other_field_numbers_reach_the_header() -> None:
    settings = load_settings(
        None, {"rate_limits": PIP, "throttle_feed": {**ON, "fields": {"pause_for_millis": 9}}}
    )
    assert settings.throttle_feed is not None
    fields = settings.throttle_feed.fields.numbers()
    (record,) = told(command(), fields=fields)
    expected = ThrottleCommand(1, 1, "TopicProduceQuotaExceeded", 250)
    assert record["headers"]["command"] == encode_command(expected, Fields(pause_for_millis=9))


def test_without_a_command_spark_is_not_asked() -> None:
    settings = load_settings(None, {"rate_limits": PIP, "throttle_feed": ON})
    assert settings.throttle_feed is not None
    feed = ThrottleFeed(None, settings.throttle_feed)  # type: ignore[arg-type]
    feed.publish(frame("producer_throttle", [command(exception="TimeoutException")]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{options: {kafka.bootstrap.servers: 'a:1'}}",
            "throttle_feed.topic: is missing (the Kafka topic that takes the commands)",
        ),
        (
            "{topic: commands}",
            "throttle_feed.options.kafka.bootstrap.servers: is missing (host:port,...)",
        ),
        (
            "{topic: t, options: {kafka.bootstrap.servers: 'a:1', topic: u}}",
            "throttle_feed.options.topic: unknown option (allowed: kafka.*)",
        ),
        (
            "{topic: t, options: {kafka.bootstrap.servers: 'a:1'}, fields: {producer_id: 5}}",
            "throttle_feed.fields.pause_for_millis: number 5 is taken by producer_id",
        ),
        (
            "{topic: t, options: {kafka.bootstrap.servers: 'a:1'}, fields: {producer: 5}}",
            "throttle_feed.fields.producer: unknown key (did you mean producer_id?)",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"rate_limits: {{protocol: pip385, receipt_model: all}}\nthrottle_feed: {text}",
        encoding="utf-8",
    )
    with pytest.raises(UserError) as raised:
        load_settings(path)
    assert str(raised.value) == f"{path}: {message}"


def test_without_the_exchange_there_is_nothing_to_publish() -> None:
    assert load_settings().throttle_feed is None
    with pytest.raises(UserError) as raised:
        load_settings(None, {"throttle_feed": ON})
    assert str(raised.value) == (
        "configuration: throttle_feed: there are no commands with rate_limits.protocol none"
        " (allowed: pip385)"
    )


def test_secrets_come_from_the_environment_and_are_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEIR_TEST_JAAS", "the-secret")
    options = {
        **ON["options"],  # type: ignore[dict-item]
        "kafka.sasl.jaas.config": "${env:WEIR_TEST_JAAS}",
        "kafka.ssl.key.password": "plain-text",
    }
    feed = {**ON, "options": options}
    settings = load_settings(None, {"rate_limits": PIP, "throttle_feed": feed})
    assert settings.throttle_feed is not None
    assert settings.throttle_feed.writer_options()["kafka.sasl.jaas.config"] == "the-secret"
    failed = without_secrets("a the-secret b plain-text c", settings.source, settings.throttle_feed)
    for text in (repr(settings), str(settings), str(settings.display()), failed):
        assert "the-secret" not in text
        assert "plain-text" not in text
    assert unset_variables(settings) == []
    monkeypatch.delenv("WEIR_TEST_JAAS")
    assert unset_variables(settings) == ["WEIR_TEST_JAAS"]
    with pytest.raises(UserError) as raised:
        settings.throttle_feed.writer_options()
    assert str(raised.value) == (
        "throttle_feed.options.kafka.sasl.jaas.config: the environment variable WEIR_TEST_JAAS"
        " is not set"
    )


class Recorder:
    """Stands for the writer, the feed and the answers of a batch; keeps the calls in order."""

    at_once = 3

    def __init__(self, rows: pa.Table, fails: bool = False) -> None:
        self.rows, self.fails, self.calls = rows, fails, list[tuple[str, int]]()

    def toArrow(self) -> pa.Table:  # noqa: N802  as Spark calls it
        names = ["throttle_events", "producer_throttle"]
        blobs = [encode(frame("throttle_events", [])), encode(self.rows)]
        kinds = pa.array([MessageKind.DATA] * len(names), pa.int8())
        columns = {"table_name": names, "kind": kinds, "blob": pa.array(blobs, pa.binary())}
        return pa.table(columns)

    def publish(self, rows: pa.Table) -> None:
        self.calls.append(("feed", rows.num_rows))
        if self.fails:
            raise OSError

    def settle(self, batch: int | None = None) -> None:
        self.calls.append(("settled", 0))

    def append(self, name: str, rows: pa.Table, batch: int) -> None:
        self.calls.append((name, rows.num_rows))


def test_the_feed_comes_before_the_tables_and_its_failure_keeps_the_batch_out_of_them() -> None:
    settings = load_settings(None, {"rate_limits": PIP, "throttle_feed": ON})
    for fails in (False, True):
        all_ = Recorder(frame("producer_throttle", [command()]), fails)
        committer: Any = Committer(
            all_,
            operators(settings, ["rate_limits"]),
            None,
            all_,  # type: ignore[arg-type]
        )
        if fails:
            with pytest.raises(OSError):
                committer(all_, 3)
            assert all_.calls == [("feed", 1)]
        else:
            committer(all_, 3)
            first, *tables, last = all_.calls
            assert (first, last) == (("feed", 1), ("settled", 0))
            assert sorted(tables) == [("producer_throttle", 1), ("throttle_events", 0)]


def test_what_is_not_kafka_gets_no_writer_of_sparks() -> None:
    with port(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as opened:
        settings = load_settings(
            None,
            {
                "rate_limits": PIP,
                "throttle_feed": {
                    "topic": "t",
                    "options": {"kafka.bootstrap.servers": f"127.0.0.1:1,{opened.server}"},
                },
            },
        )
        assert settings.throttle_feed is not None
        feed = ThrottleFeed(None, settings.throttle_feed)  # type: ignore[arg-type]
        with pytest.raises(WrongAnswer) as error:
            feed.publish(frame("producer_throttle", [command()]))
    answer = f"{opened.server}: answers HTTP, it is no port of Kafka"
    assert str(error.value) == f"127.0.0.1:1: Connection refused; {answer}"


def test_a_failure_of_the_feed_is_not_blamed_on_the_source() -> None:
    settings = load_settings(None, {"rate_limits": PIP, "throttle_feed": ON})
    trace = (
        '  File "/app/engine/throttle_publisher.py", line 60, in publish\n    frame.write\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o692.save.\n"
        ": Lost task 0.0: org.apache.kafka.common.errors.TimeoutException: Topic t not present\n"
    )
    passing = failure("rate_limits", trace, settings)
    assert isinstance(passing, Passing)
    assert str(passing) == "TimeoutException of throttle_feed"
    gone = "Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: gone\n"
    assert str(failure("rate_limits", trace + gone, settings)).splitlines() == [
        "query rate_limits: the topic of throttle_feed is gone",
        "create it again and start again: the run continues with the batch that could not be sent",
    ]
    refused = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized\n"
    assert str(failure("rate_limits", trace + refused, settings)).splitlines() == [
        "query rate_limits: Kafka refuses this user",
        "throttle_feed.options: the kafka.* security options define it",
    ]


def test_the_feed_changes_no_answer() -> None:
    off, on = (
        load_settings(None, {"rate_limits": PIP, "throttle_feed": feed}) for feed in (None, ON)
    )
    assert on.params_hash("rate_limits") == off.params_hash("rate_limits")
