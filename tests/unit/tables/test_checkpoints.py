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
        ([DELTA], False, True, ["-"]),
        ([DELTA, POLLS], False, True, [POLLS]),
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


OF_FORMATS = {
    "delta": DELTA,
    "files": FILES,
    "kafka": '{"positions":{"0":7},"logOffset":{"0":1}}',
    "pulsar": '{"positions":{"t":{"0":"1:2:3"}},"more":false}',
    "archive": '{"archived_ms":5,"more":false}',
}
"""What Spark records of a source; topics of Kafka may have any name."""


@pytest.mark.parametrize("streamed", OF_FORMATS)
@pytest.mark.parametrize("read", OF_FORMATS)
def test_a_source_goes_on_where_one_of_its_kind_was_read(
    warehouse: Location, tmp_path: Path, read: str, streamed: str
) -> None:
    folder = plans(tmp_path, OF_FORMATS[read], POLLS)
    if read == streamed:
        checkpoints.fit_sources(warehouse, "govern", streamed, polled=False)
        assert (folder / "1").read_text().splitlines()[2:] == [OF_FORMATS[read]]
        return
    with pytest.raises(UserError) as refused:
        checkpoints.fit_sources(warehouse, "govern", streamed, polled=True)
    first, second = str(refused.value).splitlines()
    assert first.startswith(f"source.format: {streamed} cannot go on where another source (")
    assert read in first
    assert second == "put source back as it was; another source fills another warehouse"
    assert (folder / "1").read_text().splitlines()[2:] == [OF_FORMATS[read], POLLS]


def test_ends_are_changed_with_the_last_batch_last(
    warehouse: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill leaves half changed is changed again."""
    folder = plans(tmp_path, OF_FORMATS["archive"])
    for batch in (9, 10):
        (folder / str(batch)).write_text((folder / "1").read_text())
    changed: list[str] = []
    put = checkpoints.put_plan

    def noted(warehouse: Location, file: str, text: str) -> None:
        changed.append(file.rpartition("/")[2])
        put(warehouse, file, text)

    monkeypatch.setattr(checkpoints, "put_plan", noted)
    checkpoints.put_ends(warehouse, "govern", lambda _: [FILES, POLLS], anew=True)
    assert changed == ["0", "1", "9", "10"]
    about = {"batchWatermarkMs": 5, "batchTimestampMs": 0}
    assert (folder / "10").read_text().splitlines() == ["v1", json.dumps(about), FILES, POLLS]
    assert checkpoints.ends(warehouse, "govern") == [FILES, POLLS]
    assert checkpoints.plan(warehouse, "govern", 10).planned_ms == 0


def test_a_batch_that_has_not_ended_keeps_its_sources(warehouse: Location, tmp_path: Path) -> None:
    folder = plans(tmp_path, FILES, ended=0)
    before = (folder / "1").read_text()
    checkpoints.fit_sources(warehouse, "govern", "files", polled=False)
    with pytest.raises(UserError, match="the last batch of govern has not ended"):
        checkpoints.fit_sources(warehouse, "govern", "files", polled=True)
    assert (folder / "1").read_text() == before
