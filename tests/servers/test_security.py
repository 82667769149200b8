"""The default configuration with all jobs against a broker that asks for TLS and a login.

Every key that takes a secret has one, and the names in the records are hostile. One run is looked
at from all sides: what it wrote, what it said, and what the commands make of it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
import yaml
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from app.cli import main
from tests.conftest import ROOT
from tests.crash.service import Service
from tests.support.contents import contents
from tests.support.servers.kafka import MECHANISM, PASSWORD, USER, Kafka
from tests.support.servers.process import free_ports
from tests.support.traces import by_broker, punctual_trace
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

EVENTS, PARTITIONS = 17_000, 2
HUSH = "hush-"
"""Every secret begins so."""
HOSTILE = (
    "<script>alert(1)</script>",
    "'; DROP TABLE events; --",
    '"} 1\nup{job="x',
    "../../etc/passwd",
    "a\x00b",
    "\u202egnp.exe\U0001f4a5",
    "{{ 7 * 7 }}{% raw %}",
    "\\\\\"' &amp; %s %00",
    "$(touch hit)`touch hit`",
    "\x1b[2J\x9b1m",
    "x" * 3000,
)
NAMED = ("topic", "principal", "client_id", "producer_name", "subscription", "consumer", "cnx_id")
VARIABLES = {
    "WEIR_TEST_KAFKA": PASSWORD,
    "WEIR_TEST_STORE": f"{HUSH}store",
    "WEIR_TEST_HOOK": f"{HUSH}hook",
}
COMMANDS = {
    "validate": ["validate", "--show"],
    "validate-json": ["validate", "--json"],
    "connect": ["validate", "--connect"],
    "tables": ["tables", "--json"],
    "report": ["report", "--json", "--out", "report.html"],
    "quality": ["quality"],
    "alerts": ["alerts", "check"],
    "metrics": ["metrics", "--once"],
    "maintain": ["maintain"],
    "forecast": ["forecast", "--json"],
    "policy": ["policy", "check"],
    "show": ["policy", "show", "t/n/a"],
    "blame": ["query", "blame", "--by", "pair"],
    "suggest": [
        "policy",
        "suggest",
        "publish",
        "--min-publishes",
        "1",
        "--min-history",
        "0s",
        "--out",
        "suggested.yaml",
    ],
    "replay": ["replay", "--out", "replayed"],
    "wrong": ["query", "SELECT hush FROM nothing"],
}
"""Commands with the configuration of the run, and the names of what they print."""


def hostile(name: str) -> str:
    """A name of the trace with something behind it that means harm, the same each time."""
    base, partition, number = name.partition("-partition-")
    return base + HOSTILE[zlib.crc32(base.encode()) % len(HOSTILE)] + partition + number


def hostile_line(line: bytes) -> bytes:
    """A record with hostile names; one that is no JSON stays."""
    with suppress(ValueError):
        record = json.loads(line)
        if isinstance(record, dict):
            renamed = {k: hostile(record[k]) for k in NAMED if isinstance(record.get(k), str)}
            return json.dumps({**record, **renamed}).encode()
    return line


def configuration(kafka: Kafka, folder: Path, topic: str) -> dict[str, Any]:
    """All jobs, with a secret wherever one can be: written out, or by a variable."""
    (port,) = free_ports(1)  # where nobody answers
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="'
    )
    client = {
        "kafka.bootstrap.servers": kafka.secure_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.certificate),
    }
    by_variable = {"kafka.sasl.jaas.config": f'{login}${{env:WEIR_TEST_KAFKA}}";'}
    written_out = {"kafka.sasl.jaas.config": f'{login}{PASSWORD}";'}
    kafka.create_topic(f"{topic}-throttles")
    return {
        "warehouse": str(folder / "warehouse"),
        "partitions": 2,
        "source": {
            "format": "kafka",
            "options": {**client, **by_variable, "subscribe": topic, "startingOffsets": "earliest"},
        },
        "rate_limits": {"protocol": "pip385", "receipt_model": "supported"},
        "throttle_feed": {"topic": f"{topic}-throttles", "options": {**client, **written_out}},
        "storage_options": {
            "AWS_SECRET_ACCESS_KEY": f"{HUSH}key",
            "AWS_SESSION_TOKEN": "${env:WEIR_TEST_STORE}",
            "AWS_ENDPOINT_URL": f"http://{HUSH}me:{HUSH}pw@127.0.0.1:{port}",
        },
        "alerts": {
            "interval_ms": 1000,
            "sinks": [
                {
                    "type": "webhook",
                    "url": f"http://{HUSH}u:{HUSH}p@127.0.0.1:{port}/{HUSH}x?y={HUSH}z",
                    "retries": 0,
                    "headers": {
                        "Authorization": f"Bearer {HUSH}bearer",
                        "X-Api-Key": "${env:WEIR_TEST_HOOK}",
                    },
                },
                {"type": "alertmanager", "retries": 0, "url": f"http://127.0.0.1:{port}/{HUSH}am"},
            ],
        },
    }


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    folder: Path
    config: Path
    records: int

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table."""
        rows: list[dict[str, Any]] = (
            DeltaTable(str(self.warehouse / name)).to_pyarrow_table().to_pylist()
        )
        return rows


