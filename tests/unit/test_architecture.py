"""What import contracts (`[tool.importlinter]` in pyproject.toml) do not check."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from state.jobs import DECLARED
from tests.support.parsed import nodes, walked

ROOT = Path(__file__).resolve().parents[2]


def test_every_folder_introduces_itself() -> None:
    for path in sorted((ROOT / "app").glob("*/__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        assert text and "start" in text.lower(), path
        assert "mport" in text, path


@cache
def of_tests(path: Path) -> tuple[list[str], list[str]]:
    """The private names that a file uses, and the test files from which it imports."""
    tree = walked(path.read_text("utf-8"))
    return sorted(private_names(tree)), list(imports_of_tests(tree))


def private_names(tree: Sequence[ast.AST]) -> Iterator[str]:
    """The private names of `app`, `state` and `udfs` that a file imports, or takes from what it
    has imported from there."""
    known: set[str] = set()
    for node in tree:
        names: list[ast.alias] = []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = node.names if _is_ours(node.module or "") else []
        elif isinstance(node, ast.Import):
            names = [alias for alias in node.names if _is_ours(alias.name)]
        for alias in names:
            known.add(alias.asname or alias.name)
            if any(_is_private(part) for part in alias.name.split(".")):
                yield alias.name
    for node in tree:
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
        str(path.relative_to(ROOT)): of_tests(path)[0]
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
    assert of_tests(path)[0] == [
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
        f"{path.relative_to(ROOT)}: {module}"
        for folder in ("tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module in of_tests(path)[1]
    ]
    assert found == []


def imports_of_tests(tree: Sequence[ast.AST]) -> Iterator[str]:
    """The test files from which a file imports."""
    for node in tree:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests":
            names = (node.module or "").split(".")[-1], *(alias.name for alias in node.names)
            yield from (node.module or "" for name in names if name.startswith("test_"))


def last_name(called: ast.expr) -> str:
    """What stands behind the last dot of what is called."""
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ast.unparse(called).split(".")[-1]


OF_UNICODE = {"splitlines", "isdigit", "isdecimal", "isnumeric"}
"""What ends lines that LF does not end, or takes digits that `int` refuses."""


def test_lines_and_digits_are_those_of_plain_text() -> None:
    """`app.plain_text` has both; names may hold any character."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for folder in ("app", "state", "udfs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in OF_UNICODE
    ]
    assert [place.rpartition(":")[0].rpartition(":")[0] for place in found] == ["app/plain_text.py"]


def test_one_frame_takes_what_polls_meet() -> None:
    """`polling.noted` and `Polling.poll_once` take any exception; a poller that names the classes that
    it expects loses the poll to the first other one. What raises an error of its own may."""
    paths = [*(ROOT / "app/sources").rglob("*.py"), *(ROOT / "app/show/reconcile").rglob("*.py")]
    pollers = [
        path for path in paths if path.stem.endswith("_poll") or path.parent.stem == "reconcile"
    ]
    assert len(pollers) > 10
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted(pollers)
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef) and function.name not in ("check", "look")
        for node in ast.walk(function)
        if isinstance(node, ast.ExceptHandler)
        and node.type is not None
        and "Unanswered" in ast.unparse(node.type)
    ]
    assert found == []


MOST_FILES = 2
"""In which a job is named outside its two folders: the registry, and one."""


@cache
def jobs_named(path: Path) -> set[str]:
    """The jobs that a file names in its code: as a text of its own, or where it imports."""
    found: set[str] = set()
    for node in nodes(path):
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
            for node in nodes(path):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert len(twice) <= MOST_CLASSES, twice


