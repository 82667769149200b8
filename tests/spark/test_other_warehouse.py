"""Other numbers of shards and partitions: a new warehouse, filled from the archive, takes the place of
one with states, and every row is as if nothing had changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.archive_names import COUNTS
from app.config.settings import Settings
from app.errors import UserError
from app.run.service import run
from app.tables import manifest
from app.tables.definitions import TABLES
from benchmarks.generator.write import write_files
from tests.support.traces import NOT_COMPARED, every_row, punctual_trace, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 17_000
Rows = dict[str, list[tuple[Any, ...]]]


def decided(warehouse: str) -> Rows:
    """The rows that follow from the valid records, which alone are in an archive, without payloads and
    what is computed of them."""
    found = every_row(warehouse)
    assert found.pop(COUNTS)
    job = [n for n in TABLES["quarantine"].schema.names if n not in NOT_COMPARED].index("job")
    found["quarantine"] = [row for row in found["quarantine"] if row[job] != "None"]
    found["events"] = rows_of(warehouse, "events", "payload_bytes", "payload_crc32")
    found["chunk_messages"] = rows_of(warehouse, "chunk_messages", "payload", "checksum")
    return found


def left_by_an_earlier_release(settings: Settings) -> None:
    """The layout of a warehouse becomes an earlier one, of which no run reads a state."""
    path = Path(settings.warehouse, manifest.NAME)
    numbers = {**json.loads(path.read_text("utf-8")), "layout_version": manifest.LAYOUT_VERSION - 1}
    path.write_text(json.dumps(numbers), encoding="utf-8")


def test_a_warehouse_with_other_numbers_goes_on_from_the_archive(
    spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    """All jobs and the archive; of two halves of a trace the second comes to the new warehouse. The
    old one is a copy of another one's first half, which goes on as it was."""
    trace = punctual_trace(EVENTS)
    write_files(trace, tmp_path / "all")
    files = sorted((tmp_path / "all").rglob("*.jsonl*"))
    half = len(files) // 2
    before, after = {"shards": 8, "partitions": 2}, {"shards": 5, "partitions": 3}

    def settings(warehouse: str, source: dict[str, Any], numbers: dict[str, int]) -> Settings:
        return make_settings(
            source=source,
            policies=trace.policies,
            warehouse=str(tmp_path / warehouse),
            **numbers,
        )

    def arrived(some: list[Path]) -> dict[str, Any]:
        (tmp_path / "in").mkdir(exist_ok=True)
        for file in some:
            (tmp_path / "in" / file.name).symlink_to(file)
        return {"format": "files", "path": str(tmp_path / "in")}

    source = arrived(files[:half])
    whole, old = (settings(name, source, before) for name in ("whole", "old"))
    assert run(whole, available_now=True) == 0
    shutil.copytree(whole.warehouse, old.warehouse)
    with pytest.raises(UserError) as refused:
        run(settings("old", source, after), available_now=True)
    assert str(refused.value).partition("\n")[2] == (
        f"set partitions to 2, or begin {manifest.filled_anew(old.location)}"
    )

    left_by_an_earlier_release(old)
    with pytest.raises(UserError) as refused:
        run(settings("old", source, before), available_now=True)
    assert manifest.filled_anew(old.location) in str(refused.value)
    new = settings("new", source, after)
    assert run(new, available_now=True, archive=old.warehouse) == 0
    kept = manifest.load(new.location)
    assert kept is not None and (kept.shards, kept.partitions) == (5, 3)
    assert decided(new.warehouse) == decided(old.warehouse)

    arrived(files[half:])
    for one in (whole, new):
        assert run(one, available_now=True) == 0
    rows = decided(new.warehouse)
    assert rows == decided(whole.warehouse)
    assert len(rows) > 15
