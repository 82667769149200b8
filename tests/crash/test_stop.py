"""Asked to stop, a run finishes its batches, ends with 0, and later goes on where it was; so it does
where its JVM is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from app.config.settings import load_settings
from app.run.jvm_watch import GONE
from app.run.service import run
from app.show.metrics import health
from tests.conftest import ROOT
from tests.crash.service import OF_PYTEST
from tests.crash.tables import Tables
from tests.support.servers.process import free_ports
from tests.support.waiting import PATIENCE_S

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]{4,7} +(.*)")
"""A line of the log as text; no other is in it."""


@contextmanager
def submitted(config: Path, log_format: str) -> Iterator[subprocess.Popen[str]]:
    """`run` as a service manager starts it; its process becomes the JVM."""
    command = [
        str(ROOT / "spark-submit.sh"),
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
        "run",
        "--config",
        str(config),
        "--log-format",
        log_format,
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name not in OF_PYTEST},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def batches(config: Path, query: str, log: str) -> int:
    """How many batches of a query stand in one of the logs of its checkpoint."""
    folder = Path(load_settings(config).warehouse) / "_weir" / "checkpoints" / query / log
    return sum(p.name.isdigit() for p in folder.iterdir()) if folder.is_dir() else 0


def wait_for_batches(process: subprocess.Popen[str], config: Path, count: int) -> None:
    """Wait until govern has finished so many more batches and is at work on another."""
    count += batches(config, "govern", "commits")
    deadline = time.monotonic() + 200
    while (
        batches(config, "govern", "commits") < count
        or batches(config, "govern", "offsets") <= count
    ):
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def to_the_jvm(process: subprocess.Popen[str]) -> None:
    """What a service manager or a cluster sends."""
    process.send_signal(signal.SIGTERM)


def to_everyone(process: subprocess.Popen[str]) -> None:
    """A Ctrl-C: the JVM and Python get it."""
    os.killpg(process.pid, signal.SIGINT)


def test_asked_to_stop_and_killed_it_goes_on_where_it_was(
    make_config: Callable[[str], Path], calm: Tables
) -> None:
    """Three starts on one warehouse, and one that goes on to the end."""
    config = make_config("stopped")
    (port,) = free_ports(1)
    with config.open("a") as file:
        file.write(f"metrics: {{listen: '127.0.0.1:{port}', refresh_s: 1}}\n")
    asked_to_stop(config, to_the_jvm, "text")
    jvm_killed(config)
    asked_to_stop(config, to_everyone, "json")
    settings = load_settings(config)
    assert run(settings, available_now=True) == 0
    assert not Tables.of(settings.warehouse).differences(calm)


def asked_to_stop(
    config: Path, ask: Callable[[subprocess.Popen[str]], None], log_format: str
) -> None:
    """A start that finishes its batches and ends with 0."""
    settings, before = load_settings(config), batches(config, "govern", "commits")
    assert settings.metrics is not None
    with submitted(config, log_format) as process:
        wait_for_batches(process, config, 1)
        with urllib.request.urlopen(
            f"http://{settings.metrics.listen}/metrics", timeout=PATIENCE_S
        ) as answer:
            served = answer.read().decode()
        ask(process)
        out, said = process.communicate(timeout=90)
    assert process.returncode == 0, said[-3000:]
    assert "stopping: the running batches are finished first" in said
    assert "batch interrupted" not in said
    assert "Traceback" not in said
    done = batches(config, "govern", "commits") - before
    assert done >= 2  # the one at work is among them
    assert "weir_exporter_up " in served
    assert out == ""
    # Without what the script says of its own preparations.
    lines = [line for line in said.splitlines() if not line.startswith("weir: ")]
    if log_format == "json":
        log = [json.loads(line) for line in lines]
        assert all({"time", "level", "message"} <= each.keys() for each in log)
        assert {each["level"] for each in log} <= {"INFO", "WARNING", "ERROR"}
        messages = [each["message"] for each in log]
    else:
        log = [LINE.fullmatch(line) for line in lines]
        assert all(log), said
        messages = [each[1] for each in log]
    assert messages[0].endswith(": starting Spark")
    assert any(text.endswith(f"the first batch of files {settings.feed.path}") for text in messages)
    found = {(name, query): value for name, (query, *_), value in health.samples(settings.location)}
    assert found["weir_query_batches_total", "govern"] == done
    assert found["weir_query_state_bytes", "govern"] > 0


def jvm_killed(config: Path) -> None:
    """A start whose JVM is killed: the driver says so, and nothing of it is left."""
    with submitted(config, "text") as process:
        wait_for_batches(process, config, 1)
        others = psutil.Process(process.pid).children(recursive=True)
        assert others
        process.kill()
        out, said = process.communicate(timeout=90)  # until the driver has ended, too
    assert psutil.wait_procs(others, timeout=60)[1] == []
    assert process.returncode == -signal.SIGKILL and out == ""
    lines = [line for line in said.splitlines() if not line.startswith("weir: ")]
    log = [LINE.fullmatch(line) for line in lines]
    assert all(log), said
    assert [each[1] for each in log if each][-1] == " | ".join(GONE.splitlines())
