"""Plans of Spark for a query whose sources have changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.config.location import Location
from app.errors import UserError
from app.tables import checkpoints

DELTA = '{"sourceVersion":1,"reservoirId":"f0","reservoirVersion":2,"index":-1}'
FILES, POLLS = '{"logOffset":4}', '{"polls":{"a":[1,2]},"files":[],"more":false}'


@pytest.fixture
def warehouse(tmp_path: Path) -> Location:
    return Location(str(tmp_path))


def plans(tmp_path: Path, *sources: str, ended: int = 1) -> Path:
    """Two planned batches of a query, of which the second may not have ended."""
    root = tmp_path / checkpoints.FOLDER / "govern"
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True)
    for batch in (0, 1):
        text = "\n".join(["v1", json.dumps({"batchWatermarkMs": 5}), *sources])
        (root / "offsets" / str(batch)).write_text(text)
        (root / "offsets" / f".{batch}.crc").write_bytes(b"crc")
        if batch <= ended:
            (root / "commits" / str(batch)).write_text("v1\n{}")
    return root / "offsets"


@pytest.mark.parametrize(
    ("before", "streamed", "polled", "after"),
    [
        ([FILES], True, True, [FILES, "-"]),
        ([POLLS], True, True, ["-", POLLS]),
        ([FILES, POLLS], True, False, [FILES]),
        ([FILES, POLLS], False, True, [POLLS]),
        ([FILES, "-"], False, True, ["-"]),
        ([FILES], False, True, ["-"]),
        ([POLLS], True, False, ["-"]),
        ([DELTA], True, False, ["-"]),
        ([DELTA], True, True, ["-", "-"]),
        ([DELTA, POLLS], True, True, ["-", POLLS]),
        ([DELTA], False, True, ["-"]),
    ],
)
def test_a_plan_has_a_line_for_each_source(
    warehouse: Location,
    tmp_path: Path,
    before: list[str],
    streamed: bool,
    polled: bool,
    after: list[str],
) -> None:
    folder = plans(tmp_path, *before)
    checkpoints.fit_sources(warehouse, "govern", "files" if streamed else None, polled)
    for batch in ("0", "1"):
        assert (folder / batch).read_text().splitlines()[2:] == after
    assert sorted(file.name for file in folder.iterdir()) == ["0", "1"]
    if streamed:
        found = checkpoints.offsets(warehouse, "govern", 1)
        assert found == ({} if after[0] == "-" else json.loads(after[0]))
    if polled:
        found = checkpoints.poll_offsets(warehouse, "govern", 1)
        assert found == ({} if after[-1] == "-" else json.loads(after[-1]))


@pytest.mark.parametrize(("before", "after"), [(DELTA, DELTA), (FILES, "-")])
def test_a_delta_table_is_read_on_and_begins_behind_another_source(
    warehouse: Location, tmp_path: Path, before: str, after: str
) -> None:
    folder = plans(tmp_path, before)
    checkpoints.fit_sources(warehouse, "govern", "delta", polled=False)
    assert (folder / "1").read_text().splitlines()[2:] == [after]


def test_a_batch_that_has_not_ended_keeps_its_sources(warehouse: Location, tmp_path: Path) -> None:
    folder = plans(tmp_path, FILES, ended=0)
    before = (folder / "1").read_text()
    checkpoints.fit_sources(warehouse, "govern", "files", polled=False)
    with pytest.raises(UserError, match="the last batch of govern has not ended"):
        checkpoints.fit_sources(warehouse, "govern", "files", polled=True)
    assert (folder / "1").read_text() == before
