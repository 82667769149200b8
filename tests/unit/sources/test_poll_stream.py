"""How the polls of several feeds are planned as one stream; without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import folders
from app.config.location import Location
from app.config.settings import Settings
from app.config.source import SourceSettings
from app.sources import poll_plan, polled
from app.sources.poll_plan import FILES, MORE, WAITING, PollPlan, PollReader, StreamedSource
from app.sources.poll_stream import sharing
from app.sources.spool import Spool
from app.tables import checkpoints
from tests.support.loaded import loaded


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
    assert [part.value for part in again.partitions(start, end)] == [[(path, str(tmp_path), False)]]
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
    ("at_ms", "seq"), [(50, 9), (200, 0)], ids=["the clock was set back", "the memory was deleted"]
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


def ended(warehouse: Path, batch: int, offset: int) -> None:
    """A batch of the query `q` that read the streamed source up to `offset`."""
    folder = warehouse / checkpoints.FOLDER / "q"
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"t":{offset}}}\n-')
    (folder / "commits" / str(batch)).write_text("v1\n{}")


def beside_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[PollReader, list[float]]:
    """A reader of polls that wait for a streamed source until it is idle for 10 s, and the clock (s)."""
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    watch = StreamedSource(Location(str(tmp_path / "w")), "q", 10_000)
    return reader(tmp_path, shared=frozenset({"pulsar_admin"}), watch=watch), now_s


def test_records_that_share_keys_wait_while_the_streamed_source_has_anything_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, now_s = beside_a_source(tmp_path, monkeypatch)
    end = one.initialOffset()
    for number, (offset, waits) in enumerate([(7, True), (8, True), (8, False), (9, True)]):
        ended(tmp_path / "w", number, offset)
        write(tmp_path, "kafka_groups.a", number, number)
        write(tmp_path, "pulsar_admin.a", number, number)
        start, end = end, one.next(end)
        assert end[WAITING] == (["pulsar_admin"] if waits else [])
        rows = [row for part in one.partitions(start, end) for row in one.read(part)]
        assert {Path(path).parts[-3]: flag for path, _, flag in rows} == {
            "kafka_groups.a": False,
            "pulsar_admin.a": waits,
        }
        now_s[0] += 10


def test_a_batch_of_polls_alone_is_no_news_of_the_streamed_source_when_the_next_poll_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset is in the log for the first time then, seconds after the poll."""
    one, now_s = beside_a_source(tmp_path, monkeypatch)
    write(tmp_path, "pulsar_admin.a", 1, 1)
    end = one.next({})
    assert end[WAITING] == ["pulsar_admin"]
    for _ in range(60):
        now_s[0] += 1
        assert one.next(end) == end
        if now_s[0] == 105:
            ended(tmp_path / "w", 0, 7)
    write(tmp_path, "pulsar_admin.a", 2, 2)
    assert one.next(end)[WAITING] == []


def test_what_the_last_batch_left_is_forgotten_where_it_is_gone(tmp_path: Path) -> None:
    write(tmp_path, "pulsar_admin.a", 10, 0)
    path = write(tmp_path, "pulsar_admin.a", 20, 1)
    first = reader(tmp_path, max_bytes=1).next({})
    assert first[MORE]
    Path(path).unlink()
    second = reader(tmp_path, first).next(first)
    assert (taken(second), second[MORE]) == ([], False)


@pytest.mark.parametrize(
    ("streamed", "jobs", "waiting"),
    [
        ("files", ["backlog"], {"kafka_groups", "pulsar_admin"}),
        ("files", ["client_quotas", "producer_ids"], {"kafka_producers", "kafka_quotas"}),
        ("kafka_logs", ["backlog", "producer_ids"], {"kafka_producers"}),
        ("kafka_logs", ["client_quotas"], {"kafka_quotas"}),
        (None, ["backlog"], set()),
    ],
)
def test_polls_share_keys_with_a_source_of_the_same_jobs(
    make_settings: Callable[..., Settings], streamed: str | None, jobs: list[str], waiting: set[str]
) -> None:
    polls = {"format": "kafka_groups", "options": {"kafka.bootstrap.servers": "k:9"}}
    feeds = [polls] if streamed is None else [{"format": streamed, "path": "/in"}, polls]
    assert sharing(make_settings(source=feeds, queries=[jobs])) == waiting


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
            assert sorted(path for part in parts for path, *_ in part.value) == sorted(end[FILES])
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


