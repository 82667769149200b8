"""The nightly tier: `./test.sh --nightly`.

Every test with the slow ones, on random traces that no run has had before, and the seeded faults.
What came out is in tests/nightly.json: commit it. Exit code 1 if
anything failed. The seed of a run repeats its traces: `python -m tests.nightly --seed N`; examples
that failed are kept in .hypothesis and tried first by the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import machine

ROOT = Path(__file__).resolve().parents[1]
OUTCOME = ROOT / "tests" / "nightly.json"


def tested(folder: Path, seed: int, processes: str, tests: Sequence[str]) -> dict[str, Any]:
    """Every test; the ids of those that failed."""
    report = folder / "tests.xml"
    command = ["pytest", *tests, f"--hypothesis-seed={seed}", f"--junitxml={report}"]
    command += ["--numprocesses", processes, "--no-loadscope-reorder"]
    code = _python(command, WEIR_SLOW="1", WEIR_FRESH="1", WEIR_SEED=str(seed))
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [
        each for each in cases if each.find("failure") is not None or each.find("error") is not None
    ]
    skipped = [each for each in cases if each.find("skipped") is not None]
    found = {
        "passed": len(cases) - len(bad) - len(skipped),
        "skipped": [_name(each) for each in skipped],
        "failed": [_name(each) for each in bad],
    }
    if code and not bad:
        found["failed"] = [f"pytest ended with {code}"]
    return found


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}.{case.get('name')}"


def _python(words: Sequence[str], **variables: str) -> int:
    environ: Mapping[str, str] = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, env=environ, check=False
    ).returncode


def faults() -> dict[str, Any]:
    """The seeded faults."""
    return {"failed": ["a fault is not found"] if _python(["tests.faults"]) else []}


def main() -> int:
    """Run all parts, write what came out; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--processes", default=os.environ.get("WEIR_PROCESSES", "2"))
    parser.add_argument("tests", nargs="*", default=["tests"])
    options = parser.parse_args()
    described = machine.describe()
    parts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="weir-nightly-") as folder:
        for name, part in (
            ("tests", lambda: tested(Path(folder), options.seed, options.processes, options.tests)),
            ("seeded faults", faults),
        ):
            begun = time.monotonic()
            found = part()
            parts[name] = {"seconds": round(time.monotonic() - begun), **found}
    outcome = {"seed": options.seed, "machine": described, "parts": parts}
    OUTCOME.write_text(json.dumps(outcome, indent=1) + "\n", "utf-8")
    failed = [f"{name}: {each}" for name, part in parts.items() for each in part["failed"]]
    print("\n".join(failed) or "nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
