"""The demo's trace in three parts, with its configuration: a run may stop between them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import yaml

from app.config.settings import Settings, load_settings
from tests.support.traces import demo_trace

EVENTS, PARTS = 17_000, 3
CONFIG, TRACE, INPUT, WAREHOUSE = "weir.yaml", "trace", "in", "warehouse"


def made(folder: Path) -> Path:
    """The folder, with trace and configuration; nothing is where a run reads."""
    trace = demo_trace(EVENTS)
    lines = [line for part in trace.slices() for line in part.lines()]
    for name in (TRACE, INPUT):
        (folder / name).mkdir(parents=True)
    for number in range(PARTS):
        share = lines[number * len(lines) // PARTS : (number + 1) * len(lines) // PARTS]
        (folder / TRACE / f"{number}.jsonl").write_bytes(b"\n".join(share) + b"\n")
    document: dict[str, Any] = {
        "warehouse": WAREHOUSE,
        "shards": 2,
        "partitions": 2,
        "alerts": None,
        "quality": None,
        "policies": trace.policies,
        "source": {"format": "files", "path": INPUT, "options": {"maxFilesPerTrigger": "1"}},
    }
    (folder / CONFIG).write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return folder


def give(folder: Path, *numbers: int) -> None:
    """Put parts of the trace where a run reads them; it takes them in the order of their times."""
    for number in numbers:
        target = folder / INPUT / f"{number}.jsonl"
        shutil.copyfile(folder / TRACE / target.name, target)
        at_ns = time.time_ns() + number * 1_000_000_000
        os.utime(target, ns=(at_ns, at_ns))


def settings_of(folder: Path) -> Settings:
    """The configuration, with its input and a warehouse in this folder."""
    return load_settings(
        folder / CONFIG,
        {"warehouse": str(folder / WAREHOUSE), "source": {"path": str(folder / INPUT)}},
    )
