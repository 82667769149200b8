"""The nightly tier: `./test.sh --nightly`.

Every test with the slow ones, on random traces that no run has had before, and the seeded faults, in
parts. What came out of each last, and of which commit, is in tests/nightly.json: commit it. Exit code
1 if anything failed. A run that was cut goes on with the parts that this commit has not had. The seed
of a run repeats its traces: `python -m tests.nightly --seed N`; examples that failed are kept in
.hypothesis and tried first by the next run.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import machine

ROOT = Path(__file__).resolve().parents[1]
OUTCOME = ROOT / "tests" / "nightly.json"
FAULTS = "seeded faults"


def below(folder: str) -> list[Path]:
    """The files of tests below a folder, by their paths in it."""
    return [path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("test_*.py")]


UNIT = ("tests/unit", "tests/unit/state")
"""Folders that are parts by their folders, and by the files in them: a night may be cut anywhere."""
PARTS = (
    *("tests/crash", "tests/spark"),
    *(f"tests/servers/test_{name}*.py" for name in ("kafka", "pulsar", "[!kp]", "p[!u]")),
    *(
        f"{folder}/{name}"
        for folder in UNIT
        for name in (*sorted({p.parts[0] for p in below(folder) if p.parts[1:]}), "test_*.py")
        if f"{folder}/{name}" not in UNIT
    ),
    FAULTS,
)


def tested(tests: str, seed: int, processes: str) -> dict[str, Any]:
    """The tests of a folder, or of the files of a pattern; the ids of those that failed."""
    with tempfile.TemporaryDirectory(prefix="weir-nightly-") as folder:
        report = Path(folder) / "tests.xml"
        command = ["pytest", *map(str, sorted(ROOT.glob(tests)))]
        command += [f"--hypothesis-seed={seed}", f"--junitxml={report}"]
        command += ["--numprocesses", processes, "--no-loadscope-reorder"]
        command += ["--verbose"]  # a run that is cut has told what failed until then
        code = _python(command, WEIR_SLOW="1", WEIR_FRESH="1", WEIR_SEED=str(seed))
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    bad = [
        each for each in cases if each.find("failure") is not None or each.find("error") is not None
    ]
    skipped = [each for each in cases if each.find("skipped") is not None]
    failed = [_name(each) for each in bad]
    return {
        "passed": len(cases) - len(bad) - len(skipped),
        "skipped": [_name(each) for each in skipped],
        "failed": failed or ([f"pytest ended with {code}"] if code else []),
    }


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}.{case.get('name')}"


def _python(words: Sequence[str], **variables: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, env={**os.environ, **variables}, check=False
    ).returncode


def faults() -> dict[str, Any]:
    """The seeded faults."""
    return {"failed": ["a fault is not found"] if _python(["tests.faults"]) else []}


def main() -> int:
    """Run all parts, write what came out of each; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--processes", default=os.environ.get("WEIR_PROCESSES", "2"))
    parser.add_argument("parts", nargs="*", default=PARTS, help="default: all")
    options = parser.parse_args()
    here = machine.describe()
    commit = str(here["commit"])
    parts = dict(json.loads(OUTCOME.read_text("utf-8"))["parts"]) if OUTCOME.exists() else {}
    for name in options.parts:
        if not commit.endswith("-dirty") and parts.get(name, {}).get("commit") == commit:
            continue
        since = time.monotonic()
        found = faults() if name == FAULTS else tested(name, options.seed, options.processes)
        parts[name] = {
            **{key: here[key] for key in ("commit", "date", "cpu", "cores", "memory_gib")},
            "seed": options.seed,
            "seconds": round(time.monotonic() - since),
            **found,
        }
        OUTCOME.write_text(json.dumps({"parts": parts}, indent=1) + "\n", "utf-8")
    failed = [f"{name}: {each}" for name in options.parts for each in parts[name]["failed"]]
    print("\n".join(failed) or "nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
