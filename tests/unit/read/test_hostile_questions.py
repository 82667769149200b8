"""Every ready question over names that mean harm: the same rows, under exactly these names."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from app.cli import main
from tests.support.hostile import dressed_rows, plain, unknown_columns
from tests.support.ready_questions import CASES, put


def test_whose_text_a_column_has_is_known() -> None:
    assert unknown_columns() == set()


def in_any_order(rows: list[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("case", CASES)
def test_a_question_has_every_row_under_its_name(
    case: str, tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, params, expected = CASES[case]
    put(tmp_warehouse, dressed_rows(tables))
    options = [w for key, value in params.items() for w in ("--param", f"{key}={value}")]
    asked = ["query", case.split(",")[0], *options, "--warehouse", tmp_warehouse]
    assert main([*asked, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert in_any_order(plain(json.loads(out))) == in_any_order(expected)
    assert main([*asked, "--csv"]) == 0
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert len(rows) == len(expected) and {len(row) for row in rows} <= {len(header)}
    named = {str(v) for row in json.loads(out) for v in row.values() if plain(v) != v}
    written = {cell for row in rows for cell in row}
    assert {name for name in named if not name.startswith("[")} <= written
    assert main([*asked, "--spreadsheet"]) == 0
    out = capsys.readouterr().out
    found = list(csv.reader(io.StringIO(out, newline="")))
    assert len(found) == 1 + len(expected)
    assert not any(cell[:1] in ("=", "+", "@", "\t", "\r") for row in found for cell in row)
    assert main(asked) == 0
    assert capsys.readouterr().out.replace("\n", "").isprintable()