def test_the_process_that_plans_loads_neither_the_cores_nor_pandas() -> None:
    """It stays beside the query, and holds in memory what it has loaded."""
    runner = "pyspark.sql.streaming.python_streaming_source_runner"
    apart = ("numba", "pandas", "pydantic", "pyarrow.compute", "state")
    assert loaded([runner, "app.sources.poll_plan"], apart) == []


def planned(warehouse: Path, query: str, ends: list[Any], ended: int) -> None:
    """A query whose batches end at these offsets; those up to `ended` have ended."""
    folder = warehouse / checkpoints.FOLDER / query
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    for batch, end in enumerate(ends):
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
    for batch in range(ended + 1):
        (folder / "commits" / str(batch)).write_text("v1\n{}")


@pytest.mark.parametrize(
    ("queries", "left"),
    [
        (["ahead"], [2, 4]),  # `other` is not of this run, but its open batch has 2
        (["ahead", "other"], [1, 2, 3, 4]),
        (["ahead", "new"], [0, 1, 2, 3, 4]),
        (["damaged"], [0, 1, 2, 3, 4]),
    ],
)
def test_a_file_that_a_query_needs_is_not_removed_however_old_it_is(
    tmp_path: Path, queries: list[str], left: list[int]
) -> None:
    spool = Spool(tmp_path / "p" / "kafka_quotas.c", "c")
    spool.hold()
    one = reader(tmp_path / "p", max_bytes=1)
    ends = [one.initialOffset()]
    for at_ms in range(5):
        spool.commit(at_ms, [{}])
        ends.append(one.next(ends[-1]))
    warehouse = tmp_path / "w"
    planned(warehouse, "ahead", ends[1:5], 3)
    planned(warehouse, "other", [ends[1], ends[3]], 0)
    planned(warehouse, "damaged", [ends[1]], 0)
    if "damaged" in queries:
        (warehouse / checkpoints.FOLDER / "damaged" / "offsets" / "0").write_bytes(b"v1\n{}\n{\xff")
    needed = partial(poll_plan.needed, Location(str(warehouse)), queries, "kafka_quotas.c")
    spool.remove_before(10**13, 1, needed)
    assert [int(name.split("-")[1]) for name in folders.names(spool.records)] == left


@pytest.mark.parametrize("step_ms", [0, 8 * 86_400_000, -8 * 86_400_000])
def test_a_step_of_the_clock_removes_nothing_that_was_not_read(
    tmp_path: Path, step_ms: int
) -> None:
    spool = Spool(tmp_path / "p" / "kafka_quotas.c", "c")
    spool.hold()
    one = reader(tmp_path / "p")
    for at_ms in (10**12, 10**12 + 1000):
        spool.commit(at_ms, [{}])
    first = one.next(one.initialOffset())
    for at_ms in (10**12 + 2000, 10**12 + 2000 + step_ms, 10**12 + 3000 + step_ms):
        spool.commit(at_ms, [{}])
    planned(tmp_path / "w", "q", [first], 0)
    needed = partial(poll_plan.needed, Location(str(tmp_path / "w")), ["q"], "kafka_quotas.c")
    spool.remove_before(10**13, 1, needed)
    assert sorted(seq_of(path) for path in one.next(first)[FILES]) == [2, 3, 4]
    assert len(folders.names(spool.records)) == 3


def seq_of(path: str) -> int:
    return int(Path(path).name[21:36])
