"""What the image for polls leaves out: what no poll needs, and each command that does says so."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from app.errors import not_installed

ROOT = Path(__file__).resolve().parents[3]
OF_ROOTS = {
    *("altair", "great-expectations", "jinja2", "mistune"),
    *("pulsar-client", "vl-convert-python"),
}
"""Requirements of Weir that the image does not have."""
WAREHOUSE = ROOT / "tests/data/stopped_warehouse.tar.xz"
PROGRAM = """
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from app.cli import main
for words in json.loads(sys.argv[2]):
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        code = main(words)
    print(json.dumps([code, err.getvalue()]))
"""


def plain(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def left_out() -> set[str]:
    text = (ROOT / "conf/docker/polling.sh").read_text().replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if " uninstall " in line)
    return {word for word in shlex.split(line)[2:] if not word.startswith("-")}


def needed(roots: Iterable[str]) -> set[str]:
    """Packages with all that they need."""
    todo, found = list(roots), set[str]()
    while todo:
        name = plain(todo.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, metadata.requires(name) or ())
            every = {"extra": ""}
            todo += [each.name for each in wanted if not each.marker or each.marker.evaluate(every)]
    return found


def test_it_leaves_out_what_polls_do_not_need_and_nothing_else() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = {
        plain(name)
        for name, marker in re.findall(r"^([\w.-]+)==\S+(.*)", lock, re.MULTILINE)
        if "win32" not in marker
    }
    lines = (ROOT / "requirements.in").read_text().splitlines()
    roots = {plain(re.split(r"[^\w.-]", line)[0]) for line in lines if line[:1].isalnum()}
    assert roots > OF_ROOTS
    setuptools = {"setuptools"}  # of every new environment
    assert left_out() == (locked - needed(roots - OF_ROOTS)) | setuptools


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit codes and errors of commands on a warehouse, without the packages that are left out."""
    folder = tmp_path_factory.mktemp("left")
    with tarfile.open(WAREHOUSE) as archive:
        archive.extractall(folder, filter="data")
    (warehouse,) = (path.parent.parent for path in folder.rglob("_weir/manifest.json"))
    packages = metadata.packages_distributions()
    modules = [name for name, of in packages.items() if {plain(each) for each in of} <= left_out()]
    given = ("--warehouse", str(warehouse))
    commands = [
        ["query", "SELECT count(*) FROM events", *given],
        ["query", *given],
        ["tables", *given],
        ["alerts", "check", *given],
        ["metrics", "--once", *given],
        ["maintain", "--dry-run", *given],
        ["report", "--out", str(folder / "page.html"), *given],
        ["quality", *given],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(modules), json.dumps(commands)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    lines = map(json.loads, done.stdout.splitlines())
    return {" ".join(words): tuple(found) for words, found in zip(commands, lines, strict=True)}


def test_commands_that_polls_need_work_without_it(answers: dict[str, tuple[int, str]]) -> None:
    others = {
        words: found for words, found in answers.items() if words.split()[0] not in NEED_PACKAGES
    }
    assert {words.split()[0] for words in others} == {
        *("query", "tables", "alerts", "metrics", "maintain")
    }
    assert {words: found for words, found in others.items() if found[0] not in (0, 1)} == {}
    assert not any("is not installed" in error for _, error in others.values())


NEED_PACKAGES = {
    "report": ("jinja2", "altair", "mistune"),
    "quality": ("jinja2", "great_expectations"),
}


@pytest.mark.parametrize("command", NEED_PACKAGES)
def test_a_command_that_needs_one_names_it_and_what_installs_it(
    answers: dict[str, tuple[int, str]], command: str
) -> None:
    ((code, error),) = (found for words, found in answers.items() if words.startswith(command))
    problem, remedy = error.strip().splitlines()
    assert code == 2
    assert problem in {f"weir: {name} is not installed" for name in NEED_PACKAGES[command]}
    assert shlex.split(remedy)[:4] == [sys.executable, "-m", "pip", "install"]


def test_an_installation_installs_all_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "weir-0.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: weir\nVersion: 0.2.0\nRequires-Dist: no-audits<2,>=1.24\n"
        "Requires-Dist: PyYAML>=6\nRequires-Dist: great_expectations\nRequires-Dist: no-charts\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    says, command = not_installed("no_charts").split("\n")
    assert says == "no_charts is not installed"
    assert shlex.split(command)[4:] == ["no-audits<2,>=1.24", "no-charts"]
