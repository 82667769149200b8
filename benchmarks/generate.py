"""How fast the generator writes JSON lines to a folder: prints events per second."""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from pathlib import Path

from app.demo.generator.scenario import load_scenario
from app.demo.generator.trace import plan_trace
from app.demo.generator.write import write_files


def main() -> None:
    """Generates the demo scenario once to compile, then measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    scenario = load_scenario("demo")
    next(plan_trace(scenario, options.events, options.seed).slices())
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        written = write_files(plan_trace(scenario, options.events, options.seed), Path(folder))
        seconds = time.perf_counter() - began
    print(
        f"generate to files: {written.events / seconds:,.0f} events/s, "
        f"{written.bytes / seconds / 1e6:,.0f} MB/s, {written.bytes / written.events:.0f} "
        f"bytes/event, {written.events:,} events, python {platform.python_version()}"
    )


if __name__ == "__main__":
    main()
