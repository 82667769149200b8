"""The reference pages that are generated from the code: `python -m tests.pages` writes them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PAGES = {
    "events.md": "tests.pages.events_page",
    "tables.md": "tests.pages.tables_page",
    "functions.md": "tests.pages.functions_page",
    "queries.md": "tests.pages.queries_page",
    "metrics.md": "tests.pages.metrics_page",
    "../conf/prometheus/weir.rules.yml": "tests.pages.prometheus_rules",
}
"""Module of each page, by its place from `docs`; it has a function `render() -> str`."""


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
