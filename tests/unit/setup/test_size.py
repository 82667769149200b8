"""`size`: what it computes, and that it computes with what was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.settings import load_settings
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


def requests(partitions: int, kind: str) -> float:
    """Requests of a micro-batch."""
    return figure("store", f"six jobs, {partitions} partitions: {kind} of a micro-batch")


def more(kind: str) -> float:
    """Requests of one more partition; between two and four some kinds differ by less than chance."""
    return max(requests(4, kind) - requests(2, kind), 0) / 2


def without_partitions(kind: str) -> float:
    """Requests of a micro-batch beside those of its partitions."""
    return requests(2, kind) - 2 * more(kind)


def at_once() -> float:
    """Records of the largest batch of a flood."""
    return figure("flood", "as it comes: largest micro-batch")


MANY, MANY_STATES = "govern, 1,000,000 topics", "state, 1,000,000 topics"
PYTHON = "{}: memory of all Python processes, at most"
PYTHON_AS_IT_COMES = PYTHON.format("as it comes")
FACTOR = 2.5
"""How far `size` may be from a measurement: other processors, jobs and batches than its own."""
DRIVER_GB = "as it comes: memory of the driver's JVM, at most"
MEASURED: dict[str, Callable[[], float]] = {
    "core_s_per_event": lambda: figure("flood", "as it comes: CPU after the first batch") / 1e6,
    "core_s_per_batch": lambda: (
        cpu("small-batches", "CPU of {} a batch, five jobs") / 1000
        - 5000 * cpu("govern-all", "CPU of {}") / 1e6
    ),
    "core_s_per_topic_of_batch": lambda: (
        (1 / figure("topics", MANY) - 1 / figure("topics", "govern, 1,000 topics"))
        * 2
        * 500_000
        / 1e6
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
    "worker_gb": lambda: figure("flood", PYTHON_AS_IT_COMES) / 2,
    "worker_bytes_per_record": lambda: (
        1e9
        * (figure("flood", PYTHON.format("planned as one")) - figure("flood", PYTHON_AS_IT_COMES))
        / (figure("flood", "planned as one: largest micro-batch") - at_once())
    ),
    "state_bytes": lambda: (
        1000 * (figure("state", "state, 1,000 topics") - figure("state", MANY_STATES))
    ),
    "state_bytes_per_topic": lambda: figure("state", MANY_STATES),
    "state_bytes_per_principal": lambda: figure(
        "producer_ids", "state, 10,000 users with 50 ids each, bloom"
    ),
    "archive_bytes_per_event": lambda: figure("storage", "archive"),
    "table_bytes_per_event": lambda: figure("storage", "tables of the jobs"),
    "commits_per_batch": lambda: figure("storage", "commits"),
    **{f"{kind}_per_batch": partial(without_partitions, kind) for kind in ("writes", "reads")},
    **{f"{kind}_per_batch_and_partition": partial(more, kind) for kind in ("writes", "reads")},
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
    of_batch = known["core_s_per_batch"] + 1000 * known["core_s_per_topic_of_batch"]
    busy = 5000 * known["core_s_per_event"] + of_batch
    assert found["cores"]["value"] - 1 < busy / 0.7 <= found["cores"]["value"]
    for kind in ("writes", "reads"):
        of_each = known[f"{kind}_per_batch_and_partition"] * found["cores"]["value"]
        expected = 86_400 * (known[f"{kind}_per_batch"] + of_each)
        assert found[kind]["value"] == pytest.approx(expected)
    assert found["archive"]["value"] == pytest.approx(
        5000 * 86_400 * known["archive_bytes_per_event"]
    )
    assert found["commits"]["value"] == pytest.approx(86_400 * known["commits_per_batch"])
    assert found["state"]["value"] == pytest.approx(
        known["state_bytes"]
        + 1000 * known["state_bytes_per_topic"]
        + 100 * known["state_bytes_per_principal"]
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
    busy += 1000 * known["core_s_per_topic_of_batch"]
    shadowed = busy * (1 + 3 * MEASURED["slower_a_shadow"]()) / 0.7
    assert three["cores"]["value"] - 1 < shadowed <= three["cores"]["value"]
    assert three["cores"]["value"] > without["cores"]["value"]
    assert "shadows (20" in three["cores"]["measured"]
    for name in ("state", "archive", "tables", "commits", "records"):
        assert three[name] == without[name]


def near(said: float, measured: float) -> bool:
    return 1 / FACTOR <= said / measured <= FACTOR


@pytest.mark.parametrize(
    ("result", "name", "batch_s", "topics"),
    [
        ("govern-all", "five jobs and the archive from Kafka", 2.0, 10_000),
        ("govern-all", "five jobs from JSON lines", 0.719, 10_000),
        ("six-jobs", "six jobs from JSON lines", 1.0, 10_000),
        ("topics", "govern, 1,000 topics", 500_000 / 420_168, 1000),
        ("topics", MANY, 500_000 / 234_082, 1_000_000),
        ("flood", "as it comes: after the first batch, all jobs and the archive", 3.4, 10_000),
    ],
)
def test_the_cores_are_near_those_that_had_the_measured_speed(
    result: str, name: str, batch_s: float, topics: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of these was measured on two busy cores."""
    speed = figure(result, name)
    load = (
        "--events-per-s",
        str(speed),
        "--topics",
        str(topics),
        "--batch",
        f"{batch_s * 1000:.0f}ms",
    )
    assert near(asked(capsys, *load)["cores"]["value"] * 0.7, 2)


