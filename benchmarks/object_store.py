"""Requests that a run makes of an object store: of a micro-batch of six jobs with the archive.

A real S3 server on loopback behind a relay that counts requests by method. Batches begin ten seconds
apart, as a run has them that keeps up; the first ones, which make the tables, are left out. Requests
are counted, so the load of the machine does not matter.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from itertools import takewhile
from pathlib import Path

import yaml

from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.generator.write import write_policies
from benchmarks.result import Result
from benchmarks.stream import Bench
from state.jobs import JOBS
from tests.crash.service import Submitted, batches
from tests.support.servers.s3 import BUCKET, S3, connector

KINDS = {
    "writes": ("PUT", "POST", "LIST"),
    "reads": ("GET", "HEAD"),
}
"""As stores price them: deletions cost nothing."""
INTERVAL_S, FIRST, EVENTS = 10, 3, 5_000
QUERY = "govern-client_quotas"
"""All six jobs, and the archive."""


def run(bench: Bench) -> Result:
    """A run with two partitions, and one with four."""
    counted = 2 if bench.small else 8
    result = Result("store", 0, bench.small)
    files = FIRST + counted + 3
    result.events = EVENTS * files
    trace = plan_trace(load_scenario("demo"), result.events, 7)
    lines = [line for part in trace.slices() for line in part.lines()]
    home = bench.folder / "store"
    folder = home / "events"
    folder.mkdir(parents=True)
    for number, begin in enumerate(range(0, len(lines), EVENTS)):
        part = b"\n".join(lines[begin : begin + EVENTS])
        (folder / f"{number:03d}.jsonl").write_bytes(part + b"\n")
    write_policies(trace, home / "policies.yaml")
    server = S3(home)
    server.start()
    try:
        for partitions in (2, 4):
            found = _requests(home, server, partitions, counted)
            for name, methods in KINDS.items():
                value = sum(found[method] for method in methods) / counted
                note = ", ".join(f"{method} {found[method] / counted:.0f}" for method in methods)
                what = f"six jobs, {partitions} partitions: {name} of a micro-batch"
                result.add(what, value, "requests", note=note)
    finally:
        server.stop()
    return result


def _requests(folder: Path, server: S3, partitions: int, counted: int) -> Counter[str]:
    """Requests of so many micro-batches by method."""
    name = f"store-{partitions}"
    config, objects = folder / f"{name}.yaml", str(server.data / BUCKET / name)
    with relay(server.port) as (port, requests):
        document = {
            "warehouse": f"s3a://{BUCKET}/{name}",
            "storage_options": {
                **server.options,
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            },
            "partitions": partitions,
            "trigger_ms": 1000 * INTERVAL_S,
            "queries": [list(JOBS)],
            "policy_files": ["policies.yaml"],
            "source": {
                "format": "files",
                "path": str(folder / "events"),
                "options": {"maxFilesPerTrigger": 1},
            },
        }
        config.write_text(yaml.safe_dump(document), "utf-8")
        words = ["--jars", connector(), "run", "--config", str(config)]
        submitted = Submitted(words, config.with_suffix(".log"))

        def ended(number: int) -> bool:
            return batches(objects, QUERY, "commits") >= number

        def reach(last: int) -> None:
            """Wait for one batch after the other."""
            for number in range(1, last + 1):
                submitted.wait(partial(ended, number))

        try:
            reach(FIRST)
            before = requests.copy()
            reach(FIRST + counted)
            found = requests - before
            submitted.terminate()
            submitted.code()
        finally:
            submitted.close()
    return found


@contextmanager
def relay(server: int) -> Iterator[tuple[int, Counter[str]]]:
    """A port that passes HTTP on to a server of this machine, and its requests by method; a GET of
    the bucket's names is LIST."""
    requests: Counter[str] = Counter()

    def pass_back(there: socket.socket, here: socket.socket) -> None:
        with suppress(OSError):
            while data := there.recv(1 << 16):
                here.sendall(data)
            here.shutdown(socket.SHUT_WR)

    def serve(taken: socket.socket) -> None:
        with suppress(OSError), taken, socket.create_connection(("127.0.0.1", server)) as there:
            threading.Thread(target=pass_back, args=(there, taken), daemon=True).start()
            with taken.makefile("rb") as read:
                while head := _head(read):
                    words = head.split(b"\r\n", 1)[0].decode().split()
                    requests["LIST" if "list-type=" in words[1] else words[0]] += 1
                    there.sendall(head)
                    for data in _body(head, read):
                        there.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(
                        target=serve, args=(listener.accept()[0],), daemon=True
                    ).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], requests
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def _head(read: BufferedReader) -> bytes:
    """The next request line with its headers; empty at the end."""
    lines = []
    while (line := read.readline()) not in (b"", b"\r\n"):
        lines.append(line)
    return b"".join([*lines, line]) if lines else b""


def _body(head: bytes, read: BufferedReader) -> Iterator[bytes]:
    """Its body, of a length that is told before or of chunks that tell theirs."""
    told = dict(line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line)
    if b"chunked" in told.get(b"transfer-encoding", b""):
        while size := int((line := read.readline()).split(b";")[0] or b"0", 16):
            yield line + read.read(size + 2)
        yield b"".join([line, *takewhile(bytes.strip, iter(read.readline, None)), b"\r\n"])
        return
    left = int(told.get(b"content-length", b"0"))
    while left and (data := read.read1(min(left, 1 << 16))):
        left -= len(data)
        yield data
