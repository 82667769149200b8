"""A warehouse as a program or a notebook asks it: the answers are Arrow tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.cli import main
from app.errors import UserError
from app.read.questions import QUESTIONS
from app.setup.launch import installed
from tests.conftest import ROOT
from tests.support import report_warehouse


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of the tables that a report shows."""
    found = str(tmp_path_factory.mktemp("opened") / "warehouse")
    report_warehouse.fill(found)
    return found


@pytest.mark.parametrize("question", ["blame", "breached-quotas", "lag", "freshness"])
def test_a_question_has_the_rows_of_the_command(
    folder: str, question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", question, "--json", "--warehouse", folder]) == 0
    printed = json.loads(capsys.readouterr().out)
    answer = installed.open(folder).query(question)
    assert isinstance(answer, pa.Table) and len(answer) == len(printed)
    assert not printed or answer.column_names == list(printed[0])


def test_parameters_and_statements(folder: str) -> None:
    warehouse = installed.open(folder)
    assert len(warehouse.query("blame", by="victim", rows=1)) == 1
    assert len(warehouse.query("blame", since="2030-01-01")) == 0
    summed = warehouse.query("SELECT sum(messages) AS n FROM topic_throttle_stats")
    assert summed.schema.field("n").type == pa.int64()
    assert len(warehouse.query("FROM topic_throttle_stats", cluster="no such cluster")) == 0


def test_what_cannot_be_answered_is_told_as_by_the_command(folder: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not-there"):
        installed.open(str(tmp_path / "not-there"))
    warehouse = installed.open(folder)
    with pytest.raises(UserError, match="no such parameter"):
        warehouse.query("blame", colour="red")
    with pytest.raises(UserError, match="rows: goes with a ready question"):
        warehouse.query("SELECT 1", rows=1)
    with pytest.raises(UserError, match="query: "):
        warehouse.query("SELECT nothing FROM throttle_events")
    with pytest.raises(UserError):
        warehouse.query("COPY throttle_events TO '/tmp/x'")


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_answers_with_a_table(folder: str, question: str) -> None:
    assert isinstance(installed.open(folder).query(question), pa.Table)


def test_the_notebook_of_the_examples(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weir", installed)
    notebook = json.loads((ROOT / "examples" / "questions.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace("weir-demo/warehouse", folder), names)
    assert len(names["offenders"]) > 0 and len(names["minutes"]) > 0