def test_a_million_topics_are_read_and_written_by_each_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run of few events among a million topics took three cores with batches of a second."""
    few = ("--events-per-s", "1000", "--topics", "1000000")
    assert near(asked(capsys, *few)["cores"]["value"], 3)
    assert asked(capsys, *few, "--batch", "10s")["cores"]["value"] == 1


@pytest.mark.parametrize("topics", [1_000, 10_000, 100_000, 1_000_000])
def test_states_are_near_those_that_were_measured(
    topics: int, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = topics * figure("state", f"state, {topics:,} topics")
    said = asked(capsys, "--events-per-s", "1000", "--topics", str(topics))["state"]["value"]
    assert near(said, measured) and near(measured, said)


@pytest.mark.parametrize(("clusters", "name"), [(1, "1 cluster"), (20, "20 clusters")])
def test_a_run_of_polls_is_near_the_one_that_was_weighed(
    clusters: int, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thousand partitions and 500 groups in each cluster; a poll a minute has a record of each."""
    topics = 1000 * clusters
    load = ("--events-per-s", str(topics * 3 / 60), "--topics", str(topics), "--batch", "1m")
    needs = asked(capsys, *load)
    weighed = figure("weight", f"{name}, 500 groups each: at most") * 1e6
    assert near(needs["memory"]["value"], weighed)
    used = figure("weight", f"{name}, 500 groups each: CPU") / 60
    assert needs["cores"]["value"] * 0.7 > used


def test_more_than_a_batch_holds_by_default_asks_for_more_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = asked(capsys, "--events-per-s", "5000", "--topics", "1000")
    assert small["records"]["value"] == 500_000
    needs = asked(capsys, "--events-per-s", "1000000", "--topics", "1000")
    assert needs["records"]["value"] == 1_428_572
    workers = known_value("worker_gb") * 1e9 * needs["cores"]["value"]
    more = 928_572 * known_value("worker_bytes_per_record")
    rest = 3 * needs["state"]["value"] + 1000 * known_value("driver_bytes_per_topic")
    assert needs["workers"]["value"] == pytest.approx(workers + more + rest)
    assert main(["size", "--events-per-s", "1000000", "--topics", "1000"]) == 0
    shown = capsys.readouterr().out
    assert "set     source.max_records_per_trigger: 1428572\n" in shown
    assert f"set     partitions: {needs['cores']['value']}\n" in shown
    assert "set     --driver-memory: 2g\n" in shown
    per_core = needs["workers"]["value"] / needs["cores"]["value"] / 2**20
    (overhead,) = re.findall(r"spark.executor.memoryOverhead: (\d+)m for each core", shown)
    assert 0 <= int(overhead) - per_core < 1


def known_value(name: str) -> float:
    """A coefficient."""
    return float(WRITTEN[name]["value"])


def test_what_is_set_is_taken_by_the_configuration(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["size", "--events-per-s", "1000000", "--topics", "1000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["set"]
    source = {"format": "files", "path": str(tmp_path)}
    document: dict[str, Any] = {"warehouse": str(tmp_path / "w"), "source": source}
    for key, value in found.items():
        if not key.startswith(("--", "spark.")):
            section, _, name = key.rpartition(".")
            (document[section] if section else document)[name] = int(value)
    file = tmp_path / "weir.yaml"
    file.write_text(json.dumps(document))
    settings = load_settings(file)
    assert settings.partitions == int(found["partitions"])
    assert settings.feed.max_records_per_trigger == 1_428_572


def test_the_cost_of_a_month_is_that_of_requests_and_of_what_is_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = ("size", "--events-per-s", "5000", "--topics", "1000", "--batch", "10s")
    assert main([*load, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"] is None
    assert main([*load, "--prices", "0.005", "0.0004", "0.023", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    needs = {each["name"]: each["value"] for each in answer["needs"]}
    stored_gb = 30 * (needs["archive"] + needs["tables"]) / 1e9
    requests_ = 30 * (needs["writes"] * 0.005 + needs["reads"] * 0.0004) / 1000
    assert answer["cost"] == pytest.approx(requests_ + stored_gb * 0.023)
    assert main([*load, "--prices", "0.005", "0.0004", "0.023"]) == 0
    assert f", {answer['cost']:,.2f} a month, in an object store\n" in capsys.readouterr().out


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
        ("--events-per-s", "5", "--topics", "5", "--prices", "1", "2"),
        ("--events-per-s", "5", "--topics", "5", "--prices", "1", "2", "cheap"),
    ],
)
def test_a_load_that_is_none_is_refused(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", *words]) == 2
    assert capsys.readouterr().err.startswith("weir: ")
