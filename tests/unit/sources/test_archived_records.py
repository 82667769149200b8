"""The archive as a source: slices by the time at which records were read, whoever joined its files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.errors import UserError
from app.sources.files.archived_records import ends_of, pieces_of, unpack
from app.sources.files.slice_plan import MORE, UPTO, Piece, SliceReader
from app.tables.data_files import DataFile

FILES = 40


def piece(number: int, rows: int, least: int, most: int) -> Piece:
    return Piece(f"part-{number}.parquet", rows * 10, rows, least, most)


def batches(reader: SliceReader) -> list[tuple[int, int, list[str]]]:
    """The slices that a reader plans to its end, each with its files."""
    found, start = [], reader.initialOffset()
    while start[MORE]:
        end = reader.latestOffset()
        assert end == reader.latestOffset(), "a plan that is not taken is the same again"
        parts = reader.partitions(start, end)
        names = sorted(row[0] for part in parts for row in reader.read(part))
        found.append((start[UPTO], end[UPTO], names))
        start = end
    assert reader.latestOffset() == start
    return found


def reader_of(pieces: Sequence[Piece], most_rows: int, upto_ms: int | None = None) -> SliceReader:
    return SliceReader(pieces, ends_of(pieces, most_rows, 1 << 40), 4, upto_ms)


def test_files_of_batches_come_in_their_order_once() -> None:
    pieces = [piece(n, 1000, 10 * n, 10 * n + 5) for n in range(FILES)]
    mixed = random.Random(3).sample(pieces, FILES)
    found = batches(reader_of(mixed, 4000))
    assert 8 <= len(found) <= 12
    edges = [(after, upto) for after, upto, _ in found]
    assert edges[0][0] == -1 and edges[-1][1] == pieces[-1].most
    assert [upto for _, upto in edges[:-1]] == [after for after, _ in edges[1:]]
    assert {name for *_, names in found for name in names} == {p.path for p in pieces}


def test_files_that_overlap_are_cut_evenly() -> None:
    """As after Z-order: every file has rows of all times."""
    pieces = [piece(n, 1000, 0, 10_000) for n in range(FILES)]
    found = batches(reader_of(pieces, 4000))
    assert len(found) == 10
    assert all(990 <= upto - after <= 1010 for after, upto, _ in found)
    assert all(len(names) == FILES for *_, names in found)


def test_what_was_read_at_once_stays_together() -> None:
    pieces = [piece(0, 10_000, 5, 5), piece(1, 10, 6, 6), piece(2, 10, 7, 7)]
    found = batches(reader_of(pieces, 100))
    assert found[0] == (4, 5, ["part-0.parquet"])
    assert found[-1][1] == 7


def test_a_reader_goes_on_behind_what_was_planned() -> None:
    pieces = [piece(n, 1000, 10 * n, 10 * n + 5) for n in range(FILES)]
    whole = batches(reader_of(pieces, 4000))
    after = reader_of(pieces, 4000, whole[2][1])
    assert after.latestOffset() == {UPTO: whole[3][1], MORE: True}
    last = reader_of(pieces, 4000, whole[-1][1])
    assert last.latestOffset() == {UPTO: whole[-1][1], MORE: False}


def test_a_file_without_times_may_have_any() -> None:
    about = DataFile("a%20b.parquet", 10, 3, 1, least=5, most=9), DataFile("c.parquet", 10, None, 1)
    assert pieces_of(about) == [Piece("a b.parquet", 10, 3, 5, 9), Piece("c.parquet", 10, 0, 5, 9)]


def test_rows_of_a_slice_are_read_and_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    columns = {
        "event_type": ["publish"] * 4,
        "payload_bytes": [1, 2, 3, 4],
        "source_offset": [0, 1, 2, 3],
        "ingest_ms": [5, 6, 7, 8],
        "added_by_someone": [None] * 4,
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    wanted = pa.RecordBatch.from_pylist(
        [{"path": "a.parquet", "after_ms": 5, "upto_ms": 7, "bytes": 10}]
    )
    (found,) = unpack(str(tmp_path), {}, iter([wanted]))
    assert found.to_pydict() == {
        "event_type": ["publish"] * 2,
        "payload_bytes": [2, 3],
        "source_offset": [1, 2],
    }
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(UserError, match=r"a\.parquet is gone, with records that were not read yet"):
        list(unpack(str(tmp_path), {}, iter([wanted])))
