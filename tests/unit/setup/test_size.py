"""`size`: what it computes, and that it computes with what was measured."""

from __future__ import annotations

import json
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


def test_the_coefficients_are_those_of_the_results() -> None:
    assert json.loads(COEFFICIENTS.read_text("utf-8")) == derived()


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
    measured = json.loads((FOLDER / "shadows.json").read_text("utf-8"))["figures"]
    one, no = (
        next(
            each["value"] for each in measured if each["name"] == f"large batch, five jobs, {name}"
        )
        for name in ("one shadow", "no shadow")
    )
    busy = 50_000 * known["core_s_per_event"] + known["core_s_per_batch"]
    shadowed = busy * (1 + 3 * (one - no) / no) / 0.7
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
