"""The warehouse and checkpoints of a release, which every later one opens and continues.

    python -m tests.spark.upgrade.release

writes tests/data/releases/VERSION.tar.xz: three parts of a trace, the configuration, and the
warehouse of this release after the first part. A fixture is made once, at the release; what a later
one changes shows against it.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from app import __version__
from app.config.settings import Settings, load_settings

FOLDER = Path(__file__).resolve().parents[2] / "data" / "releases"
EVENTS, PARTS = 17_000, 3
CONFIG, TRACE, INPUT, WAREHOUSE = "weir.yaml", "trace", "in", "warehouse"


def parts(folder: Path) -> list[Path]:
    """The parts of the trace, in their order."""
    return sorted((folder / TRACE).glob("*.jsonl"))


def give(folder: Path, *numbers: int) -> None:
    """Put parts of the trace where a run reads them; it takes them in the order of their times."""
    for number in numbers:
        source = parts(folder)[number]
        target = folder / INPUT / source.name
        shutil.copyfile(source, target)
        at_ns = time.time_ns() + number * 1_000_000_000
        os.utime(target, ns=(at_ns, at_ns))


def settings_of(folder: Path, warehouse: str = WAREHOUSE) -> Settings:
    """The configuration of the release, with its input and a warehouse in this folder."""
    return load_settings(
        folder / CONFIG,
        {
            "warehouse": str(folder / warehouse),
            "source": {"path": str(folder / INPUT)},
        },
    )


def unpacked(archive: Path, folder: Path) -> Path:
    """A copy of a release's warehouse; the folder for the input is empty."""
    with tarfile.open(archive) as found:
        found.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder / INPUT).mkdir()
    return folder


def made(folder: Path) -> None:
    """Write trace and configuration, and run this release on the first part."""
    from app.run.service import run
    from tests.support.traces import demo_trace

    trace = demo_trace(EVENTS)
    lines = [line for part in trace.slices() for line in part.lines()]
    for name in (TRACE, INPUT):
        (folder / name).mkdir()
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
    give(folder, 0)
    assert run(settings_of(folder), available_now=True) == 0


def pack(folder: Path, target: Path) -> None:
    """Write a release's folder as an archive, without its input and with fixed times."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder)
            if name.parts[0] != INPUT:
                info = tarfile.TarInfo(name.as_posix())
                info.size = path.stat().st_size
                archive.addfile(info, io.BytesIO(path.read_bytes()))


def main() -> None:
    """Make the fixture of this release."""
    from app.run.session import build_session, stop_session

    target = FOLDER / f"{__version__}.tar.xz"
    with tempfile.TemporaryDirectory(prefix="weir-release-") as name:
        folder = Path(name)
        spark = build_session(load_settings(None, {"partitions": 2}), "weir-release")
        made(folder)
        stop_session(spark)
        pack(folder, target)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
