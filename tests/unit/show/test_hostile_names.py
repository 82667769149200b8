"""Names that clients chose, through what people read: no name moves a cursor, begins a line or ends
an element."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from app.cli import main
from app.config.settings import Settings, load_settings
from app.read.query import query
from app.show.metrics.catalogue import METRICS
from app.show.metrics.exporter import families
from app.terminal.printable import lines
from tests.support.hostile import HOSTILE_NAMES
from tests.support.throttle_rows import event, window, write, write_windows

TOPICS = [f"persistent://acme/orders/{name}" for name in HOSTILE_NAMES]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile") / "warehouse"
    rows = [
        event(
            10 * number + at,
            action,
            topic=topic,
            culprit_topic=topic,
            collateral_topics=TOPICS if action == "mark" else [],
            producer_name=name,
            cnx_id=f"c{name}",
            producer_id=number,
        )
        for number, (topic, name) in enumerate(zip(TOPICS, HOSTILE_NAMES, strict=True))
        for at, action in ((0, "mark"), (5, "unmark"))
    ]
    write(str(place), "throttle_events", rows)
    paused = {"limited_times": 9, "culprit_times": 9, "culprit_ns": 30_000_000_000}
    windows = [window(minute, topic=topic, **paused) for topic in TOPICS for minute in range(3)]
    write_windows(str(place), windows)
    return place


@pytest.fixture(scope="module")
def settings(warehouse: Path) -> Settings:
    return load_settings(None, {"warehouse": str(warehouse)})


def assert_readable(text: str) -> None:
    odd = {c for c in text if not c.isprintable() and c != "\n"}
    assert not odd, odd


@pytest.mark.parametrize(
    "asked",
    ["blame", "near-limit", "FROM throttle_events", "DESCRIBE throttle_events"],
)
def test_an_answer_is_readable_as_a_table_and_exact_as_json(settings: Settings, asked: str) -> None:
    for output in ("table", "json"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert query(settings, asked, output) == 0
        assert_readable(out.getvalue())
    rows = json.loads(out.getvalue())
    assert rows
    named = {
        row["topic"] for row in rows if str(row.get("topic", "")).startswith("persistent://acme")
    }
    assert named <= set(TOPICS)
    if asked == "FROM throttle_events":
        assert named == set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS, ids=ascii)
def test_an_explanation_is_readable(
    warehouse: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ([], ["--json"]):
        main(["explain", "topic", topic, "--warehouse", str(warehouse), *form])
        out, err = capsys.readouterr()
        assert_readable(out + err)
        assert "internal error" not in err
        if form and out:
            json.loads(out)


def test_the_page_has_names_as_text(warehouse: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", "--warehouse", str(warehouse), "--out", str(page)]) == 0
    text = page.read_text("utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text and "{{7*7}}" in text


def test_a_label_of_a_metric_ends_no_line() -> None:
    name, definition = next((n, d) for n, d in METRICS.items() if d.labels and d.kind == "gauge")

    class Found:
        def collect(self) -> Iterator[Metric]:
            return families(
                [(name, (value,) * len(definition.labels), 1.0) for value in HOSTILE_NAMES]
            )

    registry = CollectorRegistry()
    registry.register(Found())
    text = generate_latest(registry).decode()
    assert_readable(text)
    (family,) = text_string_to_metric_families(text)
    assert [sample.labels[definition.labels[0]] for sample in family.samples] == list(
        map(lines, HOSTILE_NAMES)
    )