@pytest.fixture(scope="module")
def variables() -> Iterator[None]:
    """The environment of the commands."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, variables: None) -> Ran:
    """A run to the end of the topic, with a log of everything, an event log and a web UI."""
    from tests.support.servers.fixtures import shared_kafka

    kafka = shared_kafka()
    folder, outside = tmp_path_factory.mktemp("ran"), tmp_path_factory.mktemp("config")
    topic = f"hostile-{uuid4().hex}"
    kafka.create_topic(topic, PARTITIONS)
    lines = [
        (broker % PARTITIONS, hostile_line(line))
        for broker, line in by_broker(punctual_trace(EVENTS))
    ]
    kafka.produce_to(topic, lines)
    config = outside / "weir.yaml"
    config.write_text(yaml.safe_dump(configuration(kafka, folder, topic)))
    (port,) = free_ports(1)
    (folder / "spark-events").mkdir()
    service = Service(
        config,
        variables=VARIABLES,
        confs=[
            "spark.ui.enabled=true",
            f"spark.ui.port={port}",
            "spark.log.level=DEBUG",
            "spark.eventLog.enabled=true",
            f"spark.eventLog.dir=file://{folder / 'spark-events'}",
            "spark.eventLog.compress=false",
        ],
    )
    try:
        counts = {str(p): sum(1 for at, _ in lines if at == p) for p in range(PARTITIONS)}
        service.wait_to_read(counts)
        for name, page in ui(port).items():
            (folder / f"ui-{name}").write_bytes(page)
        (folder / "processes").write_text(processes(service))
        service.stop()
    finally:
        service.close()
    (folder / "run.log").write_text(service.said)
    asked = subprocess.run(
        [ROOT / "spark-submit.sh", "doctor", "--config", config], capture_output=True, check=False
    )
    (folder / "doctor.out").write_bytes(asked.stdout + asked.stderr)
    return Ran(folder, config, len(lines))


def processes(service: Service) -> str:
    """What anybody on the machine reads of the processes: command lines; and their variables, but for
    those that have the secrets."""
    found = []
    driver = service.driver
    assert driver is not None
    for process in (*driver.parents()[:1], *service.processes()):  # the JVM first
        with suppress(psutil.Error):
            found += [f"{process.pid} {word}" for word in process.cmdline()]
            variables = process.environ().items()
            found += [f"{name}={value}" for name, value in variables if name not in VARIABLES]
    return "\n".join(found)


def ui(port: int) -> dict[str, bytes]:
    """Pages of Spark's web UI, and what its interface for programs answers."""
    root = f"http://127.0.0.1:{port}"

    def page(path: str) -> bytes:
        with urllib.request.urlopen(root + path, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())

    (application,) = json.loads(page("/api/v1/applications"))
    api = f"/api/v1/applications/{application['id']}"
    return {
        "environment.html": page("/environment/"),
        "jobs.html": page("/jobs/"),
        "sql.html": page("/SQL/"),
        "streams.html": page("/StreamingQuery/"),
        "environment.json": page(f"{api}/environment"),
        "sql.json": page(f"{api}/sql?details=true&planDescription=true&length=50"),
    }


@pytest.fixture(scope="module")
def answers(ran: Ran) -> dict[str, str]:
    """What the commands print, by name; their files are beside those of the run."""
    found = {}
    for name, words in COMMANDS.items():
        with pytest.MonkeyPatch.context() as patch:
            out, err = io.StringIO(), io.StringIO()
            patch.setattr("sys.stdout", out)
            patch.setattr("sys.stderr", err)
            patch.chdir(ran.folder)
            main([*words, "--config", str(ran.config)])
        found[name] = out.getvalue()
        (ran.folder / f"{name}.out").write_text(out.getvalue() + err.getvalue())
    return found


