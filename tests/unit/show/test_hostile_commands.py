"""Every command that reads a warehouse, over names that mean harm in every table: what it prints is
text, and JSON, pages, metrics and notifications have exactly these names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.cli import app, main
from app.show.explain.ask import kinds
from app.tables.definitions import TABLES
from app.terminal.printable import lines
from tests.support.hostile import ENDING, dressed_rows, plain
from tests.support.ready_questions import CASES, put
from tests.support.report_warehouse import TABLES_WITH_ROWS
from tests.unit.show.alerts.receiver import Receiver, receiving

FORMATS = ("kafka-configs", "pulsar-admin")
COMMANDS: dict[str, list[list[str]]] = {
    "tables": [[], ["--json"], ["throttle_events"]],
    "query": [["FROM quarantine"], ["FROM events", "--json"]],
    "report": [["--json", "--out", "page.html"]],
    "quality": [[]],
    "forecast": [[], ["--json"]],
    "maintain": [[]],
    "metrics": [["--once"], ["--once", "--json"]],
    "alerts check": [[], ["--json"]],
    "alerts rules": [[], ["--json"]],
    "policy show": [[f"persistent://acme/orders/created{ENDING.replace(chr(0), '')}"]],
    "policy check": [["policies.yaml"], ["policies.yaml", "--json"]],
    "policy diff": [["policies.yaml", "other.yaml"], ["policies.yaml", "other.yaml", "--json"]],
    "policy export": [["policies.yaml", "--format", each] for each in FORMATS],
    "policy suggest publish": [["--min-publishes", "1", "--min-history", "0s"]],
    "policy suggest producer-ids": [["--min-history", "0s"]],
    "policy suggest client-quotas": [["--min-history", "0s"]],
}
OTHERS = {
    "demo": "has its own names",
    "run": "needs Spark: tests/servers/test_security.py",
    "replay": "needs Spark: tests/servers/test_security.py",
    "validate": "reads a configuration: tests/unit/config",
    "completion": "prints a script that is the same for all",
    "doctor": "reads a configuration",
    "size": "numbers",
    "bakeoff": "numbers of the cache",
    "reconcile": "asks a broker: tests/unit/show/reconcile",
    "repair": "names files alone: tests/crash/test_damage.py",
    "forget": "takes a name from its user: tests/unit/run",
    "explain": "below, for each kind",
    "alerts watch": "the rounds of `alerts check`",
    "policy test": "reads cases: tests/unit/whatif",
    "serve": "serves pages: tests/unit/show/live",
}
CODES = (0, 1, 2)


def commands(command: Any, before: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(command, click.Group) or hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from commands(each, (*before, name))
    else:
        yield " ".join(before)


def test_every_command_is_tried() -> None:
    assert set(commands(typer.main.get_command(app))) == {*COMMANDS, *OTHERS}


def whole(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row with numbers in the columns that a case leaves out."""
    return {
        f.name: row.get(f.name)
        or (0 if pa.types.is_integer(f.type) or pa.types.is_floating(f.type) else None)
        for f in TABLES[table].schema
    }


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Path:
    """A warehouse with the rows of every question and section, and files of policies."""
    folder = tmp_path_factory.mktemp("hostile")
    tables: dict[str, list[dict[str, Any]]] = {}
    for found in (TABLES_WITH_ROWS, *(case for case, _, _ in CASES.values())):
        for name in found.keys() - tables.keys():  # others have rows of which columns are missing
            tables[name] = [whole(name, row) for row in found[name]]
    put(str(folder / "warehouse"), dressed_rows(tables))
    sinks = [
        {"type": kind, "url": f"{receiver.url}/{kind}"} for kind in ("webhook", "alertmanager")
    ]
    config = {"warehouse": str(folder / "warehouse"), "alerts": {"sinks": sinks}}
    (folder / "weir.yaml").write_text(yaml.safe_dump(config))
    for number, file in enumerate(("policies.yaml", "other.yaml")):
        documents = [
            {"scope": scope, "name": f"{name}{ENDING}", "limits": {key: 5 + number}}
            for scope, name, key in (
                ("topic", "persistent://acme/orders/x", "publishRateInMsgs"),
                ("namespace", "acme/orders", "publishRateInMsgs"),
                ("user", "eve", "producer_byte_rate"),
                ("client", "app", "consumer_byte_rate"),
            )
        ]
        (folder / file).write_text(yaml.safe_dump(documents))
    return folder


def said(
    folder: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any, codes: Any = CODES
) -> str:
    """What a command prints: text that moves no cursor, without an error of Weir's own."""
    monkeypatch.chdir(folder)
    capsys.readouterr()
    code = main(words)
    out, err = capsys.readouterr()
    assert "internal error" not in err and code in codes, err
    assert (out + err).replace("\n", "").isprintable()
    return str(out)


@pytest.mark.parametrize(
    ("command", "words"), [(name, words) for name, every in COMMANDS.items() for words in every]
)
def test_a_command_prints_names_as_text(
    command: str,
    words: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = (
        []
        if command in ("policy check", "policy diff", "policy export")
        else ["--config", "weir.yaml"]
    )
    out = said(folder, [*command.split(), *words, *config], monkeypatch, capsys)
    if "--json" in words and out:
        assert json.loads(out) is not None
        assert ENDING not in plain(out)


@pytest.mark.parametrize("kind", kinds())
def test_an_explanation_of_each_kind_is_text(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python reads its words as they are; a command line has no NUL."""
    name = {
        "topic": "persistent://acme/orders/created",
        "connection": "c1",
        "principal": "User:etl",
        "client": "etl",
        "message": "u-1",
        "subscription": "orders",
        "group": "billing",
    }[kind]
    second = [f"s{ENDING}"] if kind == "subscription" else []
    words = ["explain", kind, name + ENDING, *second, "--config", "weir.yaml"]
    said(folder, words, monkeypatch, capsys)
    out = said(folder, [*words, "--json"], monkeypatch, capsys)
    assert not out or json.loads(out) is not None


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_names_as_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said(
        folder, ["report", "--out", "p.html", "--config", "weir.yaml"], monkeypatch, capsys, (0, 1)
    )
    page = Page((folder / "p.html").read_text("utf-8"))
    assert "script" not in page.tags and "img" not in page.tags and "svg" in page.tags
    assert "<script>alert(1)&lt;;" in page.text and "{{7*7}}{% raw %}{}%s%n" in page.text
    assert page.text.replace("\n", "").replace("\xa0", "").isprintable()


def test_metrics_have_one_line_for_each_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = said(folder, ["metrics", "--once", "--config", "weir.yaml"], monkeypatch, capsys, (0,))
    samples = [s for family in text_string_to_metric_families(out) for s in family.samples]
    assert len(samples) == sum(not line.startswith("#") for line in out.splitlines())
    labels = {value for sample in samples for value in sample.labels.values()}
    named = {label for label in labels if label.endswith(lines(ENDING))}
    assert len(named) > 10


def test_notifications_have_the_names(
    folder: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    said(folder, ["alerts", "check", "--config", "weir.yaml"], monkeypatch, capsys, (1,))
    assert {path for path, _, _ in receiver.posts} == {"/webhook", "/alertmanager/api/v2/alerts"}
    for path in ("/webhook", "/alertmanager/api/v2/alerts"):
        alerts = [
            alert
            for each, _, body in receiver.posts
            if each == path
            for alert in (body["alerts"] if isinstance(body, dict) else body)
        ]
        names = {value for alert in alerts for value in alert["labels"].values()}
        assert any(name.endswith(ENDING) for name in names)
