"""Asked to stop, a run finishes its batches, ends with 0, and later goes on where it was; so it does
where its JVM is killed.
"""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil

from app.config.settings import load_settings
from app.run.jvm_watch import GONE
from app.run.service import run
from app.show.metrics import health
from tests.crash.service import LINE, Service, batches
from tests.crash.tables import ALONE, Tables
from tests.support.servers.process import free_ports
from tests.support.waiting import PATIENCE_S


@contextmanager
def at_work(config: Path, log_format: str) -> Iterator[Service]:
    """A start that has finished a batch and is at work on another."""
    with closing(Service(config, "run", "--log-format", log_format)) as started:
        count = started.batches("govern", "commits") + 1
        started.wait(
            lambda: (
                started.batches("govern", "commits") >= count
                and started.batches("govern", "offsets") > count
            )
        )
        yield started


def messages(said: str) -> list[str]:
    """Those of a log as text, in which no other line is; without what the script says of its own
    preparations."""
    lines = [line for line in said.splitlines() if not line.startswith("weir: ")]
    assert all(map(LINE.match, lines)), said
    return [LINE.sub("", line, count=1) for line in lines]


def test_asked_to_stop_and_killed_it_goes_on_where_it_was(
    make_config: Callable[[str], Path], calm: Tables
) -> None:
    """Three starts on one warehouse, and one that goes on to the end."""
    config = make_config("stopped")
    (port,) = free_ports(1)
    with config.open("a") as file:
        file.write(f"metrics: {{listen: '127.0.0.1:{port}', refresh_s: 1}}\n")
    asked_to_stop(config, Service.terminate, "text")
    jvm_killed(config)
    asked_to_stop(config, Service.interrupt, "json")
    settings = load_settings(config, ALONE)
    assert run(settings, available_now=True) == 0
    assert not Tables.of(settings.warehouse).differences(calm)


def asked_to_stop(config: Path, ask: Callable[[Service], None], log_format: str) -> None:
    """A start that finishes its batches and ends with 0."""
    settings = load_settings(config)
    before = batches(settings.warehouse, "govern", "commits")
    assert settings.metrics is not None
    with at_work(config, log_format) as started:
        with urllib.request.urlopen(
            f"http://{settings.metrics.listen}/metrics", timeout=PATIENCE_S
        ) as answer:
            served = answer.read().decode()
        ask(started)
        started.end_well()
        said = started.said
    assert "stopping: the running batches are finished first" in said
    assert "batch interrupted" not in said
    assert "Traceback" not in said
    done = batches(settings.warehouse, "govern", "commits") - before
    assert done >= 2  # the one at work is among them
    assert "weir_exporter_up " in served
    assert started.out == ""
    if log_format == "json":
        # Without what the script says of its own preparations.
        log = [json.loads(line) for line in said.splitlines() if not line.startswith("weir: ")]
        assert all({"time", "level", "message"} <= each.keys() for each in log)
        assert {each["level"] for each in log} <= {"INFO", "WARNING", "ERROR"}
        texts = [each["message"] for each in log]
    else:
        texts = messages(said)
    assert texts[0].endswith(": starting Spark")
    assert any(text.endswith(f"the first batch of files {settings.feed.path}") for text in texts)
    found = {(name, query): value for name, (query, *_), value in health.samples(settings.location)}
    assert found["weir_query_batches_total", "govern"] == done
    assert found["weir_query_state_bytes", "govern"] > 0


def jvm_killed(config: Path) -> None:
    """A start whose JVM is killed: the driver says so, and nothing of it is left."""
    with at_work(config, "text") as started:
        others = started.processes()
        assert others
        started.kill()  # until the driver has ended, too
    assert psutil.wait_procs(others, timeout=0)[1] == []
    assert started.code() == -signal.SIGKILL and started.out == ""
    assert messages(started.said)[-1] == " | ".join(GONE.splitlines())
