"""Who may import whom: the rooms of `app`, and the cores below them (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = {"errors", "terminal", "config"}
READING = BASE | {"warehouse"}
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "background": set(),
    "http": set(),
    "terminal": {"errors"},
    "config": {"errors", "terminal"},
    "warehouse": BASE,
    "generate": BASE,
    "ingest": READING | {"background", "generate", "http"},
    "alerts": READING | {"background", "http"},
    "quality": READING | {"background", "ingest"},
    "telemetry": READING | {"alerts", "ingest"},
    "maintain": READING | {"background", "ingest"},
    "reconcile": READING | {"background", "ingest"},
    "forecast": READING | {"background"},
    "explain": READING,
    "policy": READING,
    "report": READING | {"quality"},
    "jobs": READING | {"explain", "quality", "report", "telemetry"},
    "stream": READING
    | {"forecast", "ingest", "alerts", "maintain", "quality", "reconcile", "telemetry"},
    "whatif": READING | {"ingest", "stream", "report"},
    "docs": READING | {"ingest", "telemetry"},
    "setup": READING
    | {"alerts", "generate", "ingest", "reconcile", "report", "stream", "telemetry", "whatif"},
}
"""What each room may import, besides itself, `state` and `udfs`."""
REGISTRY = {"app.jobs.parts", "app.jobs.every"}
"""How a room asks for what the jobs declare: without naming one, so it is not an import of theirs."""
ROOF = {"cli", "main"}
"""Modules that may import every room, and that no room imports."""


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports when it runs, in functions, too."""
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)


def rooms_of(path: Path) -> set[str]:
    """The rooms of `app` that a file imports."""
    return {
        name.split(".")[1]
        for name in imports(path)
        if name.startswith("app.") and name not in REGISTRY
    }


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    place = ROOT / "app" / room
    found = sorted(place.rglob("*.py")) or [place.with_suffix(".py")]
    wrong = {
        str(path.relative_to(ROOT)): sorted(beyond)
        for path in found
        if (beyond := rooms_of(path) - ROOMS[room] - {room, "__version__"})
    }
    assert wrong == {}


def test_no_two_rooms_import_each_other() -> None:
    left = dict(ROOMS)
    while left:
        free = [room for room, below in left.items() if not below & set(left)]
        assert free, f"a circle among {sorted(left)}"
        for room in free:
            del left[room]


def test_every_room_is_listed_and_introduces_itself() -> None:
    folders = {path.name for path in (ROOT / "app").iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in (ROOT / "app").glob("*.py")} - {"__init__"}
    assert folders | modules == set(ROOMS) | ROOF
    assert len(modules) <= 4  # beside __init__
    for folder in sorted(folders):
        text = ast.get_docstring(ast.parse((ROOT / "app" / folder / "__init__.py").read_text()))
        assert text and "start" in text.lower(), folder
        assert "mport" in text, folder


def test_cores_know_nothing_of_the_application() -> None:
    for path in files("state"):
        assert not {n for n in imports(path) if n.split(".")[0] in ("app", "pyspark")}, path
    for path in files("udfs"):
        assert not {n for n in imports(path) if n.split(".")[0] in ("app", "state")}, path


def test_a_job_knows_nothing_of_another() -> None:
    jobs = {path.name for path in (ROOT / "state").iterdir() if (path / "operator.py").exists()}
    assert {"rate_limits", "entry_cache", "backlog"} <= jobs
    for job in [*jobs, "engine"]:
        for path in files(f"state/{job}"):
            others = {
                n
                for n in imports(path)
                if n.startswith("state.") and n.split(".")[1] in jobs - {job}
            }
            assert not others, path
    for job in jobs:
        for path in files(f"app/jobs/{job}"):
            rooms = {n for n in imports(path) if n.startswith("app.jobs.")}
            assert {n for n in rooms if n.split(".")[2] != job} == set(), path


def private_names(path: Path) -> Iterator[str]:
    """The private names of `app`, `state` and `udfs` that a file imports, or takes from what it
    has imported from there."""
    tree = ast.parse(path.read_text("utf-8"))
    known: set[str] = set()
    for node in ast.walk(tree):
        names: list[ast.alias] = []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = node.names if _is_ours(node.module or "") else []
        elif isinstance(node, ast.Import):
            names = [alias for alias in node.names if _is_ours(alias.name)]
        for alias in names:
            known.add(alias.asname or alias.name)
            if any(_is_private(part) for part in alias.name.split(".")):
                yield alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            if ast.unparse(node.value) in known:
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = node.value.split(".")
            if _is_ours(node.value) and any(_is_private(part) for part in parts):
                yield node.value  # what `monkeypatch.setattr` takes


def _is_ours(name: str) -> bool:
    return name.split(".")[0] in ("app", "state", "udfs")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_tests_use_public_names() -> None:
    found = {str(path.relative_to(ROOT)): sorted(private_names(path)) for path in files("tests")}
    assert {name: names for name, names in found.items() if names} == {}


def test_private_names_are_found(tmp_path: Path) -> None:
    text = """
import state.engine.codec
from app.cli import main, @answers as a
from udfs import topics
from tests.faults import @own
topics.@split(main.@a)
state.engine.codec.@b
self.@c
state.engine.codec.@@doc@@
patch("app.cli.@settings")
"""
    path = tmp_path / "test_it.py"
    path.write_text(text.replace("@", "_"), "utf-8")
    assert sorted(private_names(path)) == [
        name.replace("@", "_")
        for name in (
            "@answers",
            "app.cli.@settings",
            "main.@a",
            "state.engine.codec.@b",
            "topics.@split",
        )
    ]
