"""A driver ends with the JVM that has started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.run.jvm_watch import GONE
from tests.conftest import ROOT
from tests.support.waiting import wait_for

JVM = """
import os, socket, subprocess, sys
gateway = socket.create_server(("127.0.0.1", 0))
os.environ["PYSPARK_GATEWAY_PORT"] = str(gateway.getsockname()[1])
subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
"""
DRIVER = """
import sys, time
from pathlib import Path
Path(sys.argv[1], "begun").touch()
time.sleep({before_s})
from app.run.jvm_watch import ending_with_jvm
with ending_with_jvm():
    Path(sys.argv[1], "watching").touch()
    time.sleep({inside_s})
    {inside}
Path(sys.argv[1], "behind").touch()
time.sleep(1)
Path(sys.argv[1], "ended").touch()
"""


def killed(
    folder: Path, inside_s: float, wait_for_file: str, before_s: float = 0, inside: str = "pass"
) -> str:
    """What a driver says whose JVM is killed once it has written a file."""
    driver = DRIVER.format(before_s=before_s, inside_s=inside_s, inside=inside)
    words = [sys.executable, "-c", JVM, driver, str(folder)]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE) as jvm:
        wait_for((folder / wait_for_file).exists)
        jvm.send_signal(signal.SIGKILL)
        assert jvm.stderr is not None
        return jvm.stderr.read().decode()  # until the driver has ended, too


def test_a_driver_ends_at_once_and_says_why(tmp_path: Path) -> None:
    began = time.monotonic()
    said = killed(tmp_path, 60, "watching")
    assert time.monotonic() - began < 30
    assert said == f"weir: {GONE}\n"
    assert not (tmp_path / "behind").exists()


def test_a_driver_whose_jvm_has_ended_before_it_watches_says_the_same(tmp_path: Path) -> None:
    assert killed(tmp_path, 60, "begun", before_s=1) == f"weir: {GONE}\n"
    assert not (tmp_path / "behind").exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ConnectionRefusedError(111)", []),
        ("__import__('py4j.protocol').protocol.Py4JNetworkError()", []),
        ("KeyError('ours')", ["KeyError: 'ours'"]),
    ],
)
def test_an_error_that_is_not_of_asking_the_jvm_is_said_as_well(
    error: str, said: list[str], tmp_path: Path
) -> None:
    lines = killed(tmp_path, 0.3, "watching", inside=f"raise {error}").splitlines()
    assert lines[:2] == f"weir: {GONE}".splitlines()
    assert lines[2:][-1:] == said


def test_a_driver_that_gets_the_signal_as_well_ends_as_it_asks(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-c",
        JVM,
        DRIVER.format(before_s=0, inside_s=60, inside="pass"),
        str(tmp_path),
    ]
    with subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True) as jvm:
        wait_for((tmp_path / "watching").exists)
        os.killpg(jvm.pid, signal.SIGINT)
        assert jvm.stderr is not None
        said = jvm.stderr.read().decode()
    assert "KeyboardInterrupt" in said and GONE.splitlines()[0] not in said


def test_a_driver_that_is_done_ends_by_itself(tmp_path: Path) -> None:
    assert killed(tmp_path, 0, "behind") == ""
    assert (tmp_path / "ended").exists()
