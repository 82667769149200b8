"""Hooks of mkdocs: pages and files of the repository outside `docs/` are pages of the site.

Links lead to these pages: README, the other pages at the root, one page with all runbooks, and
every file that a page links, as its text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
AT_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
RUNBOOKS = {
    page.relative_to(ROOT).as_posix(): f"runbooks.md#{page.stem}"
    for page in sorted(
        [*ROOT.glob("docs/runbooks/*.md"), *ROOT.glob("app/jobs/*/runbooks/*.md")],
        key=lambda page: page.stem,
    )
}
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of `docs/` and those that they link."""
    for file in [file for file in files if f"docs/{file.src_uri}" in RUNBOOKS]:
        files.remove(file)
    for source, uri in AT_ROOT.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, "runbooks.md", content=_runbooks()))
    sources = [
        *AT_ROOT,
        *RUNBOOKS,
        *(f"docs/{file.src_uri}" for file in files.documentation_pages()),
    ]
    linked = {
        path
        for source in sources
        if source.endswith(".md") and (ROOT / source).is_file()
        for path in _linked(source)
    }
    for path in sorted(path for path in linked if _is_text(path)):
        content = f"# {path}\n\n```{Path(path).suffix[1:]}\n{(ROOT / path).read_text('utf-8')}```\n"
        files.append(File.generated(config, f"files/{path}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text of a page with links to pages of the site."""
    uri = page.file.src_uri
    source = next((path for path, at in AT_ROOT.items() if at == uri), f"docs/{uri}")
    return markdown if uri == "runbooks.md" else _relinked(markdown, source, uri)


def _runbooks() -> str:
    """All runbooks as one page, a section each."""
    parts = ["# Runbooks\n\nWhat each alert means, how to confirm it, and what to do.\n"]
    for source in RUNBOOKS:
        text = re.sub(r"^## (.+)$", r"**\1**", (ROOT / source).read_text("utf-8"), flags=re.M)
        parts.append("#" + _relinked(text, source, "runbooks.md"))
    return "\n".join(parts)


def _relinked(text: str, source: str, uri: str) -> str:
    """A text of the repository with its links as those of the page at `uri`."""

    def relink(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        page, _, anchor = _page_of(path).partition("#")
        fragment = f"#{anchor}" if anchor else match[2] or ""
        return f"]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{fragment})"

    return LINK.sub(relink, text)


def _page_of(path: str) -> str:
    """The page of the site that shows a file of the repository."""
    if (at := AT_ROOT.get(path) or RUNBOOKS.get(path)) is not None:
        return at
    if path == "docs/runbooks":
        return "runbooks.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}.md"


def _linked(source: str) -> Iterator[str]:
    """Files of the repository that a page links."""
    for target, _ in LINK.findall((ROOT / source).read_text("utf-8")):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _is_text(path: str) -> bool:
    """Whether a linked file becomes a page with its text."""
    return not path.startswith("docs/") and not path.endswith(".md") and (ROOT / path).is_file()
