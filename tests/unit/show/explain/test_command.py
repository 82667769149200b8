"""The answers of the command without rows, and its options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.cli import main
from app.show.explain.ask import kinds
from app.tables.manifest import LAYOUT_VERSION
from tests.support.client_quota_rows import measured
from tests.support.ready_questions import changed, lag
from tests.support.throttle_rows import START_MS, TOPIC, event, write
from tests.unit.show.explain.asking import ALL, answer, explain, texts
from tests.unit.show.explain.rows import ORDERS

EVERY = (
    ("topic", TOPIC),
    ("connection", "c1"),
    ("principal", "User:etl"),
    ("message", "a-1"),
    ("subscription", TOPIC, "s"),
    ("client", "etl", "etl-1"),
)
DAY = "2026-01-05T14:00:00Z"


def test_the_help_names_every_kind(capsys):
    assert main(["explain", "--help"]) == 0
    assert set(re.findall(r"\w+", capsys.readouterr().out)) >= {*kinds()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("producer", "p"), "explain producer: unknown kind\nallowed: topic, connection"),
        (("subscription", TOPIC), "explain subscription: its topic and its name expected"),
        (("topic", TOPIC, "s"), "explain topic: one name expected"),
    ],
)
def test_what_cannot_be_asked(words, said, tmp_path, capsys):
    code, out, err = explain(capsys, str(tmp_path), *words)
    assert (code, out) == (2, "") and said in err


@pytest.mark.parametrize("words", EVERY, ids=lambda words: words[0])
def test_warehouses_that_cannot_be_asked(words, tmp_path, capsys):
    code, out, err = explain(capsys, str(tmp_path / "x"), *words)
    assert (code, out) == (2, "") and "does not exist" in err
    (tmp_path / "_weir").mkdir()
    kind = f"The warehouse has no decision about any {words[0]} yet.\n"
    assert explain(capsys, str(tmp_path), *words) == (0, kind, "")
    assert answer(capsys, str(tmp_path), *words)["sentences"] == []
    manifest = {
        "layout_version": LAYOUT_VERSION + 1,
        "partitions": 2,
        "shards": 16,
        "created_ms": 1,
    }
    (tmp_path / "_weir" / "manifest.json").write_text(json.dumps(manifest))
    code, out, err = explain(capsys, str(tmp_path), *words)
    assert (code, out) == (2, "") and f"layout version {LAYOUT_VERSION + 1}" in err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("topic", "t/ns/order"), f"did you mean {ORDERS}?"),
        (("topic", "orders", "--cluster", "worked"), f"did you mean {ORDERS}?"),
        (("topic", "a/b/nothing-like-it"), "known are for example persistent://"),
        (("connection", "C11"), "did you mean c1?"),
        (("principal", "User:alise"), "did you mean alice?"),
        (("message", "b-22"), "did you mean b-2?"),
        (("client", "anne"), "did you mean ann?"),
        (("subscription", "t/a/x", "biling"), "did you mean persistent://t/a/x billing?"),
    ],
)
def test_an_entity_that_does_not_occur_is_an_error_with_the_nearest_name(
    words, hint, decided, capsys
):
    code, out, err = explain(capsys, decided, *words)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith(f"weir: explain {words[0]}: no table knows ")
    assert second.startswith(hint)


def test_the_place_that_was_asked_for_stands_in_the_error(decided, capsys):
    _, _, err = explain(capsys, decided, "topic", ORDERS, "--cluster", "worked", "--broker", "b9")
    assert (
        err == "weir: explain topic: no table knows persistent://t/ns/orders (cluster worked,"
        " broker b9)\nthe tables have nothing of that place\n"
    )


def test_an_entity_that_only_the_archive_knows(decided, capsys):
    seen = f"The archive has 1 record of it, from {DAY} to {DAY}"
    for words, end in (
        (("connection", "quiet-1"), "."),
        (("topic", "t/ns/quiet"), "."),
        (("principal", "User:eve"), ", on connection quiet-1."),
    ):
        code, out, err = explain(capsys, decided, *words)
        assert (code, err) == (0, "")
        assert out.startswith(f"No job has a decision about {words[0]} ")
        assert out.endswith(seen + end + "\n")
    found = answer(capsys, decided, "principal", "User:eve")
    assert found["archived"]["rows"] == 1 and found["sentences"] == []


def test_a_moment_without_a_row_names_the_nearest_ones(decided, capsys):
    words = ("connection", "c1", "--cluster", "worked", "--at", "2026-01-05T13:00:00Z")
    code, out, err = explain(capsys, decided, *words)
    assert (code, err) == (0, "")
    assert out == (
        "No table has rows about connection c1, 2026-01-05T12:59:50Z to 2026-01-05T13:00:10Z."
        " There are rows in\n"
        f"  throttle_events: 4 from {DAY} to 2026-01-05T14:00:01.530Z, nearest {DAY} (after)\n"
        "  limiter_stats: 1 from 2026-01-05T14:01:00Z to 2026-01-05T14:01:00Z, nearest"
        " 2026-01-05T14:01:00Z (after)\n"
        "Try --at 2026-01-05T14:00:00Z\n"
    )
    found = answer(capsys, decided, *words)
    assert found["sentences"] == []
    assert [(n["table"], n["rows"], n["before_ms"]) for n in found["nearest"]] == [
        ("throttle_events", 4, None),
        ("limiter_stats", 1, None),
    ]


def test_without_a_moment_it_is_that_of_the_newest_decision(decided, capsys):
    found = answer(capsys, decided, "topic", ORDERS, "--cluster", "worked")
    at_ms = max(s["at_ms"] for s in found["sentences"])
    assert found["at_ms"] == at_ms and found["to_ms"] - at_ms == at_ms - found["from_ms"] == 10_000
    story = answer(capsys, decided, "message", "d-1", "--cluster", "west")
    assert (story["from_ms"], story["to_ms"]) == (None, None)
    assert len(story["sentences"]) > 1


def test_a_window_bounds_the_answer(decided, capsys):
    at = ("message", "b-2", "--cluster", "east", "--at", "2026-01-05T14:00:05Z", "--window")
    assert [rule for _, rule, _ in texts(capsys, decided, *at, "500ms")] == ["EVICTED"]
    assert len(texts(capsys, decided, *at, "1s")) == 2
    for wrong, message in (
        ("0", "allowed: 1ms to 366d"),
        ("9999999d", "allowed: 1ms to 366d"),
        ("-1s", "'-1s' is not a duration"),
        ("soon", "'soon' is not a duration"),
        ("5", "'5' has no unit (allowed: such as 90s, 5m, 1h30m or 500ms)"),
    ):
        code, out, err = explain(capsys, decided, "topic", ORDERS, "--window", wrong)
        assert (code, out) == (2, "") and f"--window {wrong}: {message}" in err
    code, _, err = explain(capsys, decided, "topic", ORDERS, "--at", "noon")
    assert code == 2 and "--at noon: is not a time" in err
    code, _, err = explain(capsys, decided, "topic", " ")
    assert code == 2 and "the name is empty" in err


def test_the_nearest_sentences_are_kept_and_the_others_counted(decided, capsys):
    words = ("topic", ORDERS, "--cluster", "worked", *ALL)
    every = answer(capsys, decided, *words)
    few = answer(capsys, decided, *words, "--limit", "2")
    assert (every["hidden"], few["hidden"] > 0) == (0, True)
    assert few["sentences"] == every["sentences"][:2]
    _, out, _ = explain(capsys, decided, *words, "--limit", "2")
    assert f"at least {few['hidden']} more" in out


def test_the_page_names_rule_table_and_key_of_each_sentence(decided, capsys):
    _, out, _ = explain(
        capsys,
        decided,
        "connection",
        "c1",
        "--cluster",
        "removes",
        "--at",
        "2026-01-05T14:00:00.4Z",
        "--window",
        "1ms",
    )
    assert out.startswith(
        "connection c1, 2026-01-05T14:00:00.399Z to 2026-01-05T14:00:00.401Z\n\n"
        "2026-01-05\n\n14:00:00.000  persistent://t/ns/orders published"
    )
    end = answer(
        capsys,
        decided,
        "connection",
        "c1",
        "--cluster",
        "removes",
        "--at",
        "2026-01-05T14:00:00.4Z",
    )["sentences"][-1]["rows"]["end"]
    key = " ".join(f"{name}={value}" for name, value in end["key"].items())
    assert f"(limit_removed; throttle_events {key})\n" in out


def test_the_example_of_the_page(decided, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = Path(__file__).resolve().parents[4].joinpath("docs", "explain.md").read_text("utf-8")
    shown = re.search(r"<!-- explain-output -->\n```text\n(.*?)```", page, re.S)
    code, out, _ = explain(
        capsys, decided, "topic", "t/ns/mail", "--cluster", "worked", "--at", "2026-01-05T14:00:00Z"
    )
    assert code == 0 and shown is not None and shown[1] == out


def test_tables_as_they_were(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(100, "mark")])
    log = Path(tmp_warehouse, "throttle_events", "_delta_log", f"{0:020}.json")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    committed = next(e["commitInfo"]["timestamp"] for e in entries if "commitInfo" in e)
    write(tmp_warehouse, "throttle_events", [event(300, "unmark")])
    later = Path(tmp_warehouse, "throttle_events", "_delta_log", f"{1:020}.json")
    stamped = f'"timestamp":{committed + 5000},"was":'
    later.write_text(later.read_text().replace('"timestamp":', stamped, 1))
    words = ("connection", "c1", "--at", str(START_MS + 100))
    assert texts(capsys, tmp_warehouse, *words)[-1][1] == "released"
    before = texts(capsys, tmp_warehouse, *words, "--as-of", str(committed))
    assert before[-1][2].startswith("No row ends the pause")
    code, out, _ = explain(capsys, tmp_warehouse, *words, "--as-of", str(committed - 1))
    assert (code, out) == (0, "The warehouse has no decision about any connection yet.\n")


def test_names_that_look_like_fields_or_sql_are_names(tmp_warehouse, capsys):
    odd = "persistent://t/n/{a}' OR $lo --"
    rows = [event(0, "mark", topic=odd, culprit_topic=odd, collateral_topics=["{b}"], cnx_id="{c}")]
    write(tmp_warehouse, "throttle_events", rows)
    found = texts(capsys, tmp_warehouse, "topic", odd)
    assert found[0][2].startswith(f"{odd} used up its publish limit") and "{c}" in found[0][2]
    assert found[1][2] == "Paused with connection {c}: {b}."
    sql = answer(capsys, tmp_warehouse, "connection", "{c}")["sentences"][0]["rows"]["cause"]
    assert sql["values"]["topic"] == odd


def test_a_table_of_many_files_is_read_by_the_statistics_of_its_log(tmp_warehouse, capsys):
    for second in range(20):
        write(
            tmp_warehouse,
            "throttle_events",
            [
                event(second * 1000, "mark", culprit_topic=TOPIC),
                event(second * 1000 + 500, "unmark"),
            ],
        )
    found = texts(
        capsys, tmp_warehouse, "topic", TOPIC, "--at", str(START_MS + 7000), "--window", "100ms"
    )
    assert [text for _, _, text in found][-1].startswith("Connection c1 is read again after 0.5 s")
    assert {time[:8] for time, _, _ in found} == {"22:14:07"}


def test_a_group_is_told_what_holds_it_and_how_often_it_rebalances(tmp_path, capsys):
    """Also where both began long before the moment, and where they are over."""
    whole = {"topic": None, "partition": None}
    named = {"transactional_id": "payments-1", "producer_id": 7}
    write(
        str(tmp_path),
        "group_states",
        [
            changed("g", 0, "pending_offsets", **named),
            changed("g", 0, "open_transaction", partition=2, **named),
            changed("g", 60_000, "committed", partition=2),
            *(changed("g", 100_000 * n, "rebalancing", **whole) for n in range(3)),
            *(changed("g", 100_000 * n + 5000, "stable", **whole) for n in range(3)),
            changed("h", 0, "rebalancing", **whole),
        ],
    )
    write(str(tmp_path), "group_lag", [lag("g", 600_000, 9), lag("h", 600_000, 9)])
    told = [text for *_, text in texts(capsys, str(tmp_path), "group", "g")]
    assert (
        "has its next offset in a transaction: 50 stays the last one before transaction" in told[0]
    )
    assert told[1].startswith("Polls found group g in 3 new rebalances from ")
    assert len(told) == 3
    assert len(texts(capsys, str(tmp_path), "group", "h")) == 1


def test_a_client_without_a_user_is_no_name_to_choose(tmp_path, capsys):
    rows = [measured(0, "", client="batch"), measured(0, "etl")]
    write(str(tmp_path), "client_quota_stats", rows)
    _, _, err = explain(capsys, str(tmp_path), "client", "nobody", "app")
    assert err.splitlines()[1] == "known are for example etl"
