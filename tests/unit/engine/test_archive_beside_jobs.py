"""A query of jobs that carries the archive: the rows of an archive alone, and the blobs of jobs
alone."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

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
from tests.support.row_texts import row_texts
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
Rows = dict[str, Counter[Any]]


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


def rows(tables: dict[str, pa.Table]) -> Rows:
    """The rows of each table; counts summed, since tasks count apart."""
    counts: Counter[Any] = Counter()
    for row in tables.pop("coverage_counts").to_pylist():
        key = row["cluster"], row["broker"], row["minute_ms"]
        counts[*key, "received"] += row["received"]
        counts[*key, "quarantined"] += row["quarantined"]
    return {
        "coverage_counts": counts,
        **{name: Counter(row_texts(own)) for name, own in tables.items()},
    }


def plain(packed: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows of PACKED with the records of their blobs: blobs are padded with anything."""
    return [
        {**row, "blob": Blob(row["blob"]).table().to_pylist()} if row["job"] else row
        for row in packed.to_pylist()
    ]


@pytest.mark.parametrize("group", GROUPS, ids="-".join)
@pytest.mark.parametrize("seed", range(examples(4)))
def test_any_cut_gives_the_rows_of_an_archive_alone_and_the_blobs_of_jobs_alone(
    lines: list[bytes], group: list[str], seed: int, tmp_path: Path
) -> None:
    order = random.Random(seed)
    blind_ms = CONFIGURED.blind_after_gap_ms()
    routes = {name: one.route for name, one in operators(CONFIGURED, group).items()}
    limits, cut = limits_of(CONFIGURED), batches(lines, order)
    task = target(tmp_path / "joined", blind_ms)

    joined = list(packer(routes, 4, limits, archive=task)(iter(cut)))
    alone = list(packer(routes, 4, limits)(iter(cut)))

    again = target(tmp_path / "alone", blind_ms)
    expected = rows(tables_of(file_writer(again)(iter(batches(lines, order))), tmp_path / "alone"))
    found = rows(tables_of(joined, tmp_path / "joined"))
    assert {name: own for name, own in found.items() if own} == {
        name: own for name, own in expected.items() if own
    }
    assert expected["events"].total() > EVENTS * 0.9 and expected["quarantine"]
    of_jobs = [row for part in joined for row in plain(part) if row["kind"] != MessageKind.ARCHIVED]
    assert of_jobs == [row for part in alone for row in plain(part)]
