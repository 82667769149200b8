"""The reference pages that are generated from the code: `python -m app.docs` writes them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PAGES = {
    "events.md": "app.docs.events_page",
    "tables.md": "app.docs.tables_page",
    "functions.md": "app.docs.functions_page",
    "queries.md": "app.docs.queries_page",
    "metrics.md": "app.docs.metrics_page",
}
"""Module of each page; it has a function `render() -> str`."""


def pages() -> dict[str, str]:
    """Text of every generated page by file name."""
    made: dict[str, str] = {}
    for name, module in PAGES.items():
        if find_spec(module) is not None:
            render: Callable[[], str] = import_module(module).render
            made[name] = render()
    return made


def main(folder: Path) -> None:
    """Write every page into a folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
