"""A command ends at Ctrl-C, SIGTERM or --timeout, and takes no more memory than it may."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.cli import main

ROOT = Path(__file__).resolve().parents[3]
SORT = "SELECT a.range * b.range AS x FROM range(10000000) a, range(10000000) b ORDER BY x"
"""Works on many small pieces, and spills."""
ONE_STEP = "SELECT levenshtein(repeat('ab', 500000), repeat('cd', 500000))"
"""Hours of a single call, which DuckDB cannot interrupt."""
AT_ONCE = 60
"""Seconds until a test gives up; what it waits for takes one or two."""


@pytest.fixture
def start(tmp_path):
    """Start `query` on an empty warehouse, in a process of its own."""
    (tmp_path / "warehouse" / "_weir").mkdir(parents=True)
    (tmp_path / "spill").mkdir()
    begun = []

    def start(*words: str) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [
                    sys.executable,
                    str(ROOT / "app" / "main.py"),
                    "query",
                    *words,
                    "--warehouse",
                    str(tmp_path / "warehouse"),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "TMPDIR": str(tmp_path / "spill")},
            )
        )
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def until(condition, process):
    """Wait until something is so, while the process lives."""
    end = time.monotonic() + AT_ONCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "weir: interrupted\n"),
        (signal.SIGTERM, 143, "weir: terminated\n"),
    ],
)
def test_a_signal_ends_a_heavy_statement_and_removes_what_it_spilled(
    start, tmp_path, number, code, said
):
    process = start(SORT, "--memory", "100MB")
    until(lambda: any(tmp_path.glob("spill/weir-query-*/*")), process)
    process.send_signal(number)
    assert process.communicate(timeout=AT_ONCE) == ("", said)
    assert process.returncode == code
    assert list(tmp_path.glob("spill/*")) == []


def test_a_signal_ends_an_answer_that_is_being_printed(start):
    process = start("SELECT range FROM range(10000000000000)", "--csv")
    assert process.stdout.readline() == "range\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=AT_ONCE)[1] == "weir: interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("sql", [SORT, ONE_STEP], ids=["sort", "one step"])
def test_a_timeout_ends_what_ctrl_c_could_not(start, sql):
    process = start(sql, "--timeout", "1s")
    said = "weir: --timeout: no answer within 1 s\n"
    assert process.communicate(timeout=AT_ONCE) == ("", said)
    assert process.returncode == 2


def test_a_signal_ends_a_call_that_nothing_can_interrupt():
    script = (
        "import duckdb, sys\n"
        "from app.terminal.interrupt import stoppable\n"
        "with stoppable():\n"
        "    print('begun', flush=True)\n"
        f"    duckdb.sql({ONE_STEP!r}).fetchall()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "begun\n"
        time.sleep(1)  # so that the call has begun; sooner, the test tests less
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=AT_ONCE) == ("", "weir: interrupted\n")
        assert process.returncode == 130
    finally:
        process.kill()


def test_a_timeout_that_is_not_reached_changes_nothing(start):
    process = start("SELECT 1 AS one", "--timeout", "10m", "--csv")
    assert process.communicate(timeout=AT_ONCE) == ("one\n1\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) FROM range(1000000000)",
        # rows on their way to Python: DuckDB's own limit does not know them
        "SELECT repeat('x', 10000000) AS x FROM range(600)",
    ],
    ids=["between steps", "in the answer"],
)
@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_an_answer_that_needs_more_memory_than_it_may_is_refused(start, sql, form):
    process = start(sql, "--memory", "150MB", form)
    error = process.communicate(timeout=AT_ONCE)[1]
    assert process.returncode == 2
    assert error.splitlines() == [
        "weir: query: needs more than 150 MB of memory, or of temporary disk",
        "ask for fewer rows or columns, or allow more with --memory",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--timeout", "0"], "--timeout 0: allowed: more than 0"),
        (["--timeout", "5"], "--timeout 5: '5' has no unit"),
        (["--timeout", "-5s"], "--timeout -5s: '-5s' is not a duration"),
        (["--memory", "1KB"], "--memory 1KB: allowed: a size from 64MB on"),
        (["--memory", "much"], "--memory much: allowed: a size from 64MB on"),
        (["--json", "--csv"], "query: --json and --csv exclude each other"),
    ],
    ids=" ".join,
)
def test_bounds_that_are_none_are_refused(words, said, tmp_path, capsys):
    assert main(["query", "SELECT 1", *words, "--warehouse", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
