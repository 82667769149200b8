"""Polls on a disk that becomes full at one of their writes: a poll is there whole or not at all."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import UserError
from app.sources.spool import Spool
from tests.support.effort import SLOW
from tests.support.small_disk import fill, read_only, small_disk

COUNT = 200
LEFT = range(0, 72, 4 if SLOW else 12)
"""KiB that are left: a poll takes about fifty, and its memory four."""


def records(poll: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(poll)
    for number in range(COUNT):
        yield {"event_type": "poll", "at": [poll, number], "text": chance.randbytes(200).hex()}


def seqs_and_polls(spool: Spool) -> tuple[list[int], list[int]]:
    """The numbers of all records, and the poll of each whole file."""
    files = [gzip.decompress(file.read_bytes()) for file in sorted(spool.records.iterdir())]
    found = [list(map(json.loads, content.splitlines())) for content in files]
    assert {len(lines) for lines in found} == {COUNT}
    return [r["seq"] for lines in found for r in lines], [lines[0]["at"][0] for lines in found]


@pytest.mark.parametrize("left", LEFT)
def test_a_poll_that_finds_no_room_is_not_there_and_the_next_one_goes_on(
    left: int, tmp_path: Path
) -> None:
    with small_disk(tmp_path, "1m"):
        spool = Spool(tmp_path / "feed", "east")
        assert spool.hold()
        spool.commit(1, records(1))
        ballast = fill(tmp_path, left * 1024)
        polls = [1, 2, 3]
        try:
            spool.commit(2, records(2))
        except UserError as error:
            polls.remove(2)
            said = str(error).splitlines()
            assert said[0].endswith(f"cannot write in {spool.folder}: No space left on device")
            spool.release()  # as a poll does
            assert spool.hold(), "the folder can be taken on a disk that is full"
            assert list(spool.folder.glob(".*")) == []
        ballast.unlink()
        spool.commit(3, records(3))
        assert seqs_and_polls(spool) == (list(range(COUNT * len(polls))), polls)


def test_a_poll_into_a_read_only_folder_is_not_there(tmp_path: Path) -> None:
    with small_disk(tmp_path, "1m"):
        spool = Spool(tmp_path / "feed", "east")
        assert spool.hold()
        spool.commit(1, records(1))
        with read_only(spool.folder), pytest.raises(UserError, match="Read-only file system"):
            spool.commit(2, records(2))
        spool.release()
        assert spool.hold()
        spool.commit(3, records(3))
        assert seqs_and_polls(spool) == (list(range(2 * COUNT)), [1, 3])
