"""What the read commands say of a warehouse that is missing, empty, in use, older or newer."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from app.cli import main
from app.tables.definitions import TABLES, VIEWS
from app.tables.manifest import LAYOUT_VERSION
from state.jobs import DECLARED
from tests.support.throttle_rows import TOPIC, event, frame, write

COMMANDS = (
    ["tables"],
    ["tables", "--json"],
    ["tables", "events"],
    ["tables", "events", "--json"],
    ["tables", "--ddl"],
    ["tables", "--ddl", "--json"],
    ["query", "SELECT 1"],
    ["query", "FROM throttle_events", "--json"],
    ["query", "FROM throttle_events", "--csv"],
    ["query", "FROM quota_usage", "--as-of", "0"],
    ["query", "blame", "--json"],
    ["explain", "topic", TOPIC],
    ["explain", "topic", TOPIC, "--as-of", "0", "--json"],
    ["explain", "connection", "c1", "--json"],
    ["explain", "principal", "User:etl"],
    ["explain", "message", "a-1", "--json"],
    ["explain", "subscription", TOPIC, "s"],
    ["query", "freshness"],
    ["query", "FROM weir_tables", "--json"],
    ["query", "SHOW TABLES"],
    ["metrics", "--once"],
    ["metrics", "--once", "--json"],
    ["report", "--json"],
    ["report", "--json", "--as-of", "0", "--to", "2030-01-01"],
)


def run(capsys, warehouse, *words):
    capsys.readouterr()
    code = main([*words, "--warehouse", str(warehouse)])
    out, err = capsys.readouterr()
    return code, out, err


def actions(warehouse, table, version, *entries):
    """Write a commit by hand, as a newer writer would."""
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    Path(warehouse, table, "_delta_log", f"{version:020}.json").write_text(text)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_warehouse_there_are_two_lines_and_exit_code_2(words, tmp_path, capsys):
    for folder, what in ((tmp_path, "has no Weir tables"), (tmp_path / "x", "does not exist")):
        code, out, err = run(capsys, folder, *words)
        assert (code, out) == (2, "")
        assert what in err and len(err.splitlines()) == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_an_empty_warehouse_is_answered(words, tmp_warehouse, capsys):
    empty = Path(tmp_warehouse)
    (empty / "_weir").mkdir(parents=True)
    (empty / "events" / "_delta_log").mkdir(parents=True)  # a table that is being created
    code, out, err = run(capsys, empty, *words)
    assert (code, err) == (0, "") and out
    if "--json" in words:
        json.loads(out)
    assert sorted(p.name for p in empty.iterdir()) == ["_weir", "events"]


@pytest.mark.parametrize("name", [*TABLES, *VIEWS])
def test_every_table_and_view_is_there_and_empty_from_the_start(name, tmp_warehouse, capsys):
    Path(tmp_warehouse, "_weir").mkdir(parents=True)
    sql = f"SELECT * FROM {name}"
    assert run(capsys, tmp_warehouse, "query", sql, "--json") == (0, "[]\n", "")
    code, out, _ = run(capsys, tmp_warehouse, "tables", name, "--json")
    assert code == 0
    if name in TABLES:
        assert [row["column"] for row in json.loads(out)] == list(TABLES[name].names)


def test_a_newer_layout_is_refused_by_name(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    manifest = {
        "layout_version": LAYOUT_VERSION,
        "partitions": 2,
        "shards": 16,
        "created_ms": 1,
        "id": "w",
    }
    path = Path(tmp_warehouse, "_weir", "manifest.json")
    path.parent.mkdir()
    path.write_text(json.dumps({**manifest, "something_new": [1]}))
    for words in COMMANDS:
        assert run(capsys, tmp_warehouse, *words)[0] == 0
    path.write_text(json.dumps({**manifest, "layout_version": LAYOUT_VERSION + 1}))
    for words in COMMANDS:
        code, out, err = run(capsys, tmp_warehouse, *words)
        assert (code, out) == (2, "")
        assert f"layout version {LAYOUT_VERSION + 1}" in err and len(err.splitlines()) == 3


@pytest.mark.parametrize(
    ("protocol", "configuration", "says"),
    [
        ({"minReaderVersion": 9, "minWriterVersion": 9}, {}, "reader version 9"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["holograms"],
                "writerFeatures": ["holograms"],
            },
            {},
            "holograms",
        ),
        # Its files hold rows that were deleted.
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            },
            {},
            "it uses deletionVectors",
        ),
        # Its files name their columns otherwise.
        (
            {"minReaderVersion": 2, "minWriterVersion": 5},
            {"delta.columnMapping.mode": "name"},
            "columnMapping",
        ),
    ],
)
def test_a_newer_protocol_is_refused_and_the_other_tables_are_read(
    tmp_warehouse, capsys, protocol, configuration, says
):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    write(tmp_warehouse, "events", [{"event_type": "publish"}])
    log = Path(tmp_warehouse, "throttle_events", "_delta_log", f"{0:020}.json")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    (metadata,) = (e["metaData"] for e in entries if "metaData" in e)
    metadata["configuration"] = configuration
    commit = {"commitInfo": {"timestamp": 1}}
    actions(
        tmp_warehouse, "throttle_events", 1, commit, {"protocol": protocol}, {"metaData": metadata}
    )
    code, out, err = run(capsys, tmp_warehouse, "query", "FROM throttle_intervals")
    assert (code, out) == (2, "")
    assert says in err and "throttle_events: cannot be read" in err
    assert run(capsys, tmp_warehouse, "query", "SELECT event_type FROM events", "--csv") == (
        0,
        "event_type\npublish\n",
        "",
    )
    assert run(capsys, tmp_warehouse, "query", "SELECT 1 AS a", "--csv") == (0, "a\n1\n", "")


@pytest.mark.parametrize("feature", ["v2Checkpoint", "vacuumProtocolCheck"])
def test_a_feature_that_leaves_the_rows_alone_is_no_obstacle(tmp_warehouse, capsys, feature):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature],
        "writerFeatures": [feature],
    }
    actions(
        tmp_warehouse,
        "throttle_events",
        1,
        {"commitInfo": {"timestamp": 1}},
        {"protocol": protocol},
    )
    sql = "SELECT action FROM throttle_events"
    assert run(capsys, tmp_warehouse, "query", sql, "--csv") == (0, "action\nmark\n", "")


@pytest.mark.usefixtures("both_sizes")
def test_columns_of_a_newer_weir_are_shown_and_null_before_it(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    newer = frame("throttle_events", [event(1, "unmark")])
    newer = newer.append_column("mood", pa.array(["calm"]))
    path = f"{tmp_warehouse}/throttle_events"
    write_deltalake(path, newer, mode="append", schema_mode="merge")
    for _ in range(2):
        sql = "SELECT action, mood FROM throttle_events ORDER BY ts_wall_ms"
        code, out, err = run(capsys, tmp_warehouse, "query", sql, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == [
            {"action": "mark", "mood": None},
            {"action": "unmark", "mood": "calm"},
        ]
        _, out, _ = run(capsys, tmp_warehouse, "query", "FROM throttle_intervals", "--json")
        assert len(json.loads(out)) == 1
        DeltaTable(path).optimize.compact()
    _, out, _ = run(capsys, tmp_warehouse, "tables", "throttle_events", "--json")
    assert json.loads(out)[-1] == {"column": "mood", "type": "varchar", "meaning": ""}


@pytest.mark.usefixtures("both_sizes")
def test_a_column_that_no_file_has_yet_is_null(tmp_warehouse, capsys):
    """A run adds the columns of its release at its start, before it has written a row."""
    write(tmp_warehouse, "throttle_events", [event(0, "mark"), event(1, "unmark")])
    path = f"{tmp_warehouse}/throttle_events"
    DeltaTable(path).alter.add_columns([Field("mood", PrimitiveType("string"))])
    for where, expected in ((None, ["mark", "unmark"]), ("action = 'mark'", ["mark"])):
        sql = f"SELECT action, mood FROM throttle_events WHERE {where or True} ORDER BY action"
        code, out, err = run(capsys, tmp_warehouse, "query", sql, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == [{"action": action, "mood": None} for action in expected]
    assert run(capsys, tmp_warehouse, "query", "FROM throttle_intervals", "--json")[0] == 0


@pytest.mark.usefixtures("both_sizes")
def test_columns_that_an_older_weir_did_not_write_are_null(tmp_warehouse, capsys):
    old = frame("throttle_events", [event(0, "mark")]).drop_columns(["receipt_state", "waiting"])
    Path(tmp_warehouse).mkdir()
    write_deltalake(f"{tmp_warehouse}/throttle_events", old)
    sql = "SELECT action, waiting, receipt_state FROM throttle_events"
    code, out, err = run(capsys, tmp_warehouse, "query", sql, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [{"action": "mark", "waiting": None, "receipt_state": None}]


def test_tables_of_shadows_are_listed_where_there_are_shadows(tmp_warehouse, tmp_path, capsys):
    def listed(*words):
        code, out, err = run(capsys, tmp_warehouse, "tables", "--json", *words)
        assert (code, err) == (0, "")
        return {row["name"] for row in json.loads(out) if row["name"].startswith("shadow_")}

    every = {t.name for job in DECLARED.values() for t in job.shadow_tables}
    views = {"shadow_effects"}
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    assert listed() == views
    config = tmp_path / "weir.yaml"
    config.write_text("source: {format: files, path: in}\nshadows: {next: []}\n")
    assert listed("--config", str(config)) == every | views
    write(tmp_warehouse, "shadow_throttle_events", [{**event(0, "mark"), "policy": "next"}])
    assert listed() == views | {"shadow_throttle_events"}


def test_a_table_of_a_newer_weir_is_left_alone(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    write_deltalake(f"{tmp_warehouse}/crystal_ball", pa.table({"a": [1]}))
    assert run(capsys, tmp_warehouse, "tables")[0] == 0
    code, _, err = run(capsys, tmp_warehouse, "query", "FROM crystal_ball")
    assert code == 2 and "crystal_ball does not exist" in err


def test_files_without_a_number_of_rows_leave_it_open(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    log = Path(tmp_warehouse, "throttle_events", "_delta_log", f"{0:020}.json")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    for entry in entries:
        entry.get("add", {}).pop("stats", None)
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    _, out, _ = run(capsys, tmp_warehouse, "tables", "--json")
    assert {r["name"]: r["rows"] for r in json.loads(out)}["throttle_events"] is None
    _, out, _ = run(capsys, tmp_warehouse, "query", "freshness", "--json")
    assert json.loads(out)[0]["newest_row"] is None


def test_a_warehouse_that_is_being_written_to_is_read_in_whole_commits(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(0, "mark"), event(0, "unmark")])
    stop = threading.Event()

    def writing() -> None:
        while not stop.is_set():
            write(tmp_warehouse, "throttle_events", [event(0, "mark"), event(0, "unmark")])

    writer = threading.Thread(target=writing)
    writer.start()
    try:
        seen = []
        for _ in range(15):
            sql = (
                "SELECT count(*) AS n, count(*) FILTER (action = 'mark') AS m FROM"
                " throttle_events WHERE ts_wall_ms > 0"
            )
            code, out, err = run(capsys, tmp_warehouse, "query", sql, "--json")
            assert code == 0, err
            (row,) = json.loads(out)
            assert row["n"] == 2 * row["m"]
            seen.append(row["n"])
            assert run(capsys, tmp_warehouse, "query", "freshness", "--json")[0] == 0
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen) and seen[-1] > seen[0]


@pytest.mark.usefixtures("both_sizes")
def test_a_table_that_is_broken_is_told_and_does_not_hide_the_others(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    write(tmp_warehouse, "events", [{"event_type": "publish"}])
    Path(tmp_warehouse, "throttle_events", "_delta_log", f"{0:020}.json").write_text("{")
    for words in (["query", "FROM throttle_events"], ["query", "blame", "--by", "pair", "--json"]):
        code, out, err = run(capsys, tmp_warehouse, *words)
        assert (code, out) == (2, "") and "throttle_events: cannot be read" in err
    assert run(capsys, tmp_warehouse, "query", "FROM events LIMIT 1", "--json")[0] == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_commit_file_without_contents_is_refused_by_name(version, tmp_warehouse, capsys):
    """As after a loss of power. delta-rs passes over it and answers without its rows."""
    for at_ms in range(3):
        write(tmp_warehouse, "throttle_events", [event(at_ms, "mark")])
    write(tmp_warehouse, "events", [{"event_type": "publish"}])
    table = Path(tmp_warehouse, "throttle_events")
    emptied = table / "_delta_log" / f"{version:020}.json"
    emptied.write_text("")

    for words in (["query", "FROM throttle_events"], ["tables", "--json"]):
        assert run(capsys, tmp_warehouse, *words) == (
            2,
            "",
            (
                f"weir: warehouse: the table {table} has lost the rows of a commit, whose file is "
                f"empty ({emptied})\nput the table back from a copy; ./spark-submit.sh doctor says "
                "whether the query can write them again\n"
            ),
        )
    assert run(capsys, tmp_warehouse, "query", "FROM events LIMIT 1", "--json")[0] == 0


def test_a_moment_before_an_empty_commit_file_is_read(tmp_warehouse, capsys):
    for at_ms in range(3):
        write(tmp_warehouse, "throttle_events", [event(at_ms, "mark")])
        time.sleep(0.01)
    first, _, last = sorted(Path(tmp_warehouse, "throttle_events", "_delta_log").glob("*.json"))
    begun = json.loads(first.read_text().splitlines()[0])["commitInfo"]["timestamp"]
    last.write_text("")
    words = ["query", "SELECT count(*) n FROM throttle_events", "--json", "--as-of"]
    assert run(capsys, tmp_warehouse, *words, str(begun)) == (0, '[\n{"n": 1}\n]\n', "")
    code, out, err = run(capsys, tmp_warehouse, *words, "2100-01-01")
    assert (code, out) == (2, "") and f"is empty ({last})" in err


@pytest.mark.usefixtures("both_sizes")
def test_a_file_that_is_gone_is_told(tmp_warehouse, capsys):
    write(tmp_warehouse, "throttle_events", [event(0, "mark")])
    (file,) = Path(tmp_warehouse, "throttle_events").glob("*.parquet")
    file.unlink()
    code, out, err = run(capsys, tmp_warehouse, "query", "FROM throttle_events")
    assert (code, out) == (2, "") and "removed by VACUUM or compaction" in err