def test_private_functions_and_classes_of_modules_are_used() -> None:
    found = []
    for folder in ("app", "state", "udfs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            own = nodes(path)
            module = own[0]
            assert isinstance(module, ast.Module)
            used = {node.id for node in own if isinstance(node, ast.Name)}
            # Annotations that stand as texts are among the constants.
            used |= {node.value for node in own if isinstance(node, ast.Constant)}  # type: ignore[misc]
            found += [
                f"{path.relative_to(ROOT)}: {node.name}"
                for node in module.body
                if isinstance(node, ast.FunctionDef | ast.ClassDef)
                and _is_private(node.name)
                and node.name not in used
                and not node.decorator_list
            ]
    assert found == []


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
            if path.stem in ("commands", f"{path.parent.name}_commands"):
                continue  # each option of a command is one
            for node in nodes(path):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if parameters(node.args) > MOST_PARAMETERS:
                    found.add(f"{file}::{node.name}")
    assert found == set()


LISTING = ("iterdir", "glob", "rglob", "listdir", "scandir")
"""Calls that list a folder; `os.walk` beside them."""
GUARD = re.compile(r"(contextlib\.)?suppress\(|noted\(")
"""What takes the error of what is gone, beside `try`."""
LOOKING = ("stat", "lstat", "getsize", "getmtime")
READING = (*LOOKING, "read_text", "read_bytes", "open", "rename", "unlink")
ACCESSES = {*LISTING, *READING, "walk", "rmtree", "exists", "is_file"}
SHIPPED_FILES = "a folder that ships with the code"
ANY_ACCESS = re.compile(
    r"iterdir|glob|listdir|scandir|walk|stat|getsize|getmtime|unlink|rmtree|exists|is_file"
)
MAY_LIST = {
    ("app/config/shipped.py", "folder.iterdir()"): SHIPPED_FILES,
    ("app/demo/recording.py", "(SHIPPED / name).iterdir()"): SHIPPED_FILES,
    ("app/demo/recording.py", "SHIPPED.iterdir()"): SHIPPED_FILES,
    ("udfs/compiled_cache.py", "folder.iterdir()"): "one process compiles, under a lock",
    ("app/tables/archive_files.py", "file.stat()"): "has just been written",
}
"""What may do without `app.folders`, and why."""


def unguarded(text: str) -> Iterator[str]:
    """Calls that fail where a file goes that was just listed or asked for: a listing of a folder, a
    look at a file outside of `try` and `suppress`, a removal of what may be gone.
    """
    if not ANY_ACCESS.search(text):
        return
    every = walked(text)
    bears = {
        id(inner)
        for node in every
        if (isinstance(node, ast.Try) and any(map(_catches, node.handlers)))
        or (isinstance(node, ast.With) and GUARD.match(ast.unparse(node.items[0])))
        for line in node.body
        for inner in ast.walk(line)
    }
    for call, name, on in _method_calls(every, ACCESSES):
        options = {keyword.arg for keyword in call.keywords}
        if (
            name in LISTING
            or (name, on) == ("walk", "os")
            or (name in LOOKING and id(call) not in bears)
            or (name == "unlink" and "missing_ok" not in options and id(call) not in bears)
            or (name == "rmtree" and "ignore_errors" not in options)
        ):
            yield ast.unparse(call)
    for function in every:
        if isinstance(function, ast.FunctionDef):
            calls = list(_method_calls(ast.walk(function), ACCESSES))
            asked = {on for _, name, on in calls if name in ("exists", "is_file")}
            for call, name, on in calls:
                if name in READING and on in asked and id(call) not in bears:
                    yield ast.unparse(call)


def _catches(handler: ast.ExceptHandler) -> bool:
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return handler.type is None or re.search(r"\b(OSError|FileNotFoundError)\b", caught) is not None


def _method_calls(
    every: Iterable[ast.AST], names: Container[str]
) -> Iterator[tuple[ast.Call, str, str]]:
    """Each call of a method or of a module's function of these names, with its name and what it is
    called on."""
    for node in every:
        if isinstance(node, ast.Call) and isinstance(called := node.func, ast.Attribute):
            is_one = called.attr in names
            yield from [(node, called.attr, ast.unparse(called.value))] if is_one else []


def test_what_was_listed_may_be_gone() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), call)
        for room in ("app", "state", "udfs")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path != ROOT / "app/folders.py"
        for call in unguarded(path.read_text("utf-8"))
    }
    assert found == set(MAY_LIST)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for path in folder.iterdir(): pass", ["folder.iterdir()"]),
        ("glob.glob('*')", ["glob.glob('*')"]),
        ("os.walk(folder)\nast.walk(tree)", ["os.walk(folder)"]),
        ("try:\n  a.stat()\nexcept ValueError: b.stat()", ["a.stat()", "b.stat()"]),
        ("try:\n  a.stat()\nexcept (OSError, ValueError): pass", []),
        ("with suppress(FileNotFoundError):\n  a.unlink()\nb.unlink()", ["b.unlink()"]),
        ("a.unlink(missing_ok=True)\nshutil.rmtree(a)", ["shutil.rmtree(a)"]),
        (
            "def f(a, b):\n  return a.read_text() if a.exists() else b.read_text()",
            ["a.read_text()"],
        ),
    ],
)
def test_an_access_to_what_may_be_gone_is_found(text: str, found: list[str]) -> None:
    assert sorted(unguarded(text)) == found


