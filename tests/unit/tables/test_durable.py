"""Files that appear whole, whoever writes them at the same time."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from app.tables.durable import replacing, unfinished

TEXTS = [letter * 100_000 for letter in "abcdefgh"]


def write(file: Path, text: str) -> None:
    for _ in range(50):
        with replacing(file) as path, path.open("w") as out:
            for start in range(0, len(text), 10_000):
                out.write(text[start : start + 10_000])
        assert file.read_text() in TEXTS


def pool(kind: str) -> Executor:
    if kind == "threads":
        return ThreadPoolExecutor(len(TEXTS))
    return ProcessPoolExecutor(4, multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_writers_at_once_replace_a_file_as_a_whole(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "below" / "file"
    with pool(kind) as writers:
        for done in [writers.submit(write, file, text) for text in TEXTS]:
            done.result()
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_what_a_killed_writer_left_is_written_over(tmp_path: Path) -> None:
    file = tmp_path / "file"
    unfinished(file).write_text("half of a text that is longer")
    with replacing(file) as path:
        path.write_text("whole")
    assert file.read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_writer_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    with pytest.raises(KeyError), replacing(file) as path:
        path.write_text("half")
        raise KeyError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "before")]