def test_no_byte_that_was_written_or_said_is_a_secret(ran: Ran, answers: dict[str, str]) -> None:
    written = dict(contents(ran.folder))
    assert len(written["run.log"]) > 1_000_000  # of everything
    assert b"sasl.jaas.config" in written["run.log"] and len(written["ui-environment.html"]) > 9000
    assert any(name.startswith("spark-events/") for name in written)
    assert any("checkpoints" in name for name in written)
    assert b"warehouse" in written["doctor.out"]
    assert b"pyspark.daemon" in written["processes"] or b"app.setup.daemon" in written["processes"]
    assert b"org.apache.spark" in written["processes"] and b"PATH=" in written["processes"]
    assert "********" in answers["validate"] and "${env:WEIR_TEST_KAFKA}" in answers["validate"]
    secrets = [HUSH.encode(), HUSH.encode("utf-16-le")]
    said = {}
    for name, content in written.items():
        for secret in secrets:
            if (at := content.find(secret)) >= 0:
                said[name] = content[max(at - 200, 0) : at + 40]
    assert said == {}


def test_nothing_is_lost_and_every_job_has_rows(ran: Ran) -> None:
    places = {
        (row["source_partition"], row["source_offset"])
        for name in ("events", "quarantine")
        for row in ran.table(name)
    }
    assert len(places) == ran.records
    for name in (
        "throttle_events",
        "chunk_events",
        "producer_id_decisions",
        "backlog_checks",
        "cache_stats",
    ):
        assert ran.table(name), name


@pytest.mark.parametrize("ending", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_is_stored_and_found_as_it_is(
    ran: Ran, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--warehouse", str(ran.warehouse)]
    names = [row["topic"] for row in ran.table("topic_throttle_stats") if row["topic"]]
    name = next(name for name in names if name.partition("-partition-")[0].endswith(ending))
    sql = "SELECT DISTINCT topic FROM topic_throttle_stats"
    assert main(["query", sql, "--json", *where]) == 0
    assert name in [row["topic"] for row in json.loads(capsys.readouterr().out)]
    assert main(["query", sql, "--csv", *where]) == 0
    read = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert [name] in read
    assert main(["query", sql, *where]) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()
    if "\x00" not in name:  # which no command line can have
        assert main(["explain", "topic", name, *where]) == 0
        said = capsys.readouterr().out
        assert said.replace("\n", "").isprintable()


class Page(HTMLParser):
    """What of a page could run or be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.harm: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "base", "img"):
            self.harm.append(tag)
        self.harm += [
            f"{tag} {key}={value}"
            for key, value in attrs
            if key.startswith("on")
            or (value or "").strip().startswith("javascript:")
            or (tag == "link" and key == "href" and not (value or "").startswith("data:"))
        ]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_pages_show_names_as_text(ran: Ran, answers: dict[str, str]) -> None:
    pages = [
        ran.folder / "report.html",
        *(ran.warehouse / "_weir" / "quality").glob("*.html"),
    ]
    assert len(pages) > 10
    for path in pages:
        assert Page(path.read_text(encoding="utf-8")).harm == [], path.name
    for path in pages[:1]:
        assert "<script>alert(1)" in Page(path.read_text(encoding="utf-8")).text


def test_metrics_are_parsed_and_carry_the_names(ran: Ran, answers: dict[str, str]) -> None:
    families = list(text_string_to_metric_families(answers["metrics"]))
    labels = {v for family in families for s in family.samples for v in s.labels.values()}
    assert any(HOSTILE[2] in label for label in labels)
    assert "up" not in {family.name for family in families}
    promtool = subprocess.run(
        ["promtool", "check", "metrics"],
        input=answers["metrics"].encode(),
        check=False,
        capture_output=True,
    )
    assert b"error while linting" not in promtool.stderr and promtool.returncode in (0, 3)


def test_no_file_is_named_after_a_name(ran: Ran) -> None:
    files = [str(path.relative_to(ran.folder)) for path in ran.folder.rglob("*")]
    assert [name for name in files if not re.fullmatch(r"[\w./=%-]+", name)] == []
    assert not list(ran.folder.parent.rglob("hit")) and not Path("hit").exists()


def test_a_wrong_password_is_refused_without_being_repeated(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEIR_TEST_KAFKA", f"{HUSH}wrong")
    assert main(["validate", "--connect", "--config", str(ran.config)]) == 2
    said = "".join(capfd.readouterr())
    assert "uthentication" in said and HUSH not in said
