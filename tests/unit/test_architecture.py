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


DOCUMENTS = "app/config/documents.py"
WRITES = {"safe_dump", "safe_dump_all"}
"""What other modules take of yaml, beside the types of its nodes."""
READERS = {"read_text", "read_bytes", "open"}
OF_WEIR = {
    "app/config/documents.py",
    "app/show/audit/snapshot.py",  # files of the warehouse, as app.tables.small_files reads them
    "app/show/alerts/sinks.py",  # its lock
    "app/show/report/page.py",  # shipped
    "app/show/report/sections/runbooks.py",  # shipped
    "app/whatif/policy_document.py",  # the first bytes of what it would overwrite
}
"""Modules of configuration and policies that open files themselves."""


def yaml_used(path: Path) -> set[str]:
    """What a module takes of yaml, its own functions that read excepted."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "yaml":
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "yaml":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if alias.name.split(".")[0] in YAMLS]
            found.update(alias.asname or alias.name for alias in aliases)
    return {name for name in found if not name.endswith("Node")} - WRITES - {"yaml"}


YAMLS = {"yaml", "_yaml", "ruamel", "oyaml", "tomllib"}


def test_documents_of_users_have_one_reader() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for folder in ("app", "state", "udfs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := yaml_used(path))
    }
    assert set(found) == {DOCUMENTS}


def opens(path: Path) -> set[str]:
    """The calls of a module that open a file."""
    return {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in READERS
        and not ast.unparse(node.func).endswith(("warehouse.open", "_warehouse.open"))
    }


def test_files_of_a_configuration_are_opened_in_one_place() -> None:
    folders = ("config", "show/alerts", "show/policy", "show/report", "show/audit")
    paths = [
        *(path for folder in folders for path in (ROOT / "app" / folder).rglob("*.py")),
        *(ROOT / "app" / "whatif").glob("*.py"),
        *(ROOT / "app" / "whatif" / "policy_test").glob("*.py"),
        ROOT / "app" / "engine" / "policy_watch.py",
        ROOT / "app" / "setup" / "validate.py",
        ROOT / "app" / "whatif" / "replay" / "replay_request.py",
    ]
    found = {str(path.relative_to(ROOT)) for path in paths if opens(path)}
    assert found == OF_WEIR


def test_other_readers_are_found(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        "import yaml\nfrom yaml import load as l\nimport ruamel.yaml\n"
        "yaml.safe_load(path.read_text())\nyaml.safe_dump(1)\n",
        "utf-8",
    )
    assert yaml_used(path) == {"load", "ruamel.yaml", "safe_load"}
    assert opens(path) == {"path.read_text"}


SAFE = {"printable", "lines", "json.dumps"}
"""Functions whose text can be printed; JSON is ASCII."""
PRINT_THEIR_OWN = {
    "app/cli.py": "the version",
    "app/demo": "numbers and names of scenarios",
    "app/jars.py": "names of jars",
    "app/main.py": "a word",
    "app/run/side_processes.py": "to the run, through a pipe",
    "app/setup/launch": "before there is anything of others",
    "app/setup/size.py": "numbers",
    "app/show/metrics/serve.py": "escaped by prometheus_client",
    "app/show/report/printed.py": "through lines()",
    "app/terminal": "the functions themselves",
}
"""Modules that print in another way, and what."""


def prints(path: Path) -> list[str]:
    """What a module prints other than through the functions that escape it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        is_print = called == "print" or called.endswith(("console.print", "Console().print"))
        if not is_print and called not in {
            f"sys.{out}.{way}" for out in ("stdout", "stderr") for way in ("write", "buffer.write")
        }:
            continue
        for given in node.args:
            safe = isinstance(given, ast.Constant) or (
                isinstance(given, ast.Call)
                and ast.unparse(given.func) in SAFE
                and not any(key.arg == "ensure_ascii" for key in given.keywords)
            )
            if not safe:
                found.append(ast.unparse(given))
    return found


def test_text_of_others_is_printed_by_the_functions_that_escape_it() -> None:
    found = {
        name: texts
        for path in sorted((ROOT / "app").rglob("*.py"))
        if not any(
            (name := str(path.relative_to(ROOT))).startswith(known) for known in PRINT_THEIR_OWN
        )
        and (texts := prints(path))
    }
    assert found == {}


def test_other_ways_to_print_are_found(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        "print(name)\nprint(f'{name}')\nprint(json.dumps(x, ensure_ascii=False))\nprint('a')\n"
        "sys.stdout.write(name)\nself.console.print(name)\nprint(printable(name))\n",
        "utf-8",
    )
    assert prints(path) == [
        "name",
        "f'{name}'",
        "json.dumps(x, ensure_ascii=False)",
        "name",
        "name",
    ]


def test_the_log_has_one_formatter() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("app", "state", "udfs")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1]
        in ("getLogger", "basicConfig", "setFormatter", "StreamHandler", "FileHandler")
        and "Spark" not in ast.unparse(node)
    }
    assert found == {"app/terminal/log.py", "app/http.py"}  # which silences urllib3


def test_shell_words_of_scripts_are_quoted_in_one_place() -> None:
    found = {
        path.name
        for path in (ROOT / "app" / "show" / "policy" / "export").glob("*.py")
        if "shlex.quote" in path.read_text("utf-8")
    }
    assert found == {"exported.py"}
