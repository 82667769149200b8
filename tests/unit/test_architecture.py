"""What import contracts (`[tool.importlinter]` in pyproject.toml) do not check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from state.jobs import DECLARED

ROOT = Path(__file__).resolve().parents[2]


def test_every_folder_introduces_itself() -> None:
    for path in sorted((ROOT / "app").glob("*/__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        assert text and "start" in text.lower(), path
        assert "mport" in text, path


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
    found = {
        str(path.relative_to(ROOT)): sorted(private_names(path))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
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


def test_what_tests_share_is_in_no_test_file() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {node.module}"
        for folder in ("tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests"
        for name in ((node.module or "").split(".")[-1], *(alias.name for alias in node.names))
        if name.startswith("test_")
    ]
    assert found == []


MOST_FILES = 3
"""In which a job is named outside its two folders: the registry, and the keys of its scenarios."""


def jobs_named(path: Path) -> set[str]:
    """The jobs that a file names in its code: as a text of its own, or where it imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.Import):
            found.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            found.update((node.module or "").split("."), (alias.name for alias in node.names))
    return found & set(DECLARED)


@pytest.mark.parametrize("job", DECLARED)
def test_a_job_is_named_in_its_rooms_alone(job: str) -> None:
    rooms = [ROOT / "state" / name for name in DECLARED]
    rooms += [ROOT / "app" / "jobs" / job]
    named = [
        str(path.relative_to(ROOT))
        for folder in ("app", "state", "udfs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if job in jobs_named(path) and not any(path.is_relative_to(room) for room in rooms)
    ]
    assert len(named) <= MOST_FILES, named
    assert any(job in jobs_named(path) for path in (ROOT / "state" / job).rglob("*.py"))


MOST_CLASSES = 15
"""Names that several classes have: those by which every core calls its parts."""


def modules() -> Iterator[Path]:
    """The modules of the program outside the rooms of the jobs and the cores, which have fixed names."""
    for path in [*(ROOT / "app").rglob("*.py"), *(ROOT / "udfs").rglob("*.py")]:
        if not path.is_relative_to(ROOT / "app" / "jobs") and not path.stem.startswith("__"):
            yield path


def test_a_name_is_that_of_one_module() -> None:
    found: dict[str, list[str]] = {}
    for path in modules():
        found.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_few_names_are_those_of_several_classes() -> None:
    found: dict[str, list[str]] = {}
    for folder in ("app", "state", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert len(twice) <= MOST_CLASSES, twice


MOST_PARAMETERS = 8
"""More of them are a record that has no name yet."""


def parameters(a: ast.arguments) -> int:
    """How many parameters a caller has to give, or may."""
    names = [one.arg for one in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_functions_have_few_parameters() -> None:
    found = set()
    for folder in ("app", "state", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            if file == "app/cli.py":
                continue  # each option of a command is one
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if parameters(node.args) > MOST_PARAMETERS:
                    found.add(f"{file}::{node.name}")
    assert found == set()


HTTP = {"urllib3", "requests", "httpx", "aiohttp", "http.client", "urllib.request", "http.server"}
"""Modules that open connections of HTTP or answer them."""
HTTP_MODULES = {"app/http.py"}
SOCKETS = {"create_connection", "connect_ex", "HTTPConnection"}
SOCKET_MODULES = {"app/sources/ports.py", "app/run/jvm_watch.py"}
"""Those that connect: a knock without a secret, and to the own JVM."""
READINGS = {"urlsplit", "urlparse", "parse_url"}
READING_MODULES = {"app/address.py", "app/read/relations.py"}
"""Those that take addresses apart: of HTTP, and of object stores."""


def opened(path: Path, tree: ast.AST) -> Iterator[str]:
    """What a file has of HTTP, sockets and readings of addresses that is another file's to have."""
    file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        for name in names:
            is_http = any(name == each or name.startswith(f"{each}.") for each in HTTP)
            if is_http and file not in HTTP_MODULES:
                yield f"{file}: {name}"
        last = {name.rpartition(".")[2] for name in names}
        if isinstance(node, ast.Attribute):
            last = {node.attr}
        for known, files in ((SOCKETS, SOCKET_MODULES), (READINGS, READING_MODULES)):
            if file not in files:
                yield from (f"{file}: {name}" for name in last & known)


def test_one_module_opens_connections_of_http() -> None:
    """`app/http.py` sends secrets by the parts of an address that `app/address.py` has read."""
    found = [
        text
        for folder in ("app", "state", "udfs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in opened(path, ast.parse(path.read_text("utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import requests",
        "import urllib3.util",
        "from urllib import request",
        "from urllib.request import urlopen",
        "from http import client",
        "from urllib.parse import quote, urlsplit",
        "import socket\nsocket.create_connection(())",
        "from socket import create_connection",
    ],
)
def test_another_way_to_a_server_is_found(text: str, tmp_path: Path) -> None:
    assert list(opened(tmp_path / "it.py", ast.parse(text)))


CONNECTING = ('format("kafka")', "pulsar.Client(")
"""Clients of brokers beside `KafkaClient`: they allocate what an address announces."""
ASKED = ("refuse_wrong(", "stream_options(")
LOADS_NO_RECORD = {"app/setup/doctor.py"}
"""It makes a reader of an address that is none, for its classes."""


def test_no_client_of_brokers_is_opened_before_its_addresses_are_asked() -> None:
    found = []
    for path in sorted((ROOT / "app").rglob("*.py")):
        text, file = path.read_text("utf-8"), path.relative_to(ROOT).as_posix()
        if any(each in text for each in CONNECTING) and not any(each in text for each in ASKED):
            found.append(file)
    assert set(found) == LOADS_NO_RECORD