def unnamed(text: str) -> Iterator[str]:
    """Writes of whole files whose error, that of an open file, nobody gives a name."""
    if not re.search("write_(text|bytes)", text):
        return
    every = walked(text)
    told = {
        id(inner)
        for node in every
        if isinstance(node, ast.Try)
        and any("OSError" in ast.unparse(each.type) for each in node.handlers if each.type)
        for line in node.body
        for inner in ast.walk(line)
    }
    for call, _, _ in _method_calls(every, ("write_text", "write_bytes")):
        if id(call) not in told:
            yield ast.unparse(call)


def test_whoever_writes_a_file_names_it() -> None:
    found = {
        (str(path.relative_to(ROOT)), call)
        for path in sorted((ROOT / "app").rglob("*.py"))
        if path != ROOT / "app/folders.py"
        for call in unnamed(path.read_text("utf-8"))
    }
    assert found == set()
    assert list(unnamed("a.write_text(b)\ntry:\n  c.write_bytes(d)\nexcept OSError: pass")) == [
        "a.write_text(b)"
    ]


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
    for node in nodes(path):
        if isinstance(node, ast.Attribute):
            of_yaml = isinstance(node.value, ast.Name) and node.value.id == "yaml"
            found |= {node.attr} if of_yaml else set()
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
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and last_name(node.func) in READERS
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


HTTP = {"urllib3", "requests", "httpx", "aiohttp", "http.client", "urllib.request", "http.server"}
"""Modules that open connections of HTTP or answer them."""
HTTP_MODULES = {"app/http.py"}
SOCKETS = {"create_connection", "connect_ex", "HTTPConnection"}
SOCKET_MODULES = {"app/sources/ports.py", "app/run/jvm_watch.py"}
"""Those that connect: a knock without a secret, and to the own JVM."""
READINGS = {"urlsplit", "urlparse", "parse_url"}
READING_MODULES = {"app/address.py", "app/read/relations.py"}
"""Those that take addresses apart: of HTTP, and of object stores."""


def opened(path: Path, tree: Iterable[ast.AST]) -> Iterator[str]:
    """What a file has of HTTP, sockets and readings of addresses that is another file's to have."""
    file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    for node in tree:
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
        for text in opened(path, nodes(path))
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
    assert list(opened(tmp_path / "it.py", walked(text)))


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


SAFE = {"printable", "lines", "json.dumps"}
"""Functions whose text can be printed; JSON is ASCII."""
PRINT_THEIR_OWN = {
    "app/cli.py": "the version",
    "app/demo": "what a recording says",
    "app/jars.py": "names of jars",
    "app/main.py": "a word",
    "app/run/side_processes.py": "to the run, through a pipe",
    "app/setup/setup_commands.py": "names of commands, questions, tables and jobs",
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
    for node in nodes(path):
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
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and last_name(node.func)
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


def test_templates_have_text_of_others_as_text() -> None:
    found = [
        ast.unparse(node)
        for path in (ROOT / "app").rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Call) and last_name(node.func).endswith("Environment")
    ]
    assert len(found) == 2
    assert all("autoescape=True" in each and "finalize=in_page" in each for each in found)


def test_lines_of_spark_pass_through_the_functions_of_the_log() -> None:
    (written,) = prints(ROOT / "app/terminal/stray_lines.py")
    text = (ROOT / "app/terminal/stray_lines.py").read_text("utf-8")
    assert written == "line" and "yield (_object(text) if as_json else _plain(text))" in text
    started = [
        path.name
        for path in (ROOT / "app").rglob("*.py")
        if "stray_lines.start(" in path.read_text("utf-8")
    ]
    assert sorted(started) == ["jvm.py", "start.py"]


def test_what_benchmarks_import_is_there() -> None:
    """Their small runs are nightly; a name that has moved is seen before."""
    missing = []
    for file in sorted((ROOT / "benchmarks").glob("*.py")):
        for node in nodes(file):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            if node.module.partition(".")[0] in ("app", "state", "udfs"):
                of = importlib.import_module(node.module)
                below = pkgutil.iter_modules(getattr(of, "__path__", []))
                names = {*vars(of), *(each.name for each in below)}
                missing += [f"{file.name}: {a.name}" for a in node.names if a.name not in names]
    assert missing == []
