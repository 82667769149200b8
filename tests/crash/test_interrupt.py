"""Ctrl-C ends a command with Spark in one line, whatever it is at work on."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.crash.service import OF_PYTEST

AT_WORK = {" events: 10 minutes": "Spark starts", " started: ": "the queries run"}
# The JVM ends at the same signal: it runs as a user has it.
OF_SUITE = (*OF_PYTEST, "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")


@pytest.mark.parametrize("sign", AT_WORK, ids=AT_WORK.get)
def test_ctrl_c_in_the_demo_is_one_line_and_no_stack_trace(sign: str, tmp_path: Path) -> None:
    inherited = {name: text for name, text in os.environ.items() if name not in OF_SUITE}
    process = subprocess.Popen(
        [
            str(ROOT / "spark-submit.sh"),
            "--master",
            "local[2]",
            "--conf",
            "spark.ui.enabled=false",
            "demo",
            "--out",
            str(tmp_path / "demo"),
            "--events",
            "40000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=inherited,
    )
    timer = threading.Timer(300, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        before = []
        for line in process.stdout:
            before.append(line)
            if sign in line:
                break
        else:
            raise AssertionError(f"the demo ended before {sign!r}\n{''.join(before)}")
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        said = process.stdout.read()
        code = process.wait(60)
    finally:
        timer.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
    last = [line for line in said.splitlines() if "interrupted" in line]
    assert len(last) == 1 and last[0].endswith("interrupted"), said
    assert code == 130
    for word in ("Traceback", "Py4J", "internal error", "Exception", "ERROR:"):
        assert word not in said, said
