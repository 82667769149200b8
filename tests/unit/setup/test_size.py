"""`size`: what it computes, and that it computes with what was measured."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.cli import main
from app.setup.size import COEFFICIENTS
from app.terminal.sizes import size_text
from benchmarks.coefficients import derived
from benchmarks.result import FOLDER


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The answer by what is needed."""
    assert main(["size", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    return {each["name"]: each for each in answer["needs"]}


def figure(result: str, name: str) -> float:
    """A figure of a result file."""
    figures = json.loads((FOLDER / f"{result}.json").read_text("utf-8"))["figures"]
    (value,) = (each["value"] for each in figures if each["name"] == name)
    return float(value)


def cpu(result: str, name: str) -> float:
    """The CPU of the three kinds of processes of a run."""
    kinds = ("Python workers", "JVM", "driver")
    return sum(figure(result, name.format(kind)) for kind in kinds)


DRIVER_GB = "as it comes: memory of the driver's JVM, at most"
MEASURED = {
    "core_s_per_event": lambda: figure("flood", "as it comes: CPU after the first batch") / 1e6,
    "core_s_per_batch": lambda: (
        cpu("small-batches", "CPU of {} a batch, five jobs") / 1000
        - 5000 * cpu("govern-all", "CPU of {}") / 1e6
    ),
    "slower_at_1m_topics": lambda: (
        figure("topics", "govern, 1,000 topics") / figure("topics", "govern, 1,000,000 topics")
    ),
    "slower_a_shadow": lambda: (
        figure("shadows", "large batch, five jobs, one shadow")
        / figure("shadows", "large batch, five jobs, no shadow")
        - 1
    ),
    "driver_gb": lambda: figure("flood", DRIVER_GB),
    "driver_bytes_per_topic": lambda: (
        1000 * figure("flood_shapes", "a million topics: memory of the driver's JVM, at most")
        - 1000 * figure("flood", DRIVER_GB)
    ),
    "worker_gb": lambda: (
        figure("flood", "as it comes: memory of all Python processes, at most") / 2
    ),
    "state_bytes_per_topic": lambda: figure("state", "state, 100,000 topics"),
    "state_bytes_per_principal": lambda: figure(
        "producer_ids", "state, 10,000 users with 50 ids each, bloom"
    ),
    "archive_bytes_per_event": lambda: figure("storage", "archive"),
    "table_bytes_per_event": lambda: figure("storage", "tables of the jobs"),
    "commits_per_batch": lambda: figure("storage", "commits"),
}
"""Each coefficient by the result files."""
WRITTEN: dict[str, Any] = json.loads(COEFFICIENTS.read_text("utf-8"))["coefficients"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_coefficient_is_what_was_measured(name: str) -> None:
    assert WRITTEN[name]["value"] == pytest.approx(MEASURED[name](), rel=0.001)
    for result, date in re.findall(r"([\w-]+) \(([\d-]+)\)", WRITTEN[name]["from"]):
        machine = json.loads((FOLDER / f"{result}.json").read_text("utf-8"))["machine"]
        assert (date, machine["cores"]) == (machine["date"], 2)


def test_needs_are_computed_from_the_coefficients(capsys: pytest.CaptureFixture[str]) -> None:
    known = {name: each["value"] for name, each in derived()["coefficients"].items()}
    found = asked(capsys, "--events-per-s", "5000", "--topics", "1000", "--principals", "100")
    busy = 5000 * known["core_s_per_event"] + known["core_s_per_batch"]
    assert found["cores"]["value"] - 1 < busy / 0.7 <= found["cores"]["value"]
    assert found["archive"]["value"] == pytest.approx(
        5000 * 86_400 * known["archive_bytes_per_event"]
    )
    assert found["commits"]["value"] == pytest.approx(86_400 * known["commits_per_batch"])
    assert found["state"]["value"] == pytest.approx(
        1000 * known["state_bytes_per_topic"] + 100 * known["state_bytes_per_principal"]
    )
    assert found["memory"]["value"] == pytest.approx(
        (known["driver_gb"] + found["cores"]["value"] * known["worker_gb"]) * 1e9
        + 3 * found["state"]["value"]
        + 1000 * known["driver_bytes_per_topic"]
    )
    for each in found.values():
        assert "(20" in each["measured"], each  # a result file and its date


def test_more_load_needs_more_and_longer_batches_commit_less(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = asked(capsys, "--events-per-s", "5000", "--topics", "1000")
    large = asked(capsys, "--events-per-s", "50000", "--topics", "1000000", "--batch", "10s")
    for name in ("cores", "memory", "state", "archive", "tables"):
        assert large[name]["value"] > small[name]["value"], name
    assert large["commits"]["value"] == pytest.approx(small["commits"]["value"] / 10)


def test_a_shadow_takes_its_measured_share_of_the_cores(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = ("--events-per-s", "50000", "--topics", "1000")
    without, three = asked(capsys, *load), asked(capsys, *load, "--shadows", "3")
    known = {name: each["value"] for name, each in derived()["coefficients"].items()}
    busy = 50_000 * known["core_s_per_event"] + known["core_s_per_batch"]
    shadowed = busy * (1 + 3 * MEASURED["slower_a_shadow"]()) / 0.7
    assert three["cores"]["value"] - 1 < shadowed <= three["cores"]["value"]
    assert three["cores"]["value"] > without["cores"]["value"]
    assert "shadows (20" in three["cores"]["measured"]
    for name in ("state", "archive", "tables", "commits"):
        assert three[name] == without[name]


def test_three_numbers_are_those_of_the_needs(capsys: pytest.CaptureFixture[str]) -> None:
    load = ("--events-per-s", "5000", "--topics", "1000")
    needs = asked(capsys, *load)
    assert main(["size", *load]) == 0
    cores, memory, disk, *_ = capsys.readouterr().out.splitlines()
    assert cores.split() == ["cores", f"{needs['cores']['value']:.0f}"]
    assert memory.split() == ["memory", *size_text(needs["memory"]["value"]).split()]
    daily = needs["archive"]["value"] + needs["tables"]["value"]
    assert disk.startswith(f"disk    {size_text(daily)} a day, ")


def test_the_table_names_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--events-per-s", "5000", "--topics", "1000", "--why"]) == 0
    shown = capsys.readouterr().out
    assert "per day" in shown and "storage (20" in shown
    assert f"Measured on {derived()['measured_on']}" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("--events-per-s", "-1", "--topics", "5"),
        ("--events-per-s", "5", "--topics", "0"),
        ("--events-per-s", "5"),
        ("--events-per-s", "5", "--topics", "5", "--batch", "0s"),
        ("--events-per-s", "5", "--topics", "5", "--shadows", "-1"),
    ],
)
def test_a_load_that_is_none_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", *words]) == 2
    assert capsys.readouterr().err.startswith("weir: ")
