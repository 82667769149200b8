"""Where a trace goes: JSON lines in a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from app import folders
from app.errors import UserError
from benchmarks.generator.trace import ArrivalSlice, Trace

Progress = Callable[[ArrivalSlice], None]


@dataclass
class WrittenTrace:
    """What has been written."""

    events: int = 0
    bytes: int = 0
    planted: Counter[str] = field(default_factory=Counter)

    def add(self, part: ArrivalSlice) -> None:
        """Counts one more slice."""
        self.events += part.ends.size
        self.bytes += part.data.size
        self.planted.update(part.planted)


def write_files(trace: Trace, out: Path, progress: Progress | None = None) -> WrittenTrace:
    """One file per slice of time, with all brokers in it: time advances across the files.

    A reader that takes files by name or by age takes them in order of time, so no broker's records
    come late in a catch-up.
    """
    written = WrittenTrace()
    try:
        out.mkdir(parents=True, exist_ok=True)
        if folders.matching(out, "events-*.jsonl"):
            raise UserError(f"--out {out}: already holds events-*.jsonl; choose another folder")
        for part in trace.slices():
            path = out / part.name
            hidden = out / f".{part.name}.part"  # a stream that watches the folder sees whole files
            hidden.write_bytes(part.data.data)
            os.utime(hidden, (part.wall_ms / 1000, part.wall_ms / 1000))
            hidden.rename(path)
            written.add(part)
            if progress:
                progress(part)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}") from error
    return written


def write_yaml(path: Path, comment: str, document: object) -> None:
    """Write a document below a line that says what it is."""
    folders.put(path, f"{comment}\n{yaml.safe_dump(document, sort_keys=False)}")


def write_policies(trace: Trace, path: Path) -> None:
    """The policy documents of a trace, as a file that `policy_files` of the configuration takes."""
    kafka = "" if trace.kafka is None else f", and Kafka users, cluster {trace.kafka.spec.cluster}"
    write_yaml(
        path,
        f"# Limits of the scenario's fleet, cluster {trace.scenario.cluster}{kafka}.",
        trace.policies,
    )
