"""The generated pages are those of the code."""

from __future__ import annotations

from pathlib import Path

from app.contract.rules import CODES
from state.events import COLUMNS, KINDS
from tests.pages.pages import pages

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_of_events_is_current() -> None:
    written = (DOCS / "events.md").read_text(encoding="utf-8")
    assert written == pages()["events.md"], "run: python -m tests.pages"


def test_the_page_of_events_names_every_column_kind_and_code() -> None:
    page = pages()["events.md"]
    for name in (*(c.name for c in COLUMNS), *(k.name for k in KINDS), *CODES):
        assert f"\n| `{name}` |" in page
