"""The site of the documentation: it builds, finds its pages, and loads nothing from other hosts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.readme import PAGES, ROOT
from tests.support.site import build

LOADED = re.compile(r"""<(?!a\b)\w+\b[^>]*?\b(?:src|href|data|action)=["']?(?:https?:)?//""")
"""An element other than a link to another page with an address of another host."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    return build(tmp_path_factory.mktemp("docs") / "site").parent


def test_every_page_and_runbook_can_be_searched(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text("utf-8")
    entries = json.loads(index.removeprefix("var __index = "))["docs"]
    places = {entry["location"] for entry in entries}
    for page in PAGES:
        path = page.relative_to(ROOT).as_posix()
        if page.parent.name == "runbooks":
            assert f"runbooks.html#{page.stem}" in places
        elif page.parent != ROOT:
            assert path.removeprefix("docs/").replace(".md", ".html") in places
    assert {"index.html", "contributing.html", "files/configs/weir.yaml.html"} <= places


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    assert [page.name for page in pages if LOADED.search(page.read_text("utf-8"))] == []
    styles = [style.read_text("utf-8") for style in site.rglob("*.css")]
    assert styles and not any(re.search(r"url\(['\"]?(https?:)?//|@import", s) for s in styles)


@pytest.mark.parametrize(("group", "following"), [("Use", "Run"), ("Run", "Reference")])
def test_navigation_and_readme_have_the_same_groups(group: str, following: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8").partition("## Documentation")[2]
    table = readme.partition(f"| {group.lower()} |")[2].partition(f"| {following.lower()} |")[0]
    linked = set(re.findall(r"\]\(docs/([^)#]+\.md)", table))
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition(f"  - {group}:\n")[2]
    named = set(re.findall(r"([\w/-]+\.md)$", navigation.partition("\n  - ")[0], re.M))
    assert linked == named & {
        path.relative_to(ROOT / "docs").as_posix()
        for path in PAGES[1:]
        if path.is_relative_to(ROOT / "docs")
    }
