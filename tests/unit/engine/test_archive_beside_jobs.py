"""A query of jobs that carries the archive: the rows of an archive alone, and the blobs of jobs
alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from app.archive_names import COUNTS
from app.config.settings import load_settings
from app.engine.archive_task import file_writer
from app.engine.messages import MessageKind
from app.engine.operators import limits_of, operators
from app.engine.routing import packer
from app.sources.clocks import stamped
from state.engine.blobs import Blob
from state.jobs import JOBS
from tests.support.archive import tables_of, target
from tests.support.effort import examples
from tests.support.traces import demo_trace
from tests.unit.state.contract.hostile import hostile
from tests.unit.state.contract.jobs import JOBS as CONTRACTS

PLAN_MS = 1_767_621_600_000
EVENTS = 20_000
CONFIGURED = load_settings(
    overrides={"shards": 4, "source": {"format": "files", "path": "in"}, "queries": [list(JOBS)]}
)
GROUPS = [list(JOBS), ["chunks"], ["producer_ids", "backlog"]]
"""Jobs of the query that carries the archive; the archive is that of all jobs."""
Tables = dict[str, pa.Table]


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """The demo's trace with hostile records among its own."""
    order = random.Random(3)
    found = []
    for part in demo_trace(EVENTS).slices():
        for number, line in enumerate(part.lines()):
            found.append(line)
            if order.random() < 0.05:
                job = CONTRACTS[order.choice(list(CONTRACTS))]
                found.append(hostile(job, order, number))
    return found


def batches(lines: list[bytes], order: random.Random) -> list[pa.RecordBatch]:
    """The records, cut anywhere."""
    cuts = sorted(order.sample(range(1, len(lines)), order.randint(0, 8)))
    return [
        stamped(
            pa.record_batch(
                {
                    "value": pa.array(lines[first:last], pa.binary()),
                    "source_partition": pa.repeat(pa.scalar("0"), last - first),
                    "source_offset": pa.array(range(first, last), pa.int64()),
                }
            ),
            PLAN_MS,
        )
        for first, last in zip([0, *cuts], [*cuts, len(lines)], strict=True)
    ]


def in_order(tables: Tables) -> Tables:
    """The rows of each table that has any, in one order; counts summed, since tasks count apart."""
    counts = tables[COUNTS].group_by(["cluster", "broker", "minute_ms"])
    summed = counts.aggregate([("received", "sum"), ("quarantined", "sum")])
    found = {}
    for name, table in {**tables, COUNTS: summed}.items():
        if not table.num_rows:
            continue
        fields = [
            pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type)
            for f in table.schema
        ]
        plain = [f.name for f in fields if not pa.types.is_nested(f.type)]
        keys = sorted(plain, key=lambda column: (column != "source_offset", column))
        ordered = table.cast(pa.schema(fields)).sort_by([(key, "ascending") for key in keys])
        found[name] = ordered.select(sorted(table.column_names))
    return found


def assert_same(found: Tables, expected: Tables) -> None:
    """Whole rows; of a table that differs the first row that does."""
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        if not found[name].equals(table):
            pairs = zip(found[name].to_pylist(), table.to_pylist(), strict=False)
            differing = next((pair for pair in pairs if pair[0] != pair[1]), None)
            assert found[name].equals(table), (name, differing)


def plain(packed: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows of PACKED with the records of their blobs: blobs are padded with anything."""
    return [
        {**row, "blob": Blob(row["blob"]).table()} if row["job"] else row
        for row in packed.to_pylist()
    ]


@dataclass(frozen=True)
class Cut:
    """The records cut anywhere, and the rows of an archive alone."""

    batches: list[pa.RecordBatch]
    archived: Tables


@pytest.fixture(scope="module", params=range(examples(4)))
def cut(
    request: pytest.FixtureRequest, lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> Cut:
    order, folder = random.Random(request.param), tmp_path_factory.mktemp("alone")
    write = file_writer(target(folder, CONFIGURED.blind_after_gap_ms()))
    found = batches(lines, order)
    return Cut(found, in_order(tables_of(write(iter(batches(lines, order))), folder)))


@pytest.mark.parametrize("group", GROUPS, ids="-".join)
def test_any_cut_gives_the_rows_of_an_archive_alone_and_the_blobs_of_jobs_alone(
    cut: Cut, group: list[str], tmp_path: Path
) -> None:
    routes = {name: one.route for name, one in operators(CONFIGURED, group).items()}
    limits, task = limits_of(CONFIGURED), target(tmp_path, CONFIGURED.blind_after_gap_ms())

    joined = list(packer(routes, 4, limits, archive=task)(iter(cut.batches)))
    alone = list(packer(routes, 4, limits)(iter(cut.batches)))

    assert_same(in_order(tables_of(joined, tmp_path)), cut.archived)
    assert cut.archived["events"].num_rows > EVENTS * 0.9 and "quarantine" in cut.archived
    of_jobs = [row for part in joined for row in plain(part) if row["kind"] != MessageKind.ARCHIVED]
    assert of_jobs == [row for part in alone for row in plain(part)]
