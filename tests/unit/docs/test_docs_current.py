"""Pages that are written from the code are those of this code."""

from __future__ import annotations

import re
from pathlib import Path

from app.tables.definitions import COMMON_OUTPUT, TABLES, VIEWS
from tests.pages import prometheus_rules
from tests.pages import tables_page as docs_tables

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tables.md"


def test_the_page_of_tables_is_current():
    assert PAGE.read_text("utf-8") == docs_tables.render(), "run python -m tests.pages"


def test_the_rules_for_prometheus_are_those_of_the_alert_rules():
    written = prometheus_rules.FILE.read_text("utf-8")
    assert written == prometheus_rules.render(), "run python -m tests.pages"


def test_the_page_shows_every_column_of_every_table_and_every_view():
    page = PAGE.read_text("utf-8")
    sections = {part.split("\n")[0].split()[0]: part for part in page.split("\n## ")[1:]}
    for table in TABLES.values():
        before = list(TABLES[table.live].names) if table.live else [c.name for c in COMMON_OUTPUT]
        own = [name for name in table.names if not table.job or name not in before]
        shown = [
            line.split("`")[1]
            for line in sections[table.name].splitlines()
            if line.startswith("| `")
        ]
        assert shown == own
    for view in VIEWS.values():
        listed = sections[view.name].partition("Columns: ")[2].partition(".\n")[0].split("`")[1::2]
        assert listed == [name for name in listed if re.search(rf"\b{name}\b", view.sql)] != []
