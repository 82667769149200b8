"""An audit reads whole micro-batches: none of which only some tables have been committed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from app.config.settings import load_settings
from app.read.relations import Warehouse
from app.show.audit.snapshot import committed
from tests.support.throttle_rows import event, frame, window

APPLICATION = "weir-govern-1"


@pytest.fixture
def settings(tmp_warehouse):
    folder = Path(tmp_warehouse, "_weir", "checkpoints", "govern")
    (folder / "commits").mkdir(parents=True)
    (folder / "weir-query.json").write_text(
        json.dumps({"query": "govern", "applications": [APPLICATION]})
    )
    return load_settings(None, {"warehouse": tmp_warehouse})


def commit(settings, table, batch, application=APPLICATION):
    rows = {
        "throttle_events": [event(batch, "mark")],
        "topic_throttle_stats": [window(batch)],
        "quarantine": [{"reason_code": "UNPARSEABLE"}],
    }[table]
    write_deltalake(
        f"{settings.warehouse}/{table}",
        frame(table, rows),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(application, batch)]),
    )


def end(settings, batch):
    Path(settings.warehouse, "_weir", "checkpoints", "govern", "commits", str(batch)).touch()


def versions(settings):
    return {
        name: table.version()
        for name, table in committed(Warehouse.of(settings.location)).items()
        if table is not None
    }


def test_a_batch_that_is_not_over_is_left_out_of_every_table(settings):
    commit(settings, "throttle_events", 0)
    commit(settings, "topic_throttle_stats", 0)
    end(settings, 0)
    assert versions(settings) == {"throttle_events": 0, "topic_throttle_stats": 0}
    commit(settings, "throttle_events", 1)
    assert versions(settings) == {"throttle_events": 0, "topic_throttle_stats": 0}
    commit(settings, "topic_throttle_stats", 1)
    assert versions(settings) == {"throttle_events": 0, "topic_throttle_stats": 0}
    end(settings, 1)
    assert versions(settings) == {"throttle_events": 1, "topic_throttle_stats": 1}


def test_what_others_commit_meanwhile_does_not_hide_it(settings):
    commit(settings, "throttle_events", 0)
    end(settings, 0)
    commit(settings, "throttle_events", 1)
    DeltaTable(f"{settings.warehouse}/throttle_events").optimize.compact()
    assert versions(settings) == {"throttle_events": 0}


def test_queries_do_not_wait_for_each_other(settings):
    commit(settings, "throttle_events", 0)
    commit(settings, "quarantine", 5, "weir-archive-1")
    end(settings, 0)
    assert versions(settings) == {"throttle_events": 0, "quarantine": 0}
