"""The snippets of docs/tables.md do what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from app.config.settings import Settings
from app.setup.launch import installed
from tests.conftest import ROOT
from tests.unit.run.maintenance.tables import rows, writer

PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(# \w+\n.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda text: text.split()[1])
def test_a_snippet_reads_the_rows(
    snippet: str, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings()
    writing = writer(settings)
    for batch in range(3):
        for name in ("topic_throttle_stats", "producer_id_owners"):
            writing.append(name, rows(name, range(2)), batch)
    names: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "weir", installed)
    exec(snippet.replace("weir-warehouse", settings.warehouse), names)
    assert len(names["rows"]) > 0


def test_there_are_snippets() -> None:
    assert [text.split()[1] for text in SNIPPETS] == ["pandas", "duckdb", "weir"]
