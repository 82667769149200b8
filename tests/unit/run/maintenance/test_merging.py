"""Which files are merged, by size, age and partition."""

from __future__ import annotations

from app.run.maintenance.merging import merges
from app.tables.data_files import DataFile

NOW_MS = 10_000_000_000
KB, MB = 1 << 10, 1 << 20


def file(number: int, size: int, age_ms: int = 600_000, day: str | None = None) -> DataFile:
    partition = () if day is None else (("event_date", day),)
    return DataFile(f"{number:05}", size, 10, NOW_MS - age_ms, partition)


def merged(files: list[DataFile], file_bytes: int = 128 * MB) -> list[list[str]]:
    return [[f.path for f in group] for group in merges(files, file_bytes, NOW_MS)]


def test_eight_files_of_a_size_are_merged_and_seven_are_not() -> None:
    files = [file(n, 10 * KB) for n in range(8)]
    assert merged(files[:7]) == []
    assert merged(files) == [[f"{n:05}" for n in range(8)]]


def test_files_of_other_sizes_wait_for_their_own_kind() -> None:
    assert merged([file(n, 10 * KB) for n in range(7)] + [file(7, 900 * KB)]) == []


def test_files_that_are_large_enough_or_young_stay() -> None:
    assert merged([file(n, 64 * MB) for n in range(20)]) == []
    assert merged([file(n, 10 * KB, age_ms=1000) for n in range(20)]) == []


def test_a_group_has_about_the_bytes_of_a_file_and_neighbours_in_time() -> None:
    files = [file(n, 30 * MB, age_ms=10_000_000 - n) for n in range(9)]
    assert merged(files) == [
        ["00000", "00001", "00002", "00003"],
        ["00004", "00005", "00006", "00007"],
    ]


def test_partitions_are_merged_apart() -> None:
    files = [file(n, KB, day=f"2026-01-0{1 + n % 2}") for n in range(16)]
    assert merged(files) == [
        [f"{n:05}" for n in range(0, 16, 2)],
        [f"{n:05}" for n in range(1, 16, 2)],
    ]


def test_a_day_that_is_over_is_merged_whole() -> None:
    over = [file(0, KB, 90_000_000, "2026-01-01"), file(1, 900 * KB, 90_000_000, "2026-01-01")]
    assert merged(over) == [["00000", "00001"]]
    assert merged([file(0, KB, 90_000_000), file(1, 900 * KB, 90_000_000)]) == []


def test_a_file_a_second_leaves_few_files_and_writes_a_row_few_times() -> None:
    """Ten minutes of files at a time, as they come in half a day."""
    live: list[DataFile] = []
    written = 0
    number = 0
    for _ in range(72):
        for _ in range(600):
            number += 1
            live.append(file(number, 8 * KB))
        for _ in range(4):
            for group in merges(live, 128 * MB, NOW_MS):
                number += 1
                size = sum(f.bytes for f in group)
                written += size
                live = [f for f in live if f not in group] + [file(number, size)]
        assert len(live) <= 40
    assert written < 4 * 72 * 600 * 8 * KB
