"""One client gives everything a new name: the rows of all others are the same, memory and time of the
run are bounded, and so is each answer, which reports what it leaves out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
import yaml

from app.cli import main
from app.config.settings import load_settings
from app.read.questions import QUESTIONS
from app.run.service import run
from tests.conftest import ROOT
from tests.support.many_names import KAFKA, PULSAR, TOPIC, WHO, ended, lines_of_many
from tests.support.traces import every_row, punctual_trace

LARGE = pytest.param(1_000_000, 100_000, marks=pytest.mark.slow)
"""Five million records. Measured on two busy cores: 18 minutes, 3.8 GB of the JVM, 7.2 GB of Python."""
JAVA_GB, PYTHON_GB = 4.5, 9.0
MOST_S, ANSWER_S = 3_600, 120
MOST_CHARACTERS = 200_000
"""Of a printed answer; a page of the report and the metrics have ten times as many."""
OF_TOPICS = "persistent://many/"
OF_ONE = (*PULSAR[1:], *KAFKA[1:], WHO, "of-many-", OF_TOPICS)
PART = 250_000
"""Records of a file."""


def written(folder: Path, files: dict[str, list[bytes]]) -> Path:
    """The default configuration over such files."""
    source = folder / "in"
    source.mkdir(parents=True)
    for name, lines in files.items():
        (source / name).write_bytes(b"\n".join(lines) + b"\n")
    config = folder / "weir.yaml"
    about = {"warehouse": str(folder / "w"), "source": {"format": "files", "path": str(source)}}
    config.write_text(yaml.safe_dump(about))
    return config


def submitted(config: Path) -> tuple[float, float]:
    """A run to the end as a user starts it; the most GB of the JVM and of Python."""
    began, java, python = time.monotonic(), 0.0, 0.0
    words = [str(ROOT / "spark-submit.sh"), "run", "--available-now", "--config", str(config)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while process.poll() is None:
            now_java, now_python = used(process.pid)
            java, python = max(java, now_java), max(python, now_python)
            time.sleep(0.5)
            assert time.monotonic() - began < MOST_S
        assert process.returncode == 0, process.stderr.read().decode()
    return java, python


def used(pid: int) -> tuple[float, float]:
    """GB of the JVM, and of Python, whose processes share pages."""
    java = python = 0.0
    try:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for each in processes:
            if each.name() == "java":
                java += each.memory_info().rss / 1e9
            else:
                python += each.memory_full_info().pss / 1e9
    except psutil.Error:  # one has ended meanwhile
        pass
    return java, python


def answer(words: Sequence[str], warehouse: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, within its time."""
    capsys.readouterr()
    began = time.monotonic()
    assert main([*words, "--warehouse", str(warehouse)]) in (0, 1), words
    assert time.monotonic() - began < ANSWER_S, words
    return str(capsys.readouterr().out)


@pytest.mark.parametrize(("topics", "groups"), [(2_000, 200), LARGE])
def test_many_names_of_one_client_cost_nobody_else(
    topics: int, groups: int, spark: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [line for part in punctual_trace(17_000).slices() for line in part.lines()]
    config = written(tmp_path / "alone", {"others.jsonl": others})
    assert run(load_settings(config, {"alerts": None}), available_now=True) == 0
    alone = every_row(str(tmp_path / "alone" / "w"))
    files: dict[str, list[bytes]] = {"0-others.jsonl": others}
    for number, line in enumerate(lines_of_many(topics, groups)):
        files.setdefault(f"many-{number // PART:04}.jsonl", []).append(line)
    java_gb, python_gb = submitted(written(tmp_path / "beside", files))
    assert java_gb < JAVA_GB and python_gb < PYTHON_GB
    beside = every_row(str(tmp_path / "beside" / "w"))
    expected = {name: rows for name, rows in alone.items() if rows}
    found = {
        name: [row for row in rows if not any(one in value for value in row for one in OF_ONE)]
        for name, rows in beside.items()
    }
    assert {name: rows for name, rows in found.items() if rows} == expected
    stats = beside["topic_throttle_stats"]
    of_many = sum(any(value.startswith(OF_TOPICS) for value in row) for row in stats)
    assert of_many == ended(topics)
    warehouse, page = tmp_path / "beside" / "w", tmp_path / "page.html"
    for name in QUESTIONS:
        said = answer(["query", name], warehouse, capsys)
        assert len(said) < MOST_CHARACTERS, name
    said = answer(["query", "FROM topic_throttle_stats"], warehouse, capsys)
    assert said.splitlines()[-1] == "200 of at least 1,200 rows; --rows N shows more"
    for words in (["explain", "topic", TOPIC % 7], ["alerts", "check"]):
        assert len(answer(words, warehouse, capsys)) < MOST_CHARACTERS, words
    answer(["report", "--out", str(page)], warehouse, capsys)
    metrics = answer(["metrics", "--once"], warehouse, capsys)
    assert max(len(metrics), page.stat().st_size) < 10 * MOST_CHARACTERS
    assert 'weir_exporter_entities{family="topics",series="none"}' in metrics
