"""The wall clock of all processes of a run jumps, by a library that is loaded before the system's.

The machine's own clock stays as it is.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from functools import partial
from pathlib import Path

from tests.crash.disaster import Disaster
from tests.crash.service import Failed
from tests.crash.site import Site

SOURCE = Path(__file__).with_name("clock.c")
HOUR_S = 3600


def no_compiler() -> str:
    """Why the library cannot be made here; empty if it can."""
    return "" if shutil.which("cc") else "there is no C compiler"


def shifted(folder: Path, seconds: int) -> dict[str, str]:
    """Environment of processes whose wall clock is so far ahead; the number is in `folder/clock`."""
    library, shift = folder / "clock.so", folder / "clock"
    made = subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise Failed(made.stderr)
    shift.write_bytes(struct.pack("=q", seconds))
    return {"LD_PRELOAD": str(library), "WEIR_CLOCK": str(shift)}


def jump(seconds: int, site: Site) -> None:
    """The run goes on, and no row depends on it; the archive waits for its interval."""
    site.part_archive()
    shift = site.folder / "clock"
    with site.running(variables=shifted(site.folder, 0)) as run:
        run.wait_for_batches(1)
        run.wait(lambda: run.batches("archive", "commits") > 0)
        with shift.open("r+b") as file:  # the same file: it is mapped
            file.write(struct.pack("=q", seconds))
        run.wait_for_batches(2, "archive")  # one of them may have been planned before
        run.wait_for_batches(1, "govern")
        run.stop()
    _require_jump(site, seconds)
    site.finish()


def _require_jump(site: Site, seconds: int) -> None:
    """Failed unless Spark, the JVM, has taken the time of the jump."""
    log = site.warehouse / "_weir" / "checkpoints" / "archive" / "offsets"
    plans = sorted((int(file.name), file) for file in log.iterdir() if file.name.isdigit())
    first, *_, last = (
        json.loads(file.read_text().splitlines()[1])["batchTimestampMs"] / 1000 for _, file in plans
    )
    if abs(last - first - seconds) > HOUR_S / 2:
        raise Failed(f"the clock of the JVM went on by {last - first:.0f} s, not by {seconds}")


DISASTERS = [
    Disaster("clock-forward", partial(jump, HOUR_S), "goes on", obstacle=no_compiler),
    Disaster("clock-back", partial(jump, -HOUR_S), "goes on", obstacle=no_compiler),
]
