"""SIGKILL inside `maintain`, at random moments: no row is lost or there twice, and the next one does
what is left."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable

from app.config.settings import Settings
from app.tables import retained
from tests.support.effort import examples
from tests.unit.run.maintenance.tables import fill, plain

TABLES = ("limiter_stats", "quality_results", "quarantine")
"""The second one has a retention."""
LINE = """\
import sys
from app.run.maintenance import merging
merging.SETTLED_MS = 0
from app.cli import main
print("begun", flush=True)
sys.exit(main(["maintain", "--warehouse", sys.argv[1]]))
"""
OLD_S = 10**6


def begun(settings: Settings) -> subprocess.Popen[str]:
    """A process of `maintain` that has imported all it needs."""
    line = [sys.executable, "-c", LINE, settings.warehouse]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


def maintained(settings: Settings) -> float:
    """Maintain to the end; how long it took (seconds)."""
    began = time.monotonic()
    process = begun(settings)
    began = time.monotonic()
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return time.monotonic() - began


def more(settings: Settings, round_: int) -> None:
    """Rows in small files, and a file of no version that has been there for long."""
    for name in TABLES:
        fill(settings, name, range(9 * round_, 9 * round_ + 9))
    # a retention that was applied is due again
    Path(settings.warehouse, retained.DONE).unlink(missing_ok=True)
    orphan = Path(settings.warehouse, TABLES[0], f"part-{round_}-orphan.parquet")
    orphan.write_bytes(b"half")
    os.utime(orphan, (time.time() - OLD_S,) * 2)


def contents(settings: Settings) -> dict[str, list[str]]:
    tables = {name: DeltaTable(f"{settings.warehouse}/{name}") for name in TABLES}
    return {name: plain(table.to_pyarrow_table()) for name, table in tables.items()}


def test_killed_at_any_moment_maintenance_goes_on_and_no_row_is_lost_or_doubled(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    seed = int(os.environ.get("WEIR_SEED", time.time_ns() % 1_000_000))
    chance = random.Random(seed)
    killed = make_settings()
    calm = make_settings(warehouse=str(tmp_path / "calm"))
    more(killed, 0)
    shutil.copytree(killed.warehouse, calm.warehouse)
    longest_s = maintained(calm)
    moments = [chance.uniform(0, longest_s) for _ in range(examples(60))]
    for round_, moment_s in enumerate(moments, 1):
        process = begun(killed)
        time.sleep(moment_s)
        process.kill()
        process.communicate()
        if round_ % 3 == 0:
            more(killed, round_)
            more(calm, round_)
    maintained(killed)
    maintained(calm)
    told = f"WEIR_SEED={seed}: killed after {moments}"
    assert contents(killed) == contents(calm), told
    assert list(Path(killed.warehouse).rglob("*orphan*")) == [], told
    for name in TABLES:
        assert len(DeltaTable(f"{killed.warehouse}/{name}").file_uris()) <= len(
            DeltaTable(f"{calm.warehouse}/{name}").file_uris()
        ), told
