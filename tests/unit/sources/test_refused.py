"""What a source refuses before Spark starts: two lines with the key and what would do."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from app import sources
from app.config.settings import Settings
from app.config.throttle_feed import ThrottleFeedSettings
from app.engine import throttle_publisher
from app.errors import NotNow, UserError
from app.sources.kafka.kafka_probe import topics
from app.sources.kafka.kafka_records import chosen
from app.sources.ports import Unreachable, knock, missing
from tests.support.servers.kafka_port import kafka, port, says

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeSettings = Callable[..., Settings]
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required "


def refusal(settings: Settings) -> list[str]:
    """The lines with which the source is refused."""
    with pytest.raises(UserError) as refused:
        sources.check(settings.feed, settings.location)
    return str(refused.value).splitlines()


@pytest.mark.parametrize("path", ["not-there", "not-there/*.jsonl"])
def test_a_folder_that_does_not_exist(
    make_settings: MakeSettings, tmp_path: Path, path: str
) -> None:
    settings = make_settings(source={"format": "files", "path": str(tmp_path / path)})
    assert refusal(settings) == [
        f"source.path: {tmp_path / path} does not exist",
        "allowed: a folder with files of JSON lines, or a pattern such as events/*.jsonl.gz",
    ]


def test_an_empty_folder_is_waited_for(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings(source={"format": "files", "path": str(tmp_path)})
    sources.check(settings.feed, settings.location)


def test_a_path_without_a_delta_table(make_settings: MakeSettings, tmp_path: Path) -> None:
    path = str(tmp_path / "not-there")
    assert refusal(make_settings(source={"format": "delta", "path": path})) == [
        f"source.path: {path} is not a Delta table",
        "source.format delta reads one; files of JSON lines are read by source.format files",
    ]


def test_a_delta_table_without_records(make_settings: MakeSettings, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"event_type": ["publish"], "cluster": ["c"]}))
    assert refusal(make_settings(source={"format": "delta", "path": path})) == [
        f"source.path: the table {path} has no records",
        "it needs a column value, or those of the event contract (without: source_feed)",
    ]


@pytest.mark.parametrize(
    "columns",
    [
        {"value": [b"{}"]},
        {"value": [b"{}"], "offset": [1]},
        {"source_offset": [1], "value": [b"{}"]},
    ],
)
def test_a_delta_table_whose_records_nothing_identifies(
    make_settings: MakeSettings, tmp_path: Path, columns: dict[str, list[object]]
) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table(columns))
    assert refusal(make_settings(source={"format": "delta", "path": path})) == [
        f"source.path: nothing in the table {path} identifies a record",
        "it needs the columns source_partition and source_offset, or beside value those of Kafka:"
        " topic, partition and offset",
    ]


def test_assigned_partitions_that_are_no_json(make_settings: MakeSettings) -> None:
    with pytest.raises(UserError, match=r"source\.options\.assign: is not a JSON object"):
        chosen({"assign": "events"})
    assert chosen({"assign": '{"b": [0], "a": [1]}'}) == ["a", "b"]
    assert chosen({"subscribe": " a , b"}) == ["a", "b"]
    assert chosen({"subscribePattern": "ev.*"}) == []


@pytest.fixture
def open_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port that answers a knock as Kafka does, and nothing else."""
    with port(kafka(["PLAIN"] if "password" in request.node.name else None)) as opened:
        yield int(opened.server.rpartition(":")[2])


