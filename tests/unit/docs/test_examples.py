"""The configurations of `examples`: pages show them as they are, and each is accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from app.config.settings import load_settings
from tests.support.examples import EXAMPLES, SHOWN, current
from tests.support.readme import PAGES, blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_examples_as_they_are(page: Path) -> None:
    assert page.read_text("utf-8") == current(page), "run python -m tests.support.examples"


def test_a_configuration_with_a_source_is_an_example() -> None:
    for page in PAGES:
        sources = [text for text in blocks(page, "yaml") if re.search(r"^source:", text, re.M)]
        assert len(sources) == len(SHOWN.findall(page.read_text("utf-8"))), page


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_is_accepted_and_its_page_shows_it(example: Path) -> None:
    text = example.read_text("utf-8")
    assert load_settings(example).warehouse == yaml.safe_load(text)["warehouse"]
    page = re.match(r"# .+ See (\S+)\.\n", text)
    assert page is not None
    shown = (example.parents[1] / page[1]).read_text("utf-8")
    assert example.name in [name for name, _ in SHOWN.findall(shown)]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name == "tutorials"], ids=lambda page: page.name
)
def test_a_tutorial_waits_for_what_it_needs_and_not_for_a_time(page: Path) -> None:
    """A machine of a reader may be slow."""
    waits = re.findall(r"^.*\bsleep\b.*$", page.read_text("utf-8"), re.M)
    assert waits and all(re.match("(until|while) .*; do sleep", line) for line in waits), waits
