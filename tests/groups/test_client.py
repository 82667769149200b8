"""The client of a cluster that does not answer, and what becomes of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LEFT_BEHIND = """
import gc, socket, sys, threading, time
from confluent_kafka.admin import AdminClient
from app.admin.client import Unanswered
from app.groups.client import Client
from app.groups.settings import KafkaGroupsSettings

gc.disable()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    nobody = "127.0.0.1:%d" % free.getsockname()[1]
made, collected = [], []
settings = KafkaGroupsSettings(
    cluster="east", options={"bootstrap.servers": nobody}, timeout_ms=300
)
client = Client(settings, admin=lambda options: made.append(AdminClient(options)) or made[0])

def ask():
    try:
        client.ask((), (), time.monotonic() + 10)
    except Unanswered as error:
        kept = error  # the error, its traceback and this frame hold each other
    else:
        raise AssertionError("nobody answers there")

def collect(_):
    gc.collect()
    collected.append(threading.current_thread())

def begin():
    # its answer comes on a thread of librdkafka, which collects what is left of the client
    original = client._listed
    def listed(admin, deadline):
        admin.list_consumer_groups(request_timeout=2).add_done_callback(collect)
        return original(admin, deadline)
    client._listed = listed

begin()
ask()
made.clear()
del client
deadline = time.monotonic() + 10
while not collected and time.monotonic() < deadline:
    time.sleep(0.05)
assert collected and collected[0] is not threading.main_thread()
time.sleep(0.5)
"""


@pytest.mark.parametrize("repeat", range(2))
def test_a_client_without_an_answer_is_closed_on_a_thread_that_may(repeat: int) -> None:
    """Freed by the garbage collector on a thread of librdkafka, it would abort the process."""
    done = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