def test_before_there_is_a_jvm_a_port_must_answer(
    open_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_PREFLIGHT", "here")
    servers = f"127.0.0.1:1,PLAINTEXT://127.0.0.1:{open_port}"
    assert topics({"kafka.bootstrap.servers": servers}) is None
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1: Connection refused"):
        topics({"kafka.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(Unreachable, match="here: is not host:port"):
        topics({"kafka.bootstrap.servers": "here"})


@pytest.mark.parametrize(
    "form", ["kafka", "kafka_groups", "kafka_messages", "kafka_producers", "throttle_feed"]
)
def test_the_check_before_spark_submit_starts_no_jvm(
    open_port: int, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    started: list[str] = []
    monkeypatch.setenv("WEIR_PREFLIGHT", "here")
    monkeypatch.setattr("app.jvm.start", lambda: started.append(form))
    monkeypatch.setattr("pyspark.SparkContext._jvm", None)
    servers = f"127.0.0.1:{open_port}"
    options = {"kafka.bootstrap.servers": servers}
    source: dict[str, Any] = {"format": "files", "path": "."}
    if form == "kafka_groups":
        source = {"format": form, "groups": {"options": {"bootstrap.servers": servers}}}
    elif form != "throttle_feed":
        chosen_topics = {} if form == "kafka_producers" else {"subscribe": "t"}
        source = {"format": form, "options": {**options, **chosen_topics}}
    settings = make_settings(source=source)
    if form == "throttle_feed":
        throttle_publisher.check(ThrottleFeedSettings(topic="t", options=options))
    else:
        sources.check(settings.feed, settings.location)
    assert started == []


def test_a_password_is_not_in_the_reason(open_port: int, spark: SparkSession) -> None:
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{open_port}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": JAAS + 'username="u" password="hush";',
    }
    with pytest.raises(Unreachable, match="the list of topics: ") as error:
        topics(options)
    assert "hush" not in str(error.value)
    wrong = {**options, "kafka.sasl.jaas.config": 'no.such.Module password="hush";'}
    with pytest.raises(UserError, match=r"source\.options: Kafka's client refuses") as refused:
        topics(wrong)
    assert "hush" not in str(refused.value)


@pytest.fixture
def closed() -> str:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("form", ["kafka_groups", "kafka", "pulsar", "pulsar_messages"])
def test_a_port_that_refuses_is_told_by_its_first_answer(
    make_settings: MakeSettings, closed: str, form: str
) -> None:
    """No client tries again: its limits of time are an hour."""
    hour = 3_600_000
    source = {
        "kafka_groups": {"groups": {"options": {"bootstrap.servers": closed}, "timeout_ms": hour}},
        "kafka": {"options": {"kafka.bootstrap.servers": closed, "subscribe": "t"}},
        "pulsar": {
            "options": {
                "serviceUrl": f"pulsar://{closed}",
                "topics": "a/b/c",
                "operationTimeoutMs": hour,
            }
        },
        "pulsar_messages": {
            "options": {
                "serviceUrl": f"pulsar://{closed}",
                "topics": "a/b/c",
                "operationTimeoutMs": hour,
            }
        },
    }[form]
    settings = make_settings(source={"format": form, **source})
    first = refusal(settings)[0]
    assert closed in first and first.endswith("Connection refused"), first
    with pytest.raises(NotNow):  # it may answer later: a service starts again
        sources.check_all(settings)


@pytest.mark.parametrize(
    ("servers", "kind"),
    [
        (["127.0.0.1:1"], NotNow),
        (["no-port"], UserError),
        (["no-port", "127.0.0.1:1"], NotNow),
        (["no-port", "other:99999"], UserError),
    ],
)
def test_what_only_a_person_can_mend_is_told_from_what_may_pass(
    make_settings: MakeSettings, servers: list[str], kind: type[UserError]
) -> None:
    clusters = [
        {
            "format": "kafka_groups",
            "cluster": f"c{n}",
            "options": {"kafka.bootstrap.servers": server},
        }
        for n, server in enumerate(servers)
    ]
    settings = make_settings(source=clusters)
    with pytest.raises(UserError) as refused:
        sources.check_all(settings)
    assert type(refused.value) is kind and refused.value.exit_code == (75 if kind is NotNow else 2)


def test_a_server_with_another_protocol_is_no_matter_of_time(make_settings: MakeSettings) -> None:
    with port(says(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as opened:
        options = {"kafka.bootstrap.servers": opened.server, "subscribe": "t"}
        settings = make_settings(source={"format": "kafka", "options": options})
        with pytest.raises(UserError) as refused:
            sources.check_all(settings)
    assert type(refused.value) is UserError


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("", ": is not host:port"),
        ("a.invalid", "a.invalid: is not host:port"),
        ("pulsar://[::1]:1/", "pulsar://[::1]:1/: "),
        ("127.0.0.1:99999", "127.0.0.1:99999: is not host:port"),
        ("127.0.0.1:+1", "127.0.0.1:+1: is not host:port"),
        (f"{'a' * 70}.invalid:1", f"{'a' * 70}.invalid:1: no such address"),
        ("127.0.0.1:1", "127.0.0.1:1: Connection refused"),
    ],
)
def test_the_reason_names_the_server(server: str, said: str) -> None:
    with pytest.raises(Unreachable) as refused:
        knock(server)
    assert str(refused.value).startswith(said)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        knock(f"PLAINTEXT://127.0.0.1:{listening.getsockname()[1]}")


@pytest.mark.parametrize(
    ("servers", "kind"),
    [
        ([None], NotNow),
        ([b"HTTP/1.1 200 OK\r\n\r\n"], UserError),
        ([None, b"noise"], UserError),
        ([None, None], NotNow),
    ],
)
def test_servers_of_http_that_take_no_connection_may_do_so_later(
    closed: str, servers: list[bytes | None], kind: type[UserError]
) -> None:
    with ExitStack() as opened:
        there = [
            closed if data is None else opened.enter_context(port(says(data))).server
            for data in servers
        ]
        assert missing(f"http://{server}" for server in there) is kind
