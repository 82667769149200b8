"""The test files of what has changed: `./test.sh --changed [REVISION]`.

Those that changed themselves since a revision (default: where this branch left `main`, or on it the
last commit), and those that import a changed module, directly or through one other, by the graph of
imports. A changed file that is no module counts as the package that it lies in.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("app", "benchmarks", "state", "tests", "udfs")


def changed(revision: str | None) -> list[str]:
    """Paths of files that differ from a revision, new ones included."""
    base = revision or _git("merge-base", "HEAD", "main")[0]
    since = "HEAD~1" if not revision and base == _git("rev-parse", "HEAD")[0] else base
    new = _git("ls-files", "--others", "--exclude-standard")
    return [*_git("diff", "--name-only", "--diff-filter=d", since, "--"), *new]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def files_for(paths: Iterable[str]) -> list[str]:
    """The test files to run for changed files, in order."""
    graph = grimp.build_graph(*PACKAGES)
    modules = {module for path in paths if (module := _module(path)) in graph.modules}
    near = set(modules)
    for _ in range(2):
        near |= {
            each for module in near for each in graph.find_modules_that_directly_import(module)
        }
    files = {f"{each.replace('.', '/')}.py" for each in near if each.startswith("tests.")}
    return sorted(file for file in files if Path(file).name.startswith("test_"))


def _module(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    if not path.endswith(".py") or parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


if __name__ == "__main__":
    print("\n".join(files_for(changed(*sys.argv[1:] or [None]))))
