"""A driver ends with the JVM that has started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from app.run.jvm_watch import GONE
from tests.conftest import ROOT
from tests.support.waiting import wait_for

JVM = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""
DRIVER = """
import sys, time
from pathlib import Path
from app.run.jvm_watch import ending_with_jvm
from app.terminal import log
log.begin()
with ending_with_jvm():
    Path(sys.argv[1], "watching").touch()
    time.sleep({inside_s})
Path(sys.argv[1], "behind").touch()
time.sleep(1)
Path(sys.argv[1], "ended").touch()
"""


def killed(folder: Path, inside_s: float, wait_for_file: str) -> str:
    """What a driver says whose JVM is killed once it has written a file."""
    words = [sys.executable, "-c", JVM, DRIVER.format(inside_s=inside_s), str(folder)]
    variables = {**os.environ, "PYSPARK_GATEWAY_PORT": "1"}
    with subprocess.Popen(words, cwd=ROOT, env=variables, stderr=subprocess.PIPE) as jvm:
        wait_for((folder / wait_for_file).exists)
        jvm.send_signal(signal.SIGKILL)
        assert jvm.stderr is not None
        return jvm.stderr.read().decode()  # until the driver has ended, too


def test_a_driver_ends_at_once_and_says_why(tmp_path: Path) -> None:
    began = time.monotonic()
    said = killed(tmp_path, 60, "watching")
    assert time.monotonic() - began < 30
    assert "ERROR" in said and GONE.splitlines()[0] in said and "Traceback" not in said
    assert not (tmp_path / "behind").exists()


def test_a_driver_that_gets_the_signal_as_well_ends_as_it_asks(tmp_path: Path) -> None:
    words = [sys.executable, "-c", JVM, DRIVER.format(inside_s=60), str(tmp_path)]
    variables = {**os.environ, "PYSPARK_GATEWAY_PORT": "1"}
    with subprocess.Popen(
        words, cwd=ROOT, env=variables, stderr=subprocess.PIPE, start_new_session=True
    ) as jvm:
        wait_for((tmp_path / "watching").exists)
        os.killpg(jvm.pid, signal.SIGINT)
        assert jvm.stderr is not None
        said = jvm.stderr.read().decode()
    assert "KeyboardInterrupt" in said and GONE.splitlines()[0] not in said


def test_a_driver_that_is_done_ends_by_itself(tmp_path: Path) -> None:
    assert killed(tmp_path, 0, "behind") == ""
    assert (tmp_path / "ended").exists()
