"""Audits beside a run: in a process of their own, and ended with the run."""

from __future__ import annotations

from threading import Event

from app.config.settings import load_settings
from app.read.relations import Warehouse
from app.run.side_processes import one_round, repeating
from tests.support.throttle_rows import event, write


def settings(warehouse, interval_ms=1):
    return load_settings(None, {"warehouse": warehouse, "quality": {"interval_ms": interval_ms}})


def test_an_audit_beside_a_run_keeps_its_results_and_names_what_failed(tmp_warehouse):
    write(tmp_warehouse, "throttle_events", [event(100, "unmark")])
    reported, failed = [], Event()

    def say(text):
        reported.append(text)
        failed.set()

    with repeating("quality", settings(tmp_warehouse), say):
        assert failed.wait(240)
    (row,) = [
        r
        for r in Warehouse(tmp_warehouse).open("quality_results").to_pyarrow_table().to_pylist()
        if not r["success"]
    ]
    assert (row["table"], row["expectation"]) == ("throttle_events", "every unmark has its mark")
    assert reported == [
        f"quality: 1 of {count(tmp_warehouse)} expectations failed"
        " (throttle_events: every unmark has its mark)"
    ]


def count(warehouse):
    kept = Warehouse(warehouse).open("quality_results").to_pyarrow_table()
    return kept.num_rows


def test_what_cannot_be_audited_is_said(tmp_warehouse):
    write(tmp_warehouse, "throttle_events", [event(100, "mark")])
    unset = {"AWS_SECRET_ACCESS_KEY": "${env:WEIR_TEST_NOT_SET}"}
    given = settings(tmp_warehouse).model_copy(update={"storage_options": unset})
    assert "WEIR_TEST_NOT_SET" in one_round("quality", given.model_dump_json(), Event())


def test_a_run_that_ends_does_not_wait_for_an_audit(tmp_warehouse):
    write(tmp_warehouse, "throttle_events", [event(100, "unmark")])
    stop = Event()
    stop.set()
    assert one_round("quality", settings(tmp_warehouse).model_dump_json(), stop) == ""
    assert Warehouse(tmp_warehouse).open("quality_results") is None
