"""SIGKILL inside `maintain`, at random moments: no row is lost or there twice, and the next one does
what is left."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from app.config.settings import Settings
from app.tables import retained
from tests.support.effort import examples
from tests.unit.run.maintenance.tables import fill, plain

TABLES = ("limiter_stats", "quality_results", "quarantine")
"""The second one has a retention."""
FORKS = """\
import os, sys, traceback
import pyarrow.dataset
from app.run.maintenance import maintain_command, merging
from app.cli import main

merging.SETTLED_MS = 0
for warehouse in iter(sys.stdin.readline, ""):
    forked = os.fork()
    if not forked:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        code = 1
        try:
            code = main(["maintain", "--warehouse", warehouse.strip()])
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    print(forked, flush=True)
    sys.stdin.readline()
    print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), flush=True)
"""
"""Processes of `maintain`, each a fork of one that has imported all it needs, as the imports take longer
than what is killed: a line names a warehouse, another one waits for the end."""
OLD_S = 10**6
WITHIN_S = 120


class Maintaining:
    """Starts processes of `maintain`, one at a time."""

    def __init__(self, said: Path) -> None:
        self._said = said
        with said.open("w") as err:
            self._forks = subprocess.Popen(
                [sys.executable, "-c", FORKS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )

    def begun(self, settings: Settings) -> int:
        """The id of a process that begins."""
        return int(self._asked(settings.warehouse))

    def ended(self) -> int:
        """The exit code of that process, once it has ended."""
        return int(self._asked(""))

    def maintained(self, settings: Settings) -> float:
        """Maintain to the end; how long it took (seconds)."""
        began = time.monotonic()
        self.begun(settings)
        assert self.ended() == 0, self._said.read_text()
        return time.monotonic() - began

    def close(self) -> None:
        """End it, and what is at work."""
        with self._forks:
            os.killpg(self._forks.pid, signal.SIGKILL)

    def _asked(self, line: str) -> str:
        assert self._forks.stdin is not None and self._forks.stdout is not None
        self._forks.stdin.write(line + "\n")
        self._forks.stdin.flush()
        assert select.select([self._forks.stdout], [], [], WITHIN_S)[0], self._said.read_text()
        return self._forks.stdout.readline()


@pytest.fixture
def maintaining(tmp_path: Path) -> Iterator[Maintaining]:
    with closing(Maintaining(tmp_path / "said.log")) as started:
        yield started


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
    make_settings: Callable[..., Settings], maintaining: Maintaining, tmp_path: Path
) -> None:
    seed = int(os.environ.get("WEIR_SEED", time.time_ns() % 1_000_000))
    chance = random.Random(seed)
    killed = make_settings()
    calm = make_settings(warehouse=str(tmp_path / "calm"))
    more(killed, 0)
    shutil.copytree(killed.warehouse, calm.warehouse)
    longest_s = maintaining.maintained(calm)
    moments = [chance.uniform(0, longest_s) for _ in range(examples(60))]
    for round_, moment_s in enumerate(moments, 1):
        process = maintaining.begun(killed)
        time.sleep(moment_s)
        os.kill(process, signal.SIGKILL)
        assert maintaining.ended() in (-signal.SIGKILL, 0)
        if round_ % 3 == 0:
            more(killed, round_)
            more(calm, round_)
    maintaining.maintained(killed)
    maintaining.maintained(calm)
    told = f"WEIR_SEED={seed}: killed after {moments}"
    assert contents(killed) == contents(calm), told
    assert list(Path(killed.warehouse).rglob("*orphan*")) == [], told
    for name in TABLES:
        assert len(DeltaTable(f"{killed.warehouse}/{name}").file_uris()) <= len(
            DeltaTable(f"{calm.warehouse}/{name}").file_uris()
        ), told
