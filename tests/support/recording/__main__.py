"""`python -m tests.support.recording [--out FOLDER]`: what the plug-in in a real broker writes, as files.

Takes about three minutes. The folder gets `part-*.ndjson.gz`, the events as they were written,
`numbers.json`: what the broker and the applications counted, with the SQL that asks Weir the same, and
`says.txt`: what the demo says of it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.terminal.amounts import duration
from tests.support.recording import large, limits, quotas, reads
from tests.support.recording.scene import Scene
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import VERSION, with_telemetry

OUT = Path(__file__).resolve().parents[3] / "configs" / "recordings" / "real-pulsar"
PART_EVENTS = 1000
SETTINGS = {
    "maxMessageSize": "50000",
    "weirPayload": "true",
    "preciseTimeBasedBacklogQuotaCheck": "true",
    "managedLedgerCacheSizeMB": "32",
}


def record(folder: Path) -> tuple[list[str], Scene]:
    """Play all scenarios; the lines that the plug-in wrote, and the numbers."""
    broker, metrics = with_telemetry(folder / "broker")
    records = folder / "records"
    pulsar_plugin.start(broker, records, **SETTINGS)
    scene = Scene(broker, metrics)
    try:
        with scene.client() as one:
            chunks = large.Large(scene)
            plays: tuple[tuple[str, Callable[[], object]], ...] = (
                ("large", lambda: chunks.play(one)),
                ("limits", lambda: limits.play(scene)),
                ("quotas", lambda: quotas.play(scene)),
                ("reads", lambda: reads.play(scene)),
                ("expiry", chunks.finish),
            )
            for name, play in plays:
                began = time.monotonic()
                play()
                print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    finally:
        broker.stop()
    return list(pulsar_plugin.lines(records)), scene


def save(out: Path, lines: list[str], scene: Scene) -> None:
    """Write the folder anew; what is written by hand beside it stays."""
    text = "\n".join(lines)
    for private in (socket.gethostname(), str(Path.home()), tempfile.gettempdir()):
        assert len(private) < 4 or private not in text, f"{private} is in the events"
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("part-*"):
        old.unlink()
    for number, first in enumerate(range(0, len(lines), PART_EVENTS)):
        part = "".join(f"{line}\n" for line in lines[first : first + PART_EVENTS])
        name = out / f"part-{number:02}.ndjson.gz"
        name.write_bytes(gzip.compress(part.encode(), mtime=0))
    times = [json.loads(line)["ts_wall_ms"] for line in lines]
    numbers = {
        "broker": f"Apache Pulsar {VERSION}",
        "events": len(lines),
        "seconds": (max(times) - min(times)) // 1000,
        "settings": SETTINGS,
        "numbers": [asdict(number) for number in scene.numbers],
    }
    (out / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")
    (out / "says.txt").write_text(f"{says(numbers)}\n")


def says(numbers: dict[str, Any]) -> str:
    """What the demo says of a recording with these numbers."""
    return (
        f"A real broker made these events: {numbers['broker']} with Weir's plug-in and real "
        f"clients, recorded for {duration(numbers['seconds'] * 10**9)}; "
        f"{numbers['events']:,} events."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.recording", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines, scene = record(Path(folder))
    save(asked.out, lines, scene)
    size = sum(file.stat().st_size for file in asked.out.glob("part-*"))
    print(f"{len(lines)} events, {size} bytes, {len(scene.numbers)} numbers: {asked.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
