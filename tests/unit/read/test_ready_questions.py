"""The ready questions, each on rows made by hand, and what is said to wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.read.questions import QUESTIONS
from app.tables.definitions import TABLES
from app.tables.views import VIEWS
from tests.pages import queries_page as docs_queries
from tests.support.ready_questions import (
    CASES,
    put,
)
from tests.support.throttle_rows import event, write


def ask(capsys, warehouse, *words):
    capsys.readouterr()
    code = main(["query", *words, "--warehouse", warehouse])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.usefixtures("both_sizes")
@pytest.mark.parametrize("case", CASES)
def test_question(case, tmp_warehouse, capsys):
    tables, params, expected = CASES[case]
    put(tmp_warehouse, tables)
    options = [word for key, value in params.items() for word in ("--param", f"{key}={value}")]
    code, out, err = ask(capsys, tmp_warehouse, case.split(",")[0], "--json", *options)
    assert code == 0, err
    assert json.loads(out) == expected
    reads = set(QUESTIONS[case.split(",")[0]].reads)
    of_views = {table for name in reads & VIEWS.keys() for table in VIEWS[name].reads}
    assert set(tables) <= reads | of_views


def test_freshness_says_how_far_each_table_is(tmp_warehouse, capsys):
    put(tmp_warehouse, {"throttle_events": [event(0, "mark"), event(700, "unmark")]})
    write(tmp_warehouse, "throttle_events", [event(1000, "mark")])
    code, out, _ = ask(capsys, tmp_warehouse, "freshness", "--json")
    (row,) = json.loads(out)
    assert code == 0
    behind, committed = row.pop("behind_s"), row.pop("committed")
    assert row == {
        "name": "throttle_events",
        "rows": 3,
        "files": 2,
        "version": 1,
        "newest_row": "2023-11-14T22:14:01Z",
    }
    assert behind > 0 and committed > "2023"


def test_every_question_has_a_case():
    assert {case.split(",")[0] for case in CASES} | {"freshness"} == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_over_tables_that_are_not_there_answers_empty(name, tmp_warehouse, capsys):
    put(tmp_warehouse, {})
    for then in ([], ["--as-of", "2026-01-05"]):
        assert ask(capsys, tmp_warehouse, name, "--json", *then) == (0, "[]\n", "")
    code, out, _ = ask(capsys, tmp_warehouse, name)
    reads = set(QUESTIONS[name].reads) & {*TABLES, *VIEWS}
    why = QUESTIONS[name].needs or ("nothing has been written to " if reads else "")
    assert code == 0 and f"\nno rows{': ' * bool(why)}{why}" in out
    code, out, _ = ask(capsys, tmp_warehouse, name, "--csv")
    assert code == 0 and len(out.splitlines()) == 1


def test_no_rows_of_a_time_have_no_other_reason(tmp_warehouse, capsys):
    put(tmp_warehouse, {"throttle_events": [event(0, "mark"), event(700, "unmark")]})
    for by in ("pair", "namespace-pair", "tenant-pair", "principal-pair"):
        given = ("--by", by, "--param", "since=2030-01-01")
        code, out, _ = ask(capsys, tmp_warehouse, "blame", *given)
        assert code == 0 and out.endswith("\nno rows\n"), by


@pytest.mark.parametrize(
    "question",
    [each for q in QUESTIONS.values() for each in (*q.by.values(), *([] if q.by else [q]))],
    ids=lambda q: q.name or q.meaning[:20],
)
def test_a_question_is_one_sentence_and_uses_its_parameters(question):
    assert question.meaning.endswith(".") and question.meaning[:-1].count(". ") == 0
    assert all(f"${p.name}" in question.sql for p in question.params)
    assert question.sql.count("$") >= len(question.params)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["breached-quota"], "did you mean breached-quotas?"),
        (["breached_quotas"], "did you mean breached-quotas?"),
        (["breached quotas"], "did you mean breached-quotas?"),
        (["xyzzy"], "neither SQL nor a ready question (allowed: blame, "),
        (["throttle_events"], 'read it with query "FROM throttle_events LIMIT 20"'),
        (["SELECT 1", "--param", "rows=1"], "--param: goes with a ready question"),
        (["blame", "--param", "row=1"], "no such parameter (did you mean rows?)"),
        (["freshness", "--param", "rows=1"], "no such parameter (it has none)"),
        (["blame", "--param", "rows"], "write name=value"),
        (["blame", "--param", "rows=0"], "allowed: 1 or more"),
        (["blame", "--param", "since=now"], "--param since=now: is not a time"),
        (["blame", "--by", "topic"], "by=topic: allowed: culprit, victim, pair, namespace, "),
        (["breached-quotas", "--by", "topic"], "no such parameter"),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(words, says, tmp_warehouse, capsys):
    put(tmp_warehouse, {})
    code, out, err = ask(capsys, tmp_warehouse, *words)
    assert (code, out) == (2, "")
    assert says in err


def test_the_list_has_what_the_tables_of_the_warehouse_can_answer(tmp_path, capsys):
    for table in ("events", "quarantine", "coverage_counts", "coverage_polls", "group_lag"):
        (tmp_path / table / "_delta_log").mkdir(parents=True)
    code, out, _ = ask(capsys, str(tmp_path), "--all", "--json")
    listed = {q["name"] for q in json.loads(out)}
    assert code == 0 and {"lag", "fleet", "coverage", "quarantined", "freshness"} <= listed
    assert listed.isdisjoint({"blame", "lost-messages", "cache-bakeoff", "new-producer-ids"})


def test_the_list_needs_no_warehouse(tmp_path, capsys):
    code, out, _ = ask(capsys, str(tmp_path / "none"), "--all", "--json")
    listed = {q["name"]: q for q in json.loads(out)}
    assert code == 0 and set(listed) == set(QUESTIONS)
    assert set(listed["blame"]["parameters"]) == {"by", "since", "until", "rows", "opened_since"}
    code, out, _ = ask(capsys, str(tmp_path / "none"), "--all")
    assert all(q.meaning in out for q in QUESTIONS.values())
    code, out, _ = ask(capsys, str(tmp_path / "none"))
    first = [q.name for q in QUESTIONS.values() if q.meaning in out]
    assert code == 0 and len(first) == 11 and set(first) <= set(QUESTIONS)
    assert f"{len(QUESTIONS) - 11} more with --all" in out
    code, out, _ = ask(capsys, str(tmp_path / "none"), "--all", "--csv")
    assert out.splitlines()[0] == "name,parameters,meaning"


def test_the_page_of_questions_is_current():
    page = Path(__file__).resolve().parents[3] / "docs" / "queries.md"
    assert page.read_text("utf-8") == docs_queries.render(), "run python -m tests.pages"


def test_the_sql_of_a_question_gives_its_rows(tmp_warehouse, capsys):
    put(tmp_warehouse, next(iter(CASES.values()))[0])
    code, statement, _ = ask(capsys, tmp_warehouse, "freshness", "--sql")
    assert code == 0
    answers = [ask(capsys, tmp_warehouse, words, "--csv") for words in ("freshness", statement)]
    assert answers[0] == answers[1] and len(answers[0][1].splitlines()) > 1
    assert ask(capsys, tmp_warehouse, "blame", "--by", "victim", "--sql")[1].strip() == (
        QUESTIONS["blame"].by["victim"].sql
    )
    code, _, err = ask(capsys, tmp_warehouse, "blame-victims", "--sql")
    assert code == 2 and "there is no question blame-victims" in err
