"""How the polls of several feeds are planned as one stream; without Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.location import Location
from app.config.source import SourceSettings
from app.sources import polled
from app.sources.poll_stream import FILES, MORE, PollPlan, PollReader


def write(root: Path, feed: str, at_ms: int, seq: int, text: str = "{}\n") -> str:
    folder = root / feed / "polls"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"poll-{at_ms:015d}-{seq:015d}.jsonl"
    file.write_text(text)
    return str(file)


def reader(root: Path, planned: Any = None, **keys: Any) -> PollReader:
    made = PollPlan((str(root),), keys.pop("max_bytes", None), 2, planned or {}, **keys)
    return PollReader(made)


def taken(offset: Any) -> list[str]:
    return [f"{Path(path).parts[-3]} {int(Path(path).name[5:20])}" for path in offset[FILES]]


def test_polls_of_all_feeds_are_taken_in_the_order_of_their_times(tmp_path: Path) -> None:
    write(tmp_path, "kafka_groups.a", 20, 0)
    write(tmp_path, "kafka_producers.a", 10, 0)
    write(tmp_path, "kafka_groups.b", 15, 0)
    (tmp_path / "kafka_groups.b" / "polls" / ".poll-1.unfinished").write_text("{")
    one = reader(tmp_path)
    first = one.next(one.initialOffset())
    assert taken(first) == ["kafka_producers.a 10", "kafka_groups.b 15", "kafka_groups.a 20"]
    assert one.next(first) == first
    write(tmp_path, "kafka_groups.new", 5, 0)
    write(tmp_path, "kafka_groups.a", 30, 7)
    assert taken(one.next(first)) == ["kafka_groups.new 5", "kafka_groups.a 30"]


def test_a_repeated_batch_has_the_same_files_whatever_has_come_since(tmp_path: Path) -> None:
    path = write(tmp_path, "kafka_groups.a", 20, 0)
    one = reader(tmp_path)
    start = one.initialOffset()
    end = one.next(start)
    write(tmp_path, "kafka_groups.a", 10, 9)
    again = reader(tmp_path, end)
    assert [part.value for part in again.partitions(start, end)] == [[path]]
    assert again.partitions(end, end) == []
    assert taken(again.next(end)) == ["kafka_groups.a 10"]


def test_a_folder_that_was_moved_is_not_read_again(tmp_path: Path) -> None:
    write(tmp_path / "old", "kafka_groups.a", 20, 0)
    one = reader(tmp_path / "old")
    end = one.next(one.initialOffset())
    (tmp_path / "old").rename(tmp_path / "new")
    moved = reader(tmp_path / "new", end)
    assert moved.next(end) == end
    write(tmp_path / "new", "kafka_groups.a", 30, 1)
    assert taken(moved.next(end)) == ["kafka_groups.a 30"]


@pytest.mark.parametrize(
    ("at_ms", "seq"),
    [(50, 9), (200, 0)],
    ids=["the clock was set back", "the memory was deleted"],
)
def test_a_poll_after_a_mishap_is_read(tmp_path: Path, at_ms: int, seq: int) -> None:
    write(tmp_path, "kafka_groups.a", 90, 0)
    write(tmp_path, "kafka_groups.a", 100, 5)
    one = reader(tmp_path)
    first = one.next(one.initialOffset())
    write(tmp_path, "kafka_groups.a", at_ms, seq)
    second = one.next(first)
    assert taken(second) == [f"kafka_groups.a {at_ms}"]
    assert one.next(second) == second


def test_beside_a_streamed_source_a_poll_waits_for_what_is_behind(tmp_path: Path) -> None:
    path = write(tmp_path, "kafka_groups.a", 20, 0)
    one = reader(tmp_path, hold_ms=10_000)
    first = one.next(one.initialOffset())
    assert taken(first) == []
    written_s = time.time() - 11
    os.utime(path, (written_s, written_s))
    assert taken(reader(tmp_path, hold_ms=10_000).next(first)) == ["kafka_groups.a 20"]


def test_a_run_with_an_end_takes_what_was_there_at_its_start(tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path, "kafka_groups.a", n, n, "x" * 10)
    one = reader(tmp_path, ending=True, max_bytes=20)
    first = one.next(one.initialOffset())
    write(tmp_path, "kafka_groups.a", 9, 9, "x" * 10)
    second = one.next(first)
    assert (taken(first), first[MORE]) == (["kafka_groups.a 0", "kafka_groups.a 1"], True)
    assert (taken(second), second[MORE]) == (["kafka_groups.a 2"], False)
    assert one.next(second) == second


@given(
    polls=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(1, 40)), max_size=30
    ),
    cuts=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    most=st.integers(1, 80),
)
def test_every_poll_is_in_one_batch(
    tmp_path_factory: pytest.TempPathFactory,
    polls: list[tuple[str, int, int]],
    cuts: list[int],
    most: int,
) -> None:
    """Whenever a query looks, starts again, or repeats a batch; whatever a batch may have."""
    root = tmp_path_factory.mktemp("polls")
    clock, seqs, written, read = 100, dict.fromkeys("abc", 0), [], []
    one = reader(root, max_bytes=most)
    offset = one.initialOffset()

    def drain() -> None:
        nonlocal offset
        while (end := one.next(offset)) != offset:
            parts = one.partitions(offset, end)
            assert parts and sorted(p for part in parts for p in part.value) == sorted(end[FILES])
            read.extend(end[FILES])
            offset = end

    for number, (feed, back, size) in enumerate(polls):
        clock += 10 if back else -3
        written.append(write(root, f"kafka_groups.{feed}", clock, seqs[feed], "x" * size))
        seqs[feed] += 1
        if number % (cuts[number % len(cuts)] + 1) == 0:
            drain()
            one = reader(root, offset, max_bytes=most)
    drain()
    assert sorted(read) == sorted(written)


def feed(spool: str | None = None, cluster: str = "east") -> SourceSettings:
    groups = {"cluster": cluster, "options": {"bootstrap.servers": "h:1"}, "spool": spool}
    return SourceSettings.model_validate({"format": "kafka_groups", "groups": groups})


def test_a_cluster_may_have_any_name(tmp_path: Path) -> None:
    warehouse = Location(str(tmp_path))
    names = ["a/../../b", "a b", ".hidden", "ä"]
    folders = [polled.spool_folder(feed(cluster=name), warehouse) for name in names]
    assert {folder.parent for folder in folders} == {tmp_path / "_weir" / "polls"}
    assert len(set(folders)) == len(names)
