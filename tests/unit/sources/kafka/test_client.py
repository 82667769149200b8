"""The client of Kafka lives in a process of its own, whose end costs one poll."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from app.config.kafka_groups import KafkaGroupsSettings
from app.errors import UserError
from app.sources.kafka.apart import ClientProcess
from app.sources.polling import Unanswered
from tests.support.servers.process import free_ports
from tests.support.waiting import wait_for

SILENT = """
import sys, time
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
pipe.recv()
while True:
    print(pipe.recv()[0], flush=True)
    time.sleep(600)
"""


CRASHING = """
import os, sys
from multiprocessing.connection import Connection
from app.sources.kafka.apart import ASKING
from app.sources.kafka.offsets import OffsetAnswers
pipe = Connection(int(sys.argv[1]))
pipe.recv()
while True:
    name, seconds, (topics, groups, alone, left_out) = pipe.recv()
    asked = sorted(set(groups) - set(left_out))
    together = [group for group in asked if group not in alone]
    for some in [together, *([group] for group in asked if group in alone)]:
        pipe.send((ASKING, some))
        if "bad" in some:
            os.abort()
    pipe.send((ASKING, []))
    pipe.send((None, OffsetAnswers(committed={group: {} for group in asked})))
"""


def settings(**options: str) -> KafkaGroupsSettings:
    (port,) = free_ports(1)
    return KafkaGroupsSettings(
        cluster="east",
        timeout_ms=500,
        options={"bootstrap.servers": f"127.0.0.1:{port}", **options},
    )


def ask(client: ClientProcess, seconds: float = 5.0) -> str:
    """Why nothing came."""
    with pytest.raises(Unanswered) as raised:
        client.ask((), (), time.monotonic() + seconds)
    return str(raised.value)


@pytest.fixture
def client() -> Iterator[ClientProcess]:
    made = ClientProcess(settings())
    yield made
    made.close()


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def silent(stopping: threading.Event) -> Iterator[ClientProcess]:
    """Its process takes every call and answers none."""
    made = ClientProcess(settings(), stopping, (sys.executable, "-c", SILENT))
    yield made
    made.close()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_one_process_answers_one_call_after_the_other(client: ClientProcess) -> None:
    assert "the list of topics" in ask(client)
    pid = client.pid
    assert pid not in (None, os.getpid())
    assert "the list of topics" in ask(client)
    assert client.pid == pid
    assert client.read([], {}, time.monotonic() + 5, []) == {}


def test_a_mistake_in_the_options_is_the_users() -> None:
    client = ClientProcess(settings(**{"no.such.option": "1"}))
    with pytest.raises(UserError, match=r"source.groups.options: .*no.such.option") as raised:
        client.ask((), (), time.monotonic() + 5)
    assert raised.value.problems
    client.close()


def test_a_segmentation_fault_costs_one_poll(client: ClientProcess) -> None:
    ask(client)
    first = client.pid
    assert first is not None
    os.kill(first, signal.SIGSEGV)
    assert ask(client) == (
        "the process of the Kafka client ended (SIGSEGV); the next poll starts another"
    )
    assert "the list of topics" in ask(client)
    assert client.pid not in (None, first)


def test_a_group_whose_answer_ends_the_process_costs_that_group_alone() -> None:
    client = ClientProcess(settings(), command=(sys.executable, "-c", CRASHING))
    groups = ["a", "bad", "c"]
    try:
        answers = client.ask((), groups, time.monotonic() + 120)
        assert set(answers.committed) == {"a", "c"}
        pid = client.pid
        assert set(client.ask((), groups, time.monotonic() + 60).committed) == {"a", "c"}
        assert client.pid == pid, "it is not requested at once again"
    finally:
        client.close()


def test_a_process_that_dies_over_a_call_is_noticed(silent: ClientProcess) -> None:
    def kill() -> None:
        wait_for(lambda: silent.pid)
        time.sleep(1)  # it takes the call
        pid = silent.pid
        assert pid is not None
        os.kill(pid, signal.SIGABRT)

    thread = threading.Thread(target=kill)
    thread.start()
    assert "(SIGABRT)" in ask(silent, 60)
    thread.join()
    assert silent.pid is None


def test_a_call_without_end_ends_with_its_time(
    silent: ClientProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.sources.kafka.apart.GRACE_S", 0.5)
    assert ask(silent, 0.5) == "no time left in this poll"
    assert silent.pid is None


def test_a_stop_breaks_off_a_call(silent: ClientProcess, stopping: threading.Event) -> None:
    threading.Timer(0.5, stopping.set).start()
    assert ask(silent, 60) == "stopping"
    assert silent.pid is None
    assert ask(silent) == "stopping"


def test_the_process_ends_with_its_client_and_with_its_parent(client: ClientProcess) -> None:
    ask(client)
    pid = client.pid
    assert pid is not None
    client.close()
    assert gone(pid)

    forgotten = ClientProcess(settings())
    ask(forgotten)
    left = forgotten.pid
    assert left is not None
    del forgotten
    gc.collect()  # the errors that it raised know it
    assert gone(left)

    parent = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, time\n"
            "from contextlib import suppress\n"
            "from app.sources.polling import Unanswered\n"
            "from tests.unit.sources.kafka.test_client import ClientProcess, settings\n"
            "client = ClientProcess(settings())\n"
            "with suppress(Unanswered): client.ask((), (), time.monotonic() + 5)\n"
            "print(client.pid, flush=True)\n"
            "os.kill(os.getpid(), 9)",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert parent.returncode == -9, parent.stderr
    wait_for(lambda: gone(int(parent.stdout)))
