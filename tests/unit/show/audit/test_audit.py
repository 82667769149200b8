"""The command: a sound warehouse passes, damage is named, what has not changed is left alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pytest

from app.cli import main
from app.read.relations import Warehouse
from app.show.audit.audit import add_functions, audit
from app.show.audit.audit_command import checks_of
from app.show.audit.audit_pages import INDEX
from app.show.audit.suites import SUITES
from app.tables.definitions import TABLES
from app.tables.manifest import LAYOUT_VERSION
from tests.support.throttle_rows import OTHER, TOPIC, event, frame, window, write

GOOD = [
    event(100, "mark", culprit_topic=OTHER, topic=OTHER, collateral_topics=[TOPIC]),
    event(101, "mark", transition="TypeStateChanged", waiting=2),
    event(300, "unmark", transition="TypeStateChanged", reads_paused=True, waiting=1),
    event(300, "unmark", row_no=1),
]
PAUSED = {
    "limited_times": 1,
    "culprit_times": 0,
    "collateral_times": 1,
    "limited_by_limiter": [("topic", 1)],
}
WINDOWS = [
    window(0, **PAUSED),
    window(1, topic=OTHER, row_no=1),
    window(1),
    window(0, topic=OTHER, row_no=1, **{**PAUSED, "culprit_times": 1, "collateral_times": 0}),
]


@pytest.fixture
def sound(tmp_warehouse):
    write(tmp_warehouse, "throttle_events", GOOD)
    write(tmp_warehouse, "topic_throttle_stats", WINDOWS)
    return tmp_warehouse


def quality(capsys, warehouse, *options):
    """Exit code, standard output and standard error of the command."""
    code = main(["quality", "--warehouse", warehouse, *options])
    return code, *capsys.readouterr()


def results(warehouse):
    return Warehouse(warehouse).open("quality_results").to_pyarrow_table().to_pylist()


def failed(rows):
    return [
        (r["expectation"], r["column"], r["unexpected_count"]) for r in rows if not r["success"]
    ]


def test_a_sound_warehouse_passes_and_every_result_is_kept(sound, capsys):
    tables = ("throttle_events", "topic_throttle_stats")
    checks = {name: len(checks_of(name, Warehouse(sound))) for name in tables}
    printed = "".join(f"{table}: {n} of {n} expectations hold\n" for table, n in checks.items())
    assert quality(capsys, sound) == (0, printed, "")
    kept = results(sound)
    assert len(kept) == sum(checks.values())
    assert {(r["success"], r["version"]) for r in kept} == {(True, 0)}
    assert len({r["run_id"] for r in kept}) == 1


def test_what_has_not_changed_is_not_audited_again(sound, capsys):
    first = quality(capsys, sound)
    kept = results(sound)
    assert quality(capsys, sound) == first
    assert results(sound) == kept
    write(sound, "topic_throttle_stats", [window(2)])
    assert quality(capsys, sound)[0] == 0
    new = [r for r in results(sound) if r not in kept]
    assert {(r["table"], r["version"]) for r in new} == {("topic_throttle_stats", 1)}
    # What asks another table is asked again when that one has changed.
    write(sound, "throttle_events", [event(900, "mark", row_no=5)])
    assert quality(capsys, sound, "--table", "topic_throttle_stats")[0] == 1
    newest = [r for r in results(sound) if r not in kept and r not in new]
    assert failed(newest) == [
        ("culprit, shared and collateral times are the pauses of the window", None, 2)
    ]
    assert quality(capsys, sound, "--table", "topic_throttle_stats")[0] == 1
    assert len(results(sound)) == len(kept) + len(new) + len(newest)
    quality(capsys, sound, "--again", "--table", "throttle_events")
    assert len(results(sound)) > len(kept) + len(new) + len(newest)


def test_a_broken_warehouse_fails_and_the_answer_names_each_rule(tmp_warehouse, capsys):
    write(
        tmp_warehouse,
        "throttle_events",
        [
            *GOOD,
            event(300, "unmark", row_no=1),
            event(500, "hold", rule="bucket_empty", balance_msgs=7, pause_model_ns=-1),
        ],
    )
    write(
        tmp_warehouse,
        "topic_throttle_stats",
        [
            window(0, **{**PAUSED, "culprit_times": 5}),
            window(1, window_start_ms=1, messages=None),
        ],
    )
    code, out, err = quality(capsys, tmp_warehouse, "--json")
    assert (code, err) == (1, "")
    answer = json.loads(out)
    assert failed([r for r in answer if r["table"] == "throttle_events"]) == [
        ("expect_compound_columns_to_be_unique", "cluster,broker,ts_wall_ms,ts_mono_ns,row_no", 2),
        ("expect_column_values_to_be_in_set", "action", 1),
        ("expect_column_values_to_be_between", "pause_model_ns", 1),
        ("an empty bucket has a balance of 0 or less", None, 1),
        ("every unmark has its mark", None, 1),
    ]
    assert failed([r for r in answer if r["table"] == "topic_throttle_stats"]) == [
        ("expect_column_values_to_not_be_null", "messages", 1),
        ("windows are aligned to the epoch", None, 1),
        ("limited_times is culprit_times, shared_times and collateral_times", None, 1),
        ("culprit, shared and collateral times are the pauses of the window", None, 1),
    ]
    (hold,) = [
        json.loads(r["observed"]) for r in answer if r["column"] == "action" and not r["success"]
    ]
    assert hold == {"examples": ["hold"]}
    code, out, _ = quality(capsys, tmp_warehouse)
    assert code == 1
    assert re.search(r"throttle_events +0 +every unmark has its mark", out)


def test_the_pages_are_whole_and_show_what_tables_hold_as_text(tmp_warehouse, capsys):
    write(
        tmp_warehouse, "throttle_events", [event(100, "mark", reason="<script>alert(1)</script>")]
    )
    write(tmp_warehouse, "topic_throttle_stats", WINDOWS[1:3])
    quality(capsys, tmp_warehouse)
    index = Path(tmp_warehouse, INDEX)
    folder, text = index.parent, index.read_text()
    assert sorted(p.name for p in folder.iterdir()) == [
        "index.html",
        "throttle_events.html",
        "topic_throttle_stats.html",
    ]
    assert text.index("throttle_events.html") < text.index("topic_throttle_stats.html")
    page = (folder / "throttle_events.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    for whole in (text, page):
        assert "<script" not in whole and "http" not in whole
        assert not re.search(r"(src|href)=\"(?!\w+\.html\")", whole)


def test_a_column_that_is_missing_or_of_another_type_is_found():
    table = "throttle_events"
    rows = frame(table, GOOD)
    place = rows.column_names.index("waiting")
    retyped = rows.set_column(place, "waiting", pa.array([1, 2, 1, 0], pa.int64()))
    for given, seen in ((rows.drop_columns(["waiting"]), "missing"), (retyped, "BIGINT")):
        with duckdb.connect() as connection:
            connection.register(table, given)
            found = audit(connection, table, given.schema, SUITES[table])
        types, *others = [r for r in found if not r["success"]]
        assert types["expectation"] == "expect_table_columns_to_have_types"
        assert json.loads(types["observed"]) == {"observed": {"waiting": seen}}
        errors = [json.loads(r["observed"])["error"] for r in others]
        # Checks of the missing column cannot be evaluated; all others are.
        assert [r["column"] for r in others] == (["waiting"] if seen == "missing" else [])
        assert all("waiting" in error for error in errors)


def test_columns_of_a_newer_weir_are_no_damage(sound, capsys):
    more = frame("throttle_events", GOOD).append_column("of_later", pa.array([1, 2, 3, 4]))
    deltalake.write_deltalake(
        f"{sound}/throttle_events", more, mode="overwrite", schema_mode="overwrite"
    )
    assert quality(capsys, sound)[0] == 0


def test_results_of_an_older_weir_are_added_to(sound, capsys):
    old = TABLES["quality_results"].schema
    for name in ("version", "inputs"):
        old = old.remove(old.get_field_index(name))
    row = {"run_id": "r", "checked_ms": 1, "table": "throttle_events", "success": False}
    deltalake.write_deltalake(f"{sound}/quality_results", pa.Table.from_pylist([row], old))
    assert quality(capsys, sound)[0] == 1  # what the old row lacks is found in it
    assert quality(capsys, sound)[0] == 0
    assert {r["version"] for r in results(sound)} == {None, 0}


def test_a_table_that_there_is_not_is_refused(sound, capsys):
    code, out, err = quality(capsys, sound, "--table", "throttle_event")
    assert (code, out) == (2, "")
    assert err == "weir: --table throttle_event: there is none (did you mean throttle_events?)\n"


def test_an_empty_warehouse_passes_and_stays_as_it_is(tmp_path, capsys):
    (tmp_path / "_weir").mkdir()
    assert quality(capsys, str(tmp_path)) == (0, "nothing has been written yet\n", "")
    assert quality(capsys, str(tmp_path), "--json") == (0, "[]\n", "")
    assert [p.name for p in tmp_path.rglob("*")] == ["_weir"]


def test_what_is_no_warehouse_or_a_newer_one_is_refused(sound, tmp_path, capsys):
    code, out, err = quality(capsys, str(tmp_path / "x"))
    assert (code, out) == (2, "") and "does not exist" in err
    Path(sound, "_weir").mkdir()
    manifest = {
        "layout_version": LAYOUT_VERSION + 1,
        "partitions": 2,
        "shards": 16,
        "created_ms": 1,
    }
    Path(sound, "_weir", "manifest.json").write_text(json.dumps(manifest))
    code, out, err = quality(capsys, sound)
    assert (code, out) == (2, "") and f"layout version {LAYOUT_VERSION + 1}" in err


def test_every_table_has_a_suite_of_its_definition():
    assert SUITES.keys() == TABLES.keys()
    for name, table in TABLES.items():
        first = SUITES[name][0]
        assert first.kind == "ExpectTableColumnsToHaveTypes"
        assert list(first.arguments["column_types"]) == list(table.names)
        if table.job is not None:
            kinds = {check.kind for check in SUITES[name]}
            assert {"ExpectCompoundColumnsToBeUnique", "ExpectColumnValuesToNotBeNull"} <= kinds


def test_every_check_can_be_asked_of_empty_tables(tmp_warehouse):
    with duckdb.connect() as connection:
        add_functions(connection)
        for name, table in TABLES.items():
            connection.register(name, table.schema.empty_table())
        for name, table in TABLES.items():
            found = audit(connection, name, table.schema, checks_of(name, Warehouse(tmp_warehouse)))
            assert [r["expectation"] for r in found if not r["success"]] == [], name
