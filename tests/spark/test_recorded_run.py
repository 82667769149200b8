"""The recorded run of a real broker: all jobs find in its events what the broker counted."""

from __future__ import annotations

import gzip
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from app.config.settings import load_settings
from app.demo.demo_command import demo
from app.demo.recording import SHIPPED, Compared, Recording, render
from tests.support.backlog_views import asked, stored
from tests.support.recording.__main__ import says

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings


NAME = "real-pulsar"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording(NAME)


@pytest.fixture(scope="module")
def records(recording: Recording) -> list[dict[str, Any]]:
    """The events, in the order in which they were written."""
    return [
        json.loads(line)
        for _, _, content in recording.files()
        for line in gzip.decompress(content).splitlines()
    ]


@pytest.fixture(scope="module")
def shown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a demo of the recording, and what it printed."""
    folder = tmp_path_factory.mktemp("recorded")
    with redirect_stdout(StringIO()) as out:
        assert demo(folder, NAME) == 0
    return folder, out.getvalue()


@pytest.fixture(scope="module")
def judged(shown: tuple[Path, str]) -> Settings:
    """The warehouse of the demo's run over the recording."""
    return load_settings(shown[0] / "weir.yaml")


@pytest.fixture(scope="module")
def compared(recording: Recording, judged: Settings) -> dict[str, Compared]:
    return {each.what: each for each in recording.compared(judged.warehouse)}


LARGE = "c8d2d26be1f7c3a6e8ee2caf43f67d811e1000ebffd5175b78cce315fb7aa9dd"
DIFFERENT: dict[str, tuple[object, object]] = {
    # The broker checked, and evicted, before the check of Weir that would have.
    "evictions in persistent://public/quotas-evict/size by size": (1, 0),
    # The counter is that of the whole broker, and its own topics are read as well.
    "hits of the cache, persistent://public/reads/fan-out": (601, 600),
    "misses of the cache, persistent://public/reads/catch-up": (401, 400),
    # A dispatcher reads entries that it does not deliver, and reads them again later.
    "hits of the cache, persistent://public/reads/keyed": (300, 218),
    "misses of the cache, persistent://public/reads/keyed": (0, 2),
    # The Python client drops a message whose first chunk comes twice; the Java client begins anew.
    "large messages that applications got from persistent://public/large/resent, archive": (1, 2),
    "their bytes (SHA-256), persistent://public/large/resent, archive": ([LARGE], [LARGE, LARGE]),
}
"""Where the broker's number, the first, is not Weir's. docs/demo.md explains each."""


def test_weir_computes_what_the_broker_counted(compared: dict[str, Compared]) -> None:
    """Every number is the same, but for those that are listed."""
    found = {
        what: (each.counted, each.computed) for what, each in compared.items() if not each.equal
    }
    assert found == DIFFERENT


def test_the_recording_has_all_scenarios(compared: dict[str, Compared]) -> None:
    assert {each.scenario for each in compared.values()} == {"limits", "large", "quotas", "reads"}


def test_the_demo_says_what_it_plays_and_how_much_of_it_is_equal(
    shown: tuple[Path, str], recording: Recording, compared: dict[str, Compared]
) -> None:
    folder, said = shown
    assert said.startswith(f"{recording.says}\nProcessed in ")
    equal = (
        f"Of {len(compared)} numbers that the broker and its clients counted, Weir has computed "
    )
    assert f"{equal}{len(compared) - len(DIFFERENT)} from" in " ".join(said.split())
    assert {path.name for path in folder.iterdir()} == {
        *("events", "report.html", "warehouse", "weir-demo.json", "weir.yaml")
    }


def test_every_recorded_event_is_taken(
    records: list[dict[str, Any]], recording: Recording, judged: Settings
) -> None:
    assert stored(judged, ["quarantine"])["quarantine"] == []
    assert sorted(row["seq"] for row in stored(judged, ["events"])["events"]) == [
        record["seq"] for record in records
    ]
    numbers = json.loads((SHIPPED / NAME / "numbers.json").read_text(encoding="utf-8"))
    assert len(records) == numbers["events"]
    assert recording.says == says(numbers)


def test_the_broker_is_covered_without_a_gap(
    records: list[dict[str, Any]], judged: Settings
) -> None:
    rows = asked(
        stored(judged, ["coverage_counts", "coverage_gaps", "coverage_polls", "quarantine"]),
        "coverage",
    )
    assert sum(row["received"] for row in rows) == len(records)
    assert {(row["cluster"], row["gaps"], row["late"], row["blind_jobs"]) for row in rows} == {
        ("standalone", 0, 0, None)
    }


def test_a_recording_names_nothing_of_the_machine_it_was_made_on(
    records: list[dict[str, Any]],
) -> None:
    """Topics are in the tenant `public`, addresses on loopback."""
    topics = {record["topic"] for record in records if "topic" in record}
    assert {topic.split("/")[2] for topic in topics} == {"public"}
    assert {record["broker"].partition(":")[0] for record in records} == {"127.0.0.1"}
    clients = {record["cnx_id"] for record in records if "cnx_id" in record}
    assert {client.strip("/").partition(":")[0] for client in clients} == {"127.0.0.1"}


def test_the_demo_lists_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    render(
        [
            Compared("limits", "pauses of a", "publishRateLimitedTimes", 4, 3),
            Compared("limits", "pauses of b", "publishRateLimitedTimes", 2, 2),
        ],
        Console(width=80),
    )
    assert capsys.readouterr().out.splitlines() == [
        "  Of 2 numbers that the broker and its clients counted, Weir has computed 1 from",
        "  the events alone.",
        "",
        "counted otherwise by                      there Weir",
        "pauses of a       publishRateLimitedTimes     4    3",
    ]
