"""Selects files of a table to merge: those of about the same size, oldest first.

A tier has files up to STEP times larger than the tier below. Files are merged only within their
tier, and only once there are MOST of them. So a row is rewritten once per tier and not in every
round, and a partition has fewer than MOST small files per tier. Neighbours in time are merged,
which keeps the range of times of a file narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from app.tables.data_files import DataFile

MOST = 8
"""Number of files of one tier that are merged."""
SMALLEST_BYTES = 16 << 10
STEP = 8
"""Ratio of the file sizes of two neighbouring tiers."""
FILES_AT_ONCE = 1000
SETTLED_MS = 120_000
"""Younger files are not merged, so that followers of the table read them first."""
CLOSED_MS = 86_400_000
"""A partition that got no file for this time is merged whole."""


def merges(files: Sequence[DataFile], file_bytes: int, now_ms: int) -> list[list[DataFile]]:
    """Groups of at least two files, each to become one file of up to about `file_bytes`."""
    found: list[list[DataFile]] = []
    by_partition: dict[object, list[DataFile]] = {}
    for file in files:
        by_partition.setdefault(file.partition, []).append(file)
    for partition, mine in by_partition.items():
        newest = max(file.written_ms for file in mine)
        small = sorted(
            (f for f in mine if f.bytes < file_bytes // 2 and f.written_ms <= now_ms - SETTLED_MS),
            key=lambda file: (file.written_ms, file.path),
        )
        # Only a partition of a day is over some time.
        closed = bool(partition) and newest <= now_ms - CLOSED_MS
        for tier in [small] if closed else _tiers(small):
            if len(tier) >= (2 if closed else MOST):
                found += _cuts(tier, file_bytes)
    return found


def _tiers(files: Sequence[DataFile]) -> list[list[DataFile]]:
    tiers: dict[int, list[DataFile]] = {}
    for file in files:
        tier = int(math.log(max(file.bytes / SMALLEST_BYTES, 1), STEP))
        tiers.setdefault(tier, []).append(file)
    return [tiers[tier] for tier in sorted(tiers)]


def _cuts(files: Sequence[DataFile], file_bytes: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    total = 0
    for file in files:
        if group and (total + file.bytes > file_bytes or len(group) == FILES_AT_ONCE):
            if len(group) > 1:
                yield group
            group, total = [], 0
        group.append(file)
        total += file.bytes
    if len(group) > 1:
        yield group
