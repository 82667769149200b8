"""Disasters, picked by a seed until the time is over.

    python -m tests.crash [--minutes N] [--seed S] [--only NAME...]
    python -m tests.crash --list

Each strikes a `run` of all jobs with its defaults, on a warehouse of its own. Afterwards every
table has the rows of an uninterrupted run, or the run has stopped within a minute with exit code 2
and a remedy, and has them once the remedy is followed. A line is printed per disaster, with the
seed that repeats it. Exit code 1: something differs.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.__main__ import environment
from tests.crash.disaster import Disaster

FIRST_SEED = 1


def main() -> int:
    """Parse the command line and strike."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, help="Default: until every disaster has struck once."
    )
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--list", action="store_true", help="Name the disasters.")
    asked = parser.parse_args()
    environment()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended first
    from tests.crash.disasters import DISASTERS

    if asked.list:
        for each in DISASTERS:
            print(f"{each.name:32} {each.source:6} {each.expects:8} {each.obstacle()}".rstrip())
        return 0
    known = {each.name: each for each in DISASTERS}
    for name in asked.only:
        if name not in known:
            parser.error(f"no such disaster: {name} (--list names them)")
    chosen = [known[name] for name in asked.only] or DISASTERS
    with tempfile.TemporaryDirectory(prefix="weir-crash-") as folder:
        return _strike(chosen, asked.seed, asked.minutes, Path(folder))


def picked(disasters: Sequence[Disaster], seed: int) -> Iterator[tuple[Disaster, int]]:
    """All disasters in an order that follows from the seed, each with a seed of its own; then all
    of them again in the order of the next seed."""
    while True:
        order = list(disasters)
        random.Random(seed).shuffle(order)
        for each in order:
            yield each, seed
        seed += 1


def _strike(disasters: Sequence[Disaster], seed: int, minutes: float | None, folder: Path) -> int:
    from tests.crash.grounds import Grounds

    failed = skipped = count = 0
    began = time.monotonic()
    with Grounds(folder) as grounds:
        for disaster, own in picked(disasters, seed):
            obstacle = disaster.obstacle()
            started = time.monotonic()
            try:
                found = [] if obstacle else grounds.strike(disaster, own)
            except Exception:  # noqa: BLE001 - the next disaster is another matter
                found = [traceback.format_exc()]
            took_s = time.monotonic() - started
            result = f"skipped: {obstacle}" if obstacle else "DIFFERS" if found else "equal"
            print(
                f"{disaster.name:32} {disaster.expects:8} {result} ({took_s:.0f} s)"
                f"   --only {disaster.name} --seed {own}",
                flush=True,
            )
            for line in found:
                print("    " + line.replace("\n", "\n    "), flush=True)
            count, failed, skipped = count + 1, failed + bool(found), skipped + bool(obstacle)
            over = count if minutes is None else (time.monotonic() - began) / 60
            if over >= (len(disasters) if minutes is None else minutes):
                break
    print(
        f"{count} disasters in {time.monotonic() - began:.0f} s: {failed} differ, {skipped} skipped"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
