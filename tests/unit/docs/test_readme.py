"""What README and runbooks tell people to type, and that the pages they name exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import typer
import yaml

from app.cli import app, main
from app.config.settings import load_settings
from benchmarks.generator import generate_command, scenario
from tests.support.readme import PAGES, ROOT, blocks, commands
from tests.support.throttle_rows import event, window, write

PAPERS = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]


ALL = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)[:50]}")
    for page in PAGES
    if page.parent.name != "tutorials"  # tests/servers/test_tutorials.py runs those
    for words in commands(page)
]
COMMAND = typer.main.get_command(app)
QUERIES = [p for p in ALL if p.values[0][1:2] == ["query"]]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("readme") / "warehouse")
    write(folder, "throttle_events", [event(100, "mark"), event(300, "unmark")])
    write(folder, "topic_throttle_stats", [window(0, culprit_times=1), window(1)])
    write(folder, "events", [{"event_type": "publish", "topic": "t", "entry_bytes": 1}])
    return folder


def test_the_readme_begins_with_the_demo():
    assert ALL[0].values[0] == ["./spark-submit.sh", "demo"]


@pytest.mark.parametrize(("number", "page"), [(0, "demo.md"), (1, "tutorials/kafka.md")])
def test_the_readme_quotes_what_commands_print(number, page):
    """The tests of the demo and of the tutorials hold the pages to it."""
    quoted = blocks(ROOT / "README.md", "text")[number].splitlines()
    shown = {line for text in blocks(ROOT / "docs" / page, "text") for line in text.splitlines()}
    assert quoted and set(quoted) <= shown


CLIENT_OPTION = re.compile(
    r"^[^#]*[{\s](?:bootstrap\.servers|security\.protocol|(?:sasl|ssl)\.[\w.]+): ", re.M
)
"""An option of Kafka's client as a key of a configuration, without `kafka.` before it."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_of_kafkas_client_have_one_spelling_on_pages(page):
    found = [text for text in blocks(page, "yaml") if CLIENT_OPTION.search(text)]
    found += [text for text in blocks(page, "sh") if CLIENT_OPTION.search(text)]
    assert found == []


@pytest.mark.parametrize("folder", ["configs", "examples", "conf"])
def test_options_of_kafkas_client_have_one_spelling_in_configurations(folder):
    files = [
        file for file in (ROOT / folder).rglob("*.y*ml") if CLIENT_OPTION.search(file.read_text())
    ]
    assert files == []


def test_the_readme_links_every_page_but_the_runbooks():
    linked = set(re.findall(r"\]\((docs/[^)#]+\.md)", (ROOT / "README.md").read_text("utf-8")))
    pages = {str(page.relative_to(ROOT)) for page in PAGES[1:] if page.parent.name != "runbooks"}
    assert linked == pages


@pytest.mark.parametrize("words", ALL)
def test_every_command_and_option_that_is_shown_exists(words):
    if words[0] == "mvn":
        assert words[1:4] == ["-q", "-B", "-f"] and (ROOT / words[4]).is_file()
        return
    if words[0].endswith("/spark-class"):
        # tests/spark/test_cluster.py starts them
        assert (Path(sys.prefix) / words[0].removeprefix(".venv/")).is_file()
        return
    if words[:4] == [".venv/bin/python", "-m", "benchmarks", "generate"]:
        assert generate_command.parser().parse_args(words[4:]).scenario in scenario.names()
        return
    assert words[0] == "./spark-submit.sh"
    command, rest = COMMAND, words[1:]
    while hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= known


@pytest.mark.parametrize("words", QUERIES)
def test_every_query_that_is_shown_runs(words, warehouse, capsys):
    options = words[1:]
    if "--warehouse" in options:
        options[options.index("--warehouse") + 1] = warehouse
    else:
        options += ["--warehouse", warehouse]
    assert main(options) == 0, capsys.readouterr().err


def test_the_tree_of_the_architecture_has_every_folder():
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - ignored
    tree = blocks(ROOT / "docs" / "architecture.md", "text")[1]
    shown = re.findall(r"^(\w+)/ ", tree, re.M)
    assert sorted(shown) == sorted(name for name in folders if not name.startswith("."))


def test_the_glossary_is_sorted_and_refers_to_its_own_terms():
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    terms = [term.lower() for term in re.findall(r"^\| ([^|]+?) \|", text, re.M)][2:]
    assert terms == sorted(set(terms))
    forms = {term + ending for term in terms for ending in ("", "s", "es", "d", "ed")}
    forms |= {term[:-1] + "ies" for term in terms if term.endswith("y")}
    used = {word.lower() for word in re.findall(r"\*([^*]+)\*", text.partition("| --- |")[2])}
    assert used <= forms


CONFIGURATIONS = [
    pytest.param(text, id=f"{page.name} {number}")
    for page in PAGES
    for number, text in enumerate(blocks(page, "yaml"))
    if text.startswith("warehouse:")
]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_a_configuration_that_is_shown_is_accepted(tmp_path, text):
    file = tmp_path / "weir.yaml"
    file.write_text(text)
    assert load_settings(file).warehouse == yaml.safe_load(text)["warehouse"]


@pytest.mark.parametrize("page", [*PAGES, *PAPERS], ids=lambda p: p.name)
def test_every_page_that_is_linked_exists(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
