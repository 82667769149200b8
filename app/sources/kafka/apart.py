"""The Kafka client in a process of its own.

Some answers of a broker end the process that librdkafka runs in: an offset fetch answered with "not
coordinator" is a segmentation fault (confluent-kafka-javascript issue 374), and a client that is
freed on a thread of librdkafka aborts. In a separate process that costs one poll at most, and calls
that cannot be cancelled end with the process. If it ends over the offsets of several groups, they
are requested again one by one, and the one that ends it is left out for some polls.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

from app.config.kafka_groups import KafkaGroupsSettings
from app.config.shipped import ROOT
from app.errors import UserError
from app.sources.kafka.offsets import Log, LogPosition, OffsetAnswers, Oldest, Place
from app.sources.polling import Unanswered

SLICE_S = 0.2
"""Time between two checks of a wait for cancellation."""
GRACE_S = 5.0
"""Time after its deadline in which a call may still answer, because the process may have to start.
"""
LEFT_OUT = 60
"""Polls for which a group is left out whose answer has ended the process."""
ASKING = "asking"
COMMAND = (sys.executable, "-m", "app.sources.kafka.apart")


class Ended(Unanswered):
    """The process has ended."""


class ClientProcess:
    """`GroupsClient`, with each call in another process, which lives until `close`."""

    def __init__(
        self,
        settings: KafkaGroupsSettings,
        stopping: threading.Event | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._settings = settings
        self._stopping = stopping or threading.Event()
        self._command = command
        self._child: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._end: Callable[[], Any] = _nothing
        self._asking: list[str] = []
        """Groups whose offsets the process is requesting."""
        self._alone: set[str] = set()
        self._left_out: dict[str, int] = {}
        """By group the number of polls before it is requested again."""

    def ask(
        self, topics: Collection[str], groups: Collection[str], deadline: float
    ) -> OffsetAnswers:
        """See Client.ask; also Unanswered if the process has ended."""
        self._left_out = {name: left - 1 for name, left in self._left_out.items() if left > 1}
        while True:
            self._asking = []
            try:
                answers: OffsetAnswers = self._call(
                    "ask", deadline, topics, groups, self._alone, set(self._left_out)
                )
                return answers
            except Ended:
                if len(self._asking) == 1:
                    self._left_out[self._asking[0]] = LEFT_OUT
                self._alone |= set(self._asking)
                if not self._asking or time.monotonic() >= deadline:
                    raise

    def read(
        self,
        positions: Sequence[LogPosition],
        logs: Mapping[Place, Log],
        deadline: float,
        problems: list[str],
    ) -> dict[LogPosition, Oldest]:
        """See Client.read."""
        if not positions:
            return {}
        found: dict[LogPosition, Oldest]
        found, met = self._call("read", deadline, positions, logs)
        problems += met
        return found

    def close(self) -> None:
        """End the process."""
        self._child = None
        self._end()

    @property
    def pid(self) -> int | None:
        """The number of the process, if there is one."""
        return None if self._child is None else self._child[0].pid

    def _call(self, name: str, deadline: float, *args: Any) -> Any:
        if self._stopping.is_set():
            raise Unanswered("stopping")
        process, pipe = self._child = self._child or self._start()
        try:
            pipe.send((name, deadline - time.monotonic(), args))
            kind, answer = self._received(pipe, deadline)
            while kind == ASKING:
                self._asking = answer
                kind, answer = self._received(pipe, deadline)
        except (EOFError, ConnectionError):
            reason = _ended(process)
            self.close()
            raise Ended(reason) from None
        except BaseException:
            self.close()
            raise
        if kind is Unanswered:
            raise Unanswered(*answer)
        if kind is UserError:
            raise UserError(*answer)
        return answer

    def _received(self, pipe: Connection, deadline: float) -> Any:
        """The next message of the process."""
        while not pipe.poll(SLICE_S):
            if self._stopping.is_set():
                raise Unanswered("stopping")
            if time.monotonic() > deadline + GRACE_S:
                raise Unanswered("no time left in this poll")
        return pipe.recv()

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        parent_end, child_end = Pipe()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with child_end:
            process = subprocess.Popen(
                [*self._command, str(child_end.fileno())],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # a Ctrl-C is for the service, which ends this process
            )
        self._end = weakref.finalize(self, _kill, process, parent_end)
        parent_end.send(self._settings)
        return process, parent_end


def _nothing() -> None:
    """No process to end."""


def _kill(process: subprocess.Popen[bytes], pipe: Connection) -> None:
    pipe.close()
    process.kill()
    process.wait()


def _ended(process: subprocess.Popen[bytes]) -> str:
    """Why a process ended."""
    code = process.wait()
    reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the process of the Kafka client ended ({reason}); the next poll starts another"


def main(descriptor: int) -> None:
    """The process: calls come over a pipe until it closes."""
    from app.sources.kafka.groups_client import GroupsClient

    with Connection(descriptor) as pipe:
        try:
            client = GroupsClient(pipe.recv())
            client.asking = lambda groups: pipe.send((ASKING, groups))
            while True:
                name, seconds, args = pipe.recv()
                pipe.send(_answer(client, name, time.monotonic() + seconds, args))
        except (EOFError, ConnectionError):
            return  # the caller has ended


def _answer(client: Any, name: str, deadline: float, args: tuple[Any, ...]) -> tuple[Any, Any]:
    problems: list[str] = []
    try:
        if name == "ask":
            topics, groups, alone, left_out = args
            return None, client.ask(topics, groups, deadline, alone, left_out)
        return None, (client.read(*args, deadline, problems), problems)
    except Unanswered as error:
        return Unanswered, error.args
    except UserError as error:
        return UserError, (str(error), error.problems)


if __name__ == "__main__":
    main(int(sys.argv[1]))
