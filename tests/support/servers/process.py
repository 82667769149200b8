"""Starts and stops one server process of our own, by its pid."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

USED, WRITTEN = "SharedArchiveFile", "ArchiveClassesAtExit"
"""Options of a JVM for an archive of classes."""


class ServerFailed(Exception):
    """A server of a test did not start or stop; the message carries the end of its log."""


class Missing(ServerFailed):
    """What a server is made of is not on this machine and cannot be had: its tests are skipped."""


def cache_dir(name: str) -> Path:
    """The folder that keeps what a server needs between test runs."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(root) / "weir" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def launcher() -> list[str]:
    """The Java launcher, that of JAVA_HOME or else the one on the path, and the options that
    JVMs of tests have (WEIR_JAVA_OPTIONS; none in benchmarks)."""
    home = os.environ.get("JAVA_HOME")
    options = os.environ.get("WEIR_JAVA_OPTIONS", "").split()
    return [f"{home}/bin/java" if home else "java", *options]


def java(classpath: str, main: str, *options: str, plugins: Sequence[Path] = ()) -> list[str]:
    """The command of a Java program, up to its arguments; `main` is its class or its source.

    JVMs with options of tests take their classes from an archive, which spares a third to half of
    the CPU of a start; the first one with this class path and no plug-ins writes it when it ends.
    """
    java_, *of_tests = launcher()
    words = [java_, *of_tests, *options]
    if of_tests:
        archive = _archive(java_, classpath, main)
        kinds = [USED] if _is_whole(archive) else [] if plugins else [WRITTEN]
        words += ["-Xlog:disable", *(f"-XX:{kind}={archive}" for kind in kinds)]
    return [*words, "-cp", ":".join([classpath, *map(str, plugins)]), main]


def _archive(java_: str, classpath: str, main: str) -> Path:
    """Where a program has its classes, by all that decides whether a JVM takes them."""
    home = Path(shutil.which(java_) or java_).resolve()
    jars = [
        (str(jar), jar.stat().st_mtime_ns)
        for part in classpath.split(":")
        for jar in (sorted(Path(part[:-2]).glob("*.jar")) if part.endswith("/*") else [Path(part)])
    ]
    parts = (str(home), home.stat().st_mtime_ns, launcher(), jars)
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return cache_dir("classes") / f"{Path(main).name}-{digest}.jsa"


def _is_whole(archive: Path) -> bool:
    """Whether an archive was written to its end: a JVM writes the head last."""
    if not archive.exists():
        return False
    with archive.open("rb") as file:
        return any(file.read(4))


def free_ports(count: int) -> list[int]:
    """Loopback ports that were free a moment ago, all different, below those that the kernel gives
    to whoever connects."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.randbelow(12_000) + 20_000
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found += [] if port in found else [port]
    return found


def accepts(port: int) -> bool:
    """Whether something on loopback accepts connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """One child process with a log file; SIGTERM first, SIGKILL after `patience_s`."""

    def __init__(self, command: Sequence[str], log: Path, *, patience_s: float = 20.0) -> None:
        self._command = list(command)
        self.log = log
        self._patience_s = patience_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The number of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self, ready: Callable[[str], bool], *, timeout_s: float = 60.0) -> None:
        """Start the process and wait until `ready`, given this start's log text, holds."""
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C meant for pytest must not reach it first
            )
        deadline = time.monotonic() + timeout_s
        while not ready(self.log.read_text(errors="replace")):
            if not self.running or time.monotonic() > deadline:
                self.stop()
                raise ServerFailed(f"{self._command[-2:]} did not start\n{self._tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop the process if it lives."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def kill(self) -> None:
        """End the process at once, if it lives."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


class Startable(Protocol):
    """What starts and stops."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


Served = TypeVar("Served", bound=Startable)


@contextmanager
def serving(make: Callable[[], Served], what: str) -> Iterator[Served]:
    """A server while the body runs. Skips where its parts are missing."""
    try:
        server = make()
        server.start()
    except (Missing, OSError) as error:
        pytest.skip(f"no {what}: {error}")
    try:
        yield server
    finally:
        server.stop()
