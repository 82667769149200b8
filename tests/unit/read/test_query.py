"""The read commands: every table and view from DuckDB, nothing but reading, exact values."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re

import pytest

from app.errors import UserError
from app.read.query import AnswerLimits, query, tables
from app.tables.definitions import TABLES, VIEWS
from app.terminal.rows import write_table
from tests.support.ready_questions import predicted
from tests.support.throttle_rows import OTHER, START_MS, TOPIC, event, frame, window, write

BROKER = {
    "throttle_type": "BrokerPublishRate",
    "reason": "BrokerProduceQuotaExceeded",
    "limiter": "broker",
    "culprit_topic": OTHER,
}
TYPE = "TypeStateChanged"
HISTORY = [
    # A pause for two reasons; the type in the middle changes nothing for the connection.
    event(100, "mark"),
    event(150, "mark", transition=TYPE, **BROKER),
    event(160, "mark", transition="Dropped", **BROKER),
    event(200, "unmark", transition=TYPE, reads_paused=True),
    event(250, "unmark", **BROKER),
    # Belongs to no pause.
    event(260, "unmark", transition="Dropped", **BROKER),
    # Released and paused again at one instant.
    event(300, "mark"),
    event(400, "unmark"),
    event(400, "mark", row_no=1, **BROKER),
    # Another connection; the same connection of another broker.
    event(120, "mark", cnx_id="c2"),
    event(130, "mark", broker="b2"),
    event(131, "unmark", broker="b2"),
]
TOPIC_REASON, BROKER_REASON = "TopicProduceQuotaExceeded", "BrokerProduceQuotaExceeded"
PAUSES = [
    ("b1", "c1", 100, 250, [BROKER_REASON, TOPIC_REASON], [TOPIC], ["broker b1"], 1, TOPIC),
    ("b1", "c1", 300, 400, [TOPIC_REASON], [TOPIC], [], 2, TOPIC),
    ("b1", "c1", 400, None, [BROKER_REASON], [], ["broker b1"], 3, "b1"),
    ("b1", "c2", 120, None, [TOPIC_REASON], [TOPIC], [], 1, TOPIC),
    ("b2", "c1", 130, 131, [TOPIC_REASON], [TOPIC], [], 1, TOPIC),
]
EXPECTED = [
    {
        "cluster": "east",
        "broker": broker,
        "cnx_id": cnx,
        "start_ns": start * 1_000_000,
        "end_ns": None if end is None else end * 1_000_000,
        "start_ms": START_MS + start,
        "end_ms": None if end is None else START_MS + end,
        "reasons": reasons,
        "culprit_topics": culprits,
        "shared_limits": shared,
        "end_seen": None if end is None else True,
        "pause_no": number,
        "is_open": end is None,
        "limiter": "topic" if limit == TOPIC else "broker",
        "limiter_name": limit,
        "trigger_topic": TOPIC if limit == TOPIC else OTHER,
        "reason": TOPIC_REASON if limit == TOPIC else BROKER_REASON,
        "by_messages": True,
        "topics": [TOPIC, OTHER],
        "paused_ns": None if end is None else (end - start) * 1_000_000,
    }
    for broker, cnx, start, end, reasons, culprits, shared, number, limit in PAUSES
]
INTERVALS = "SELECT * FROM throttle_intervals ORDER BY broker, cnx_id, start_ns"


@pytest.fixture
def settings(make_settings, tmp_warehouse):
    # In the order of arrival no row is at its place.
    write(tmp_warehouse, "throttle_events", HISTORY[::-1])
    return make_settings()


def answer(settings, capsys, sql):
    assert query(settings, sql, "json") == 0
    return json.loads(capsys.readouterr().out)


def test_throttle_intervals_has_one_row_per_pause_of_a_connection(settings, capsys):
    assert answer(settings, capsys, INTERVALS) == EXPECTED


def test_throttle_intervals_says_the_same_in_spark(spark):
    rows = frame("throttle_events", HISTORY[::-1])
    spark.createDataFrame(rows).createOrReplaceTempView("throttle_events")
    spark.sql(VIEWS["throttle_intervals"].sql).createOrReplaceTempView("throttle_intervals")
    assert [row.asDict() for row in spark.sql(INTERVALS).collect()] == EXPECTED


def test_pauses_of_rows_without_wall_time_follow_the_monotonic_clock(
    make_settings, tmp_warehouse, capsys
):
    rows = [event(300, "mark"), event(100, "mark"), event(200, "unmark"), event(400, "unmark")]
    write(tmp_warehouse, "throttle_events", [{**row, "ts_wall_ms": None} for row in rows])
    sql = "SELECT start_ns, end_ns, start_ms FROM throttle_intervals ORDER BY start_ns"
    assert answer(make_settings(), capsys, sql) == [
        {"start_ns": 100_000_000, "end_ns": 200_000_000, "start_ms": None},
        {"start_ns": 300_000_000, "end_ns": 400_000_000, "start_ms": None},
    ]


def test_64_bit_values_maps_lists_and_nulls_come_out_whole(make_settings, tmp_warehouse, capsys):
    edge = [-(2**63), 2**53 + 1, 2**63 - 1]
    rows = [event(i, "mark", balance_msgs=value) for i, value in enumerate(edge)]
    write(tmp_warehouse, "throttle_events", rows)
    sql = (
        "SELECT balance_msgs, balance_bytes, switches, collateral_topics FROM throttle_events"
        " ORDER BY ts_mono_ns"
    )
    assert answer(make_settings(), capsys, sql) == [
        {
            "balance_msgs": value,
            "balance_bytes": None,
            "switches": {"tokenbucket": "saturating"},
            "collateral_topics": [OTHER],
        }
        for value in edge
    ]
    total = "SELECT sum(balance_msgs) AS total FROM throttle_events WHERE balance_msgs > 0"
    assert answer(make_settings(), capsys, total) == [{"total": 2**63 + 2**53}]


def test_the_archive_reads_with_its_partition_column_as_a_date(
    make_settings, tmp_warehouse, capsys
):
    days = [datetime.date(2023, 11, 14), datetime.date(2023, 11, 15)]
    rows = [{"event_type": "publish", "event_date": day, "payload": b"\x00\xff"} for day in days]
    write(tmp_warehouse, "events", rows)
    sql = "SELECT event_type, payload, event_date FROM events WHERE event_date = DATE '2023-11-15'"
    assert answer(make_settings(), capsys, sql) == [
        {"event_type": "publish", "payload": "AP8=", "event_date": "2023-11-15"}
    ]


def test_a_table_without_rows_is_there_and_empty(settings, capsys):
    assert answer(settings, capsys, "SELECT topic, by_reason FROM topic_throttle_stats") == []


def test_csv_quotes_what_needs_it_and_leaves_null_empty(settings, capsys):
    sql = """SELECT balance_msgs, balance_bytes, collateral_topics AS c, 'a,"b' AS d,
        action = 'mark' AS e FROM throttle_events ORDER BY ts_mono_ns LIMIT 1"""
    assert query(settings, sql, "csv") == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["balance_msgs", "balance_bytes", "c", "d", "e"],
        ["0", "", f'["{OTHER}"]', 'a,"b', "true"],
    ]


def test_a_table_for_reading_is_aligned_and_says_what_it_leaves_out(settings, capsys):
    assert (
        query(
            settings,
            "SELECT i AS n, 'x' AS s FROM range(202) t(i)",
            "table",
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] + lines[-2:] == [
        "  n  s",
        "---  -",
        "  0  x",
        "199  x",
        "200 of 202 rows; --rows N shows more",
    ]


def test_a_table_for_reading_does_not_wait_for_a_hundred_million_rows(settings, capsys):
    assert (
        query(
            settings,
            "SELECT i, repeat('x', 99) AS s FROM range(100000000) t(i)",
        )
        == 0
    )
    assert capsys.readouterr().out.splitlines()[-1] == (
        "200 of at least 1,200 rows; --rows N shows more"
    )


def test_a_warehouse_whose_path_has_odd_characters_reads_the_same(make_settings, tmp_path, capsys):
    for name in ("a b", "it's a*"):
        folder = str(tmp_path / name)
        write(folder, "throttle_events", HISTORY)
        assert answer(make_settings(warehouse=folder), capsys, INTERVALS) == EXPECTED


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO 'x.csv'",
        "CREATE TABLE t (a int)",
        "DROP VIEW throttle_events",
        "SET memory_limit = '1GB'",
        "INSTALL httpfs",
        "ATTACH 'x.db'",
        "SELECT 1; SELECT 2",
        "",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'",
        "DELETE FROM throttle_events",
    ],
)
def test_only_one_reading_statement_is_accepted(settings, sql):
    with pytest.raises(UserError, match="allowed is one statement that reads"):
        query(settings, sql)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM throttle_event", "throttle_event does not exist"),
        ("SELECT topik FROM throttle_events", "topik"),
        ("SELECT CAST(topic AS INT) FROM throttle_events", "Could not convert"),
    ],
)
def test_a_mistake_in_the_sql_is_told_in_two_lines(settings, sql, says):
    with pytest.raises(UserError) as error:
        query(settings, sql)
    assert says in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_that_is_no_warehouse_is_refused(make_settings, tmp_path, exists):
    folder = tmp_path if exists else tmp_path / "nothing"
    with pytest.raises(UserError, match="has no Weir tables" if exists else "does not exist"):
        tables(make_settings(warehouse=str(folder)))


def test_tables_lists_every_table_but_those_of_shadows_and_every_view(settings, capsys):
    assert tables(settings, as_json=True) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    without_shadows = [name for name, table in TABLES.items() if table.live is None]
    assert list(listed) == [*without_shadows, *VIEWS]
    assert listed["throttle_events"]["rows"] == len(HISTORY)
    assert listed["alerts"] == {
        "name": "alerts",
        "kind": "table",
        "rows": 0,
        "bytes": 0,
        "meaning": TABLES["alerts"].meaning,
    }
    assert listed["throttle_intervals"]["kind"] == "view"


def test_tables_describes_one_table_or_view_and_prints_the_text_of_a_view(settings, capsys):
    assert tables(settings, "quarantine", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)[0] == {
        "column": "reason_code",
        "type": "varchar",
        "meaning": "code of the broken rule",
    }
    assert tables(settings, "throttle_intervals") == 0
    assert VIEWS["throttle_intervals"].meaning in capsys.readouterr().out
    assert tables(settings, "throttle_intervals", sql=True) == 0
    assert capsys.readouterr().out.strip() == VIEWS["throttle_intervals"].sql
    with pytest.raises(UserError, match="did you mean throttle_events"):
        tables(settings, "throttle_event")


def test_a_spreadsheet_computes_nothing(settings, capsys):
    sql = """SELECT '=1+1' AS "=a", '@x' AS b, '+x' AS c, '-x' AS d, -1 AS e, 'a=b' AS f,
        -1.5::DECIMAL(4,1) AS g, NULL AS h, chr(9) || '=1' AS i"""
    assert query(settings, sql, "spreadsheet") == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["'=a", "b", "c", "d", "e", "f", "g", "h", "i"],
        ["'=1+1", "'@x", "'+x", "'-x", "-1", "a=b", "-1.5", "", "'\t=1"],
    ]


def test_rows_bounds_every_form_and_without_it_json_and_csv_have_all(settings, capsys):
    sql = "SELECT i AS n FROM range(300) t(i)"
    for form, lines in (("json", 302), ("csv", 301)):
        assert query(settings, sql, form) == 0
        assert len(capsys.readouterr().out.splitlines()) == lines
    for form, lines in (("json", 4), ("csv", 3), ("table", 5)):
        assert query(settings, sql, form, rows=2) == 0
        assert len(capsys.readouterr().out.splitlines()) == lines
    assert query(settings, sql, "table", rows=300) == 0
    assert "rows" not in capsys.readouterr().out


def test_a_question_says_how_many_rows_it_leaves_out(make_settings, tmp_warehouse, capsys):
    rows = [window(0, topic=f"{TOPIC}-{i:02}", culprit_times=1, culprit_ns=1) for i in range(25)]
    write(tmp_warehouse, "topic_throttle_stats", rows)
    settings = make_settings()
    assert query(settings, "blame") == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-1]) == (23, "20 of 25 rows; --rows N shows more")
    for form, more, count in (
        ("json", {}, 27),
        ("csv", {}, 26),
        ("json", {"rows": 3}, 5),
        ("csv", {"params": ["rows=3"]}, 4),
        ("table", {"rows": 25}, 27),
    ):
        assert query(settings, "blame", form, **more) == 0
        assert len(capsys.readouterr().out.splitlines()) == count, (form, more)


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self):
        return True


def on_terminal(monkeypatch, names, rows):
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    write_table(names, rows, out)
    return out.getvalue()


WORDS = ["persistent://acme/orders/created", "because", "another", "topic", "broke", "its", "limit"]


def test_on_a_terminal_the_last_column_is_wrapped_between_words(monkeypatch):
    text = on_terminal(monkeypatch, ["name", "meaning"], [["lost-messages", " ".join(WORDS * 4)]])
    assert max(map(len, text.splitlines())) <= 80
    assert text.split() == ["name", "meaning", "-" * 13, "-" * 65, "lost-messages", *WORDS * 4]


def test_a_row_that_is_too_wide_for_a_terminal_has_a_line_for_each_value(monkeypatch):
    rows = [[WORDS[0], i, None, " ".join(WORDS), 2.5] for i in range(2)]
    text = on_terminal(monkeypatch, ["topic", "n", "victim", "because_of", "paused_s"], rows)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[:7] == [
        "-- 1 " + "-" * 75,
        "topic       persistent://acme/orders/created",
        "n           0",
        "because_of  persistent://acme/orders/created because another topic broke its",
        "            limit",
        "paused      2.5 s",
        "-- 2 " + "-" * 75,
    ]


def test_numbers_are_rounded_and_have_units_for_reading_alone(make_settings, tmp_warehouse, capsys):
    """Sums of ns, 1,234,567 bytes, shares; exact are times, offsets, counts,
    monotonic times and the -1 of what is not known."""
    sql = (
        "SELECT ts_wall_ms, 5091234567 AS paused_ns, 1234567 AS used_bytes, 1 / 3 AS hit_ratio,"
        " 2 / 3 AS mean, 1234567 AS log_end, 177642030214 AS ts_mono_ns, -1500 AS left_ms,"
        " 7200 AS limit_s, 3 AS limit, -1 AS age_s FROM throttle_events"
    )
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    settings = make_settings()
    assert query(settings, sql) == 0
    names, _, values = capsys.readouterr().out.splitlines()
    assert names.split() == [
        "ts_wall_ms", "paused", "used_bytes", "hit_ratio", "mean", "log_end", "ts_mono_ns", "left",
        "limit_s", "limit", "age",
    ]  # fmt: skip
    assert re.split("  +", values.strip()) == [
        str(START_MS), "5.1 s", "1.2 MB", "33 %", "0.667", "1234567", "177642030214", "-1.5 s",
        "2 h", "3", "-1",
    ]  # fmt: skip
    assert query(settings, sql, "csv") == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        f"{START_MS},5091234567,1234567,0.3333333333333333,0.6666666666666666,1234567,"
        "177642030214,-1500,7200,3,-1"
    )


def test_a_limit_has_the_unit_of_its_kind(make_settings, tmp_warehouse, capsys):
    write(tmp_warehouse, "forecasts", [predicted(1), predicted(1, kind="backlog_age", limit=900.0)])
    assert query(make_settings(), "forecasts", limits=AnswerLimits(wide=True)) == 0
    names, _, *rows, empty = capsys.readouterr().out.splitlines()
    assert empty.startswith("without a value: ")
    assert not set(names.split()) & set(empty.split(": ")[1].split(", "))
    kept = [dict(zip(names.split(), re.split("  +", row), strict=True)) for row in rows]
    assert [(row["kind"], row["limit"], row["highest"], row["mean_error"]) for row in kept] == [
        ("backlog_age", "15 min", "75 %", "25 %"),
        ("backlog_size", "100 bytes", "75 %", "25 %"),
    ]


def test_a_pipe_gets_whole_lines_without_blanks_at_their_ends(settings, capsys):
    assert (
        query(
            settings,
            f"SELECT '{'word ' * 40}' AS s, NULL AS n FROM range(3)",
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == ("word " * 40).rstrip()
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("epoch_ms(1767621600000)", "2026-01-05T14:00:00Z"),
        ("epoch_ms(1767621600007)", "2026-01-05T14:00:00.007Z"),
        ("TIMESTAMP '2026-01-05 14:00:00.000001'", "2026-01-05T14:00:00.000001Z"),
        ("TIMESTAMPTZ '2026-01-05 16:00:00+02'", "2026-01-05T14:00:00Z"),
        ("DATE '2026-01-05'", "2026-01-05"),
    ],
)
def test_times_have_one_format_in_every_form(settings, capsys, sql, text):
    for form, said in (("json", [{"t": text}]), ("csv", None), ("table", None)):
        assert query(settings, f"SELECT {sql} AS t", form) == 0
        out = capsys.readouterr().out
        assert json.loads(out) == said if form == "json" else out.splitlines()[-1] == text
