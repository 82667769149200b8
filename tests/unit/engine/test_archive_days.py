"""Records choose their days, and no choice makes the archive write a file for each."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from app.engine.archive_task import file_writer
from app.sources.clocks import stamped
from app.tables.archive_files import MOST_DAYS
from state.jobs import JOBS
from tests.support.archive import files_of, target
from tests.unit.contract.records import record

DAY_MS = 86_400_000
EPOCH = date(1970, 1, 1)
PLAN_DAY = 20_500


def written(folder: Path, days: list[int]) -> dict[date, list[int]]:
    """The days (since the epoch) of the records in each partition of `events`."""
    lines = [json.dumps(record("publish", ts_wall_ms=day * DAY_MS + 5)).encode() for day in days]
    raw = stamped(
        pa.record_batch(
            {
                "value": pa.array(lines, pa.binary()),
                "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
                "source_offset": pa.array(range(len(lines)), pa.int64()),
            }
        ),
        PLAN_DAY * DAY_MS,
    )
    found: dict[date, list[int]] = {}
    packed = file_writer(target(folder, dict.fromkeys(JOBS, 0)))(iter([raw]))
    for name, file in files_of(packed):
        if name == "events":
            table = pq.ParquetFile(folder / name / file["path"]).read(["ts_wall_ms"])
            own = [ms // DAY_MS for ms in table.column("ts_wall_ms").to_pylist()]
            assert found.setdefault(date.fromisoformat(file["day"]), own) is own
    return found


def test_a_record_is_filed_under_its_day(tmp_path: Path) -> None:
    days = [*range(MOST_DAYS), 7]
    found = written(tmp_path, days)
    assert len(found) == MOST_DAYS
    assert all(set(own) == {(day - EPOCH).days} for day, own in found.items())


def test_the_rarest_of_too_many_days_are_filed_under_their_arrival(tmp_path: Path) -> None:
    days = [*range(3 * MOST_DAYS), *range(2 * MOST_DAYS, 2 * MOST_DAYS + 100), PLAN_DAY]
    found = written(tmp_path, days)
    assert len(found) == MOST_DAYS
    arrival = found.pop(EPOCH + timedelta(PLAN_DAY))
    assert all(set(own) == {(day - EPOCH).days} for day, own in found.items())
    assert Counter([*arrival, *(one for own in found.values() for one in own)]) == Counter(days)
    assert {EPOCH + timedelta(d) for d in range(2 * MOST_DAYS, 2 * MOST_DAYS + 100)} <= set(found)
