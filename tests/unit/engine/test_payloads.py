"""Payloads of chunks: what is kept of them, and files that hold them while they wait."""

from __future__ import annotations

import base64
import json
import pickle
import random
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from app.contract.event_contract import parse
from app.engine.archive_task import events_rows, quarantine_rows
from app.engine.payloads import STAGED, WHOLE, Files, Payloads, joined
from app.tables.definitions import TABLES
from state.jobs import JOBS
from tests.unit.contract.records import record
from udfs.checksum import digest

SECRET = b"the customer's own words " * 3
TEXT = base64.b64encode(SECRET).decode()


@pytest.fixture
def payloads(tmp_path: Path) -> Payloads:
    """A store in a folder."""
    return Payloads(
        Files(str(tmp_path / "staged"), {}), Files(str(tmp_path / "whole"), {}), 100, 1 << 27
    )


def rows_of(contents: list[bytes]) -> pa.Table:
    n = len(contents)
    return pa.table(
        {
            "cluster": ["c"] * n,
            "topic": ["t"] * n,
            "ledger_id": [1] * n,
            "entry_id": list(range(n)),
            "payload": contents,
        }
    )


@pytest.mark.parametrize("keep", [False, True])
def test_archive_and_quarantine_keep_content_only_if_asked(keep: bool) -> None:
    good = record("dispatch", payload=TEXT)
    bad = record("dispatch", payload=TEXT, ledger_id=-1)
    lines = [json.dumps(r).encode() for r in (good, bad)]
    batch = pa.record_batch(
        {
            "value": pa.array(lines, pa.binary()),
            "source_partition": ["0", "0"],
            "source_offset": [0, 1],
        }
    )
    parsed = parse(batch.column("value"), JOBS)
    events = events_rows(parsed, batch, 0, keep).to_pylist()
    assert [e["payload"] for e in events] == [SECRET if keep else None]
    assert events[0]["payload_bytes"] == len(SECRET)
    assert events[0]["payload_crc32"] == zlib.crc32(SECRET)
    [refused] = quarantine_rows(parsed, batch, 0, keep).to_pylist()
    assert refused["reason_code"] == "BAD_POSITION"
    assert (TEXT in refused["raw"]) == keep


def test_a_digest_of_every_value() -> None:
    values = pa.array([b"", None, b"abc", b"x" * 100_000], pa.binary())
    for array in (values, pa.concat_arrays([pa.array([b"first"]), values]).slice(1)):
        sizes, sums = digest(array, 4)
        assert sizes.tolist() == [0, -1, 3, 100_000]
        assert sums.tolist() == [0, 0, zlib.crc32(b"abc"), zlib.crc32(b"x" * 100_000)]
    assert digest(None, 2)[0].tolist() == [-1, -1]


def test_staged_rows_are_read_by_their_number(payloads: Payloads) -> None:
    rng = random.Random(2)
    contents = [rng.randbytes(rng.choice((0, 10, 3_000_000))) for _ in range(12)]
    file = payloads.stage(rows_of(contents))
    [added] = payloads.drain()
    body = json.loads(added)
    assert (body["table"], body["path"]) == (STAGED, file)
    assert payloads.drain() == []
    copied: Payloads = pickle.loads(pickle.dumps(payloads))
    for store in (payloads, copied):
        wanted = [7, 0, 11, 3]
        assert store.read(file, wanted) == [contents[i] for i in wanted]


def test_the_same_rows_make_the_same_file(payloads: Payloads) -> None:
    first = payloads.stage(rows_of([b"one", b"two"]))
    assert payloads.stage(rows_of([b"one", b"two"])) == first
    assert payloads.stage(rows_of([b"one", b"too"])) != first


def message(
    uuid: str, files: list[str | None], numbers: list[int], inline: list[bytes | None]
) -> dict[str, object]:
    return {
        "cluster": "c",
        "topic": "t",
        "subscription": "s",
        "consumer": "c1",
        "positions": [uuid],
        "complete_ms": 1,
        "row_no": 0,
        "assembled_bytes": 1,
        "uuid": uuid,
        "part_file": files,
        "part_row": numbers,
        "part_payload": inline,
    }


def test_messages_are_joined_from_wherever_their_chunks_wait(payloads: Payloads) -> None:
    file = payloads.stage(rows_of([b"AA", b"BB", b"CC"]))
    other = payloads.stage(rows_of([b"DD"]))
    rows = pa.Table.from_pylist(
        [
            message("m1", [file, None, other], [2, 0, 0], [None, b"-", None]),
            message("m2", [None], [0], [b""]),
        ]
    )
    assert joined(rows, payloads).column("payload").to_pylist() == [b"CC-DD", b""]
    assert joined(rows).column("payload").to_pylist() == [None, b""]


def test_whole_messages_become_rows_of_their_table(payloads: Payloads, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = TABLES[WHOLE]
    rows = pa.Table.from_pylist(
        [message(f"m{i}", [None, None], [0, 0], [b"x" * 20_000_000, bytes([i])]) for i in range(3)]
    )
    for name in table.names:
        if name not in rows.column_names and name != "payload":
            rows = rows.append_column(name, pa.nulls(3, table.schema.field(name).type))
    payloads.write_whole(rows)
    [added] = payloads.drain()
    file = pq.ParquetFile(tmp_path / "whole" / json.loads(added)["path"])
    assert json.loads(added)["table"] == WHOLE
    assert file.schema_arrow.equals(table.schema)
    assert [p[-1] for p in file.read().column("payload").to_pylist()] == [0, 1, 2]
