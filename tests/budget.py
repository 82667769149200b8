"""Statements of the product's Python by room, and its long functions, held to the bounds of budget.yaml.

A statement is a node of `ast.stmt` other than a docstring, so that layout, comments and formatters
change nothing. A room is a folder two deep, a job's folder below app/jobs, or a top-level folder
for the files that lie in it. A function has at most LONGEST lines; budget.yaml names those that have
more, with how many they may have.

    python -m tests.budget    writes the present numbers where they are lower, and says what is above
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import yaml

from tests.support.parsed import walked

ROOT = Path(__file__).parents[1]
FILE = ROOT / "budget.yaml"
PRODUCT = ("app", "state", "udfs")
HEAD = """\
# The most statements that each room of the product may have. `make budget` lowers the bounds to what
# is there. A commit that raises one gives the reason in its message.
"""
HEAD_OF_LONG = """\
# The functions of more than {} lines: none is added, none gets longer.
"""
LONGEST = 60
"""Lines of a function, from its `def` to its end."""


def statements(source: str) -> int:
    """Statements of a module's text, docstrings left out."""
    count = 0
    for node in walked(source):
        docstring = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        count += isinstance(node, ast.stmt) and not docstring
    return count


def room(parts: tuple[str, ...]) -> str:
    """The room of a file, by the parts of its path: ("app", "run", "loop.py") → app/run."""
    depth = 3 if parts[:2] == ("app", "jobs") and len(parts) > 3 else 2
    return "/".join(parts[: min(depth, len(parts) - 1)])


def rooms(root: Path = ROOT) -> Counter[str]:
    """Statements of each room of a checkout."""
    found: Counter[str] = Counter()
    for top in PRODUCT:
        for path in (root / top).rglob("*.py"):
            found[room(path.relative_to(root).parts)] += statements(path.read_text("utf-8"))
    return found


def long_functions(root: Path = ROOT) -> dict[str, int]:
    """The lines of each function that has more than LONGEST, by file and name."""
    found: dict[str, int] = {}
    for top in PRODUCT:
        for path in sorted((root / top).rglob("*.py")):
            for node in walked(path.read_text("utf-8")):
                if isinstance(node, ast.FunctionDef):
                    lines = (node.end_lineno or node.lineno) - node.lineno + 1
                    if lines > LONGEST:
                        found[f"{path.relative_to(root)}::{node.name}"] = lines
    return found


def written() -> dict[str, int]:
    return dict(yaml.safe_load(FILE.read_text("utf-8")))


def bounds() -> dict[str, int]:
    """The bounds of rooms."""
    return {name: n for name, n in written().items() if "::" not in name}


def allowed() -> dict[str, int]:
    """The bounds of long functions."""
    return {name: n for name, n in written().items() if "::" in name}


def main() -> int:
    found, before = rooms(), bounds() if FILE.exists() else {}
    functions, may = long_functions(), allowed() if FILE.exists() else {}
    above = {name: n for name, n in found.items() if n > before.get(name, n)}
    longer = {name: n for name, n in functions.items() if n > may.get(name, LONGEST)}
    lowered = {name: min(n, before.get(name, n)) for name, n in found.items()}
    shorter = {name: min(n, may[name]) for name, n in functions.items() if name in may}
    text = HEAD + _lines(lowered) + HEAD_OF_LONG.format(LONGEST) + _lines(shorter)
    FILE.write_text(text, "utf-8")
    for name, n in sorted(above.items()):
        print(f"{name} has {n} statements, its bound is {before[name]}")
    for name, n in sorted(longer.items()):
        print(f"{name} has {n} lines, its bound is {may.get(name, LONGEST)}")
    print(f"{sum(found.values())} statements, bounds of {sum(lowered.values())}")
    return 1 if above or longer else 0


def _lines(numbers: dict[str, int]) -> str:
    rows = sorted(numbers.items(), key=lambda row: (-row[1], row[0]))
    return "".join(f"{name}: {n}\n" for name, n in rows)


if __name__ == "__main__":
    raise SystemExit(main())
